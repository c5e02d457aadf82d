"""
Avro object container files (Avro 1.11 specification, "Object Container Files"): header, blocks, sync markers.

Reading is strict and bounded: a file cut anywhere, with bytes behind its end, or larger than it may be once
decompressed, is refused with TxlogCorrupt or TxlogTooLarge. The content of blocks is not checked here.
"""

import hashlib
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from bookkeeper.errors import TxlogCorrupt, TxlogTooLarge

MAGIC = b"Obj\x01"
SYNC_BYTES = 16
CODEC = "avro.codec"
CODECS = (b"null", b"deflate")
_LONG_BYTES = 10  # of a 64 bit varint
#: of a block in a manifest, decompressed
_STORED_BYTES = 2**31
#: each takes 200 bytes of memory, however short it is
_MOST_KEYS = 1000


@dataclass(slots=True)
class Block:
    """Records of one block, encoded back to back, decompressed."""

    count: int
    payload: bytes
    #: the payload as it was read, compressed by deflate
    packed: bytes | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class PackedBlock:
    """Records of one block as they lie in a manifest, compressed by deflate."""

    count: int
    packed: bytes


class Container(NamedTuple):
    """An Avro file: its header's metadata and its blocks."""

    meta: Mapping[str, bytes]
    blocks: tuple[Block, ...]


def encode(meta: Mapping[str, bytes], blocks: Iterable[Block | PackedBlock], codec: str = "deflate") -> bytes:
    """
    The bytes of an Avro file; the same input gives the same bytes.
    """
    pairs = {**meta, CODEC: codec.encode()}
    encoded = [encode_bytes(key.encode()) + encode_bytes(value) for key, value in pairs.items()]
    header = b"".join([MAGIC, encode_long(len(pairs)), *encoded, encode_long(0)])
    parts = []
    for block in blocks:
        if block.count:
            payload = pack(block).packed if codec == "deflate" else payload_of(block)
            parts.append(encode_long(block.count) + encode_bytes(payload))
    sync = hashlib.md5(b"".join([header, *parts]), usedforsecurity=False).digest()
    return b"".join([header, sync, *(part + sync for part in parts)])


def pack(block: Block | PackedBlock) -> PackedBlock:
    """
    The block, compressed; a block that was read keeps its compressed bytes.
    """
    if block.packed:
        return PackedBlock(block.count, block.packed)
    squeeze = zlib.compressobj(1, zlib.DEFLATED, -15)
    return PackedBlock(block.count, squeeze.compress(payload_of(block)) + squeeze.flush())


def payload_of(block: Block | PackedBlock) -> bytes:
    """
    The records of a block; a packed block is decompressed at each call. Raises TxlogCorrupt, TxlogTooLarge.
    """
    return block.payload if isinstance(block, Block) else _inflate(block.packed, _STORED_BYTES)


def encode_bytes(value: bytes) -> bytes:
    """
    Avro `bytes` (and `string`).
    """
    return encode_long(len(value)) + value


def encode_long(value: int) -> bytes:
    """
    Avro `long` (and `int`): zigzag varint.
    """
    rest = (value << 1) ^ (value >> 63)
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


class Cursor:
    """A position in bytes that never reads past their end."""

    __slots__ = ("at", "data")

    def __init__(self, data: bytes, at: int = 0) -> None:
        self.data = data
        self.at = at

    def take(self, count: int) -> bytes:
        """The next `count` bytes; raises TxlogCorrupt when there are fewer."""
        end = self.at + count
        if count < 0 or end > len(self.data):
            raise TxlogCorrupt(f"cut short: {count} bytes expected at byte {self.at} of {len(self.data)}")
        part = self.data[self.at : end]
        self.at = end
        return part

    def long(self) -> int:
        """The next zigzag varint of at most 64 bits."""
        data, at, value = self.data, self.at, 0
        if at < len(data) and (byte := data[at]) < 0x80:  # most are small
            self.at = at + 1
            return byte >> 1 ^ -(byte & 1)
        for shift, byte in enumerate(data[at : at + _LONG_BYTES]):
            value |= (byte & 0x7F) << 7 * shift
            if byte < 0x80:
                self.at = at + shift + 1
                return value >> 1 ^ -(value & 1)
        raise TxlogCorrupt(f"no number at byte {at} of {len(data)}")

    def text(self) -> bytes:
        """The next Avro `bytes` or `string`, not decoded."""
        data, at = self.data, self.at
        if at < len(data) and (twice := data[at]) < 0x80 and not twice & 1:  # a length below 64 is one byte
            end = at + 1 + (twice >> 1)
            if end <= len(data):
                self.at = end
                return data[at + 1 : end]
        return self.take(self.long())

    def done(self) -> bool:
        """Whether every byte was read."""
        return self.at == len(self.data)


class Header(NamedTuple):
    """The metadata of an Avro file, and the byte behind it, where the sync marker begins."""

    meta: Mapping[str, bytes]
    end: int


def read_header(data: bytes) -> Header:
    """
    The header of the Avro file in `data`, whatever comes behind it; raises TxlogCorrupt.
    """
    return read_keys(open_header(data), {}, 0)


def open_header(data: bytes) -> Cursor:
    """
    A cursor at the header's first block of keys; raises TxlogCorrupt.
    """
    cursor = Cursor(data)
    if cursor.take(len(MAGIC)) != MAGIC:
        raise TxlogCorrupt("not an Avro file")
    return cursor


def read_keys(cursor: Cursor, meta: dict[str, bytes], left: int) -> Header:
    """
    Reads `left` pairs of a block of the metadata, and all blocks behind it, into `meta`; raises TxlogCorrupt.
    """
    while True:
        check_keys(len(meta) + left)
        for _ in range(left):
            name = key(cursor.text())
            meta[name] = cursor.text()
        left = cursor.long()
        if left == 0:
            return Header(meta, cursor.at)
        if left < 0:
            left = -left
            cursor.long()


def check_keys(count: int) -> None:
    """
    Raises TxlogCorrupt for a header of so many keys, before they take memory.
    """
    if count > _MOST_KEYS:
        raise TxlogCorrupt(f"a header of {count} keys, at most {_MOST_KEYS} are allowed")


def key(raw: bytes) -> str:
    """
    A key of a header; raises TxlogCorrupt.
    """
    try:
        return raw.decode()
    except UnicodeDecodeError as exc:
        raise TxlogCorrupt(f"the header key {raw[:40]!r} is not UTF-8") from exc


def decode(data: bytes, most_bytes: int, header: Header | None = None) -> Container:
    """
    The Avro file in `data`, at most `most_bytes` large before and after decompression; `header` if it was read.

    Raises TxlogCorrupt, TxlogTooLarge.
    """
    header = header or read_header(data)
    return Container(header.meta, read_blocks(data, header.end, header.meta.get(CODEC, b"null"), most_bytes))


def check_size(data: bytes, most_bytes: int) -> None:
    """
    Raises TxlogTooLarge for more than `most_bytes` bytes.
    """
    if len(data) > most_bytes:
        raise TxlogTooLarge(f"{len(data)} bytes, at most {most_bytes} are allowed")


def read_blocks(data: bytes, at: int, codec: bytes, most_bytes: int) -> tuple[Block, ...]:
    """
    The blocks behind a header that ends before byte `at`; `most_bytes` and errors as in `decode`.
    """
    check_size(data, most_bytes)
    if codec not in CODECS:
        shown = codec[:40].decode("ascii", "replace")
        raise TxlogCorrupt(f"Avro codec {shown!r} is not supported; null and deflate are")
    found, left = list[Block](), most_bytes
    for count, raw in _parts(data, at):
        payload, packed = (_inflate(raw, left), raw) if codec == b"deflate" else (raw, None)
        left -= len(payload)
        found.append(Block(count, payload, packed))
    return tuple(found)


def packed_blocks(data: bytes, at: int) -> list[PackedBlock]:
    """
    The blocks behind a header that ends before byte `at`, in a file of codec deflate; raises TxlogCorrupt.
    """
    return [PackedBlock(*part) for part in _parts(data, at)]


def _parts(data: bytes, at: int) -> Iterator[tuple[int, bytes]]:
    cursor = Cursor(data, at)
    sync = cursor.take(SYNC_BYTES)
    while not cursor.done():
        count, part = cursor.long(), cursor.text()
        if count <= 0:
            raise TxlogCorrupt(f"a block of {count} records")
        if cursor.take(SYNC_BYTES) != sync:
            raise TxlogCorrupt(f"sync marker expected before byte {cursor.at}")
        yield count, part


def _inflate(payload: bytes, most_bytes: int) -> bytes:
    inflate = zlib.decompressobj(-15)
    try:
        plain = inflate.decompress(payload, most_bytes + 1)
    except zlib.error as exc:
        raise TxlogCorrupt(f"a block does not decompress: {exc}") from exc
    if len(plain) > most_bytes:
        raise TxlogTooLarge(f"more than {most_bytes} bytes once decompressed")
    # Avro's Python libraries leave three of the four bytes of zlib's checksum behind a block.
    behind = (b"", zlib.adler32(plain).to_bytes(4, "big")[:3]) if inflate.unused_data else (b"",)
    if not inflate.eof or inflate.unused_data not in behind:
        raise TxlogCorrupt("a compressed block is cut short or has bytes behind its end")
    return plain
