"""Changes of a database as upserts and deletes: Debezium's envelope, and flat rows with an op-field."""

from typing import Any

import pytest

from bookkeeper.errors import SchemaRefused
from writers.changes import UNAVAILABLE, Change, debezium, flat

OLD, NEW = {"id": 1, "value": "old"}, {"id": 1, "value": "new"}


def envelope(op: str, before: Any = None, after: Any = None) -> dict[str, Any]:
    return {"op": op, "before": before, "after": after, "source": {"table": "orders"}, "ts_ms": 1}


def read(message: Any) -> list[Change]:
    return list(debezium(message, ("id",)))


@pytest.mark.parametrize("op", ["c", "r", "u"])
@pytest.mark.parametrize("before", [None, {"id": 1}, OLD])
def test_creates_snapshot_rows_and_updates_are_upserts_of_the_whole_row(op: str, before: Any) -> None:
    assert read(envelope(op, before, NEW)) == [Change(NEW, False)]


def test_a_delete_takes_the_key_from_before() -> None:
    assert read(envelope("d", OLD)) == [Change({"id": 1}, True)]


def test_an_update_of_the_key_deletes_the_old_one_first() -> None:
    moved = {"id": 2, "value": "new"}
    assert read(envelope("u", {"id": 1, "value": None}, moved)) == [Change({"id": 1}, True), Change(moved, False)]


def test_a_key_of_two_columns_is_changed_by_either() -> None:
    before, after = {"a": 1, "b": 1}, {"a": 1, "b": 2, "value": "v"}
    found = list(debezium(envelope("u", before, after), ("a", "b")))
    assert found == [Change(before, True), Change(after, False)]


def test_tombstones_are_skipped_and_the_schema_around_an_envelope_is_taken_off() -> None:
    assert read(None) == read({"schema": None, "payload": None}) == []
    assert read({"schema": {}, "payload": envelope("c", None, NEW)}) == [Change(NEW, False)]


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (envelope("t"), "truncates the table"),
        (envelope("m"), "not known"),
        (envelope("d"), "key is not known"),
        (envelope("d", {"value": "old"}), "lacks the key 'id'"),
        (envelope("c", None, {"id": None, "value": "v"}), "lacks the key 'id'"),
        (envelope("u", {}, NEW), "before lacks the key 'id'"),
        (envelope("c"), "after is None"),
        (envelope("u", None, {"id": 1, "value": UNAVAILABLE}), "'value' holds"),
        (envelope("u", None, {"id": 1, "value": "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="}), "'value' holds"),
        (envelope("u", None, {"id": 1, "value": [UNAVAILABLE]}), "'value' holds"),
        (envelope("u", None, {"id": 1, "value": {UNAVAILABLE: UNAVAILABLE}}), "'value' holds"),
        (NEW, "there is no op"),
        ({"op": 1}, "there is no op"),
        ([envelope("c", None, NEW)], "there is no op"),
    ],
)
def test_what_has_no_key_or_is_no_whole_row_is_refused(message: Any, why: str) -> None:
    with pytest.raises(SchemaRefused, match=why):
        read(message)


def test_flat_rows_say_their_op_in_a_field_which_is_no_column() -> None:
    for op in ("c", "R", "u", "Insert", "upsert"):
        assert list(flat({**NEW, "__op": op}, "__op", ("id",))) == [Change(NEW, False)]
    assert list(flat({**NEW, "__op": "D"}, "__op", ("id",))) == [Change({"id": 1}, True)]
    for row, why in (
        ({**NEW, "__op": "t"}, "'t', which is not known"),
        (NEW, "there is no text in '__op'"),
        ({"value": "v", "__op": "d"}, "a delete lacks the key 'id'"),
        ({"id": 1, "value": UNAVAILABLE, "__op": "u"}, "'value' holds"),
    ):
        with pytest.raises(SchemaRefused, match=why):
            list(flat(row, "__op", ("id",)))
