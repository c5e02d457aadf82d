"""Bad txlogs of version 2: each goes to rejected/ with its reason; the good one beside it gets in in the same tick."""

import io
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import BucketTransform, IdentityTransform

from bookkeeper.contract.keyed import PROPERTY
from bookkeeper.contract.names import TxlogName
from bookkeeper.contract.txlog import PREFIX, StepFile, Txlog, decode
from bookkeeper.errors import EntryInvalid, StorageUnavailable
from bookkeeper.format import avro, manifest
from bookkeeper.tick.check_txlog import check, rules_of
from tests.support.folds import fold
from tests.support.keyed import Step, Steps, keyed_lake
from tests.support.lake import Lake

MOST = 2**26
DELETES = PREFIX + "deletes"
Forged = tuple[TxlogName, bytes]
Forge = Callable[[Steps], Forged]
STEPS = (Step(upserts={1: "a", 2: "b"}), Step(deletes=[1]))


def header(writer: Steps, **changes: bytes | None) -> Forged:
    """A good txlog, some of our header keys changed or (None) left out."""
    name, data = writer.encoded_steps(*writer.files_of(*STEPS))
    found = avro.decode(data, MOST)
    meta = {**found.meta, **{PREFIX + key: value for key, value in changes.items()}}
    return name, avro.encode({key: value for key, value in meta.items() if value is not None}, found.blocks)


def delete_entry(writer: Steps, **changes: Any) -> Forged:
    """A good txlog, but for the entry of its first delete file."""
    name, data = writer.encoded_steps(*writer.files_of(*STEPS))
    found = avro.decode(data, MOST)
    meta = avro.read_header(found.meta[DELETES]).meta
    first, *rest = manifest.decode(found.meta[DELETES], MOST).entries
    inner = manifest.encode(meta, [replace(first, **changes), *rest])
    return name, avro.encode({**found.meta, DELETES: inner}, found.blocks)


def delete_file(writer: Steps, **changes: Any) -> Forged:
    """A good txlog, but for what it says of its first delete file."""
    data, (first, *rest) = writer.files_of(*STEPS)
    return writer.encoded_steps(data, [StepFile(replace(first.file, **changes), first.number), *rest])


def data_entry(writer: Steps, **changes: Any) -> Forged:
    """A good txlog, but for the entry of its first data file."""
    name, data = writer.encoded_steps(*writer.files_of(*STEPS))
    first, *rest = manifest.decode(data, MOST).entries
    return name, manifest.encode(avro.read_header(data).meta, [replace(first, **changes), *rest])


def data_file(writer: Steps, **changes: Any) -> Forged:
    (first, *rest), deletes = writer.files_of(*STEPS)
    return writer.encoded_steps([StepFile(replace(first.file, **changes), first.number), *rest], deletes)


def elsewhere(path: str) -> Forge:
    """A txlog whose delete file is named by `path`; `{data}` stands for the table's data path."""

    def forge(writer: Steps) -> Forged:
        return delete_file(
            writer, path=path.format(data=writer.lake.folder.card().data_path, run=writer.name.incarnation)
        )

    return forge


def other_bytes(writer: Steps) -> Forged:
    data, deletes = writer.files_of(*STEPS)
    Path(deletes[0].file.path.removeprefix("file://")).write_bytes(b"x" * deletes[0].file.size_bytes)
    return writer.encoded_steps(data, deletes)


def rewritten(table: pa.Table | bytes, behind: bytes = b"", **changes: Any) -> Forge:
    """A txlog whose first delete file, of two rows by its entry, is this Parquet file, or these bytes."""

    def forge(writer: Steps) -> Forged:
        data, (first, *rest) = writer.files_of(*STEPS)
        out = io.BytesIO()
        if isinstance(table, bytes):
            out.write(table)
        else:
            pq.write_table(table, out)
        out.write(behind)
        Path(first.file.path.removeprefix("file://")).write_bytes(out.getvalue())
        file = replace(first.file, size_bytes=out.tell(), **changes)
        return writer.encoded_steps(data, [StepFile(file, first.number), *rest])

    return forge


def keys(kind: pa.DataType, values: Sequence[Any], field_id: int | None = 1, nullable: bool = False) -> pa.Table:
    meta = None if field_id is None else {"PARQUET:field_id": str(field_id)}
    return pa.table([pa.array(values, kind)], schema=pa.schema([pa.field("id", kind, nullable, meta)]))


def with_value(table: pa.Table) -> pa.Table:
    field = pa.field("value", pa.string(), True, {"PARQUET:field_id": "2"})
    return table.append_column(field, pa.array(["a"] * len(table)))


def live_data_file(writer: Steps) -> Forged:
    """A txlog that names a data file as a delete file."""
    (inserted, *data), (first, *rest) = writer.files_of(*STEPS)
    live = inserted.file
    named = replace(first.file, path=live.path, size_bytes=live.size_bytes, record_count=live.record_count)
    return writer.encoded_steps(data, [StepFile(named, first.number), *rest])


LONGS = keys(pa.int64(), [1, 2])
#: a footer whose length is larger than the file, and one of nothing but bytes
LONG_FOOTER = b"PAR1" + b"x" * 100 + (2**31).to_bytes(4, "little") + b"PAR1"
NO_FOOTER = b"PAR1" + b"x" * 100 + (60).to_bytes(4, "little") + b"PAR1"
DEEP_FOOTER = b"PAR1" + b"\x1c" * 3000 + (3000).to_bytes(4, "little") + b"PAR1"


def other_spec(spec_id: int, *fields: PartitionField, partition: tuple[Any, ...] = ()) -> Forge:
    def forge(writer: Steps) -> Forged:
        data, deletes = writer.files_of(*STEPS)
        placed = [StepFile(replace(file, partition=partition), number) for file, number in deletes]
        return writer.encoded_steps(data, placed, delete_spec=PartitionSpec(*fields, spec_id=spec_id))

    return forge


def of_keys(*ids: int) -> Forge:
    return lambda writer: writer.encoded_steps(*writer.files_of(*STEPS), key_ids=ids)


BY_VALUE = PartitionField(2, 1000, IdentityTransform(), "value")

CASES: dict[str, tuple[str, Forge]] = {
    "no span": ("TxlogCorrupt", partial(header, span=None)),
    "a span that takes more numbers than it uses": ("TxlogCorrupt", partial(header, span=b"9000")),
    "the largest span": ("TxlogCorrupt", partial(header, span=b"9" * 18)),
    "no deletes": ("TxlogCorrupt", partial(header, deletes=None)),
    "deletes that are no manifest": ("TxlogCorrupt", partial(header, deletes=b"DELETE FROM events")),
    "version 1 with deletes": ("TxlogCorrupt", partial(header, version=b"1")),
    "a companion": ("TxlogCorrupt", partial(header, companion=b"x")),
    "fewer data files than announced": ("TxlogCorrupt", partial(header, entries=b"3")),
    "a data file without a number": ("TxlogCorrupt", partial(data_entry, sequence_number=None)),
    "a data file with a number outside": ("TxlogCorrupt", partial(data_entry, sequence_number=3)),
    "a data file with a number below": ("TxlogCorrupt", partial(data_entry, sequence_number=-1)),
    "a delete file without a number": ("TxlogCorrupt", partial(delete_entry, sequence_number=None)),
    "a delete file with a number outside": ("TxlogCorrupt", partial(delete_entry, sequence_number=3)),
    "a delete file before the first step": ("TxlogCorrupt", partial(delete_entry, sequence_number=0)),
    "a data file as a delete file": ("TxlogCorrupt", partial(delete_entry, content=0, equality_ids=None)),
    "position deletes": ("TxlogCorrupt", partial(delete_entry, content=1, equality_ids=None)),
    "position deletes with keys": ("TxlogCorrupt", partial(delete_entry, content=1)),
    "an unknown spec of deletes": ("UnknownSpec", other_spec(9)),
    "deletes in partitions of another column": ("UnknownSpec", other_spec(1, BY_VALUE, partition=("x",))),
    "partition tuples of another spec": ("UnknownSpec", other_spec(0, BY_VALUE, partition=("x",))),
    "deletes by other columns": ("EntryInvalid", of_keys(2)),
    "deletes by more columns": ("EntryInvalid", of_keys(1, 2)),
    "deletes by a key twice": ("EntryInvalid", of_keys(1, 1)),
    "deletes by no column": ("EntryInvalid", of_keys()),
    "deletes whose ids are null": ("EntryInvalid", partial(delete_entry, equality_ids=None)),
    "status DELETED": ("EntryInvalid", partial(delete_entry, status=2)),
    "status EXISTING of a data file": ("EntryInvalid", partial(data_entry, status=0)),
    "a snapshot id": ("EntryInvalid", partial(delete_entry, snapshot_id=1)),
    "a snapshot id of a data file": ("EntryInvalid", partial(data_entry, snapshot_id=1)),
    "a file sequence number": ("EntryInvalid", partial(delete_entry, file_sequence_number=1)),
    "a file sequence number of a data file": ("EntryInvalid", partial(data_entry, file_sequence_number=1)),
    "a delete file for one data file": ("EntryInvalid", partial(delete_entry, referenced_data_file="file:///x")),
    "a delete file among the data files": ("EntryInvalid", partial(data_entry, content=2, equality_ids=(1,))),
    "no deleted row": ("EntryInvalid", partial(delete_file, record_count=0)),
    "no bytes": ("EntryInvalid", partial(delete_file, size_bytes=0)),
    "more deleted rows than any file holds": ("EntryInvalid", partial(delete_file, record_count=2**62)),
    "delete files of Avro": ("EntryInvalid", partial(delete_file, file_format="AVRO")),
    "bounds of the wrong width": ("EntryInvalid", partial(delete_file, lower_bounds={1: b"x"})),
    "statistics of an unknown column": ("EntryInvalid", partial(delete_file, value_counts={99: 1})),
    "a negative count": ("EntryInvalid", partial(delete_file, null_value_counts={1: -1})),
    "an unknown sort order": ("EntryInvalid", partial(delete_file, sort_order_id=9)),
    "a data file of the wrong bounds": ("EntryInvalid", partial(data_file, lower_bounds={1: b"x"})),
    "a delete file beside the data path": ("PathRefused", elsewhere("{data}-2/d.parquet")),
    "a delete file above the data path": ("PathRefused", elsewhere("{data}/../../d.parquet")),
    "a relative path": ("PathRefused", elsewhere("d.parquet")),
    "a delete file that is not there": ("FileMissing", elsewhere("{data}/{run}-never-written.parquet")),
    "a delete file of another size": ("FileSizeDiffers", partial(delete_file, size_bytes=12345)),
    "a data file of another size": ("FileSizeDiffers", partial(data_file, size_bytes=12345)),
    "a delete file that is no Parquet": ("FileFormatDiffers", other_bytes),
    "bytes behind the footer": ("FileFormatDiffers", rewritten(LONGS, behind=b"more")),
    "a footer longer than the file": ("FileFormatDiffers", rewritten(LONG_FOOTER)),
    "a footer of no sense": ("FileFormatDiffers", rewritten(NO_FOOTER)),
    "a footer of structs in structs": ("FileFormatDiffers", rewritten(DEEP_FOOTER)),
    "more rows than it has": ("DeleteFileDiffers", rewritten(keys(pa.int64(), [1]))),
    "fewer rows than it has": ("DeleteFileDiffers", rewritten(keys(pa.int64(), [1, 2, 3]))),
    "a key of text": ("DeleteFileDiffers", rewritten(keys(pa.string(), ["1", "2"]))),
    "a key of doubles": ("DeleteFileDiffers", rewritten(keys(pa.float64(), [1.0, 2.0]))),
    "a key without a sign": ("DeleteFileDiffers", rewritten(keys(pa.uint32(), [1, 2]))),
    "a key of lists": ("DeleteFileDiffers", rewritten(keys(pa.list_(pa.int64()), [[1], [2]]))),
    "a null as key": (
        "DeleteFileDiffers",
        rewritten(keys(pa.int64(), [1, None], nullable=True), null_value_counts={1: 1}),
    ),
    "a key without a field id": ("DeleteFileDiffers", rewritten(keys(pa.int64(), [1, 2], None))),
    "a key with another field id": ("DeleteFileDiffers", rewritten(keys(pa.int64(), [1, 2], 4))),
    "more columns than the keys": ("DeleteFileDiffers", rewritten(with_value(LONGS))),
    "a live data file as a delete file": ("DeleteFileDiffers", live_data_file),
}


@pytest.fixture(scope="module")
def tried(tmp_path_factory: pytest.TempPathFactory) -> tuple[Lake, dict[str, str], Any]:
    lake = keyed_lake(tmp_path_factory.mktemp("bad") / "lake")
    with lake.table().update_spec() as change:  # spec 1, whose column is no key
        change.add_identity("value")
    with lake.table().update_spec() as change:
        change.remove_field("value")
    assert [len(spec.fields) for spec in lake.table().metadata.partition_specs] == [0, 1]
    good, names = Steps(lake, "good"), {}
    good.publish_rows({7: "first"})
    for number, (case, (_, forge)) in enumerate(CASES.items()):
        name, data = forge(Steps(lake, f"bad-{number}"))
        lake.put(f"pending/{name}", data)
        names[case] = str(name)
    good.publish_rows({8: "last"})
    return lake, names, lake.tick()


@pytest.mark.parametrize("case", CASES)
def test_a_bad_txlog_is_rejected_with_a_reason(tried: tuple[Lake, dict[str, str], Any], case: str) -> None:
    lake, names, result = tried
    assert names[case] in result.rejected
    reason = lake.folder.reason(TxlogName.parse(names[case]))
    assert (reason["error"], len(reason["reason"]) > 10) == (CASES[case][0], True)


def test_the_good_ones_beside_all_the_bad_ones_get_in(tried: tuple[Lake, dict[str, str], Any]) -> None:
    lake, _, result = tried
    assert sorted(lake.table().scan().to_arrow()["id"].to_pylist()) == [7, 8]
    assert (result.commit.txlogs, result.waiting, lake.pending()) == (2, 0, [])


# the check alone


def taken(lake: Lake, forged: Forged) -> Txlog:
    """What `check` lets pass; raises the Reject."""
    found = decode(*forged, MOST)
    check(found, rules_of(lake.view()), found.created_ms)
    return found


def test_steps_of_a_keyed_table_pass(tmp_path: Path) -> None:
    writer = Steps(keyed_lake(tmp_path))
    found = taken(writer.lake, writer.encoded_steps(*writer.files_of(*STEPS)))
    assert (found.delete_count, len(found.rows), found.span) == (2, 2, 3)
    only = taken(writer.lake, writer.encoded_steps(*writer.files_of(Step(deletes=[1], shadow=False))))
    assert (only.delete_count, only.rows) == (1, ())


def test_a_table_that_is_not_keyed_takes_no_deletes(tmp_path: Path) -> None:
    writer = Steps(keyed_lake(tmp_path))
    forged = writer.encoded_steps(*writer.files_of(*STEPS))
    with writer.lake.table().transaction() as transaction:
        transaction.remove_properties(PROPERTY)
    with pytest.raises(EntryInvalid, match="the table is not keyed") as caught:
        taken(writer.lake, forged)
    assert "init --key" in caught.value.hint


def test_of_thousands_of_numbered_entries_few_are_decoded_in_full(tmp_path: Path) -> None:
    """The prefix of a numbered record is proven as that of one that inherits is."""
    writer = Steps(keyed_lake(tmp_path))
    (data, *_), deletes = writer.files_of(Step(upserts={1: "a"}))
    many = [StepFile(replace(data.file, path=f"{data.file.path}-{number}"), 1) for number in range(2000)]
    found = taken(writer.lake, writer.encoded_steps(many, deletes))
    assert sum(row.entry is not None for row in found.rows) < 10
    wrong = [*many[:1500], StepFile(replace(data.file, sort_order_id=9), 1)]
    with pytest.raises(EntryInvalid, match="sort order 9"):
        taken(writer.lake, writer.encoded_steps(wrong, deletes))


def test_deletes_in_partitions_of_the_key_pass_with_the_tuples_of_their_spec(tmp_path: Path) -> None:
    lake = keyed_lake(tmp_path, partition_by=("bucket(4, id)",))
    by_id = PartitionField(1, 1000, BucketTransform(4), "id_bucket")
    writer = Steps(lake)
    data, (first, *rest) = writer.files_of(*STEPS)
    assert first.file.partition != () and taken(lake, writer.encoded_steps(data, [first, *rest])).delete_count == 2
    nowhere = replace(first.file, partition=(None,))
    with pytest.raises(EntryInvalid, match="a partition value is null"):
        taken(lake, writer.encoded_steps(data, [StepFile(nowhere, 1), *rest], delete_spec=PartitionSpec(by_id)))


def test_a_txlog_whose_delete_file_is_gone_is_not_committed(tmp_path: Path) -> None:
    lake = keyed_lake(tmp_path)
    writer = Steps(lake)
    data, deletes = writer.files_of(*STEPS)
    Path(deletes[1].file.path.removeprefix("file://")).unlink()
    name, encoded = writer.encoded_steps(data, deletes)
    lake.folder.publish(name, encoded)
    lake.tick()
    assert lake.rejected() == {str(name): "FileMissing"}


@pytest.mark.parametrize(
    "table",
    [
        keys(pa.int32(), [1, 2]),
        keys(pa.int16(), [1, 2]),
        keys(pa.int64(), [1, 2], nullable=True),
        LONGS.replace_schema_metadata({"long": "x" * 20_000}),
        # No footer shows what the entry does not say. No row has such a key.
        keys(pa.int64(), [1, None], nullable=True),
    ],
    ids=["int", "short", "optional", "a footer longer than the end that is read", "a null that no entry counts"],
)
def test_delete_files_that_a_fold_reads_get_in(tmp_path: Path, table: pa.Table) -> None:
    lake = keyed_lake(tmp_path)
    Steps(lake).publish_rows({1: "old"})
    lake.tick()
    name, data = rewritten(table)(writer := Steps(lake, "k2"))
    lake.folder.publish(name, data)
    assert lake.tick().rejected == [] and writer.lake.pending() == []
    assert fold(lake).left == {}
    assert lake.table().scan().to_arrow()["id"].to_pylist() == [2]


def test_storage_that_fails_while_a_footer_is_read_rejects_nothing(tmp_path: Path) -> None:
    lake = keyed_lake(tmp_path)
    Steps(lake, "inserts").publish_rows({7: "other"})
    name = Steps(lake).publish_steps(*STEPS)
    failing: Any = lake.store(lake.folder.card().data_path)
    read = failing.read_ranges
    failing.read_ranges = lambda ranges: {item: StorageUnavailable("503") for item in ranges}
    book = lake.book()
    book.open_store = lambda url: failing
    result = lake.tick(book)
    assert (result.rejected, lake.pending(), result.commit.txlogs) == ([], [str(name)], 1)
    failing.read_ranges = read
    assert lake.tick(book).commit.txlogs == 1 and lake.pending() == []


def test_a_bookkeeper_that_may_not_read_data_files_takes_them_unread(tmp_path: Path) -> None:
    lake = keyed_lake(tmp_path)
    Steps(lake).publish_steps(*STEPS)
    store: Any = lake.store(lake.folder.card().data_path)
    heads = store.heads
    store.heads = lambda found: {key: head._replace(start=None) for key, head in heads(found).items()}
    store.read_ranges = lambda ranges: {item: StorageUnavailable("403") for item in ranges}
    book = lake.book()
    book.open_store = lambda url: store
    assert lake.tick(book).commit.txlogs == 1


def test_a_keyed_table_takes_txlogs_of_version_1(tmp_path: Path) -> None:
    lake = keyed_lake(tmp_path)
    Steps(lake).publish_rows({1: "a"})
    lake.tick()
    assert lake.table().scan().to_arrow()["id"].to_pylist() == [1]
