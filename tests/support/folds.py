"""
Tables with delete files of any kind, number, partition and spec, and what their state is by the spec's rule alone.

`state` shares no code with the product: the table is decoded by json and fastavro, its files are read by pyarrow, and
each row is held against each delete file.
"""

import io
import os
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import ManifestContent
from pyiceberg.schema import Schema
from pyiceberg.table.snapshots import Operation

from bookkeeper.folds.budget import Budget, Computed
from bookkeeper.folds.fold import plan_fold
from bookkeeper.format.bounds import leaves
from bookkeeper.format.entries import ADDED, DATA, EQUALITY_DELETES, POSITION_DELETES, DataFile, Entry
from bookkeeper.format.footer import metrics
from bookkeeper.format.open_file import RowCounts
from bookkeeper.format.records import Records, count_by_status
from bookkeeper.ledger.fold_commit import commit_fold
from bookkeeper.ledger.view import View
from tests.histories.decoded import DELETED, Decoder, local
from tests.support.deletes import FILE_PATH, POSITION
from tests.support.lake import Lake

COLUMNS = (
    {"name": "id", "type": "long", "required": False},
    {"name": "name", "type": "string", "required": False},
    {"name": "region", "type": "string", "required": False},
)
ID, NAME, REGION = 1, 2, 3
ROWS_OF_A_GROUP = 3
Row = dict[str, Any]


def lake_of(root: Path, *partition_by: str, columns: Any = COLUMNS) -> Lake:
    """A table of three columns, partitioned or not."""
    return Lake(root, columns=columns, check_files=False, partition_by=partition_by)


@dataclass(frozen=True)
class Put:
    """A file to put into a table: rows of data, deleted keys, or deleted positions; number None: inherited."""

    content: int
    file: DataFile
    spec_id: int
    number: int | None = None
    equality_ids: tuple[int, ...] | None = None
    referenced: str | None = None

    @property
    def path(self) -> str:
        return self.file.path


def _stored(lake: Lake, table: pa.Table, schema: Schema | None, partition: tuple[Any, ...]) -> DataFile:
    out, footers, place = io.BytesIO(), list[Any](), lake.view().data_path
    with pq.ParquetWriter(out, table.schema, metadata_collector=footers) as writer:
        writer.write_table(table, row_group_size=ROWS_OF_A_GROUP)
    name = f"{uuid.uuid4()}.parquet"
    lake.store(place).upload(name, out.getvalue())
    file = DataFile(f"{place}/{name}", "PARQUET", partition, table.num_rows, out.tell())
    if schema is None:
        return file
    counts = RowCounts(leaves(schema, {}))
    counts.add(table)
    found = metrics(footers[0], leaves(schema, {}), counts)
    return replace(file, **{key: getattr(found, key) for key in found.__slots__})


def data(
    lake: Lake, rows: Sequence[Row], partition: tuple[Any, ...] = (), spec_id: int = 0, number: int | None = None
) -> Put:
    """A data file in the table's schema of now."""
    schema = lake.table().schema()
    table = pa.Table.from_pylist(list(rows), schema=schema_to_pyarrow(schema))
    return Put(DATA, _stored(lake, table, schema, partition), spec_id, number)


def keys(
    lake: Lake,
    rows: Sequence[Row],
    ids: Sequence[int] = (ID,),
    partition: tuple[Any, ...] = (),
    spec_id: int = 0,
    number: int | None = None,
) -> Put:
    """An equality delete file of these keys."""
    schema = Schema(*(lake.table().schema().find_field(each) for each in ids))
    table = pa.Table.from_pylist(list(rows), schema=schema_to_pyarrow(schema))
    return Put(EQUALITY_DELETES, _stored(lake, table, schema, partition), spec_id, number, tuple(ids))


def positions(
    lake: Lake,
    at: dict[str, Sequence[int]],
    partition: tuple[Any, ...] = (),
    spec_id: int = 0,
    number: int | None = None,
    referenced: bool = True,
) -> Put:
    """A position delete file; `referenced`: it names its one data file."""
    pairs = [(path, place) for path, places in sorted(at.items()) for place in sorted(places)]
    schema = pa.schema(
        [
            pa.field("file_path", pa.string(), False, {"PARQUET:field_id": str(FILE_PATH)}),
            pa.field("pos", pa.int64(), False, {"PARQUET:field_id": str(POSITION)}),
        ]
    )
    table = pa.table([[path for path, _ in pairs], [place for _, place in pairs]], schema=schema)
    (path, *_) = at
    return Put(
        POSITION_DELETES, _stored(lake, table, None, partition), spec_id, number, None, path if referenced else None
    )


def put(lake: Lake, *files: Put, operation: Operation = Operation.DELETE) -> None:
    """Adds these files in one snapshot."""
    ledger, view = lake.book().ledger, lake.view()
    commit, written = ledger.commit(view), []
    new = commit.snapshot()
    for index, item in enumerate(files):
        content = ManifestContent.DATA if item.content == DATA else ManifestContent.DELETES
        schema = view.schema_for(item.spec_id)
        assert schema is not None
        header = ledger.writer.header(schema, view.specs[item.spec_id], content)
        entry = Entry(ADDED, None, item.number, None, item.content, item.equality_ids, item.referenced, item.file)
        counts = count_by_status([(ADDED, item.file.record_count)])
        least = new.sequence if item.number is None else item.number
        records = Records(header.encode_blocks([entry]), counts, frozenset([item.file.partition]), least)
        key = f"{commit.stamp.tag}-{index}.avro"
        written.append(ledger.writer.write(new.unsent, key, header, records, new.id, new.sequence))
    new.manifests = [*written, *commit.head]
    new.label(operation, {})
    commit.send(view.marks)


@dataclass(frozen=True)
class Live:
    """A live file of the head, decoded by itself: with the spec it is in."""

    spec_id: int
    sequence: int
    file: dict[str, Any]

    @property
    def scope(self) -> tuple[Any, ...]:
        return (self.spec_id, *self.file["partition"].values())


def live(lake: Lake, content: int | None = None) -> list[Live]:
    """The live files of the head: data (0), position deletes (1), equality deletes (2), or all of them."""
    decoder, table = Decoder(), lake.table()
    metadata = decoder.metadata(table.metadata_location)
    heads = [item for item in metadata["snapshots"] if item["snapshot-id"] == metadata["current-snapshot-id"]]
    found = [
        Live(manifest.line["partition_spec_id"], entry.sequence, entry.file)
        for head in heads
        for manifest in decoder.snapshot(head).manifests
        for entry in manifest.entries
        if entry.status != DELETED
    ]
    return [item for item in found if content is None or item.file.get("content", 0) == content]


def state(lake: Lake) -> list[tuple[Any, ...]]:
    """The rows of the table by the spec's rule ("Scan Planning"), as values by field id, sorted."""
    fields = [column.field_id for column in lake.table().schema().fields]
    return sorted((tuple(row.get(number) for number in fields) for _, _, row in live_rows(lake)), key=repr)


def live_rows(lake: Lake) -> list[tuple[Live, int, dict[int, Any]]]:
    """Each live row by the same rule: its file, its position there, and its values by field id."""
    specs = {spec.spec_id: spec for spec in lake.table().metadata.partition_specs}
    everywhere = {
        number for number, spec in specs.items() if all(str(each.transform) == "void" for each in spec.fields)
    }
    by_position, by_key = live(lake, POSITION_DELETES), live(lake, EQUALITY_DELETES)
    gone = [(item, _rows(item.file)) for item in by_position + by_key]
    return [
        (item, place, row)
        for item in live(lake, DATA)
        for place, row in enumerate(_rows(item.file))
        if not any(_deletes(delete, found, item, place, row, everywhere) for delete, found in gone)
    ]


def _deletes(
    delete: Live, found: list[dict[int, Any]], item: Live, place: int, row: dict[int, Any], everywhere: set[int]
) -> bool:
    if delete.file["content"] == POSITION_DELETES:
        if delete.scope != item.scope or delete.sequence < item.sequence:
            return False
        return any(one[FILE_PATH] == item.file["file_path"] and one[POSITION] == place for one in found)
    if delete.sequence <= item.sequence or (delete.spec_id not in everywhere and delete.scope != item.scope):
        return False
    ids = delete.file["equality_ids"]
    return any(all(one.get(each) == row.get(each) for each in ids) for one in found)


_read: dict[str, list[dict[int, Any]]] = {}


def _rows(file: dict[str, Any]) -> list[dict[int, Any]]:
    path = file["file_path"]
    if path not in _read:
        table = pq.read_table(io.BytesIO(local(path).read_bytes()))
        ids = [int(field.metadata[b"PARQUET:field_id"]) for field in table.schema]
        _read[path] = [dict(zip(ids, row.values(), strict=True)) for row in table.to_pylist()]
    return _read[path]


def planned(lake: Lake, view: View | None = None, budget: Budget | None = None) -> Computed:
    """A fold of the table as it is now, computed and not committed."""
    ledger = lake.book().ledger
    return plan_fold(ledger, view or lake.view(), lake.clock.now, os.urandom(10), budget)


def committed(lake: Lake, computed: Computed) -> View:
    """Commits a computed fold on the head of now."""
    assert computed.plan is not None
    return commit_fold(lake.book().ledger, lake.view(), computed.plan)


def fold(lake: Lake, **more: Any) -> Computed:
    """Folds, if there is anything to fold."""
    computed = planned(lake, **more)
    if computed.plan is not None:
        committed(lake, computed)
    return computed


def paths(found: Iterable[Live]) -> set[str]:
    return {item.file["file_path"] for item in found}


def damaged(lake: Lake) -> Callable[[], None]:
    """Cuts each live data file, so that no fold can read it; returns what makes them whole again."""
    whole = {local(path): local(path).read_bytes() for path in paths(live(lake, DATA))}
    for path, content in whole.items():
        path.write_bytes(content[:-10])

    def mend() -> None:
        for path, content in whole.items():
            path.write_bytes(content)

    return mend
