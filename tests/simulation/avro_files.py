"""
Avro object container files, by fastavro, which would parse the schema of each file anew.
"""

import io
import json
import zlib
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any

from fastavro import parse_schema, schemaless_reader

#: the header of an Avro file, and what its blocks begin with
_FIELDS: dict[str, Any] = {
    "magic": {"type": "fixed", "name": "Magic", "size": 4},
    "meta": {"type": "map", "values": "bytes"},
    "sync": {"type": "fixed", "name": "Sync", "size": 16},
}
_HEADER = parse_schema(
    {"type": "record", "name": "Header", "fields": [{"name": name, "type": kind} for name, kind in _FIELDS.items()]}
)
_LONG, _BYTES = parse_schema({"type": "long"}), parse_schema({"type": "bytes"})
_CODECS: dict[bytes, Callable[[Any], bytes]] = {
    b"null": bytes,
    b"deflate": lambda block: zlib.decompressobj(-15).decompress(block),
}


class Damaged(ValueError):
    """These bytes are no whole Avro file."""


def header_of(data: bytes) -> Mapping[str, bytes]:
    """The metadata in the header."""
    header: Any = schemaless_reader(io.BytesIO(data), _HEADER, None)
    found: Mapping[str, bytes] = header["meta"]
    return found


def records(data: bytes) -> Iterator[Any]:
    """The records; raises Damaged."""
    stream = io.BytesIO(data)
    header: Any = schemaless_reader(stream, _HEADER, None)
    schema, unpack = _parsed(header["meta"]["avro.schema"]), _CODECS[header["meta"].get("avro.codec", b"null")]
    while stream.tell() < len(data):
        count: Any = schemaless_reader(stream, _LONG, None)
        payload = io.BytesIO(unpack(schemaless_reader(stream, _BYTES, None)))
        if stream.read(16) != header["sync"]:
            raise Damaged("a sync marker of an Avro file is not that of its header")
        for _ in range(count):
            yield schemaless_reader(payload, schema, None)


@lru_cache(maxsize=64)
def _parsed(schema: bytes) -> Any:
    return parse_schema(json.loads(schema))
