"""Headers that begin and end alike: read the same as one by one, whatever their bytes, and nothing grows."""

import tracemalloc
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.errors import TxlogCorrupt
from bookkeeper.format import avro
from bookkeeper.format.avro import encode_bytes, encode_long
from bookkeeper.format.headers import Alike, Ending, Headers


def test_a_header_is_read_the_same_when_its_beginning_is_known_and_a_padded_one_is_not_kept() -> None:
    headers = Headers("own.", nothing)
    for number in range(3):
        data = avro.encode({"schema": b"s" * 500, "own.number": b"%d" % number, "other": b"x"}, [])
        assert headers.read(data) == avro.read_header(data)
    assert len(headers.known) == 1
    padded = avro.encode({"schema": b"s" * 2**19, "own.number": b"1"}, [])
    assert headers.read(padded) == avro.read_header(padded)
    assert len(headers.known) == 1


values = st.binary(max_size=80) | st.builds(lambda value: b"x" + encode_bytes(b"own.b") + value, st.binary(max_size=4))
owns = st.dictionaries(st.sampled_from(["own.a", "own.b", "own.c"]), values, min_size=1)


@given(st.lists(owns, min_size=2, max_size=6), st.integers(0, 300), st.integers(0, 255))
def test_a_header_whose_end_is_known_too_is_read_the_same_whatever_its_bytes(
    several: list[dict[str, bytes]], at: int, byte: int
) -> None:
    for headers in (Headers("own.", nothing), Headers("own.", everything)):
        for meta in [*several, *several]:
            data = avro.encode({"schema": b"s" * 30, **meta}, [])
            changed = data[: at % len(data)] + bytes([byte]) + data[at % len(data) + 1 :]
            for text in (data, changed, data[: at % len(data)]):
                assert header_of(headers.read, text) == header_of(avro.read_header, text)


def test_what_headers_of_a_kind_have_in_common_is_found_out_once() -> None:
    asked: list[list[str]] = []

    def common(meta: Mapping[str, bytes], keys: Sequence[str]) -> str:
        asked.append([*meta, *keys])
        return "a kind"

    headers = Headers("own.", common)
    written = [avro.encode({"schema": b"s" * 30, "own.a": b"%d" % number}, []) for number in range(4)]
    *first, third, fourth = [headers.read(data) for data in written]
    assert first == [avro.read_header(data) for data in written[:2]]
    assert third == Alike("a kind", (b"2", b"deflate"), avro.read_header(written[2]).end)
    assert fourth == Alike("a kind", (b"3", b"deflate"), avro.read_header(written[3]).end)
    assert asked == [["schema", "own.a", "avro.codec"]]


Common = tuple[dict[str, bytes], list[str]]


def nothing(meta: Mapping[str, bytes], keys: Sequence[str]) -> Common | None:
    return None


def everything(meta: Mapping[str, bytes], keys: Sequence[str]) -> Common | None:
    return dict(meta), list(keys)


def header_of(read: Callable[[bytes], avro.Header | Alike[Common]], data: bytes) -> avro.Header | None:
    try:
        found = read(data)
    except TxlogCorrupt:
        return None
    if isinstance(found, avro.Header):
        return found
    meta, keys = found.kind
    return avro.Header(meta | dict(zip(keys, found.values, strict=True)), found.end)


def test_another_thread_may_learn_a_header_while_one_is_read() -> None:
    headers = Headers("own.", nothing)
    others = [avro.encode({"schema": b"%d" % n, "own.n": b"1"}, []) for n in range(3)]

    class Interrupted(bytes):
        def startswith(self, *arguments: Any) -> bool:
            headers.read(others.pop())
            return super().startswith(*arguments)

    headers.read(others.pop())
    data = avro.encode({"schema": b"x", "own.n": b"1"}, [])
    assert headers.read(Interrupted(data)) == avro.read_header(data)


def test_the_end_of_a_value_is_looked_for_once() -> None:
    """Or a writer could make it try the ends of all values with each other, which takes for ever."""
    values = [b"x" * 5 + encode_bytes(b"own.b") + b"y" * 50, b"z" * 30, b""]
    data = pairs_bytes([*zip(("own.a", "own.b", "own.c"), values, strict=True)]) + b"\0"
    ending = Ending(["own.a", "own.b", "own.c"])
    assert ending.values(data, 0) is None
    assert ending.values(data.replace(values[0], b"v" * len(values[0])), 0) is not None


def test_many_or_long_keys_are_not_learned() -> None:
    headers = Headers("own.", nothing)
    for keys in ([f"own.{number}" for number in range(20)], ["own." + "k" * 2000]):
        for _ in range(2):
            headers.read(header_bytes([(key, b"1") for key in keys], b"\0"))
    assert [known.endings for known in headers.known.values()] == [[], []]


def test_long_values_of_the_same_keys_take_the_place_of_one_ending() -> None:
    """Or txlogs with offsets would leave none to be learned for those of other writers."""
    headers = Headers("own.", nothing)
    for value in (b"1", b"x" * 500, b"y" * 500, b"z" * 500, b"1"):
        data = avro.encode({"schema": b"s" * 500, "own.number": b"1", "own.offsets": value}, [])
        for _ in range(2):
            assert headers.read(data) == avro.read_header(data)
    assert [len(known.endings) for known in headers.known.values()] == [1]


def header_bytes(pairs: list[tuple[str, bytes]], end: bytes) -> bytes:
    return avro.MAGIC + encode_long(len(pairs)) + pairs_bytes(pairs) + end


def pairs_bytes(pairs: list[tuple[str, bytes]]) -> bytes:
    return b"".join(encode_bytes(key.encode()) + encode_bytes(value) for key, value in pairs)


def test_a_header_of_very_many_keys_is_refused_before_they_take_memory() -> None:
    many = avro.MAGIC + encode_long(10**6) + b"\0\0" * 10**6 + b"\0"
    blocks = avro.MAGIC + b"".join(header_bytes([(f"{n}-{m}", b"") for m in range(500)], b"")[4:] for n in range(3))
    for data in (many, blocks + b"\0"):
        for read in (avro.read_header, Headers("own.", nothing).read):
            tracemalloc.start()
            with pytest.raises(TxlogCorrupt, match="keys"):
                read(data)
            assert tracemalloc.get_traced_memory()[1] < 2**20
            tracemalloc.stop()
