"""
Values of a manifest's header, read strictly: text, numbers, and the id of the Iceberg schema.
"""

import json
from collections.abc import Mapping

from bookkeeper.errors import TxlogCorrupt

#: of a number in the header
DIGITS = 18
#: 10,000 columns; parsed, it takes 25 times as much memory
_SCHEMA_BYTES = 2**20


def text(values: Mapping[str, bytes], key: str) -> str:
    """
    The value of a key; what is not UTF-8 in it is replaced.
    """
    return values[key].decode("utf-8", "replace")


def number(values: Mapping[str, bytes], key: str, most: int = DIGITS) -> int:
    """
    The decimal number of at most so many digits under a key; raises TxlogCorrupt.
    """
    digits = values.get(key, b"")
    if not digits.isdigit() or len(digits) > most or (digits[:1] == b"0" and digits != b"0"):
        raise TxlogCorrupt(f"header key {key} is {digits[:40]!r}, not a number without leading zeros")
    return int(digits)


def schema_id(meta: Mapping[str, bytes]) -> int:
    """
    The id of the schema that the files were written with; raises TxlogCorrupt.
    """
    if "schema-id" in meta:
        return number(meta, "schema-id")
    # Iceberg Java writes it nowhere but in the schema.
    schema = meta.get("schema", b"")
    if len(schema) > _SCHEMA_BYTES:
        raise TxlogCorrupt(f"the header has no schema-id, and a schema of {len(schema)} bytes is not looked through")
    try:
        found = json.loads(schema)["schema-id"]
    except (ValueError, LookupError, TypeError, RecursionError) as exc:
        raise TxlogCorrupt("the header has neither schema-id nor a schema that says its id") from exc
    if type(found) is not int:
        raise TxlogCorrupt(f"the header's schema has the id {str(found)[:40]}, not a number")
    return found
