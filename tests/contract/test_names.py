"""Names of txlogs, writers and runs."""

import uuid
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.contract.names import WRITER, TxlogName, check_writer, new_incarnation, started_ms
from bookkeeper.errors import ConfigInvalid, NameMismatch

RUN = "0199c0de-0000-7000-8000-000000000001"
instants = st.integers(0, 2**48 - 1)
randoms = st.binary(min_size=10, max_size=10)
writers = st.from_regex(WRITER, fullmatch=True)
sequences = st.integers(1, 9_999_999_999)
names = st.builds(TxlogName, writers, st.builds(new_incarnation, instants, randoms), sequences)


@given(names)
def test_a_name_parses_back_to_itself(name: TxlogName) -> None:
    assert TxlogName.parse(str(name)) == name


@given(names)
def test_a_name_is_one_short_segment_of_a_path(name: TxlogName) -> None:
    assert "/" not in str(name) and ".." not in str(name) and str(name).isascii()
    assert len(str(name)) <= 122


@given(st.lists(names, min_size=2, max_size=2, unique=True))
def test_names_of_one_writer_sort_as_text_in_the_order_of_their_txlogs(pair: list[TxlogName]) -> None:
    one, other = (TxlogName("w", name.incarnation, name.sequence) for name in pair)
    assert (one < other) == (str(one) < str(other))


@given(st.text(max_size=150))
def test_any_other_text_is_no_name(text: str) -> None:
    with suppress(NameMismatch):
        assert str(TxlogName.parse(text)) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        f"w.{RUN}.0000000000.txlog.avro",
        f"w.{RUN}.000000001.txlog.avro",
        f"w.{RUN}.00000000001.txlog.avro",
        f"w.{RUN}.١٢٣٤٥٦٧٨٩٠.txlog.avro",
        f"w.{RUN}.-000000001.txlog.avro",
        f"w.{RUN}.0000000001.txlog.avro.tmp",
        f"w.{RUN}.0000000001.txlog.avro\n",
        f"w.{RUN}.0000000001.TXLOG.AVRO",
        f"w.{RUN.upper()}.0000000001.txlog.avro",
        f"w.{RUN[:-1]}.0000000001.txlog.avro",
        f"W.{RUN}.0000000001.txlog.avro",
        f"ü.{RUN}.0000000001.txlog.avro",
        f"-w.{RUN}.0000000001.txlog.avro",
        f".{RUN}.0000000001.txlog.avro",
        f"a.b.{RUN}.0000000001.txlog.avro",
        f"../w.{RUN}.0000000001.txlog.avro",
        f"a/w.{RUN}.0000000001.txlog.avro",
        f"{'w' * 64}.{RUN}.0000000001.txlog.avro",
    ],
)
def test_what_does_not_parse_back_to_itself_is_refused(text: str) -> None:
    with pytest.raises(NameMismatch, match="is not named"):
        TxlogName.parse(text)


@pytest.mark.parametrize("name", ["a", "0", "ingest-7", "a_b", "x" * 63])
def test_a_writer_may_be_called(name: str) -> None:
    assert check_writer(name) == name


@pytest.mark.parametrize("name", ["", "A", "-a", "_a", "a.b", "a b", "a/b", "..", "ä", "x" * 64, "a\n"])
def test_a_writer_may_not_be_called(name: str) -> None:
    with pytest.raises(ConfigInvalid, match=r"writer name .* is not valid: use 1 to 63 of"):
        check_writer(name)


@given(instants, randoms)
def test_a_run_has_a_uuid_of_version_7_that_says_when_it_started(now_ms: int, random: bytes) -> None:
    made = uuid.UUID(new_incarnation(now_ms, random))
    assert (made.version, made.variant) == (7, uuid.RFC_4122)
    assert str(made) == new_incarnation(now_ms, random)
    assert started_ms(str(made)) == now_ms


@given(st.lists(instants, min_size=2, max_size=2, unique=True), randoms, randoms)
def test_runs_sort_as_text_by_the_time_they_started(times: list[int], one: bytes, other: bytes) -> None:
    early, late = sorted(times)
    assert new_incarnation(early, one) < new_incarnation(late, other)


def test_runs_that_start_in_the_same_millisecond_differ() -> None:
    made = {new_incarnation(1, bytes([number]) * 10) for number in range(256)}
    assert len(made) == 256


def test_another_sequence_is_of_the_same_run() -> None:
    name = TxlogName("w", RUN, 1)
    assert name.at(2) == TxlogName("w", RUN, 2)
