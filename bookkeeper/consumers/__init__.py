"""
Consumers in Python: rows of a table in the order of its commits, each batch once, and where each keeps its place.

`Consumer` and the places are loaded when they are asked for: they take pyarrow.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bookkeeper.consumers.consumer import Batch, Consumer
    from bookkeeper.consumers.group import ConsumerGroup
    from bookkeeper.consumers.place_keepers import DuckDBPlace, ParquetPlace, PostgresPlace, SqlitePlace
    from bookkeeper.consumers.registration import FolderPlace

__all__ = [
    "Batch",
    "Consumer",
    "ConsumerGroup",
    "DuckDBPlace",
    "FolderPlace",
    "ParquetPlace",
    "PostgresPlace",
    "SqlitePlace",
]


def __getattr__(name: str) -> Any:
    if name in ("Batch", "Consumer"):
        from bookkeeper.consumers import consumer as module
    elif name == "ConsumerGroup":
        from bookkeeper.consumers import group as module  # type: ignore[no-redef]
    elif name == "FolderPlace":
        from bookkeeper.consumers import registration as module  # type: ignore[no-redef]
    elif name in __all__:
        from bookkeeper.consumers import place_keepers as module  # type: ignore[no-redef]
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(module, name)
