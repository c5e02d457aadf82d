"""Bad input: each goes to rejected/ with its reason, or is held; the good one beside it gets in in the same tick."""

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import IdentityTransform

from bookkeeper.errors import CommitConflict, StorageUnavailable
from bookkeeper.format import avro
from tests.support.faults import BEFORE, Faults
from tests.support.forge import (
    Forged,
    elsewhere,
    twice,
    twice_in_another_case,
    with_data,
    with_entry,
    with_file,
    with_header,
)
from tests.support.lake import Lake, Writes

HOUR_MS = 3_600_000
Forge = Callable[[Writes, str], Forged]


@dataclass
class Tried:
    """What one tick made of every case at once."""

    lake: Lake
    names: dict[str, str]
    result: Any
    good: list[str]


@pytest.fixture(scope="module")
def tried(tmp_path_factory: pytest.TempPathFactory) -> Tried:
    lake = Lake(tmp_path_factory.mktemp("bad") / "lake", max_txlog_bytes=20_000)
    data = Path(lake.folder.card().data_path.removeprefix("file://"))
    data.mkdir(parents=True)
    (data / "marker.parquet").write_bytes(b"x")
    good, names = Writes(lake, "good"), {}
    good.publish("first")
    for number, (case, (_, forge)) in enumerate(CASES.items()):
        name, written = forge(Writes(lake, f"bad-{number}"), f"bad-{number}")
        lake.put(f"pending/{name}", written)
        names[case] = str(name)
    good.publish("last")
    return Tried(lake, names, lake.tick(), good.keys)


def other_spec(writer: Writes, key: str) -> Forged:
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "key"))
    return writer.encoded([writer.file([key], partition=(key,))], spec=spec)


def future(writer: Writes, key: str) -> Forged:
    created = int(writer.lake.clock.now.timestamp() * 1000) + HOUR_MS + 60_000
    return writer.encoded([writer.file([key])], created_ms=created)


def too_large(writer: Writes, key: str) -> Forged:
    return with_header(writer, key, comment=os.urandom(30_000))


def leading_zeros(option: str) -> Forge:
    """A number in the header as no writer of ours spells it: the same number, other bytes."""

    def forge(writer: Writes, key: str) -> Forged:
        name, data = writer.encoded([writer.file([key])])
        meta = dict(avro.decode(data, 2**26).meta)
        full = option.replace("_", "-").replace("--", ".")
        meta[full] = b"0" + meta[full]
        return name, avro.encode(meta, avro.decode(data, 2**26).blocks)

    return forge


def other_bytes(data: bytes, file_format: str) -> Forge:
    """A txlog whose file is there, in the size it says, and holds `data`."""

    def forge(writer: Writes, key: str) -> Forged:
        file = writer.file([key])
        Path(file.path.removeprefix("file://")).write_bytes(data)
        return writer.encoded([replace(file, size_bytes=len(data), file_format=file_format)])

    return forge


def directory(writer: Writes, key: str) -> Forged:
    path = f"{writer.lake.folder.card().data_path}/{writer.name.incarnation}"
    Path(path.removeprefix("file://")).mkdir()
    return with_file(writer, key, path=path)


def bomb(writer: Writes, key: str) -> Forged:
    bounds = {1: b"\0" * 8, 3: b"\0" * 40_000}
    return with_file(writer, key, lower_bounds=bounds, upper_bounds=bounds)


CASES: dict[str, tuple[str, Forge]] = {
    "empty": ("TxlogCorrupt", with_data(lambda data: b"")),
    "text": ("TxlogCorrupt", with_data(lambda data: b"path,rows\n/a,1\n")),
    "cut in the magic": ("TxlogCorrupt", with_data(lambda data: data[:3])),
    "cut in the header": ("TxlogCorrupt", with_data(lambda data: data[:500])),
    "cut in the middle": ("TxlogCorrupt", with_data(lambda data: data[: len(data) // 2])),
    "cut before the block": ("TxlogCorrupt", with_data(lambda data: data[: data.rindex(data[-16:], 0, -16) + 16])),
    "cut in the last sync marker": ("TxlogCorrupt", with_data(lambda data: data[:-1])),
    "bytes behind its end": ("TxlogCorrupt", with_data(lambda data: data + b"\0")),
    "a flipped byte in the block": ("TxlogCorrupt", with_data(lambda data: data[:-40] + b"\xff\xff" + data[-38:])),
    "too large": ("TxlogTooLarge", too_large),
    "too large once decompressed": ("TxlogTooLarge", bomb),
    "no version": ("TxlogCorrupt", partial(with_header, bookkeeper__version=None)),
    "version 0": ("TxlogCorrupt", partial(with_header, bookkeeper__version=b"0")),
    "an unknown bookkeeper key": ("TxlogCorrupt", partial(with_header, bookkeeper__colour=b"red")),
    "a companion, which is not known yet": ("TxlogCorrupt", partial(with_header, bookkeeper__companion=b"x")),
    "version 01": ("TxlogCorrupt", partial(with_header, bookkeeper__version=b"01")),
    "a sequence with leading zeros": ("TxlogCorrupt", leading_zeros("bookkeeper__sequence")),
    "a time with leading zeros": ("TxlogCorrupt", leading_zeros("bookkeeper__created_ms")),
    "a count of entries with leading zeros": ("TxlogCorrupt", leading_zeros("bookkeeper__entries")),
    "a schema id with leading zeros": ("TxlogCorrupt", leading_zeros("schema_id")),
    "a spec id with leading zeros": ("TxlogCorrupt", leading_zeros("partition_spec_id")),
    "no table uuid": ("TxlogCorrupt", partial(with_header, bookkeeper__table_uuid=None)),
    "a sequence that is no number": ("TxlogCorrupt", partial(with_header, bookkeeper__sequence=b"one")),
    "a position that is too long": ("TxlogCorrupt", partial(with_header, bookkeeper__position=b"x" * 1025)),
    "format version 1": ("TxlogCorrupt", partial(with_header, format_version=b"1")),
    "a delete manifest": ("TxlogCorrupt", partial(with_header, content=b"deletes")),
    "fewer entries than announced": ("TxlogCorrupt", partial(with_header, bookkeeper__entries=b"2")),
    "a field id that is no number": (
        "TxlogCorrupt",
        with_data(lambda data: data.replace(b'"field-id": 143', b'"field-id":  []')),
    ),
    "another sequence than its name": ("NameMismatch", partial(with_header, bookkeeper__sequence=b"7777")),
    "another writer than its name": ("NameMismatch", partial(with_header, bookkeeper__writer=b"another")),
    "another table": ("WrongTable", partial(with_header, bookkeeper__table_uuid=b"0" * 36)),
    "an unknown schema": ("UnknownSpec", partial(with_header, schema_id=b"99")),
    "an unknown spec": ("UnknownSpec", partial(with_header, partition_spec_id=b"99")),
    "partition tuples of another spec": ("UnknownSpec", other_spec),
    "no entries": ("EntryInvalid", lambda writer, key: writer.encoded([])),
    "status EXISTING": ("EntryInvalid", partial(with_entry, status=0)),
    "status DELETED": ("EntryInvalid", partial(with_entry, status=2)),
    "a snapshot id": ("EntryInvalid", partial(with_entry, snapshot_id=1)),
    "a sequence number": ("EntryInvalid", partial(with_entry, sequence_number=1)),
    "a file sequence number": ("EntryInvalid", partial(with_entry, file_sequence_number=1)),
    "position deletes": ("EntryInvalid", partial(with_entry, content=1)),
    "equality deletes": ("EntryInvalid", partial(with_entry, content=2, equality_ids=(1,))),
    "equality ids": ("EntryInvalid", partial(with_entry, equality_ids=(1,))),
    "equality ids, of which there are none": ("EntryInvalid", partial(with_entry, equality_ids=())),
    "a referenced data file": ("EntryInvalid", partial(with_entry, referenced_data_file="file:///x")),
    "zero records": ("EntryInvalid", partial(with_file, record_count=0)),
    "fewer than zero records": ("EntryInvalid", partial(with_file, record_count=-1)),
    "zero bytes": ("EntryInvalid", partial(with_file, size_bytes=0)),
    "more records than any file holds": ("EntryInvalid", partial(with_file, record_count=2**63 - 1)),
    "more records than two files may add up to": ("EntryInvalid", partial(with_file, record_count=2**62)),
    "more records than a file of that size holds": ("EntryInvalid", partial(with_file, record_count=2**39)),
    "more bytes than any file has": ("EntryInvalid", partial(with_file, size_bytes=2**62)),
    "more bytes of a column than any file has": ("EntryInvalid", partial(with_file, column_sizes={2: 2**62})),
    "more values than any file holds": ("EntryInvalid", partial(with_file, value_counts={2: 2**63 - 1})),
    "more nulls than any file holds": ("EntryInvalid", partial(with_file, null_value_counts={2: 2**41})),
    "more NaNs than any file holds": ("EntryInvalid", partial(with_file, nan_value_counts={2: 2**60})),
    "a format that is not allowed": ("EntryInvalid", partial(with_file, file_format="ORC")),
    "statistics of an unknown column": ("EntryInvalid", partial(with_file, value_counts={99: 1})),
    "bounds of an unknown column": ("EntryInvalid", partial(with_file, upper_bounds={99: b"x"})),
    "bounds of the wrong width": ("EntryInvalid", partial(with_file, upper_bounds={1: b"x"})),
    "a negative count": ("EntryInvalid", partial(with_file, null_value_counts={1: -1})),
    "a null partition of a required column": ("EntryInvalid", partial(with_file, partition=(None,))),
    "an unknown sort order": ("EntryInvalid", partial(with_file, sort_order_id=9)),
    "a previous position alone": ("EntryInvalid", partial(with_header, bookkeeper__previous_position=b"1")),
    "a path with ..": ("PathRefused", elsewhere("{data}/../../secret.parquet")),
    "a path beside the data path": ("PathRefused", elsewhere("{table}/metadata/v1.json")),
    "a path with a similar beginning": ("PathRefused", elsewhere("{data}-2/a.parquet")),
    "the data path itself": ("PathRefused", elsewhere("{data}")),
    "another scheme": ("PathRefused", elsewhere("s3://bucket/data/a.parquet")),
    "an encoded path": ("PathRefused", elsewhere("{data}/%2e%2e/a.parquet")),
    "a path with a query": ("PathRefused", elsewhere("{data}/a.parquet?x=/../..")),
    "a path with a backslash": ("PathRefused", elsewhere("{data}/..\\a.parquet")),
    "a path with a zero byte": ("PathRefused", elsewhere("{data}/a\0.parquet")),
    "a relative path": ("PathRefused", elsewhere("a.parquet")),
    "an empty path": ("PathRefused", elsewhere("")),
    "one path twice": ("DuplicatePath", twice),
    "one name twice, but for its case": ("DuplicatePath", twice_in_another_case),
    "a name without its incarnation": ("FileNameRefused", elsewhere("{data}/a.parquet")),
    "its incarnation as a part of another": ("FileNameRefused", elsewhere("{data}/f{run}.parquet")),
    "its incarnation in a folder": ("FileNameRefused", elsewhere("{data}/{run}/a.parquet")),
    "the name of another txlog's file": ("FileNameRefused", elsewhere("{data}/w-{run}-0000000001-00001.parquet")),
    "a file that is not there": ("FileMissing", elsewhere("{data}/{run}-never-written.parquet")),
    "a file below a file": ("FileMissing", elsewhere("{table}/data/marker.parquet/{run}.parquet")),
    "a name that is too long for any file": ("FileMissing", elsewhere("{data}/{run}-" + "x" * 300 + ".parquet")),
    "a directory": ("FileMissing", directory),
    "a file of another size": ("FileSizeDiffers", partial(with_file, size_bytes=12345)),
    "AVRO on a Parquet file": ("FileFormatDiffers", partial(with_file, file_format="AVRO")),
    "PARQUET on an Avro file": ("FileFormatDiffers", other_bytes(b"Obj\x01" + b"x" * 500, "PARQUET")),
    "PARQUET on an ORC file": ("FileFormatDiffers", other_bytes(b"ORC" + b"x" * 500, "parquet")),
    "AVRO on text": ("FileFormatDiffers", other_bytes(b"timestamp,key\n", "AVRO")),
    "a file too short for any format": ("FileFormatDiffers", other_bytes(b"PA", "PARQUET")),
    "created in the future": ("FromTheFuture", future),
}


@pytest.mark.parametrize("case", CASES)
def test_a_bad_txlog_is_rejected_with_a_reason(tried: Tried, case: str) -> None:
    name = tried.names[case]
    assert name in tried.result.rejected
    reason = tried.lake.folder.reason(name)
    assert reason["error"] == CASES[case][0]
    assert len(reason["reason"]) > 10


def test_the_good_ones_beside_all_the_bad_ones_get_in_in_the_same_tick(tried: Tried) -> None:
    assert tried.lake.keys() == tried.good
    assert (tried.result.commit.txlogs, tried.result.waiting, tried.lake.pending()) == (2, 0, [])
    assert tried.lake.operations() == ["append"]


def test_rejected_txlogs_do_not_come_back_by_themselves(tried: Tried) -> None:
    assert tried.lake.tick().rejected == []


@pytest.mark.parametrize(
    "name",
    ["notes.txlog.avro", "W1.0199c0de.1.txlog.avro", "a b.txlog.avro", "w1..0000000001.txlog.avro", ".txlog.avro"],
)
def test_a_stranger_is_rejected_by_its_name(lake: Lake, writer: Writes, name: str) -> None:
    lake.put(f"pending/{name}", b"whatever")
    writer.publish("a")
    result = lake.tick()
    assert (result.rejected, lake.keys(), result.waiting) == ([name], ["a"], 0)
    assert lake.folder.reason(name)["error"] == "NameMismatch"


def test_files_that_do_not_end_like_a_txlog_are_left_alone(lake: Lake, writer: Writes) -> None:
    lake.put("pending/readme.txt", b"hello")
    lake.put("pending/w1.x.0000000001.txlog.avro.0123456789ab.tmp", b"half")
    result = lake.tick()
    assert (result.pending, result.rejected) == (0, [])


def test_a_foreign_file_with_the_longest_name_stops_no_txlog(lake: Lake, writer: Writes) -> None:
    path = Path(lake.made.folder.removeprefix("file://"), "pending", "x" * 244 + ".txlog.avro")
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"whatever")
    writer.publish("a")
    result = lake.tick()
    assert (lake.keys(), result.rejected) == (["a"], [path.name])


def test_a_bad_txlog_that_cannot_be_moved_stops_no_other(lake: Lake, writer: Writes, faults: Faults) -> None:
    bad = Writes(lake, "bad").publish("x", table_uuid="another")
    writer.publish("a")
    faults.on("create folder/rejected/", BEFORE, StorageUnavailable)
    book = lake.book(faults)
    lake.tick(book)
    assert (lake.keys(), lake.pending()) == (["a"], [str(bad)])
    faults.clear()
    lake.tick(book)
    assert lake.rejected() == {str(bad): "WrongTable"}


def test_a_newer_version_is_held_loudly_once_and_gets_in_never(lake: Lake, writer: Writes, caplog: Any) -> None:
    name, data = with_header(Writes(lake, "bad"), "x", bookkeeper__version=b"5", bookkeeper__new=b"1")
    lake.put(f"pending/{name}", data)
    book = lake.book()
    for key in "ab":
        writer.publish(key)
        result = lake.tick(book)
        assert result.held == [name]
    assert (lake.keys(), lake.pending(), lake.rejected()) == (["a", "b"], [str(name)], {})
    assert [record.action for record in caplog.records if record.levelname == "WARNING"] == ["hold"]


def test_a_path_of_a_txlog_that_never_got_in_may_be_published_again(lake: Lake, writer: Writes, faults: Faults) -> None:
    file = writer.file(["a"])
    first, data = writer.encoded([file])
    lake.folder.publish(first, data)
    book = lake.book(faults.on("commit_table", BEFORE, TimeoutError))
    with pytest.raises(CommitConflict):
        lake.tick(book)
    faults.clear()
    lake.folder.delete([first])
    name, data = writer.encoded([file])
    lake.folder.publish(name, data)
    lake.tick(book)
    assert (lake.keys(), lake.rejected()) == (["a"], {})


def test_a_bad_data_file_is_found_in_a_second_attempt_and_condemned_only_after_a_load(
    lake: Lake, writer: Writes, faults: Faults
) -> None:
    """Another bookkeeper may have committed it meanwhile, and its file be gone since."""
    book = lake.book(faults)
    lake.tick(book)
    name = writer.publish("a")
    path = f"{name.writer}-{name.incarnation}-0000000001-a.parquet"

    def committed_and_gone() -> None:
        lake.tick()
        lake.store(lake.folder.card().data_path).delete_many([path])
        name_again, data = writer.encoded([writer.file(["a"], sequence=1)], sequence=1)
        lake.store(lake.folder.card().data_path).delete_many([path])
        lake.folder.publish(name_again, data)  # its delete is lost: it is still pending

    faults.between(f"data/{path}", committed_and_gone)
    lake.tick(book)
    assert faults.hooks == [] and faults.seen.count("load_table") == 2
    assert (lake.rejected(), lake.pending(), lake.operations()) == ({}, [], ["append"])


def test_a_txlog_whose_files_cannot_be_looked_up_costs_one_attempt_and_then_none(
    lake: Lake, writer: Writes, faults: Faults
) -> None:
    book = lake.book(faults)
    lost = Writes(lake, "lost")
    lost.publish("x")
    faults.on(f"data/lost-{lost.name.incarnation}", BEFORE, StorageUnavailable)
    for number in range(3):
        writer.publish(f"a{number}")
        faults.seen.clear()
        result = lake.tick(book)
        assert (result.commit.txlogs, type(result.trouble)) == (1, StorageUnavailable)
        assert faults.seen.count("commit_table") == 1
        lists = [operation for operation in faults.seen if operation.startswith("create metadata/snap-")]
        assert len(lists) == 1, "its lookup comes before the plan, or each tick would write in vain"
    assert lake.rejected() == {}
    faults.clear()
    lake.tick(book)
    assert (lake.keys(), lake.pending()) == (["a0", "a1", "a2", "x"], [])


def test_a_file_check_can_be_turned_off(lake: Lake) -> None:
    name, data = elsewhere("{data}/{run}-never-written.parquet")(Writes(lake), "x")
    lake.put(f"pending/{name}", data)
    assert lake.tick(lake.book(check_files=False)).commit.txlogs == 1


def test_a_defect_while_decoding_holds_one_txlog_and_stops_no_other(
    lake: Lake, writer: Writes, monkeypatch: pytest.MonkeyPatch
) -> None:
    from bookkeeper.tick import intake

    bad = Writes(lake, "bad").publish("x")
    writer.publish("a")
    right = intake.txlog_format.decode

    def broken(name: Any, *rest: Any) -> Any:
        if name == bad:
            raise KeyError("defect")
        return right(name, *rest)

    monkeypatch.setattr(intake.txlog_format, "decode", broken)
    result = lake.tick()
    assert (lake.keys(), result.held, lake.pending()) == (["a"], [bad], [str(bad)])


def test_a_schema_or_spec_is_looked_for_in_a_fresh_load_before_it_counts_as_unknown(lake: Lake) -> None:
    book = lake.book()
    lake.tick(book)
    with lake.table().update_spec() as change:
        change.add_identity("key")
    lake.book().tick(lake.clock.now)  # another one tells writers
    Writes(lake).publish("a")
    lake.tick(book)
    assert (lake.keys(), lake.rejected()) == (["a"], {})
