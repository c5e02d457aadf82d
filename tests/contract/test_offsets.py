"""Offsets in a txlog of version 3 or 4: read as written, refused when they are anything else, kept by marks."""

import json
from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.contract import marks_json
from bookkeeper.contract import offsets as offsets_format
from bookkeeper.contract.marks import Marks, WriterMarks
from bookkeeper.contract.names import TxlogName, new_incarnation
from bookkeeper.contract.offsets import CHANNEL_CHARS, FORGOTTEN, MOST_IN_TXLOG, OFFSET_CHARS
from bookkeeper.contract.txlog import Txlog, decode, encode
from bookkeeper.errors import BookkeeperError, MarksLost, TxlogCorrupt
from tests.golden.contents import FOLDER, NAMES
from tests.support.txlogs import ENVELOPE, MOST, NAME, SCHEMA, SPEC, data_file, own, txlog, with_header

T0 = 1_700_000_000_000
HOUR = 3_600_000
text = st.text(st.sampled_from([chr(code) for code in range(0x21, 0x7F) if chr(code) not in '"\\']), min_size=1)
offsets = st.dictionaries(text.map(lambda word: word[:CHANNEL_CHARS]), text.map(lambda word: word[:OFFSET_CHARS]))


def slots(count: int = 1, /, **given: str) -> bytes:
    """A txlog with so many data files and these offsets."""
    envelope = replace(ENVELOPE, position=b"2", previous_position=b"1", offsets=given or {"a/0": "7"})
    return encode(envelope, SCHEMA, SPEC, [data_file(number) for number in range(count)])


def decoded(data: bytes) -> Txlog:
    return decode(NAME, data, MOST)


@given(offsets.filter(bool), st.integers(0, 3))
def test_offsets_are_read_as_they_were_written(given: dict[str, str], count: int) -> None:
    found = decoded(slots(count, **given))
    assert (dict(found.offsets), found.position, found.previous_position) == (given, b"2", b"1")
    assert (len(found.rows), found.span, found.deletes, found.numbers) == (count, 1, None, ())


@given(offsets)
def test_equal_offsets_are_equal_bytes(given: dict[str, str]) -> None:
    if given:
        assert slots(1, **given) == slots(1, **dict(reversed(given.items())))


def test_a_txlog_without_offsets_is_no_other_than_before() -> None:
    assert encode(replace(ENVELOPE, offsets={}), SCHEMA, SPEC, [data_file(0)]) == txlog()
    assert b"bookkeeper.version\x021" in txlog() and decoded(txlog()).offsets == {}


BOUNDS: list[Mapping[str, str]] = [
    {f"c{number}": "1" for number in range(MOST_IN_TXLOG + 1)},
    {"c" * (CHANNEL_CHARS + 1): "1"},
    {"c": "1" * (OFFSET_CHARS + 1)},
    {"": "1"},
    {"": ""},
    {"a b": "1"},
    {"a\n": "1"},
    {"c": "1\n"},
    {"ä": "1"},
    {'a"': "1"},
    {"c": "\\"},
]


@pytest.mark.parametrize("wrong", BOUNDS, ids=range(len(BOUNDS)))
def test_offsets_out_of_bounds_are_refused_on_both_sides(wrong: Mapping[str, str]) -> None:
    with pytest.raises(ValueError, match="expected"):
        slots(1, **wrong)
    with pytest.raises(TxlogCorrupt, match="expected"):
        decoded(with_header(slots(), own(offsets=json.dumps(wrong).encode())))


@given(st.dictionaries(text.map(lambda word: word[:CHANNEL_CHARS]), st.sampled_from([FORGOTTEN, "1"]), min_size=1))
def test_channels_that_are_forgotten_are_read_as_they_were_written(given: dict[str, str]) -> None:
    data = slots(1, **given)
    assert dict(decoded(data).offsets) == given
    assert (b"bookkeeper.version\x024" in data) == (FORGOTTEN in given.values())


@pytest.mark.parametrize("version", [b"1", b"2", b"3"])
def test_channels_are_forgotten_by_version_4_alone(version: bytes) -> None:
    with pytest.raises(TxlogCorrupt):
        decoded(with_header(slots(1, a=FORGOTTEN, b="1"), own(version=version)))


def test_marks_have_no_forgotten_channel() -> None:
    marks = Marks("folder", writers={"s": WriterMarks(b"1", offsets={"a": FORGOTTEN})})
    with pytest.raises(MarksLost):
        marks_json.loads(marks_json.dumps(marks))


def test_the_largest_offsets_are_taken() -> None:
    most = {f"{number:0{CHANNEL_CHARS}}": f"{number:0{OFFSET_CHARS}}" for number in range(MOST_IN_TXLOG)}
    assert decoded(slots(0, **most)).offsets == most


HOSTILE = [
    b"",
    b"{}",
    b"[]",
    b"null",
    b"1",
    b'"a"',
    b'["a"]',
    b'[["a", "1"]]',
    b'{"a": 1}',
    b'{"a": null}',
    b'{"a": {"b": "1"}}',
    b'{"a": "1", "a": "2"}',
    b'{"a": "1"',
    b'{"a": "1"} {}',
    b'\xff{"a": "1"}',
    b"[" * 100_000,
    b'{"a":' * 100_000,
    b'{"a": ' + b"9" * 5000 + b"}",
    b" " * 2**19 + b'{"a": "1"}',
]


@pytest.mark.parametrize("value", HOSTILE, ids=range(len(HOSTILE)))
def test_what_are_no_offsets_is_refused(value: bytes) -> None:
    with pytest.raises(TxlogCorrupt):
        decoded(with_header(slots(), own(offsets=value)))


@given(st.binary(max_size=60) | st.recursive(st.text(max_size=3), st.lists, max_leaves=5).map(json.dumps))
def test_whatever_the_bytes_are_they_are_offsets_within_bounds_or_refused(value: bytes | str) -> None:
    data = value.encode() if isinstance(value, str) else value
    try:
        found = offsets_format.decode(data)
    except BookkeeperError:
        return
    assert offsets_format.decode(offsets_format.encode(found)) == found


@pytest.mark.parametrize("key", ["position", "offsets", "entries"])
def test_a_key_of_version_3_must_be_there(key: str) -> None:
    with pytest.raises(TxlogCorrupt, match=f"the header lacks bookkeeper.{key}"):
        decoded(with_header(slots(), own(**{key: None})))


@pytest.mark.parametrize("version", [b"1", b"2"])
def test_offsets_are_refused_in_earlier_versions(version: bytes) -> None:
    with pytest.raises(TxlogCorrupt, match=r"unknown header key bookkeeper\.offsets|lacks"):
        decoded(with_header(slots(), own(version=version)))


@pytest.mark.parametrize("key", ["deletes", "span"])
def test_deletes_and_span_come_together(key: str) -> None:
    name = NAMES["offsets-and-deletes"]
    data = (FOLDER / "offsets-and-deletes.txlog.avro").read_bytes()
    with pytest.raises(TxlogCorrupt, match="only one of"):
        decode(name, with_header(data, own(**{key: None})), MOST)


def test_offsets_need_a_position() -> None:
    with pytest.raises(ValueError, match="without a position"):
        encode(replace(ENVELOPE, offsets={"a": "1"}), SCHEMA, SPEC, [])


RUN = TxlogName("slot-00", new_incarnation(T0, bytes(10)), 1)
AT = {"slot-00": {"a/0": "7", "a/1": "3"}}


def slot() -> Marks:
    return Marks("f").advanced([RUN], {"slot-00": b"1"}, T0, AT)


def test_a_channel_that_a_txlog_does_not_name_stays_where_it_was() -> None:
    after = slot().advanced([RUN.at(2)], {"slot-00": b"2"}, T0, {"slot-00": {"a/1": "4", "a/2": "1"}})
    assert after.writer("slot-00").offsets == {"a/0": "7", "a/1": "4", "a/2": "1"}
    assert (slot().channels, after.channels) == (2, 3)


def test_no_change_of_marks_but_forget_loses_offsets() -> None:
    """Each change by its own: merges, pruning, holes of replays, discards, clocks, and marks of others."""
    other, before = TxlogName("w", RUN.incarnation, 1), slot()
    changed = {
        "another writer": before.advanced([other], {}, T0),
        "a txlog without offsets": before.advanced([RUN.at(2)], {"slot-00": b"2"}, T0),
        "pruned": before.pruned(T0 + HOUR, []),
        "pruned twice": before.pruned(T0 + HOUR, []).pruned(T0 + 9 * HOUR, []),
        "goes on": before.pruned(T0 + HOUR, []).gone_on(RUN.at(5), [2]),
        "opened": before.opened(RUN, T0),
        "discarded": before.discarded(RUN.at(4), [], T0),
        "joined": before.joined(Marks("f").advanced([RUN], {}, T0, {"slot-00": {"a/0": "1"}})),
        "dated back": before.dated_back(T0 - HOUR),
        "another forgotten": before.advanced([other], {"w": b"1"}, T0).forgotten(["w"], T0),
    }
    lost = [why for why, marks in changed.items() if marks.writer("slot-00").offsets != AT["slot-00"]]
    assert (lost, before.pruned(T0 + HOUR, []).writer("slot-00").incarnations) == ([], {})


def test_a_writer_that_is_forgotten_has_neither_position_nor_offsets() -> None:
    known = slot().forgotten(["slot-00"], T0).writer("slot-00")
    assert (known.position, known.offsets, [*known.incarnations]) == (None, {}, [RUN.incarnation])


def test_a_channel_is_forgotten_alone() -> None:
    known = slot().without_channel("slot-00", "a/0").writer("slot-00")
    assert (known.position, known.offsets) == (b"1", {"a/1": "3"})
