"""Txlogs of version 2, whose steps delete by key: read as written, refused when they are anything else."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec

from bookkeeper.contract import txlog as txlog_format
from bookkeeper.contract.txlog import MOST_ENTRIES, MOST_SPAN, PREFIX, StepFile, Txlog, decode, encode_steps
from bookkeeper.errors import NameMismatch, NewerVersion, TxlogCorrupt, TxlogTooLarge
from bookkeeper.format import avro, manifest
from bookkeeper.format.entries import ADDED, EQUALITY_DELETES, DataFile, Entry
from bookkeeper.format.headers import Alike, Headers
from tests.support.txlogs import ENVELOPE, MOST, NAME, SCHEMA, SPEC, data_file, own, txlog, with_header

UNPARTITIONED = PartitionSpec(spec_id=7)
DELETES = PREFIX + "deletes"


def delete_file(number: int) -> DataFile:
    path = f"file:///lake/events/data/{NAME.incarnation}-d{number:05d}.parquet"
    return DataFile(path, "PARQUET", (), 3, 700 + number, lower_bounds={2: b"a"}, upper_bounds={2: b"z"})


def steps(data: Sequence[int] = (1, 0, 2), deletes: Sequence[int] = (1, 2), span: int | None = None) -> bytes:
    """
    A txlog with a data file and a delete file for each of these relative numbers.
    """
    last = max([*data, *deletes])
    files = [StepFile(data_file(index), number) for index, number in enumerate(data)]
    removing = [StepFile(delete_file(index), number) for index, number in enumerate(deletes)]
    return encode_steps(
        ENVELOPE, SCHEMA, SPEC, files, UNPARTITIONED, removing, (2,), last + 1 if span is None else span
    )


def decoded(data: bytes) -> Txlog:
    return decode(NAME, data, MOST)


def removing(*entries: Entry, **header: bytes | None) -> bytes:
    """
    The same txlog with these delete entries, and changes to their manifest's header; `_` for `-`.
    """
    plain = manifest.header(SCHEMA, UNPARTITIONED, b"deletes")
    changes = {key.replace("_", "-"): value for key, value in header.items()}
    meta = {key: value for key, value in {**plain, **changes}.items() if value is not None}
    made = [replace(entry, data_file=delete_file(index)) for index, entry in enumerate(entries or (FIRST, SECOND))]
    return with_header(steps(), {DELETES: avro.encode(meta, manifest.encode_blocks(plain["avro.schema"], made))})


FIRST, SECOND = (
    Entry(ADDED, None, number, None, EQUALITY_DELETES, (2,), None, delete_file(number)) for number in (1, 2)
)


@st.composite
def numbers(draw: st.DrawFn) -> tuple[list[int], list[int]]:
    """Relative numbers of data files and delete files, as steps make them."""
    data, deletes = list[int](), list[int]()
    for step in range(1, draw(st.integers(1, 6)) + 1):
        kinds = draw(st.sets(st.sampled_from(["live", "delete", "shadow"]), min_size=1)) | {"delete"}
        data += [step] * ("live" in kinds) + [step - 1] * ("shadow" in kinds)
        deletes += [step]
    return data, deletes


@given(numbers())
def test_steps_are_read_as_they_were_written(made: tuple[list[int], list[int]]) -> None:
    data, deletes = made
    found = decoded(steps(data, deletes))
    assert found.deletes is not None
    assert (found.span, found.numbers, found.deletes.numbers) == (max(deletes) + 1, tuple(data), tuple(deletes))
    assert found.files == tuple(data_file(index) for index in range(len(data)))
    assert [row.entry.data_file for row in found.deletes.rows if row.entry] == [
        delete_file(index) for index in range(len(deletes))
    ]
    assert (found.deletes.spec_id, found.deletes.partition) == (7, ())
    assert found.deletes.equality_ids == ((2,),) * len(deletes)
    assert found.every_path == (*found.paths, *found.deletes.paths)
    # What the table gets and loses are counted apart.
    assert (found.row_count, found.delete_count) == (100 * len(data), len(deletes))
    assert found.delete_bytes == sum(700 + index for index in range(len(deletes)))


def test_a_txlog_may_only_delete() -> None:
    found = decoded(steps([], [1]))
    assert (found.rows, found.row_count, found.span, found.delete_count) == ((), 0, 2, 1)


def test_a_txlog_without_deletes_takes_one_number_and_has_no_others() -> None:
    found = decoded(txlog(2))
    assert (found.span, found.numbers, found.deletes) == (1, (), None)
    assert (found.every_path, found.delete_count, found.delete_bytes) == (found.paths, 0, 0)


def test_steps_are_the_same_bytes_every_time() -> None:
    assert steps() == steps()


WRONG_NUMBERS = {
    "a gap": ([1], [1, 3], 4),
    "a number outside": ([3], [1, 2], 3),
    "a larger span": ([1], [1], 3),
    "a smaller span": ([1, 2], [1, 2], 2),
    "no span": ([], [1], 0),
    "a delete before the first step": ([1], [0, 1], 2),
    "a number below": ([-1], [1], 2),
}


@pytest.mark.parametrize(("data", "deletes", "span"), WRONG_NUMBERS.values(), ids=WRONG_NUMBERS)
def test_numbers_that_are_not_those_of_steps_are_refused_on_both_sides(
    data: list[int], deletes: list[int], span: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # They would leave numbers of the table unused for good, or let a delete miss or take rows.
    with pytest.raises(ValueError, match="dense from 1"):
        steps(data, deletes, span)
    with monkeypatch.context() as patch:
        patch.setattr(txlog_format, "check_numbers", lambda *_: None)
        made = steps(data, deletes, span)
    with pytest.raises(TxlogCorrupt, match="dense from 1"):
        decoded(made)


def test_a_span_is_bounded() -> None:
    with pytest.raises(ValueError, match="at most 10000"):
        steps([], range(1, MOST_SPAN + 1))
    assert decoded(steps([], range(1, MOST_SPAN))).span == MOST_SPAN
    for span in (b"10001", b"9" * 18):
        with pytest.raises(TxlogCorrupt, match="at most 10000"):
            decoded(with_header(steps(), own(span=span)))


@pytest.mark.parametrize("span", [b"", b"-1", b"03", b"x", b"9" * 19])
def test_a_span_that_is_no_number_is_refused(span: bytes) -> None:
    with pytest.raises(TxlogCorrupt):
        decoded(with_header(steps(), own(span=span)))


@pytest.mark.parametrize("key", ["span", "deletes", "entries"])
def test_a_key_of_version_2_must_be_there(key: str) -> None:
    with pytest.raises(TxlogCorrupt, match=f"the header lacks bookkeeper.{key}"):
        decoded(with_header(steps(), own(**{key: None})))


@pytest.mark.parametrize("key", ["span", "deletes"])
def test_a_key_of_version_2_is_refused_in_version_1(key: str) -> None:
    with pytest.raises(TxlogCorrupt, match=f"unknown header key bookkeeper.{key}"):
        decoded(with_header(txlog(), own(**{key: b"1"})))


def test_version_2_without_deletes_is_refused() -> None:
    with pytest.raises(ValueError, match="version 1"):
        steps([1], [], 2)
    empty = manifest.encode(manifest.header(SCHEMA, UNPARTITIONED, b"deletes"), [])
    with pytest.raises(TxlogCorrupt, match="without delete files a txlog is version 1"):
        decoded(with_header(steps(), {DELETES: empty}))


def test_a_txlog_of_version_1_that_says_2_is_refused_however_often_its_header_was_met() -> None:
    for _ in range(4):
        with pytest.raises(TxlogCorrupt, match=r"lacks bookkeeper\.deletes, bookkeeper\.span"):
            decoded(with_header(txlog(), own(version=b"2")))
        assert decoded(txlog())


def test_a_newer_version_is_held_however_its_deletes_look() -> None:
    with pytest.raises(NewerVersion, match="format version 5"):
        decoded(with_header(steps(), own(version=b"5", deletes=b"new")))


def test_an_unchanged_delete_manifest_is_good() -> None:
    assert decoded(removing()).delete_count == 2


BAD_HEADERS: dict[str, dict[str, bytes | None]] = {
    "content": {"content": b"data"},
    "no content": {"content": None},
    "format": {"format_version": b"1"},
    "schema": {"schema_id": b"5"},
    "no schema": {"schema_id": None, "schema": None},
    "no spec": {"partition_spec_id": None},
    "no avro.schema": {"avro.schema": None},
    "a key of ours": {"bookkeeper.version": b"1"},
}


@pytest.mark.parametrize("header", BAD_HEADERS.values(), ids=BAD_HEADERS)
def test_a_delete_manifest_with_another_header_is_refused(header: Mapping[str, bytes | None]) -> None:
    with pytest.raises(TxlogCorrupt):
        decoded(removing(**header))


@pytest.mark.parametrize("changes", [{"content": 0, "equality_ids": None}, {"content": 1}, {"sequence_number": None}])
def test_a_delete_entry_that_is_no_equality_delete_of_a_step_is_refused(changes: Mapping[str, Any]) -> None:
    with pytest.raises(TxlogCorrupt):
        decoded(removing(FIRST, replace(SECOND, **changes)))


def test_a_data_file_without_a_relative_number_is_refused() -> None:
    # It would inherit the number of its commit, and outlive a later delete of its key.
    meta = avro.read_header(steps([1], [1])).meta
    body = avro.decode(txlog(), MOST).blocks
    with pytest.raises(TxlogCorrupt, match="dense from 1"):
        decoded(avro.encode(meta, body))


SPOILED: dict[str, Callable[[bytes], bytes]] = {
    "cut": lambda data: data[:-1],
    "longer": lambda data: data + b"\0",
    "empty": lambda data: b"",
    "text": lambda data: b"no manifest",
    "a txlog": lambda data: steps(),
}


@pytest.mark.parametrize("change", SPOILED.values(), ids=SPOILED)
def test_a_delete_manifest_that_is_not_whole_is_refused(change: Callable[[bytes], bytes]) -> None:
    whole = avro.read_header(steps()).meta[DELETES]
    with pytest.raises(TxlogCorrupt):
        decoded(with_header(steps(), {DELETES: change(whole)}))


def test_a_txlog_with_deletes_cut_at_any_byte_is_refused() -> None:
    data = steps([1], [1])
    for end in range(len(data)):
        with pytest.raises(TxlogCorrupt):
            decoded(data[:end])


def test_data_files_and_delete_files_share_the_bound_of_entries() -> None:
    found = avro.decode(steps([1] * 1000, [1]), MOST)
    full = avro.encode({**found.meta, "bookkeeper.entries": b"100000"}, list(found.blocks) * 100)
    assert MOST_ENTRIES == 100_000
    with pytest.raises(TxlogTooLarge, match="1 entries, at most 0"):
        decode(NAME, full, 2**30)


def test_data_files_and_delete_files_share_the_bound_of_bytes_once_decompressed() -> None:
    data = steps([1] * 1000, list(range(1, 1001)))
    plain = sum(len(block.payload) for block in avro.decode(data, MOST).blocks)
    inner = avro.read_header(data).meta[DELETES]
    both = plain + sum(len(block.payload) for block in avro.decode(inner, MOST).blocks)
    assert decode(NAME, data, both).delete_count == 1000
    with pytest.raises(TxlogTooLarge):
        decode(NAME, data, both - 1)


def test_headers_with_deletes_take_no_place_of_those_without() -> None:
    headers = Headers(PREFIX, txlog_format._common)
    for _ in range(10):
        headers.read(steps())
    read = [headers.read(txlog()) for _ in range(3)]
    assert isinstance(read[-1], Alike), "the txlogs of the same table that only append are still known"


@given(st.integers(0, 5000), st.integers(0, 255), st.booleans())
def test_any_spoiled_txlog_is_one_or_is_refused_or_held(at: int, byte: int, inner: bool) -> None:
    data = steps()
    if inner:
        whole = avro.read_header(data).meta[DELETES]
        spoiled = whole[: at % len(whole)] + bytes([byte]) + whole[at % len(whole) + 1 :]
        data = with_header(data, {DELETES: spoiled})
    else:
        data = data[: at % len(data)] + bytes([byte]) + data[at % len(data) + 1 :]
    check_any(data)


@given(st.binary(max_size=300))
def test_any_bytes_for_deletes_are_refused(garbage: bytes) -> None:
    check_any(with_header(steps(), {DELETES: garbage}))
    plain = manifest.header(SCHEMA, UNPARTITIONED_PARTITION_SPEC, b"deletes")
    blocks = [avro.Block(2, garbage)]
    check_any(with_header(steps(), {DELETES: avro.encode(plain, blocks, "null")}))


def check_any(data: bytes) -> None:
    """Decodes `data`: only the errors that decode names, or a txlog whose every file is numbered."""
    try:
        found = decoded(data)
    except (TxlogCorrupt, TxlogTooLarge, NewerVersion, NameMismatch):
        return
    assert found.deletes is not None
    assert len(found.numbers) == len(found.rows) == len(found.entries)
    assert len(found.deletes.numbers) == len(found.deletes.rows) == len(found.deletes.equality_ids)
    assert {0, *found.numbers, *found.deletes.numbers} == set(range(found.span))
    assert 0 not in found.deletes.numbers
