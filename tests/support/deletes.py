"""Delete files in a lake, as other programs make them: real Parquet, and a snapshot that adds them."""

import io
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import ManifestContent
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.table.snapshots import Operation

from bookkeeper.format import manifest as manifest_format
from bookkeeper.format.entries import ADDED, DataFile, Entry
from bookkeeper.format.manifest_list import ListedManifest
from bookkeeper.ledger.ledger import Ledger
from bookkeeper.stores.open import open_store
from tests.support.lake import Lake

POSITIONS, EQUALITY = 1, 2
FILE_PATH, POSITION = 2_147_483_546, 2_147_483_545


@dataclass(frozen=True)
class Delete:
    """A delete file, and its spec and the number it is to have (None: that of its snapshot)."""

    content: int
    file: DataFile
    spec: PartitionSpec
    equality_ids: tuple[int, ...] | None = None
    referenced: str | None = None
    number: int | None = None

    def applied(self) -> str:
        return self.file.path


def _stored(lake: Lake, table: pa.Table, rows: int, partition: tuple[Any, ...]) -> DataFile:
    out, card = io.BytesIO(), lake.folder.card()
    pq.write_table(table, out)
    name = f"deletes-{uuid.uuid4()}.parquet"
    open_store(card.data_path).upload(name, out.getvalue())
    return DataFile(f"{card.data_path}/{name}", "PARQUET", partition, rows, out.tell())


def positions(
    lake: Lake, at: dict[str, Sequence[int]], partition: tuple[Any, ...] = (), bounds: bool = False, **more: Any
) -> Delete:
    """A position delete file of rows at these places of data files; `bounds` say for which file, if it is one."""
    pairs = [(path, place) for path, places in sorted(at.items()) for place in places]
    schema = pa.schema(
        [
            pa.field("file_path", pa.string(), False, {"PARQUET:field_id": str(FILE_PATH)}),
            pa.field("pos", pa.int64(), False, {"PARQUET:field_id": str(POSITION)}),
        ]
    )
    table = pa.table([[path for path, _ in pairs], [place for _, place in pairs]], schema=schema)
    file = _stored(lake, table, len(pairs), partition)
    if bounds:
        low, high = min(at).encode(), max(at).encode()
        file = replace(file, lower_bounds={FILE_PATH: low}, upper_bounds={FILE_PATH: high})
    return Delete(POSITIONS, file, lake.folder.card().spec, **more)


def equality(lake: Lake, keys: Sequence[str], partition: tuple[Any, ...] = (), **more: Any) -> Delete:
    """An equality delete file by the column `key`."""
    card = lake.folder.card()
    field = card.schema.find_field("key")
    schema = pa.schema([schema_to_pyarrow(card.schema).field("key")])
    file = _stored(lake, pa.table([list(keys)], schema=schema), len(keys), partition)
    return replace(Delete(EQUALITY, file, card.spec, (field.field_id,)), **more)


def commit_deletes(lake: Lake, *deletes: Delete) -> None:
    """Adds delete files, one manifest and one snapshot for all of them."""
    ledger = Ledger(lake.catalog, lake.settings.identifier, lake.clock, lake.store)
    view = ledger.load(lake.folder.card().folder)
    commit, written = ledger.commit(view), []
    new = commit.snapshot()
    for index, delete in enumerate(deletes):
        entry = Entry(
            ADDED, None, delete.number, None, delete.content, delete.equality_ids, delete.referenced, delete.file
        )
        meta = manifest_format.header(view.metadata.schema(), delete.spec) | {"content": b"deletes"}
        data, key = manifest_format.encode(meta, [entry]), f"{commit.stamp.tag}-d{index}.avro"
        ledger.metadata_store(view).create(key, data)
        written.append(
            ListedManifest(
                manifest_path=f"{view.metadata_path}/{key}",
                manifest_length=len(data),
                partition_spec_id=delete.spec.spec_id,
                content=ManifestContent.DELETES,
                sequence_number=new.sequence,
                min_sequence_number=new.sequence if delete.number is None else delete.number,
                added_snapshot_id=new.id,
                added_files_count=1,
                existing_files_count=0,
                deleted_files_count=0,
                added_rows_count=delete.file.record_count,
                existing_rows_count=0,
                deleted_rows_count=0,
                partitions=ledger.writer.header(view.metadata.schema(), delete.spec).summaries([delete.file.partition]),
            )
        )
    new.manifests = [*commit.head, *written]
    new.label(Operation.DELETE, {})
    commit.send(view.marks)
