"""
Changes of a database as upserts and deletes by key: Debezium's envelope, or flat rows with a field that says the op.

Pure: decoded JSON or Avro in, changes out. Nothing becomes an insert, because a source that is read again repeats its
rows.
"""

import base64
from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

from bookkeeper.errors import SchemaRefused

Row = Mapping[str, Any]
#: what a flat row's op-field may say, in any case; Debezium's flattened rows say c, r, u or d
UPSERTS = frozenset({"c", "create", "i", "insert", "r", "read", "u", "update", "upsert"})
DELETES = frozenset({"d", "delete"})
#: Debezium's default for a large value that an update did not change, as text and as bytes
UNAVAILABLE = "__debezium_unavailable_value"
_UNAVAILABLE_BYTES = UNAVAILABLE.encode()
UNAVAILABLE_TEXTS = frozenset({UNAVAILABLE, base64.b64encode(_UNAVAILABLE_BYTES).decode()})
_BEFORE = "Set the table's REPLICA IDENTITY to DEFAULT or FULL, so that the old key is there."
_ENVELOPE = "Give Debezium's envelope (before, after, op), or name the field that says the op."
_FULL = "An upsert replaces the whole row: set the table's REPLICA IDENTITY to FULL."


class Change(NamedTuple):
    """An upsert of `row`; or, `deleted`, a delete, whose row holds only the keys."""

    row: Row
    deleted: bool


def debezium(message: Any, keys: Collection[str]) -> Iterator[Change]:
    """
    The changes of one message of Debezium, with or without the schema around it; none of a tombstone (None).

    `keys` are the names of the key columns. Raises SchemaRefused.
    """
    if isinstance(message, Mapping) and message.keys() == {"schema", "payload"}:
        message = message["payload"]
    if message is None:
        return
    if not isinstance(message, Mapping) or not isinstance(message.get("op"), str):
        raise SchemaRefused("it is no change: there is no op", hint=_ENVELOPE)
    op, before, after = message["op"], message.get("before"), message.get("after")
    if op == "d":
        yield Change(_keys_of(before, keys, "before of a delete"), True)
        return
    if op not in ("c", "r", "u"):
        hint = "Empty the table by hand, then load it again." if op == "t" else ""
        raise SchemaRefused(f"op {op!r:.40} {'truncates the table' if op == 't' else 'is not known'}", hint=hint)
    new = _keys_of(after, keys, "after")
    # Without a full replica identity `before` is null, unless the key has changed.
    old = new if before is None or op != "u" else _keys_of(before, keys, "before")
    if old != new:
        yield Change(old, True)
    yield Change(_whole(after), False)


def flat(row: Any, op_field: str, keys: Collection[str]) -> Iterator[Change]:
    """
    The change that a flat row is; its `op_field` is no column of the table. Raises SchemaRefused.
    """
    if not isinstance(row, Mapping) or not isinstance(row.get(op_field), str):
        raise SchemaRefused(f"it is no change: there is no text in {op_field!r}")
    op = row[op_field].lower()
    rest = {name: value for name, value in row.items() if name != op_field}
    if op in DELETES:
        yield Change(_keys_of(rest, keys, "a delete"), True)
    elif op in UPSERTS:
        yield Change(_whole(rest), False)
    else:
        raise SchemaRefused(f"{op_field!r} is {row[op_field]!r:.40}, which is not known")


def _keys_of(row: Any, keys: Collection[str], where: str) -> Row:
    if not isinstance(row, Mapping):
        raise SchemaRefused(f"{where} is {row!r:.40}, so its key is not known", hint=_BEFORE)
    lacking = [name for name in keys if row.get(name) is None]
    if lacking:
        raise SchemaRefused(f"{where} lacks the key {', '.join(map(repr, lacking))}", hint=_BEFORE)
    return {name: row[name] for name in keys}


def _whole(row: Any) -> Row:
    for name, value in row.items():
        if _is_unavailable(value):
            raise SchemaRefused(f"{name!r} holds {UNAVAILABLE}: its value did not change and was left out", hint=_FULL)
    return dict(row)


def _is_unavailable(value: Any) -> bool:
    if isinstance(value, list):
        return any(map(_is_unavailable, value))
    if isinstance(value, Mapping):
        return any(map(_is_unavailable, [*value, *value.values()]))
    return (isinstance(value, str) and value in UNAVAILABLE_TEXTS) or value == _UNAVAILABLE_BYTES
