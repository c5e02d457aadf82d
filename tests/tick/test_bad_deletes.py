"""Bad txlogs of version 2: each goes to rejected/ with its reason; the good one beside it gets in in the same tick."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import BucketTransform, IdentityTransform

from bookkeeper.core.keyed import PROPERTY
from bookkeeper.core.names import TxlogName
from bookkeeper.core.txlog import PREFIX, StepFile, Txlog, decode
from bookkeeper.errors import EntryInvalid
from bookkeeper.format import avro, manifest
from bookkeeper.tick.check import check, rules_of
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


def test_a_keyed_table_takes_txlogs_of_version_1(tmp_path: Path) -> None:
    lake = keyed_lake(tmp_path)
    Steps(lake).publish_rows({1: "a"})
    lake.tick()
    assert lake.table().scan().to_arrow()["id"].to_pylist() == [1]
