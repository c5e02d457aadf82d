"""
The physical layout of a manifest's records, read from the Avro schema in its header.

Names, docs, defaults and key order differ between Iceberg libraries; field ids and types do not. So fields are
found by id, every type is checked against the spec, and anything else is rejected before a record is decoded.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from fastavro import parse_schema

from bookkeeper.errors import TxlogCorrupt
from bookkeeper.format.entries import DATA_FILE, ENTRY

Physical = str | tuple[str, int]
#: parsed schemas are cached, so a padded one is rejected; 1,000 partition fields fit
_SCHEMA_BYTES = 2**18
_FIXED_BYTES = 2**16
_PRIMITIVE = {"boolean", "int", "long", "float", "double", "string", "bytes"}


@dataclass(frozen=True, slots=True)
class Layout:
    """
    How records are encoded: `schema` for fastavro (spec's names, no logical types), `partition` as (field id, type).

    It is `standard` when it is Iceberg Java's: every known field, in its order, with optional partition fields.
    """

    schema: Any
    partition: tuple[tuple[int, Physical], ...]
    standard: bool


@lru_cache(maxsize=1024)
def parse_layout(avro_schema: bytes) -> Layout:
    """
    The layout an Avro schema describes; raises TxlogCorrupt when it is not that of manifest entries.
    """
    if len(avro_schema) > _SCHEMA_BYTES:
        raise TxlogCorrupt(f"the header's avro.schema has {len(avro_schema)} bytes, at most {_SCHEMA_BYTES} are read")
    try:
        schema = json.loads(avro_schema)
    except (ValueError, RecursionError) as exc:
        raise TxlogCorrupt("the header's avro.schema is not JSON") from exc
    partition: list[tuple[int, Physical]] = []
    plain = _record(schema, "manifest_entry", ENTRY, partition)
    return Layout(parse_schema(plain), tuple(partition), _is_standard(plain))


def _record(schema: Any, name: str, known: dict[int, Any], partition: list[tuple[int, Physical]]) -> dict[str, Any]:
    fields, seen = [], set()
    for item in _fields(schema, name):
        number = item.get("field-id")
        if type(number) is not int or number not in known or number in seen:
            raise TxlogCorrupt(
                f"field {str(item.get('name'))[:60]!r} of {name} has the id {str(number)[:20]}, not one of format v2"
            )
        seen.add(number)
        spec_name, kind, _ = known[number]
        fields.append({"name": spec_name, "type": _plain(item.get("type"), kind, spec_name, partition)})
    missing = [spec[0] for number, spec in known.items() if spec[2] and number not in seen]
    if missing:
        raise TxlogCorrupt(f"{name} lacks {', '.join(missing)}")
    return {"type": "record", "name": name, "fields": fields}


def _fields(schema: Any, name: str) -> list[dict[str, Any]]:
    fields = schema.get("fields") if isinstance(schema, dict) and schema.get("type") == "record" else None
    if not isinstance(fields, list) or not all(isinstance(item, dict) for item in fields):
        raise TxlogCorrupt(f"{name} is not an Avro record")
    return fields


def _plain(written: Any, kind: Any, name: str, partition: list[tuple[int, Physical]]) -> Any:
    optional, inner = unwrapped(written)
    if kind == "data_file":
        plain: Any = _record(inner, "data_file", DATA_FILE, partition)
    elif kind == "partition":
        plain = _partition(inner, partition)
    elif isinstance(kind, tuple):
        plain = _map(inner, kind, name)
    elif isinstance(kind, list):
        plain = _list(inner, kind, name)
    else:
        plain = _same(inner, kind, name)
    return ["null", plain] if optional else plain


def unwrapped(written: Any) -> tuple[bool, Any]:
    """
    Whether a field is optional, and its type; raises TxlogCorrupt for another union.
    """
    if isinstance(written, list):
        if len(written) != 2 or written[0] != "null":
            raise TxlogCorrupt(f"the union {str(written)[:80]} is not an optional field")
        return True, written[1]
    return False, written


def _same(written: Any, kind: str, name: str) -> str:
    if physical(written) != kind:
        raise TxlogCorrupt(f"{name} is {str(written)[:80]}, not {kind}")
    return kind


def _map(written: Any, kind: tuple[int, int, str], name: str) -> dict[str, Any]:
    pair = written.get("items") if isinstance(written, dict) and written.get("type") == "array" else None
    key_id, value_id, value = kind
    known = {key_id: ("key", "int", True), value_id: ("value", value, True)}
    plain = _record(pair, name, known, [])
    return {"type": "array", "items": {**plain, "name": f"k{key_id}_v{value_id}"}}


def _list(written: Any, kind: list[Any], name: str) -> dict[str, Any]:
    items = written.get("items") if isinstance(written, dict) and written.get("type") == "array" else None
    # equality_ids are int in Java and long in pyiceberg: the same bytes
    if physical(items) not in ("int", "long"):
        raise TxlogCorrupt(f"{name} is not a list of numbers")
    return {"type": "array", "items": "long"}


def _partition(written: Any, partition: list[tuple[int, Physical]]) -> dict[str, Any]:
    fields: list[dict[str, Any]] = []
    named: dict[str, Physical] = {}
    for index, item in enumerate(_fields(written, "partition")):
        optional, inner = unwrapped(item.get("type"))
        # Avro defines a fixed type once and then names it: Java does so for a second uuid or decimal field.
        known = named.get(inner) if isinstance(inner, str) else None
        kind, number = known or physical(inner), item.get("field-id")
        if kind is None or type(number) is not int:
            raise TxlogCorrupt(f"partition field {str(item.get('name'))[:60]!r} has no field id or no primitive type")
        if isinstance(inner, dict):
            named[str(inner.get("name"))] = kind
        partition.append((number, kind))
        plain: Any = kind if isinstance(kind, str) else {"type": "fixed", "name": f"fixed_{index}", "size": kind[1]}
        fields.append({"name": f"p{index}", "type": ["null", plain] if optional else plain})
    return {"type": "record", "name": "partition", "fields": fields}


def physical(written: Any) -> Physical | None:
    """
    A primitive Avro type without its logical type, or None when it is none.
    """
    if isinstance(written, str):
        return written if written in _PRIMITIVE else None
    if not isinstance(written, dict):
        return None
    if written.get("type") == "fixed":
        size = written.get("size")
        return ("fixed", size) if type(size) is int and 0 < size <= _FIXED_BYTES else None
    return physical(written.get("type")) if isinstance(written.get("type"), str) else None


def _is_standard(schema: Any) -> bool:
    entry = schema["fields"]
    if not _in_order(entry, ENTRY):
        return False
    data_file = entry[-1]["type"]["fields"]
    return _in_order(data_file, DATA_FILE) and all(
        isinstance(item["type"], list) for item in data_file[3]["type"]["fields"]
    )


def _in_order(fields: Any, known: Mapping[int, tuple[str, Any, bool]]) -> bool:
    written = [(item["name"], not isinstance(item["type"], list)) for item in fields]
    return written == [(name, required) for name, _, required in known.values()]
