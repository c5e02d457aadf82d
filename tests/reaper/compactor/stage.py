"""A table whose data files a test writes itself, with any Arrow schema, while the table's schema changes."""

import io
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema

from bookkeeper.format.entries import DataFile
from bookkeeper.stores.locations import local_path
from bookkeeper.stores.open import open_store
from tests.support.compactions import committed, rewritten, scanned
from tests.support.compactor import live
from tests.support.lake import Lake, append_by_others


class Stage:
    """`columns` as `{name, type, required}`; the table has the field ids that Iceberg gives them."""

    def __init__(self, root: Path, *columns: dict[str, Any], partition_by: tuple[str, ...] = ()) -> None:
        self.lake = Lake(root / "lake", columns=columns, partition_by=partition_by)
        self.count = 0

    @property
    def schema(self) -> Schema:
        return self.lake.table().schema()

    def arrow(self, *rows: dict[str, Any]) -> pa.Table:
        """Rows in the table's schema of now."""
        return pa.Table.from_pylist(list(rows), schema=schema_to_pyarrow(self.schema))

    def put(self, rows: pa.Table, partition: tuple[Any, ...] = (), record_count: int | None = None, **how: Any) -> None:
        """A live data file with these rows, as another program wrote it."""
        self.count += 1
        out = io.BytesIO()
        pq.write_table(rows, out, **{"store_schema": False, **how})
        self.put_bytes(out.getvalue(), partition, rows.num_rows if record_count is None else record_count)

    def put_bytes(self, data: bytes, partition: tuple[Any, ...] = (), record_count: int = 1, **said: Any) -> None:
        self.count += 1
        root = self.lake.folder.card().data_path
        open_store(root).upload(f"own/{self.count}.parquet", data)
        file = DataFile(f"{root}/own/{self.count}.parquet", "PARQUET", partition, record_count, len(data))
        append_by_others(self.lake, file)

    def rewritten(self, **given: Any) -> list[dict[str, Any]]:
        """
        Rewrites all files: a reader sees the same rows before and after. Returns them as they are stored: pyiceberg
        itself reads a null list or map of an older file as an empty one.
        """
        before = scanned(self.lake)
        rewritten(self.lake, **given)
        committed(self.lake)
        assert scanned(self.lake) == before
        stored = pa.concat_tables(pq.read_table(local_path(item.file.path)) for item in live(self.lake))
        expected = schema_to_pyarrow(self.schema)
        assert [(f.name, f.nullable, f.metadata) for f in stored.schema] == [
            (f.name, f.nullable, f.metadata) for f in expected
        ]
        return stored.to_pylist()


def with_ids(kinds: dict[str, tuple[int, pa.DataType]]) -> pa.Schema:
    """
    An Arrow schema of `name: (field id, type)`.
    """
    return pa.schema(
        [pa.field(name, kind, metadata={"PARQUET:field_id": str(number)}) for name, (number, kind) in kinds.items()]
    )
