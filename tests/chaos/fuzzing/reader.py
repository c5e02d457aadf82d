"""
A second reader of manifests: fastavro for every value, field ids for every name, none of our code.

Of the Avro schema only what decides about bytes is kept (types, their order, sizes): docs, defaults and names may be
nonsense, for a commit writes none of them. fastavro's own container reader also wants each header value to be text,
which the Avro specification does not.
"""

import io
import json
import zlib
from collections.abc import Iterator
from itertools import count
from typing import Any

from fastavro import parse_schema, schemaless_reader

_SYNC = {"type": "fixed", "name": "sync", "size": 16}
_HEADER = parse_schema(
    {
        "type": "record",
        "name": "header",
        "fields": [
            {"name": "magic", "type": {"type": "fixed", "name": "magic", "size": 4}},
            {"name": "meta", "type": {"type": "map", "values": "bytes"}},
            {"name": "sync", "type": _SYNC},
        ],
    }
)
_BLOCK = parse_schema(
    {
        "type": "record",
        "name": "block",
        "fields": [
            {"name": "count", "type": "long"},
            {"name": "records", "type": "bytes"},
            {"name": "sync", "type": {**_SYNC, "name": "sync2"}},
        ],
    }
)


def entries(data: bytes) -> list[dict[int, Any]]:
    """
    Each record with its fields by id, also inside of `data_file`; values as they are stored.
    """
    file = io.BytesIO(data)
    header = _header(file)
    written = json.loads(header["meta"]["avro.schema"])
    plain = parse_schema(_plain(written, count(), {}))
    found = []
    while file.tell() < len(data):
        block: Any = schemaless_reader(file, _BLOCK, None)
        if block["sync"] != header["sync"]:
            raise ValueError("another sync marker")
        packed = header["meta"].get("avro.codec") == b"deflate"
        records = io.BytesIO(zlib.decompressobj(-15).decompress(block["records"]) if packed else block["records"])
        found += [_by_id(written, schemaless_reader(records, plain, None)) for _ in range(block["count"])]
        if records.read():
            raise ValueError("bytes behind the last record")
    return found


def deletes(data: bytes) -> list[dict[int, Any]]:
    """
    The same of the delete manifest in a txlog's header, where it has one.
    """
    inner = _header(io.BytesIO(data))["meta"].get("bookkeeper.deletes")
    return [] if inner is None else entries(inner)


def _header(file: io.BytesIO) -> Any:
    return schemaless_reader(file, _HEADER, None)


def _plain(written: Any, numbers: Iterator[int], known: dict[str, Any]) -> Any:
    """The schema without anything that says nothing about bytes; every named type has a name of its own."""
    if isinstance(written, list):
        return [_plain(item, numbers, known) for item in written]
    if isinstance(written, str):
        return known.get(written, written)
    kind = written["type"]
    if kind == "record":
        fields = written["fields"]
        inner = [{"name": f"f{n}", "type": _plain(item["type"], numbers, known)} for n, item in enumerate(fields)]
        return {"type": "record", "name": f"r{next(numbers)}", "fields": inner}
    if kind == "array":
        return {"type": "array", "items": _plain(written["items"], numbers, known)}
    if kind == "fixed":
        known[str(written.get("name"))] = name = f"x{next(numbers)}"
        return {"type": "fixed", "name": name, "size": written["size"]}
    return _plain(kind, numbers, known)


def _by_id(written: Any, value: Any) -> Any:
    if isinstance(written, list):
        written = next((item for item in written if item != "null"), "null")
    if value is None or not isinstance(written, dict):
        return value
    if written["type"] == "record":
        fields = written["fields"]
        return {item["field-id"]: _by_id(item["type"], value[f"f{n}"]) for n, item in enumerate(fields)}
    if written["type"] == "array":
        return _array(written["items"], value)
    return _by_id(written["type"], value) if isinstance(written["type"], dict) else value


def _array(items: Any, values: list[Any]) -> Any:
    if not (isinstance(items, dict) and items["type"] == "record"):
        return tuple(values)
    pairs = [sorted(_by_id(items, value).items()) for value in values]  # Avro's way to write a map with numbers as keys
    return {key: value for (_, key), (_, value) in pairs}
