"""Avro container files: strict, bounded, the same bytes for the same content."""

import io
import tracemalloc
import zlib

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.errors import TxlogCorrupt, TxlogTooLarge
from bookkeeper.format import avro
from bookkeeper.format.avro import Block, Cursor, encode_bytes, encode_long

MOST = 2**20
metas = st.dictionaries(
    st.text(max_size=10).filter(lambda key: key != "avro.codec"), st.binary(max_size=20), max_size=5
)
blocks = st.lists(st.builds(Block, st.integers(1, 2**40), st.binary(max_size=200)), max_size=4)
codecs = st.sampled_from(["null", "deflate"])
SYNC = b"s" * 16


@given(metas, blocks, codecs)
def test_a_container_is_read_as_it_was_written(meta: dict[str, bytes], parts: list[Block], codec: str) -> None:
    data = avro.encode(meta, parts, codec)
    found = avro.decode(data, MOST)
    assert found.meta == {**meta, "avro.codec": codec.encode()}
    assert list(found.blocks) == parts
    assert avro.read_header(data).meta == found.meta
    assert avro.encode(meta, parts, codec) == data


@given(metas, blocks, codecs, st.data())
def test_a_container_cut_anywhere_is_refused_or_has_lost_whole_blocks(
    meta: dict[str, bytes], parts: list[Block], codec: str, data: st.DataObject
) -> None:
    whole = avro.encode(meta, parts, codec)
    cut = whole[: data.draw(st.integers(0, len(whole) - 1))]
    try:
        found = list(avro.decode(cut, MOST).blocks)
    except TxlogCorrupt:
        return
    # The Avro specification has no end marker: a reader that needs one counts the records.
    assert found == parts[: len(found)] and len(found) < len(parts)


@given(st.binary(max_size=100))
def test_whatever_the_bytes_are_they_are_a_container_or_refused(data: bytes) -> None:
    for whole in (data, avro.MAGIC + data, avro.MAGIC + encode_long(0) + SYNC + data):
        try:
            avro.decode(whole, MOST)
        except (TxlogCorrupt, TxlogTooLarge):
            continue


@given(st.integers(-(2**63), 2**63 - 1))
def test_a_long_is_written_as_avro_writes_it(value: int) -> None:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, "long", value)
    assert encode_long(value) == out.getvalue()
    cursor = Cursor(encode_long(value) + b"x")
    assert (cursor.long(), cursor.at) == (value, len(out.getvalue()))


@given(st.binary(max_size=300))
def test_bytes_are_written_as_avro_writes_them(value: bytes) -> None:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, "bytes", value)
    assert encode_bytes(value) == out.getvalue()


def test_another_library_reads_what_we_write_and_we_read_what_it_writes() -> None:
    schema = {"type": "record", "name": "r", "fields": [{"name": "x", "type": "long"}]}
    for codec in ("null", "deflate"):
        out = io.BytesIO()
        fastavro.writer(out, schema, [{"x": number} for number in range(100)], codec=codec, metadata={"k": "v"})
        found = avro.decode(out.getvalue(), MOST)
        assert (sum(block.count for block in found.blocks), found.meta["k"]) == (100, b"v")
        ours = io.BytesIO(avro.encode(found.meta, found.blocks, codec))
        assert [record["x"] for record in fastavro.reader(ours)] == list(range(100))


@pytest.mark.parametrize("tail", [b"\0", b"\x02\0", b"garbage", SYNC])
def test_bytes_behind_the_end_are_refused(tail: bytes) -> None:
    with pytest.raises(TxlogCorrupt):
        avro.decode(avro.encode({}, [Block(1, b"x")]) + tail, MOST)


@pytest.mark.parametrize("data", [b"", b"Obj", b"Obj\x02", b"PAR1", b"hello, this is a text file\n" * 50, b"\0" * 99])
def test_what_is_no_avro_file_is_refused(data: bytes) -> None:
    with pytest.raises(TxlogCorrupt):
        avro.decode(data, MOST)


@pytest.mark.parametrize("codec", [b"snappy", b"zstandard", b"", b"\xff"])
def test_a_codec_that_not_every_machine_has_is_refused(codec: bytes) -> None:
    header = avro.MAGIC + encode_long(1) + encode_bytes(b"avro.codec") + encode_bytes(codec) + encode_long(0)
    with pytest.raises(TxlogCorrupt, match="null and deflate are"):
        avro.decode(header + SYNC, MOST)


def handmade(payload: bytes, count: int = 1, size: int | None = None, sync: bytes = SYNC) -> bytes:
    """
    A deflated container of one block, with lies where asked for.
    """
    header = avro.MAGIC + encode_long(1) + encode_bytes(b"avro.codec") + encode_bytes(b"deflate") + encode_long(0)
    length = len(payload) if size is None else size
    return header + SYNC + encode_long(count) + encode_long(length) + payload + sync


def deflated(plain: bytes) -> bytes:
    squeeze = zlib.compressobj(9, zlib.DEFLATED, -15)
    return squeeze.compress(plain) + squeeze.flush()


def test_the_handmade_container_is_good() -> None:
    assert avro.decode(handmade(deflated(b"abc")), MOST).blocks == (Block(1, b"abc"),)


@pytest.mark.parametrize(
    "data",
    [
        handmade(deflated(b"abc"), count=0),
        handmade(deflated(b"abc"), count=-1),
        handmade(deflated(b"abc"), size=-1),
        handmade(deflated(b"abc"), size=2**62),
        handmade(deflated(b"abc"), sync=b"x" * 16),
        handmade(deflated(b"abc")[:-1]),
        handmade(deflated(b"abc") + b"x"),
        handmade(deflated(b"abc") + b"xyz"),
        handmade(b""),
        handmade(b"\xff\xff"),
        handmade(zlib.compress(b"abc")),
        avro.MAGIC + b"\xff" * 11,
        avro.MAGIC + encode_long(2**62),
        avro.MAGIC + encode_long(-1) + encode_long(5) + encode_bytes(b"k"),
    ],
    ids=range(14),
)
def test_a_container_that_lies_about_itself_is_refused(data: bytes) -> None:
    with pytest.raises(TxlogCorrupt):
        avro.decode(data, MOST)


def test_metadata_written_in_sized_chunks_is_read() -> None:
    pair = encode_bytes(b"k") + encode_bytes(b"v")
    header = avro.MAGIC + encode_long(-1) + encode_long(len(pair)) + pair + encode_long(0)
    assert avro.decode(header + SYNC, MOST).meta == {"k": b"v"}


def test_a_header_key_that_is_no_text_is_refused() -> None:
    good = avro.encode({"some-key": b"value"}, [])
    with pytest.raises(TxlogCorrupt, match="UTF-8"):
        avro.read_header(good.replace(b"some-key", b"some\xffkey"))


def test_a_file_larger_than_allowed_is_refused_unread() -> None:
    data = avro.encode({}, [Block(1, b"x" * 1000)], "null")
    assert avro.decode(data, len(data))
    with pytest.raises(TxlogTooLarge, match=f"{len(data)} bytes, at most {len(data) - 1} are allowed"):
        avro.decode(data, len(data) - 1)


@pytest.mark.parametrize("parts", [1, 8])
def test_a_decompression_bomb_is_refused_within_the_allowed_memory(parts: int) -> None:
    data = avro.encode({}, [Block(1, bytes(64 * MOST // parts))] * parts)
    assert len(data) < MOST
    tracemalloc.start()
    with pytest.raises(TxlogTooLarge, match="once decompressed"):
        avro.decode(data, 16 * MOST)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 40 * MOST
