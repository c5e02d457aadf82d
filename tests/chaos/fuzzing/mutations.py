"""
Ways to spoil a txlog: as bytes, as an Avro container, as records, as entries. All chance comes from the `Random` given.
"""

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from random import Random
from typing import Any

from bookkeeper.format import avro, manifest
from bookkeeper.format.entries import Entry
from tests.chaos.fuzzing.corpus import MOST, Seed

Mutation = Callable[[Random, Seed, Seed], bytes]

LONGS = (0, 1, -1, 2, 63, 64, -64, 2**15, 2**31 - 1, 2**31, -(2**31), 2**53, 2**62, 2**63 - 1, -(2**63), MOST, 10**9)
BYTES = (0x00, 0x01, 0x02, 0x7F, 0x80, 0xFE, 0xFF)
WORDS = (
    b"",
    b"0",
    b"-1",
    b"9" * 18,
    b"9" * 4000,
    b"null",
    b"{}",
    b"[]",
    b"\xff",
    b"\0",
    b"2",
    b"data",
    b"deletes",
    b"[" * 9000,
)
PATHS = (
    "{root}/../../etc/passwd", "{root}/a/../../b", "{root}//a", "{root}/./a", "{root}/%2e%2e/a", "{root}/..%2fa",
    "{root}\\a", "{root}x/a", "{root}", "{root}/", "", "a", "/etc/passwd", "file:///etc/passwd",
    "s3://other/demo/events/data/a", "s3a://lake/demo/events/data/../a", "{root}/a\0b", "{root}/a\n",
    "{root}/a?b", "{root}/a#b", "{root}/\u2024\u2024/a", "{root}/a/", "{root}/" + "a" * 5000, "HTTP://x/{root}",
    "s3:/lake/demo/events/data/a", "{root}/a:b", " {root}/a",
)  # fmt: skip
JSON: tuple[Any, ...] = (
    None, True, -1, 2**65, 1.5, "", "null", "int", "long", "string", "bytes", "double", "r2", "r102", [], {},
    ["null", "int"], ["int", "null"], ["null", "null"], {"type": "record", "name": "r2", "fields": []},
    {"type": "array", "items": "int"}, {"type": "fixed", "name": "f", "size": 2**40},
    {"type": "fixed", "name": "f", "size": -1}, {"type": "map", "values": "long"}, {"type": {"type": {"type": "int"}}},
)  # fmt: skip


def flipped(rng: Random, data: bytes) -> bytes:
    """A few bits of it the other way round."""
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 8))):
        out[rng.randrange(len(out))] ^= 1 << rng.randrange(8)
    return bytes(out)


def overwritten(rng: Random, data: bytes) -> bytes:
    """A run of bytes that mean something to decoders."""
    at, count = rng.randrange(len(data)), rng.choice((1, 1, 2, 9))
    return data[:at] + bytes(rng.choice(BYTES) for _ in range(count)) + data[at + count :]


def renumbered(rng: Random, data: bytes) -> bytes:
    """Another number where one may be: a length, a count, a value."""
    at = rng.randrange(len(data))
    return data[:at] + avro.encode_long(rng.choice(LONGS)) + data[at + rng.randrange(3) :]


def cut(rng: Random, data: bytes) -> bytes:
    """Its beginning, its end, or all but a part; or a part of it twice."""
    one, two = sorted((rng.randrange(len(data) + 1), rng.randrange(len(data) + 1)))
    return rng.choice((data[:one], data[one:], data[:one] + data[two:], data[:two] + data[one:]))


RAW = (flipped, overwritten, renumbered, cut)


def raw(rng: Random, seed: Seed, other: Seed) -> bytes:
    """Its bytes spoiled."""
    return rng.choice(RAW)(rng, seed.data)


def spliced(rng: Random, seed: Seed, other: Seed) -> bytes:
    """The beginning of one txlog and the end of another."""
    return seed.data[: rng.randrange(len(seed.data))] + other.data[rng.randrange(len(other.data)) :]


def records(rng: Random, seed: Seed, other: Seed) -> bytes:
    """Records spoiled in a good container; the count of records too, now and then."""
    blocks = list(seed.blocks or other.blocks)
    if not blocks:
        return removing(rng, seed, other)
    number = rng.randrange(len(blocks))
    block = blocks[number]
    count = max(1, block.count + rng.choice((-1, 0, 0, 0, 1, 1000, 2**40)))
    blocks[number] = avro.Block(count, rng.choice(RAW)(rng, block.payload))
    return avro.encode(seed.meta, blocks, rng.choice(("null", "deflate")))


def reblocked(rng: Random, seed: Seed, other: Seed) -> bytes:
    """Whole blocks twice, left out, or of another txlog."""
    pool = [*seed.blocks, *other.blocks]
    return avro.encode(
        seed.meta, [rng.choice(pool) for _ in range(rng.randrange(4) if pool else 0)], rng.choice(("null", "deflate"))
    )


def headed(rng: Random, seed: Seed, other: Seed) -> bytes:
    """A header key missing, new, or with another value."""
    meta = dict(seed.meta)
    key = rng.choice(sorted(meta))
    way = rng.randrange(5)
    if way == 0:
        del meta[key]
    elif way == 1:
        meta[key] = rng.choice(WORDS)
    elif way == 2:
        meta[key] = flipped(rng, meta[key]) if meta[key] else b"x"
    elif way == 3:
        meta[key] = other.meta.get(key, b"")
    else:
        meta[
            rng.choice(
                (
                    "bookkeeper.span",
                    "bookkeeper.deletes",
                    "bookkeeper.companion",
                    "bookkeeper.position",
                    "bookkeeper.previous-position",
                    "x",
                )
            )
        ] = rng.choice(WORDS)
    return avro.encode(meta, seed.blocks, rng.choice(("null", "deflate")))


def schemed(rng: Random, seed: Seed, other: Seed) -> bytes:
    """One or two places of the Avro schema hold something else; the records are as they were."""
    schema = seed.avro_schema
    for _ in range(rng.choice((1, 1, 2))):
        schema = _changed(rng, schema)
    return avro.encode({**seed.meta, "avro.schema": json.dumps(schema).encode()}, seed.blocks, "null")


def _changed(rng: Random, value: Any) -> Any:
    """JSON data with another value at some depth."""
    if not isinstance(value, (dict, list)) or not value or rng.random() < 0.12:
        return rng.choice(JSON)
    if isinstance(value, list):
        at = rng.randrange(len(value))
        way = rng.randrange(8)
        middle = [] if way == 0 else [value[at]] * 2 if way == 1 else [_changed(rng, value[at])]
        return [*value[:at], *middle, *value[at + 1 :]]
    key = rng.choice(sorted(value))
    if rng.random() < 0.1:
        return {name: item for name, item in value.items() if name != key}
    return {**value, key: _changed(rng, value[key])}


def told(rng: Random, seed: Seed, other: Seed) -> bytes:
    """Well encoded entries that say what they must not."""
    entries = list(seed.txlog.entries[:3])
    if not entries:
        return removing(rng, seed, other)
    at = rng.randrange(len(entries))
    entries[at] = _lying(rng, entries[at], seed)
    meta = {**seed.meta, "bookkeeper.entries": str(len(entries)).encode()}
    try:
        return manifest.encode(meta, entries)
    except Exception:  # noqa: BLE001 - no encoder writes such a thing: spoil the bytes instead
        return raw(rng, seed, other)


def removing(rng: Random, seed: Seed, other: Seed) -> bytes:
    """Delete entries that say what they must not, or a delete manifest that is spoiled."""
    inner, deletes = seed.meta.get("bookkeeper.deletes"), seed.txlog.deletes
    if inner is None or deletes is None:
        return headed(rng, seed, other)
    spoiled = rng.choice(RAW)(rng, inner)
    if rng.random() < 0.5:
        entries = list(deletes.entries)
        at = rng.randrange(len(entries))
        with suppress(Exception):  # where no encoder writes such a thing, the spoiled bytes are taken
            entries[at] = _lying(rng, entries[at], seed)
            spoiled = manifest.encode(avro.read_header(inner).meta, entries)
    return avro.encode({**seed.meta, "bookkeeper.deletes": spoiled}, seed.blocks)


def _lying(rng: Random, entry: Entry, seed: Seed) -> Entry:
    file, number = entry.data_file, rng.choice(LONGS)
    columns = {rng.choice((1, 2, 3, 4, 5, 1000, -1)): rng.choice((0, 1, -1, 2**62))}
    bounds = {rng.choice((1, 2, 3, 5)): rng.randbytes(rng.choice((0, 1, 3, 4, 8, 9, 500)))}
    path = rng.choice(PATHS).replace("{root}", seed.rules.data_path)
    ways: Sequence[Callable[[], Entry]] = (
        lambda: replace(entry, data_file=replace(file, path=path)),
        lambda: replace(entry, data_file=replace(file, path=path)),
        lambda: replace(entry, data_file=replace(file, record_count=number)),
        lambda: replace(entry, data_file=replace(file, size_bytes=number)),
        lambda: replace(entry, data_file=replace(file, file_format=rng.choice(("ORC", "parquet", "", "\0", "AVRO")))),
        lambda: replace(entry, data_file=replace(file, partition=tuple(None for _ in file.partition))),
        lambda: replace(entry, data_file=replace(file, sort_order_id=number)),
        lambda: replace(entry, data_file=replace(file, null_value_counts=columns)),
        lambda: replace(entry, data_file=replace(file, upper_bounds=bounds)),
        lambda: replace(entry, data_file=replace(file, split_offsets=(number,) * rng.choice((1, 1000)))),
        lambda: replace(entry, status=number),
        lambda: replace(entry, snapshot_id=number),
        lambda: replace(entry, sequence_number=number),
        lambda: replace(entry, content=number),
        lambda: replace(entry, equality_ids=(1, 2)),
        lambda: replace(entry, referenced_data_file=path),
    )
    return rng.choice(ways)()


def swollen(rng: Random, seed: Seed, other: Seed) -> bytes:
    """Little that becomes much once decompressed."""
    size = rng.choice((MOST + 1, 4 * MOST))
    return avro.encode(seed.meta, [avro.Block(rng.choice((1, size, 10**6)), bytes(size))], "deflate")


#: each with its weight
MUTATIONS: tuple[tuple[Mutation, int], ...] = (
    (raw, 300), (spliced, 60), (records, 250), (reblocked, 20), (headed, 120), (schemed, 150), (told, 150),
    (removing, 100),
    (swollen, 1),
)  # fmt: skip
