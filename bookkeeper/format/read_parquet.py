"""
The rows of a Parquet file, in the columns that a projection wants, a batch at a time; and what of it that takes.

The file is hostile until read: whatever is wrong with it is a CannotRead.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from bookkeeper.errors import CannotRead
from bookkeeper.format.batch_size import batch_rows, columns_below
from bookkeeper.format.projection import Projection
from bookkeeper.format.sparse_file import Content, Span, SparseFile, content_file


def lacking(
    data: SparseFile, names_of: Callable[[pa.Schema], Collection[str] | None], least_group: int
) -> Sequence[Span]:
    """
    The ranges without which `batches` cannot read the columns with these names (None: all), or not the footer.

    They are what pyarrow itself asks for. A file whose row groups have no more than `least_group` bytes lacks all. If
    something is wrong with the file, the ranges may be any: `batches` says what it is.
    """
    data.lacking.clear()
    with suppress(Exception), pq.ParquetFile(content_file(data, probing=True)) as opened:
        groups = opened.metadata.num_row_groups
        if groups * least_group >= len(data):
            return [(0, len(data))]
        for column in columns_below(opened.metadata, names_of(opened.schema_arrow)).values():
            for group in range(groups):
                with suppress(Exception):
                    next(opened.iter_batches(1, row_groups=[group], columns=[column.path], use_threads=False), None)
    return data.lacking


def batches(data: Content, rows: int, projection_of: Callable[[pa.Schema], Projection]) -> Iterator[pa.Table]:
    """
    The rows of a file whose entry says that it has `rows`, in batches that fit in memory; raises CannotRead.

    Only columns that the projection wants are decoded.
    """
    try:
        # A checksum that is there is checked: a damaged page must not be taken for a good one.
        with pq.ParquetFile(content_file(data), page_checksum_verification=True) as opened:
            footer, source = opened.metadata, opened.schema_arrow
            if footer.num_rows != rows:
                raise CannotRead(f"its footer says {footer.num_rows} rows, the table says {rows}")
            projection = projection_of(source)
            rows_at_once = batch_rows(data, footer, projection.names)
            for batch in opened.iter_batches(rows_at_once, columns=projection.names, use_threads=False):
                batch.validate(full=True)  # text that is no UTF-8 has no bounds
                if not batch.schema.equals(projection.source):
                    raise CannotRead("names of its columns are not unique")
                yield projection.rows(batch)
    except (CannotRead, GeneratorExit):
        raise
    except Exception as exc:
        # Whatever a hostile file makes pyarrow raise, it costs its own reader only.
        raise CannotRead(f"it cannot be read: {type(exc).__name__}: {str(exc)[:300]}") from exc
