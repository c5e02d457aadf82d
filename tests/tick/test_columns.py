"""Columns on request: one commit for all that is granted, an answer for all that is not, and no row waits."""

import hashlib
import json
import logging
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.types import DecimalType, IntegerType, LongType, StringType

from bookkeeper.config.settings import Evolve, Retention
from bookkeeper.contract import card as cards
from bookkeeper.contract import column_requests
from bookkeeper.contract.column_requests import ADD, COLUMNS, TRAY, WIDEN, ColumnRequest, encode, publish
from bookkeeper.contract.txlog_folder import REASON, REJECTED
from bookkeeper.errors import StorageUnavailable
from bookkeeper.tick import answer_column_requests as duty
from bookkeeper.tick import decide_columns
from tests.retention.test_retention import LOOSE
from tests.support.enumerated import crash_points, crashed, error_points, recorded
from tests.support.faults import Faults
from tests.support.lake import Lake, Saved, Writes
from tests.support.watched import Watched
from writers.writer import Writer

GROWING, HOUR = Evolve(add=True, widen=True), timedelta(hours=1)
NUMBERED = (
    *LOOSE,
    {"name": "n", "type": "int"},
    {"name": "price", "type": "decimal(9, 2)"},
    {"name": "part", "type": "int"},
)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "lake", columns=NUMBERED, partition_by=("part",), evolve=GROWING)


def ask(lake: Lake, *asked: tuple[str, ...]) -> list[str]:
    """Publishes requests: change, name, type."""
    return [publish(lake.folder, ColumnRequest(*one)) for one in asked]


def run(lake: Lake, book: Any = None, ticks: int = 2) -> Any:
    book = book or lake.book()
    for _ in range(ticks):
        lake.tick(book, seconds=6)
    return book


def names(lake: Lake) -> list[str]:
    return [field.name for field in lake.table().schema().fields]


def answers(lake: Lake) -> dict[str, str]:
    return {
        item.key.removeprefix(REJECTED).removesuffix(REASON): json.loads(lake.folder.store.read(item.key))["reason"]
        for item in lake.folder.store.list(REJECTED)
        if item.key.endswith(REASON)
    }


def test_a_column_that_is_asked_for_is_added_and_the_card_has_it(lake: Lake) -> None:
    writer = Writes(lake)
    writer.publish("a")
    before = lake.table().metadata
    ask(lake, (ADD, "wind", "double"))
    result = lake.tick(lake.book())
    after = lake.table().metadata
    added = after.schema().find_field("wind")
    assert (str(added.field_type), added.required, added.field_id) == ("double", False, before.last_column_id + 1)
    assert lake.folder.card().schema.find_field("wind") == added
    assert (result.columns.added, result.commit.txlogs) == (1, 1)
    assert (TRAY.pending(lake.folder), answers(lake)) == ([], {})
    writer.publish("b")
    lake.drain()
    assert lake.keys() == ["a", "b"]


def test_columns_of_one_tick_have_field_ids_of_their_own_and_their_own_values(lake: Lake) -> None:
    """With one id for two columns, readers take the values of one for those of the other."""
    last = lake.table().metadata.last_column_id
    ask(lake, (ADD, "wind", "double"), (ADD, "gust", "double"), (ADD, "place", "string"))
    run(lake)
    metadata = lake.table().metadata
    assert {*names(lake)[-3:]} == {"wind", "gust", "place"}
    assert [field.field_id - last for field in metadata.schema().fields[-3:]] == [1, 2, 3]
    assert metadata.last_column_id == last + 3
    with Writer.open(lake.folder, "w1", clock=lake.clock, stores=lake.store) as writer:
        writer.write([{"key": "a", "part": 1, "wind": 1.0, "gust": 2.0, "place": "x"}])
    lake.tick()
    (row,) = lake.table().scan(selected_fields=("wind", "gust", "place")).to_arrow().to_pylist()
    assert row == {"wind": 1.0, "gust": 2.0, "place": "x"}


def test_requests_touch_neither_data_nor_marks(lake: Lake) -> None:
    Writes(lake).publish("a")
    book = run(lake, ticks=1)
    snapshots, marks = lake.table().metadata.snapshots, lake.view().marks
    ask(lake, (ADD, "wind", "double"), (WIDEN, "n", "long"))
    run(lake, book)
    assert (lake.table().metadata.snapshots, lake.view().marks) == (snapshots, marks)
    assert lake.folder.marks() == lake.view().marks_copy


def test_all_that_is_asked_for_at_once_is_one_commit(lake: Lake) -> None:
    schemas = len(lake.table().metadata.schemas)
    ask(lake, *((ADD, f"c{number}", "long") for number in range(10)), (WIDEN, "n", "long"))
    run(lake)
    assert len(lake.table().metadata.schemas) == schemas + 1
    assert sorted(names(lake)[-10:]) == [f"c{number}" for number in range(10)]
    assert isinstance(lake.table().schema().find_type("n"), LongType)


def test_a_table_whose_schema_does_not_grow_looks_at_no_request_and_its_card_says_nothing(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    ask(lake, (ADD, "wind", "double"))
    run(lake)
    assert "wind" not in names(lake)
    assert len(TRAY.pending(lake.folder)) == 1
    assert b"evolve" not in lake.folder.store.read("card.json")


def test_the_card_says_what_writers_may_ask_for_and_one_without_it_means_nothing(lake: Lake) -> None:
    run(lake)
    card = lake.folder.card()
    assert (card.takes(ADD), card.takes(WIDEN)) == (True, True)
    run(lake, lake.book(evolve=Evolve(add=True)))
    card = lake.folder.card()
    assert (card.evolve, card.takes(WIDEN)) == ({"add": True}, False)
    old = json.loads(cards.dumps(card))
    del old["evolve"]
    assert cards.loads(json.dumps(old).encode()).takes(ADD) is False


def test_a_request_for_what_is_there_is_settled_whatever_its_type(lake: Lake) -> None:
    schemas = lake.table().metadata.schemas
    ask(lake, (ADD, "n", "string"), (WIDEN, "n", "int"), (WIDEN, "price", "decimal(5, 2)"))
    run(lake)
    assert lake.table().metadata.schemas == schemas
    assert (TRAY.pending(lake.folder), answers(lake)) == ([], {})


@pytest.mark.parametrize(
    ("asked", "given"),
    [
        (("int", "long"), "long"),
        (("long", "int"), "long"),
        (("long", "double"), "double"),
        (("decimal(5, 2)", "decimal(9, 2)"), "decimal(9, 2)"),
        (("string", "long"), "string"),
        (("long", "string"), "long"),
    ],
)
def test_of_two_types_for_one_column_the_wider_or_else_the_first_is_taken(
    lake: Lake, asked: tuple[str, str], given: str
) -> None:
    for kind in asked:
        ask(lake, (ADD, "x", kind))
        lake.clock.move(seconds=1)
    run(lake)
    assert str(lake.table().schema().find_type("x")) == given
    assert answers(lake) == {}


def test_widening_follows_iceberg_and_spares_what_rows_are_placed_by(lake: Lake) -> None:
    good = ask(lake, (WIDEN, "n", "long"), (WIDEN, "price", "decimal(20, 2)"))
    bad = {
        name: why
        for asked, why in (
            ((WIDEN, "part", "long"), "partitioned by it"),
            ((WIDEN, "price", "decimal(30, 3)"), "never becomes"),
            ((WIDEN, "key", "binary"), "never becomes"),
            ((WIDEN, "none", "long"), "no plain column"),
        )
        for name in ask(lake, asked)
    }
    run(lake)
    schema = lake.table().schema()
    kinds = [schema.find_type(name) for name in ("n", "price", "part", "key")]
    assert kinds == [LongType(), DecimalType(20, 2), IntegerType(), StringType()]
    given = answers(lake)
    assert given.keys() == bad.keys() and not given.keys() & set(good)
    assert all(why in given[name] for name, why in bad.items())


def test_keys_keep_their_type(tmp_path: Path) -> None:
    keyed = ({"name": "id", "type": "int", "required": True}, {"name": "key", "type": "string"})
    lake = Lake(tmp_path / "lake", columns=keyed, partition_by=(), key=("id",), evolve=GROWING)
    ask(lake, (WIDEN, "id", "long"), (ADD, "wind", "double"))
    run(lake)
    schema = lake.table().schema()
    assert (str(schema.find_type("id")), str(schema.find_type("wind"))) == ("int", "double")
    assert schema.identifier_field_ids == [1]
    assert lake.folder.card().keyed is not None


def raw(**changes: Any) -> bytes:
    return json.dumps({"version": 1, "change": "add", "name": "x", "type": "long"} | changes).encode()


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"garbage", "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"[" * 4000, "not JSON"),
        (b"[]", "not a JSON object"),
        (b" " * 5000, "at most 4096"),
        (raw(more=1), "no more"),
        (raw(version=True), "needed"),
        (raw(version=0), "needed"),
        (raw(name=7), "needed"),
        (raw(change="drop"), "add or widen"),
        (raw(name=""), "allowed"),
        (raw(name="a.b"), "allowed"),
        (raw(name="a\nb"), "allowed"),
        (raw(name=" a"), "allowed"),
        (raw(name="\ud800"), "allowed"),
        (raw(name="e\u0301"), "NFC"),
        (raw(name="x" * 129), "at most"),
        (raw(name="\u4e00" * 100), "at most"),
        (raw(name="_POS"), "reserved"),
        (raw(name="KEY"), "case only"),
        (raw(name="k\u0435y"), "U+0435 CYRILLIC SMALL LETTER IE; 'key' has only ASCII"),
        (raw(name="\u039a\u0395Y"), "U+039A GREEK CAPITAL LETTER KAPPA"),
        (raw(name="\uff4bey"), "U+FF4B FULLWIDTH LATIN SMALL LETTER K"),
        (raw(name="key\u3164"), "U+3164 HANGUL FILLER"),
        (raw(name="_f\u0456le"), "reserved"),
        (raw(type="struct<1: a: optional int>"), "is allowed"),
        (raw(type="decimal(39, 2)"), "is allowed"),
        (raw(type="decimal(5, 9)"), "is allowed"),
        (raw(type="void"), "is allowed"),
    ],
)
def test_hostile_requests_are_refused_and_others_go_on(lake: Lake, data: bytes, why: str) -> None:
    name = f"{hashlib.sha256(data).hexdigest()}.json"
    lake.put(f"{COLUMNS}{name}", data)
    ask(lake, (ADD, "wind", "double"))
    run(lake)
    assert (names(lake)[-1], TRAY.pending(lake.folder)) == ("wind", [])
    (said,) = answers(lake).values()
    assert why in said
    assert column_requests.refusals(lake.folder, [name]).keys() == {name}


def test_a_request_that_is_not_named_by_its_content_is_refused(lake: Lake) -> None:
    lake.put(f"{COLUMNS}x.json", raw())
    run(lake)
    assert "x" not in names(lake)
    assert "SHA-256" in answers(lake)["x.json"]


def test_a_request_of_a_newer_version_waits_and_others_go_on(lake: Lake, caplog: pytest.LogCaptureFixture) -> None:
    data = raw(version=2)
    lake.put(f"{COLUMNS}{hashlib.sha256(data).hexdigest()}.json", data)
    ask(lake, (ADD, "wind", "double"))
    run(lake, ticks=3)
    assert (names(lake)[-1], len(TRAY.pending(lake.folder)), answers(lake)) == ("wind", 1, {})
    assert [record.getMessage() for record in caplog.records].count("request for a column held") == 1


@pytest.mark.parametrize("limit", [{"most_columns": len(NUMBERED) + 2}, {"columns_per_hour": 2}])
def test_beyond_a_limit_no_column_is_added_and_the_answer_names_it(lake: Lake, limit: dict[str, int]) -> None:
    rules = replace(GROWING, **limit)
    ask(lake, *((ADD, f"c{number}", "long") for number in range(5)))
    book = run(lake, lake.book(evolve=rules))
    ask(lake, (ADD, "later", "long"))
    run(lake, book)
    assert len(names(lake)) == len(NUMBERED) + 2
    (option,) = limit
    given = answers(lake)
    assert len(given) == 4 and all(f"evolve.{option.replace('_', '-')}" in why for why in given.values())


def test_requests_add_no_schemas_beyond_a_size_of_all_whichever_bookkeeper_grants_them(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each request comes alone, so each that is granted adds a whole schema; each bookkeeper has just started."""
    one = len(lake.table().schema().model_dump_json())
    monkeypatch.setattr(decide_columns, "MOST_SCHEMA_BYTES", 6 * one)
    for number in range(8):
        ask(lake, (ADD, f"c{number}", "long"))
        run(lake)
    schemas = lake.table().metadata.schemas
    size = sum(len(schema.model_dump_json()) for schema in schemas)
    assert (len(schemas), size <= 6 * one, len(names(lake))) == (4, True, len(NUMBERED) + 3)
    assert len(answers(lake)) == 5 and all("the table's schemas would have" in why for why in answers(lake).values())
    ask(lake, (WIDEN, "n", "long"), (ADD, "c0", "long"))
    run(lake)
    assert isinstance(lake.table().schema().find_type("n"), IntegerType)
    assert (len(answers(lake)), TRAY.pending(lake.folder)) == (6, []), "a column that is there is granted"


def test_no_writer_starts_a_retention_that_has_no_column_yet(tmp_path: Path) -> None:
    columns = ({"name": "timestamp", "type": "string"}, {"name": "key", "type": "string"})
    lake = Lake(tmp_path / "lake", columns=columns, partition_by=(), evolve=GROWING, retention=Retention(keep=HOUR))
    ask(lake, (ADD, "at", "timestamptz"), (ADD, "day", "date"), (ADD, "wind", "double"))
    run(lake)
    assert names(lake) == ["timestamp", "key", "wind"]
    assert all("rows would be dropped" in why for why in answers(lake).values()) and len(answers(lake)) == 2


def test_columns_may_be_added_again_after_an_hour(lake: Lake) -> None:
    book = lake.book(evolve=replace(GROWING, columns_per_hour=1))
    for number in range(2):
        ask(lake, (ADD, f"c{number}", "long"))
        run(lake, book)
        lake.clock.move(hours=1)
    assert names(lake)[-2:] == ["c0", "c1"]


def test_one_tick_answers_so_many_requests_and_the_next_the_others(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(duty, "MOST_REQUESTS", 3)
    ask(lake, *((ADD, f"c{number}", "long") for number in range(5)))
    book = run(lake, ticks=1)
    assert len(names(lake)) == len(NUMBERED) + 3
    lake.tick(book)
    assert len(names(lake)) == len(NUMBERED) + 5


def test_an_answer_goes_after_a_while_and_then_the_same_may_be_asked_again(lake: Lake) -> None:
    (name,) = ask(lake, (ADD, "KEY", "long"))
    book = run(lake)
    assert column_requests.refusals(lake.folder, [name]).keys() == {name}
    lake.tick(book, minutes=11)
    lake.tick(book, minutes=11)
    assert (column_requests.refusals(lake.folder, [name]), list(lake.folder.store.list(REJECTED))) == ({}, [])


@pytest.mark.parametrize("stock", [False, True])
def test_a_foreign_schema_change_between_load_and_commit_is_a_conflict_and_then_both_are_in(
    tmp_path: Path, stock: bool, caplog: pytest.LogCaptureFixture
) -> None:
    lake = Lake(tmp_path / "lake", stock=stock, evolve=GROWING)
    faults = Faults()
    book = lake.book(faults)
    run(lake, book, ticks=1)
    ask(lake, (ADD, "wind", "double"), (ADD, "theirs", "long"))

    def others() -> None:
        with lake.table().update_schema() as change:
            change.add_column("theirs", StringType())

    faults.hooks.append((lambda operation: operation.startswith(("commit", "swap")), others))
    with caplog.at_level(logging.WARNING):
        lake.tick(book, seconds=6)
    assert faults.hooks == []
    assert names(lake)[-1] == "theirs"
    assert ("columns", "WARNING") in {(record.action, record.levelname) for record in caplog.records}
    run(lake, book)
    assert names(lake)[-2:] == ["theirs", "wind"]
    assert str(lake.table().schema().find_type("theirs")) == "string"
    assert (TRAY.pending(lake.folder), answers(lake)) == ([], {})


def test_a_request_that_knows_more_than_our_view_is_not_refused_for_it(lake: Lake) -> None:
    book = run(lake, ticks=1)  # its view is kept for ten seconds
    with lake.table().update_schema() as change:
        change.add_column("gust", IntegerType())
    ask(lake, (WIDEN, "gust", "long"))
    run(lake, book, ticks=1)
    assert (str(lake.table().schema().find_type("gust")), answers(lake)) == ("long", {})


def test_two_bookkeepers_at_once_add_one_column(lake: Lake) -> None:
    faults = Faults()
    book, other = lake.book(faults), lake.book()
    ask(lake, (ADD, "wind", "double"))
    faults.hooks.append((lambda operation: operation.startswith("commit"), lambda: other.tick(lake.clock.now)))
    run(lake, book, ticks=3)
    assert names(lake).count("wind") == 1
    assert (TRAY.pending(lake.folder), answers(lake)) == ([], {})


def scene(lake: Lake) -> Any:
    """What one bookkeeper does of a txlog, two requests that are good and one that is not."""
    Writes(lake).publish("a")
    ask(lake, (ADD, "wind", "double"), (WIDEN, "n", "long"), (ADD, "KEY", "long"))
    saved = Saved(lake)

    def act(faults: Faults) -> None:
        saved.restore()
        book = lake.book(faults)
        for _ in range(2):
            lake.clock.move(seconds=6)
            try:
                book.tick(lake.clock.now)
            except StorageUnavailable:
                continue

    return act


def check(lake: Lake, point: Any) -> None:
    lake.drain(4)
    schema = lake.table().schema()
    assert names(lake) == [*(column["name"] for column in NUMBERED), "wind"], point
    assert isinstance(schema.find_type("n"), LongType), point
    assert lake.folder.card().schema == schema, point
    assert (TRAY.pending(lake.folder), lake.keys(), lake.pending()) == ([], ["a"], []), point
    assert ["case only" in why for why in answers(lake).values()] == [True], point


def test_a_crash_at_any_operation_leaves_one_column_and_no_request(lake: Lake) -> None:
    act = scene(lake)
    seen = recorded(act)
    begin = next(number for number, operation in enumerate(seen) if operation == f"list folder/{COLUMNS}")
    points = [point for point in crash_points(seen) if point.number > begin]
    assert len(points) > 15
    for point in points:
        assert crashed(act, point), point
        check(lake, point)


def test_a_storage_or_catalog_that_fails_at_any_operation_postpones_it(lake: Lake) -> None:
    act = scene(lake)
    seen = recorded(act)
    begin = next(number for number, operation in enumerate(seen) if operation == f"list folder/{COLUMNS}")
    for point in [*error_points(seen)][begin % 2 :: 2]:
        if point.number >= begin:
            act(Faults().at(point.number, point.when, StorageUnavailable))
            check(lake, point)


def test_what_was_granted_and_refused_is_counted(tmp_path: Path) -> None:
    watched = Watched()
    lake = watched.add(tmp_path, columns=NUMBERED, partition_by=(), evolve=GROWING)
    ask(lake, (ADD, "wind", "double"), (ADD, "gust", "long"), (WIDEN, "n", "long"), (ADD, "KEY", "long"))
    watched.turn(3, seconds=6)
    outcomes = ("added", "widened", "refused")
    assert [watched.value("bookkeeper_column_requests_total", outcome=name) for name in outcomes] == [2, 1, 1]


def test_equal_requests_are_one_object(lake: Lake) -> None:
    for _ in range(3):
        ask(lake, (ADD, "wind", "double"))
    assert [item.name for item in TRAY.pending(lake.folder)] == [encode(ColumnRequest(ADD, "wind", "double"))[0]]


def test_of_two_look_alikes_in_one_tick_one_is_added_and_honest_names_of_other_scripts_are(lake: Lake) -> None:
    ask(lake, (ADD, "scope", "long"), (ADD, "\u0455c\u043e\u0440\u0435", "long"))
    ask(
        lake,
        *(
            (ADD, name, "long")
            for name in (
                "\u0446\u0435\u043d\u0430",
                "\u0394t",
                "größe",
                "grosse",
                "x0",
                "xO_",
                "\u0442\u0435\u043c\u043f\u0435\u0440\u0430\u0442\u0443\u0440\u0430_C",
            )
        ),
    )
    run(lake)
    assert ("scope" in names(lake)) != ("\u0455c\u043e\u0440\u0435" in names(lake))
    assert {
        "\u0446\u0435\u043d\u0430",
        "\u0394t",
        "x0",
        "xO_",
        "\u0442\u0435\u043c\u043f\u0435\u0440\u0430\u0442\u0443\u0440\u0430_C",
    } <= {*names(lake)}
    assert sum("look alike" in why for why in answers(lake).values()) == 1
