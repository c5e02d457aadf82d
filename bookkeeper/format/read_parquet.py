"""
The rows of a Parquet file in memory, in the columns that a projection wants, a batch at a time.

The file is hostile until read: whatever is wrong with it is a CannotRead.
"""

from collections.abc import Callable, Iterator

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from bookkeeper.errors import CannotRead
from bookkeeper.format.batch_size import batch_rows
from bookkeeper.format.projection import Projection


def batches(data: bytes, rows: int, projection_of: Callable[[pa.Schema], Projection]) -> Iterator[pa.Table]:
    """
    The rows of a file whose entry says that it has `rows`, in batches that fit in memory; raises CannotRead.

    Only columns that the projection wants are decoded.
    """
    try:
        # A checksum that is there is checked: a damaged page must not be taken for a good one.
        with pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True) as opened:
            footer, source = opened.metadata, opened.schema_arrow
            if footer.num_rows != rows:
                raise CannotRead(f"its footer says {footer.num_rows} rows, the table says {rows}")
            projection = projection_of(source)
            columns = None if len(projection.source) == len(source) else projection.source.names
            for batch in opened.iter_batches(batch_rows(data, footer, columns), columns=columns, use_threads=False):
                batch.validate(full=True)  # text that is no UTF-8 has no bounds
                if not batch.schema.equals(projection.source):
                    raise CannotRead("names of its columns are not unique")
                yield projection.rows(batch)
    except (CannotRead, GeneratorExit):
        raise
    except Exception as exc:
        # Whatever a hostile file makes pyarrow raise, it costs its own reader only.
        raise CannotRead(f"it cannot be read: {type(exc).__name__}: {str(exc)[:300]}") from exc
