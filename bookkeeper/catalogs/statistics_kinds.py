"""
Statistics of other engines: pyiceberg reads no metadata whose statistics files have blobs of a kind that it does not
know, though any engine may write kinds of its own (Presto's ANALYZE does), and nothing here reads them.

So its models take any kind, from the first time on that metadata could not be read for that.
"""

import sys
from collections.abc import Callable
from threading import Lock
from typing import Any, TypeVar

from pyiceberg.table import CommitTableResponse
from pyiceberg.table import metadata as tables
from pyiceberg.table.statistics import BlobMetadata, StatisticsFile

T = TypeVar("T")

#: each is compiled with those before it
_MODELS: tuple[Any, ...] = (
    BlobMetadata,
    StatisticsFile,
    tables.TableMetadataV1,
    tables.TableMetadataV2,
    tables.TableMetadataV3,
    tables.TableMetadataWrapper,
    CommitTableResponse,
)
#: compiled with them too, where it is imported
_REST = "pyiceberg.catalog.rest"
_lock = Lock()


def with_any_statistics(read: Callable[[], T]) -> T:
    """
    What `read` returns, which reads metadata of a table; raises what it raises.
    """
    try:
        return read()
    except Exception as exc:
        if "blob-metadata" not in str(exc):
            raise
        take_kinds(str)
        return read()


def take_kinds(kinds: Any) -> None:
    """
    Lets pyiceberg read blobs of these kinds, a type.
    """
    known = BlobMetadata.model_fields["type"]
    with _lock:
        if known.annotation is kinds:
            return
        known.annotation = kinds
        rest = sys.modules.get(_REST)
        for model in (*_MODELS, *((rest.TableResponse,) if rest is not None else ())):
            model.model_rebuild(force=True)
