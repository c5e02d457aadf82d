"""`writer lines` of upserts and deletes: each change once and in order, whatever dies when."""

import contextlib
import gzip
import json
import os
import random
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import DecimalType, LongType, NestedField, StringType, TimestamptzType

from bookkeeper.contract.txlog import Txlog
from bookkeeper.errors import NotPossible, SchemaRefused
from bookkeeper.stores.open import open_store
from tests.support.desk import Broken, Clock, Desk, Ledger
from tests.support.upserts import KEYED, keyed_card, merged, state, streamed
from tests.writers.test_lines import Dies
from writers.changes import UNAVAILABLE
from writers.loader.formats import Format
from writers.loader.lines import BadLines, Loader

FLAT, DEBEZIUM, CSV = Format("ndjson", op_field="__op"), Format("ndjson", debezium=True), Format("csv", op_field="__op")
#: a key with None is deleted
Changes = Iterable[tuple[int, str | None]]


@pytest.fixture(params=["by line", "in blocks"])
def pieces(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """A block holds a few lines, so that a small file has many; they are read one by one, or all at once."""
    monkeypatch.setattr("writers.sources.source._CHUNK_BYTES", 100 if request.param == "by line" else 200)
    monkeypatch.setattr("writers.loader.lines.FEW_LINES", 1_000 if request.param == "by line" else 1)


@pytest.fixture
def keyed() -> Desk:
    desk = Desk(f"memory://{uuid.uuid4()}")
    keyed_card(desk)
    return desk


@dataclass
class Bookkeeper(Ledger):
    """Commits in order, and keeps what it committed."""

    desk: Desk
    committed: list[Txlog] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(self.desk)

    def _commit(self, item: Txlog) -> None:
        super()._commit(item)
        self.committed.append(item)


def flat(op: str, key: int, value: str | None = None) -> str:
    return json.dumps({"__op": op, "id": key, "value": value}) + "\n"


def envelope(op: str, before: Any = None, after: Any = None) -> str:
    return json.dumps({"before": before, "after": after, "op": op, "source": {"lsn": 7}, "ts_ms": 1}) + "\n"


def row(key: int, value: str | None) -> dict[str, Any]:
    return {"id": key, "value": value}


def load(desk: Desk, files: list[str], bad: Path, form: Format, most_bad: int | None = None) -> Loader:
    with desk.writer("changes") as writer, BadLines(bad) as bad_lines:
        loader = Loader(writer, form, bad_lines, desk.clock, most_bad=most_bad)
        loader.load_files(files)
        return loader


def loaded(desk: Desk, path: Path, form: Format, text: str) -> dict[int, str | None]:
    """The state that a file of this text alone makes."""
    path.write_text(text)
    load(desk, [str(path)], path.with_suffix(".bad"), form)
    return state(desk, desk.txlogs())


def replayed(changes: Changes) -> dict[int, str | None]:
    found = dict[int, str | None]()
    for key, value in changes:
        found.pop(key, None)
        if value is not None:
            found[key] = value
    return found


def random_changes(seed: int, count: int, keys: int = 6) -> list[tuple[int, str | None]]:
    dice = random.Random(seed)
    return [(dice.randrange(keys), None if dice.random() < 0.3 else f"v{number}") for number in range(count)]


def as_flat(changes: Changes, seed: int = 0) -> str:
    dice = random.Random(seed)
    return "".join(
        flat(dice.choice("dD"), key, "old") if value is None else flat(dice.choice(["c", "I", "r", "u"]), key, value)
        for key, value in changes
    )


def as_csv(changes: Changes) -> str:
    return "id,__op,value\n" + "".join(
        f"{key},{'d' if value is None else 'u'},{value or ''}\n" for key, value in changes
    )


def as_debezium(changes: Changes) -> str:
    return "".join(
        envelope("d", row(key, "old")) + "null\n" if value is None else envelope("u", None, row(key, value))
        for key, value in changes
    )


KINDS: list[tuple[Format, Callable[[Changes], str]]] = [(FLAT, as_flat), (CSV, as_csv), (DEBEZIUM, as_debezium)]


@pytest.mark.usefixtures("pieces")
@pytest.mark.parametrize("form, text", KINDS, ids=["flat", "csv", "debezium"])
def test_the_state_equals_a_replay_of_the_changes_in_their_order(
    keyed: Desk, tmp_path: Path, form: Format, text: Callable[[Changes], str]
) -> None:
    changes = random_changes(1, 60)
    assert loaded(keyed, tmp_path / "a", form, text(changes)) == replayed(changes)
    assert merged(streamed(keyed, keyed.txlogs())) == replayed(changes)


def _dies_and_starts_again(root: Path, at: int, how: str, form: Format, text: Callable[[Changes], str]) -> list[str]:
    (root / "_bookkeeper").mkdir(parents=True)
    desk = Desk(f"file://{root}")
    keyed_card(desk, roll_after_ms=0)
    ledger, changes = Bookkeeper(desk), random_changes(at, 14)
    files = [str(root / "a"), str(root / "b")]
    for name, part in zip(files, (changes[:9], changes[9:]), strict=True):
        Path(name).write_text(text(part) + "bad\n")
    desk.stores = dies = Dies(at, how)
    with contextlib.suppress(Broken):
        load(desk, files, root / "bad", form)
    if at % 2:
        ledger.tick()
    desk.stores = open_store
    desk.clock.move(seconds=1)
    load(desk, files, root / "bad", form)
    ledger.tick()
    seen = [item["value"] for item in streamed(desk, ledger.committed) if item["op"] != "D"]
    assert state(desk, ledger.committed) == merged(streamed(desk, ledger.committed)) == replayed(changes), (at, how)
    assert len(set(seen)) == len(seen), "a change is applied twice"
    assert not desk.folder.rejected()
    return dies.calls


@pytest.mark.parametrize("how", ["before", "after", "torn"])
@pytest.mark.parametrize("form, text", KINDS, ids=["flat", "csv", "debezium"])
def test_each_change_is_applied_in_order_whichever_call_the_run_dies_at(
    tmp_path: Path, how: str, form: Format, text: Callable[[Changes], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("writers.sources.source._CHUNK_BYTES", 40 if form is CSV else 200)
    monkeypatch.setattr("writers.loader.lines.FEW_LINES", 1)
    calls = _dies_and_starts_again(tmp_path / "never", 10_000, how, form, text)
    assert len(calls) > (5 if how == "torn" else 16)
    for at in range(1, len(calls) + 1):
        _dies_and_starts_again(tmp_path / f"{at}", at, how, form, text)


@pytest.mark.usefixtures("pieces")
def test_a_sample_of_debezium(keyed: Desk, tmp_path: Path) -> None:
    lines = [
        envelope("r", None, row(1, "snapshot")),
        envelope("c", None, row(2, "new")),
        envelope("u", row(1, "snapshot"), row(1, "changed")),
        envelope("u", row(2, None), row(3, "moved")),
        '{"schema": {}, "payload": ' + envelope("c", None, row(4, "wrapped")).rstrip() + "}\n",
        envelope("c", None, row(5, "gone")),
        envelope("d", row(5, None)),
        "null\n",
        '{"schema": null, "payload": null}\n',
        "\n",
    ]
    assert loaded(keyed, tmp_path / "a", DEBEZIUM, "".join(lines)) == {1: "changed", 3: "moved", 4: "wrapped"}
    assert not (tmp_path / "a.bad").exists()


@pytest.mark.usefixtures("pieces")
@pytest.mark.parametrize(
    "form, line, why",
    [
        (DEBEZIUM, envelope("t"), "truncates the table"),
        (DEBEZIUM, envelope("u", None, row(2, UNAVAILABLE)), "'value' holds"),
        (DEBEZIUM, envelope("d"), "its key is not known"),
        (DEBEZIUM, '{"id": 1, "value": "v"}\n', "there is no op"),
        (FLAT, flat("t", 1), "'t', which is not known"),
        (FLAT, flat("u", 1, UNAVAILABLE), "'value' holds"),
        (FLAT, flat("u", 1, UNAVAILABLE).replace("_unavailable", "\\u005funavailable"), "'value' holds"),
        (FLAT, flat("u", 1, "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="), "'value' holds"),
        (FLAT, '{"id": 1, "value": "v"}\n', "no text in '__op'"),
        (FLAT, '{"__op": "d", "value": "v"}\n', "lacks the key 'id'"),
    ],
)
def test_a_change_that_cannot_be_applied_ends_the_load_and_is_no_bad_line(
    keyed: Desk, tmp_path: Path, form: Format, line: str, why: str
) -> None:
    keyed_card(keyed, roll_after_ms=0)
    one = as_flat if form is FLAT else as_debezium
    before = [(key, "v") for key in range(8)]
    (tmp_path / "a").write_text(one(before) + line + one([(0, "later")]))
    for _ in range(2):
        with pytest.raises(SchemaRefused, match=why) as caught:
            load(keyed, [str(tmp_path / "a")], tmp_path / "bad", form)
        assert f"{tmp_path / 'a'}, line 9: " in str(caught.value)
        keyed.clock.move(seconds=1)
    assert not (tmp_path / "bad").exists()
    assert {0: "v"}.items() <= state(keyed, keyed.txlogs()).items() <= dict(before).items()


@pytest.mark.usefixtures("pieces")
@pytest.mark.parametrize(
    "form, line",
    [
        (FLAT, "{not json\n"),
        (FLAT, '{"__op": "u", "id": "text", "value": "v"}\n'),
        (FLAT, '{"__op": "u", "id": 7, "id": 8}\n'),
        (FLAT, '{"__op": "u", "__op": "d", "id": 1}\n'),
        (FLAT, '{"__op": "u", "id": 1, "colour": "red"}\n'),
        (FLAT, '{"__op": "u", "id": 1, "seq": 3}\n'),
        (DEBEZIUM, "{not json\n"),
        (DEBEZIUM, '{"op": "u", "op": "d", "before": {"id": 1}, "after": {"id": 1}}\n'),
        (DEBEZIUM, '{"op": "d", "before": {"id": 1, "id": 2}}\n'),
        (DEBEZIUM, envelope("u", None, {"id": 1, "value": 5})),
        (DEBEZIUM, envelope("u", None, {"id": 1, "colour": "red"})),
        (CSV, "1,d\n"),
        (CSV, "one,d,\n"),
    ],
)
def test_a_line_that_is_no_row_is_a_bad_line_as_ever(keyed: Desk, tmp_path: Path, form: Format, line: str) -> None:
    text = {id(form): text for form, text in KINDS}[id(form)]
    head, _, lines = text([(1, "a"), (2, "b"), (3, "c")]).rpartition("3") if form is CSV else ("", "", "")
    whole = head + line + "3" + lines if form is CSV else text([(1, "a"), (2, "b")]) + line + text([(3, "c")])
    assert loaded(keyed, tmp_path / "a", form, whole) == {1: "a", 2: "b", 3: "c"}
    assert [json.loads(item)["text"] for item in (tmp_path / "a.bad").read_text().splitlines()] == [line.rstrip()]


@pytest.mark.usefixtures("pieces")
def test_unknown_fields_are_passed_over_where_it_is_asked_for(keyed: Desk, tmp_path: Path) -> None:
    line = flat("u", 1, "a").replace("}", ', "colour": "red"}')
    form = Format("ndjson", op_field="__op", ignore_unknown=True)
    assert loaded(keyed, tmp_path / "a", form, line) == {1: "a"}


WIDE = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "value", StringType(), required=True),
    NestedField(5, "price", DecimalType(9, 2), required=False),
    NestedField(6, "at", TimestamptzType(), required=False),
    identifier_field_ids=[1],
)


@pytest.mark.usefixtures("pieces")
@pytest.mark.parametrize("form", [FLAT, CSV], ids=["flat", "csv"])
def test_a_delete_needs_only_the_keys_and_an_upsert_what_the_table_requires(
    keyed: Desk, tmp_path: Path, form: Format
) -> None:
    keyed_card(keyed, schema=WIDE, columns={})
    if form is CSV:
        text = "id,__op,value,price\n1,u,a,1.25\n2,u,b,\n1,d,,wrong\n3,u,,7.5\n"
    else:
        lines: list[dict[str, Any]] = [
            {"__op": "u", "id": 1, "value": "a", "price": 1.25, "at": "2026-01-31T12:00:00Z"},
            {"__op": "u", "id": 2, "value": "b"},
            {"__op": "d", "id": 1, "price": "wrong"},
            {"__op": "u", "id": 3, "price": 7.5},
        ]
        text = "".join(json.dumps(line) + "\n" for line in lines)
    found = loaded(keyed, tmp_path / "a", form, text)
    assert found == ({2: "b", 3: ""} if form is CSV else {2: "b"})  # an empty field of a required text is an empty text
    if form is FLAT:
        assert "required column 'value' is missing" in (tmp_path / "a.bad").read_text()


def test_blocks_of_flat_rows_are_read_at_once(keyed: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    changes = random_changes(3, 500)
    monkeypatch.setattr("writers.loader.lines.FEW_LINES", 1)
    monkeypatch.setattr(Loader, "_parse", lambda *line: pytest.fail("a line was read by itself"))
    assert loaded(keyed, tmp_path / "a", FLAT, as_flat(changes)) == replayed(changes)


def test_changes_into_an_append_only_table_are_refused_before_anything_is_read(desk: Desk, tmp_path: Path) -> None:
    for form in (FLAT, DEBEZIUM):
        with pytest.raises(NotPossible, match="append-only") as caught:
            load(desk, [str(tmp_path / "not there")], tmp_path / "bad", form)
        assert "init --key" in caught.value.hint
    assert list(desk.folder.pending()) == []


def test_changes_in_a_file_of_rows_are_refused_before_anything_is_read(keyed: Desk, tmp_path: Path) -> None:
    (tmp_path / "a").write_text(flat("u", 1, "a"))
    pq.write_table(pa.table({"id": [1]}), tmp_path / "b")
    with pytest.raises(NotPossible, match="b is Parquet: changes are read from lines"):
        load(keyed, [str(tmp_path / "a"), str(tmp_path / "b")], tmp_path / "bad", FLAT)
    assert keyed.txlogs() == []


def test_an_op_field_that_is_a_column_is_refused(keyed: Desk, tmp_path: Path) -> None:
    with pytest.raises(SchemaRefused, match="'value' is a column of the table"):
        loaded(keyed, tmp_path / "a", Format("ndjson", op_field="value"), flat("u", 1))


def test_the_op_field_may_have_the_name_of_the_op_column(keyed: Desk, tmp_path: Path) -> None:
    text = as_flat([(1, "a"), (2, "b"), (1, None)]).replace("__op", "op")
    assert loaded(keyed, tmp_path / "a", Format("ndjson", op_field="op"), text) == {2: "b"}


def test_lines_that_are_no_changes_are_new_rows_of_a_keyed_table(keyed: Desk, tmp_path: Path) -> None:
    assert loaded(keyed, tmp_path / "a", Format("ndjson"), '{"id": 1, "value": "a"}\n') == {1: "a"}
    assert KEYED.find_field("op")  # which the writer fills


def test_compressed_changes_and_changes_from_a_pipe(keyed: Desk, tmp_path: Path) -> None:
    (tmp_path / "a.gz").write_bytes(gzip.compress(as_flat([(1, "a"), (2, "b")]).encode()))
    load(keyed, [str(tmp_path / "a.gz")], tmp_path / "bad", FLAT)
    read, write = os.pipe()
    with os.fdopen(write, "wb") as pipe:
        pipe.write(as_flat([(1, None), (3, "c")]).encode())
    with keyed.writer("pipe") as writer, BadLines(tmp_path / "bad") as bad_lines:
        Loader(writer, FLAT, bad_lines, keyed.clock).load_pipe(read)
    os.close(read)
    assert state(keyed, keyed.txlogs()) == {2: "b", 3: "c"}


class Kept:
    """A writer that keeps the changes that it is given: of a delete the keys."""

    position, keys, evolve = None, ("id",), dict[str, bool]()

    def __init__(self, schema: Schema) -> None:
        self.former_names = dict[str, int]()
        self.row_schema, self.card, self.changes = schema, self, list[tuple[Any, ...]]()

    def change(self, table: pa.Table, deleted: pa.Array) -> None:
        table.validate(full=True)
        for item, gone in zip(table.to_pylist(), deleted.to_pylist(), strict=True):
            self.changes.append((item["id"], gone, "" if gone else repr(item)))

    def due(self) -> bool:
        return False

    def publish(self, position: bytes | None) -> None:
        pass

    def roll(self) -> None:
        pass


GOOD = [
    json.dumps({"__op": op, "id": key, "value": "v"}) + "\n"
    for op in ("i", "C", "r", "Update", "d", "DELETE")
    for key in (1, 2)
]
ODD = [
    '{"__op": "d", "id": 1}\n',
    '{"__op": "d", "id": 1, "price": "wrong"}\n',
    '{"__op": "u", "id": 1}\n',
    '{"__op": "u", "id": null, "value": "v"}\n',
    '{"__op": "u", "__op": "d", "id": 1, "value": "v"}\n',
    '{"__op": "\\u0064", "id": 1, "value": "v"}\n',
    '{"__op": "u", "id": 1, "value": "v", "price": 1.25}\n',
    '{"__op": "u", "id": 1, "value": "v", "price": 1.255}\n',
    '{"__op": "u", "id": 1, "value": "v", "extra": {"a": 1, "a": 2}}\n',
    '{"__op": "u", "id": 1, "value": ["__debezium_unavailable_value"]}\n',
    '{"__op": "u", "id": 1, "value": "x__debezium_unavailable_value"}\n',
    '{"__op": "\u212a", "id": 1, "value": "v"}\n',
    '{"__op": 1, "id": 1, "value": "v"}\n',
    '{"__op": " u", "id": 1, "value": "v"}\n',
    '{"id": 1, "value": "v"}\n',
    "null\n",
    "7\n",
    "\n",
    '{"__op": "u", "id": 1, "value": "v"} {"__op": "d", "id": 1}\n',
]


@pytest.mark.parametrize("ignore_unknown", [False, True])
def test_blocks_hold_the_changes_that_their_lines_hold_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ignore_unknown: bool
) -> None:
    monkeypatch.setattr("writers.loader.lines.FEW_LINES", 1)
    seen = set[str]()
    for seed in range(200):
        dice = random.Random(seed)
        lines = dice.choices(GOOD, k=6) + dice.sample(ODD, k=dice.choice([0, 1, 1, 2]))
        dice.shuffle(lines)
        (tmp_path / "a").write_text("".join(lines), "utf-8")
        by_line, in_blocks = (_kept(tmp_path, by_line, ignore_unknown) for by_line in (True, False))
        assert in_blocks == by_line, lines
        seen.add(type(by_line[1]).__name__ + str(bool(by_line[2])))
    assert seen == {"NoneTypeFalse", "NoneTypeTrue", "strFalse", "strTrue"}


def _kept(place: Path, by_line: bool, ignore_unknown: bool) -> tuple[list[Any], str | None, list[str]]:
    """The changes, unless the load is ended: then its reason; and the bad lines."""
    writer, reason = Kept(WIDE), None
    form = Format("ndjson", op_field="__op", by_line=by_line, ignore_unknown=ignore_unknown)
    (place / "bad").unlink(missing_ok=True)
    try:
        with BadLines(place / "bad") as bad_lines:
            Loader(writer, form, bad_lines, Clock()).load_files([str(place / "a")])  # type: ignore[arg-type]
    except SchemaRefused as exc:
        reason = str(exc)
    return writer.changes, reason, (place / "bad").read_text().splitlines() if (place / "bad").exists() else []
