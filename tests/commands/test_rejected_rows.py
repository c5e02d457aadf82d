"""Dead letters are listed, counted and exported as readers of the table see them."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from bookkeeper.commands import rejected_rows
from bookkeeper.commands.rejected_rows import RejectedRows, Wanted
from bookkeeper.contract import letter_export
from bookkeeper.errors import NotPossible
from tests.kafka.topics import letters_queue
from tests.support.writer_queue import Queue

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
FIRST = {"source": "copy", "channel": "c/0", "offset": 1}


@pytest.fixture
def lake(tmp_path: Path) -> Queue:
    """Four letters are live: one was replaced by a later version, and one was deleted."""
    found = letters_queue(tmp_path / "lake")
    with found.writer("copy-00") as writer:
        for rows in ([row(1, "old"), row(2, "odd"), row(3, "odd")], [row(1, "new"), row(4, "odd", topic="other")]):
            writer.upsert(rows)
            writer.publish()
            found.tick()
        writer.upsert([row(5, "gone"), row(6, "odd", source="second")])
        writer.publish()
        found.tick()
        writer.delete([{**FIRST, "offset": 5}])
        writer.publish(position=b"copy.1")
        found.tick()
    with found.writer("copy-replay") as writer:
        writer.delete([{**FIRST, "offset": 2}])
        writer.publish(position=b"place")
    found.tick()
    return found


def row(offset: int, reason: str, source: str = "copy", topic: str = "t") -> dict[str, Any]:
    at = NOON + timedelta(minutes=offset)
    parts = {
        "topic": topic,
        "partition": 0,
        "timestamp": at,
        "key": None,
        "value": b"\x1b[2J\xff" * 100,
        "headers": None,
    }
    return {**FIRST, "source": source, "offset": offset, **parts, "reason": reason, "rejected_at": at}


def letters(lake: Queue, **wanted: Any) -> RejectedRows:
    audit = lake.audit()
    return RejectedRows(audit.ledger, audit.view, Wanted(**wanted))


def test_the_newest_live_ones_are_first(lake: Queue) -> None:
    total, found = letters(lake).newest(3)

    assert total == 4
    assert [item["offset"] for item in found] == [6, 4, 3]
    assert len(found[0]["value"]) == rejected_rows.START_BYTES
    assert [item["reason"] for item in letters(lake).newest(9)[1]] == ["odd", "odd", "odd", "new"]


def test_they_are_chosen_by_source_topic_and_time(lake: Queue) -> None:
    def offsets(**wanted: Any) -> list[int]:
        return [item["offset"] for item in letters(lake, **wanted).newest(9)[1]]

    assert offsets(source="second") == [6]
    assert offsets(topic="other") == [4]
    assert offsets(since=NOON + timedelta(minutes=4)) == [6, 4]
    assert offsets(source="copy", topic="t") == [3, 1]


def test_they_are_counted_by_source_topic_and_reason(lake: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    total, found = letters(lake, source="copy").by_reason()

    assert total == 3
    assert {(item["topic"], item["reason"], item["rows"]) for item in found} == {
        ("t", "odd", 1),
        ("t", "new", 1),
        ("other", "odd", 1),
    }
    monkeypatch.setattr(rejected_rows, "MOST_REASONS", 0)
    _, found = letters(lake, topic="t", source="copy").by_reason()
    assert [(item["reason"], item["rows"]) for item in found] == [(rejected_rows.OTHERS, 2)]


def test_an_export_has_whole_letters_and_the_positions_of_replays(lake: Queue, tmp_path: Path) -> None:
    path = str(tmp_path / "letters.ndjson")
    assert letters(lake, source="copy").export(path) == 3

    found = letter_export.opened(path)
    assert found.replayed == {"copy-replay": "place"}
    assert found.table_uuid == str(lake.table().metadata.table_uuid)
    by_offset = {item.offset(): item for item in found.letters()}
    assert by_offset.keys() == {1, 3, 4}
    assert by_offset[4].topic() == "other"
    assert by_offset[1].value() == b"\x1b[2J\xff" * 100
    assert by_offset[1].timestamp() == (1, round((NOON.timestamp() + 60) * 1000))
    assert [item.offset() for item in found.letters(2)] == [item.offset() for item in found.letters()][2:]


def test_an_export_that_ends_early_leaves_no_file(lake: Queue, tmp_path: Path) -> None:
    path = tmp_path / "letters.ndjson"
    path.write_text("before")
    with mock.patch.object(letter_export, "_record", side_effect=KeyboardInterrupt), pytest.raises(KeyboardInterrupt):
        letters(lake).export(str(path))

    assert path.read_text() == "before"
    assert [item.name for item in tmp_path.glob("letters.ndjson*")] == ["letters.ndjson"]
    with pytest.raises(NotPossible, match="cannot be written: No such file or directory"):
        letters(lake).export(str(tmp_path / "none" / "letters.ndjson"))


def test_a_table_that_is_not_of_letters_is_refused(tmp_path: Path) -> None:
    other = Queue(tmp_path / "other")

    with pytest.raises(NotPossible, match="is no table of dead letters: it has no column 'source'"):
        letters(other)


HOSTILE = [
    {"offset": -1},
    {"offset": True},
    {"offset": 2**63},
    {"offset": "1"},
    {"channel": None},
    {"partition": 2**31},
    {"timestamp": "now"},
    {"value": "%"},
    {"key": 5},
    {"headers": "["},
    {"headers": "[1]"},
    {"headers": '[["a"]]'},
    {"headers": '[["a", 1]]'},
]


@pytest.mark.parametrize("change", HOSTILE, ids=range(len(HOSTILE)))
def test_a_letter_that_is_none_is_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    path = str(tmp_path / "letters.ndjson")
    head = {"table": "t", "table_uuid": "u", "snapshot": "1", "replayed": {}}
    rightly = letter_export._record
    with mock.patch.object(letter_export, "_record", lambda given: {**rightly(given), **change}):
        letter_export.write(path, head, [row(1, "odd")])

    with pytest.raises(NotPossible, match="is no export of dead letters: letter 1 is none"):
        list(letter_export.opened(path).letters())


def test_a_file_that_changes_while_it_is_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "letters.ndjson"
    head = {"table": "t", "table_uuid": "u", "snapshot": "1", "replayed": {}}
    letter_export.write(str(path), head, [row(number, "odd") for number in range(3)])
    found = letter_export.opened(str(path)).letters()
    next(found)
    path.write_bytes(path.read_bytes().replace(b'"offset": 2', b'"offset": 3') + b"\n")

    with pytest.raises(NotPossible, match="it was changed while it was read"):
        list(found)


def test_lines_without_an_end_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(letter_export, "MOST_LINE_BYTES", 100)
    path = tmp_path / "letters.ndjson"
    path.write_bytes(json.dumps({"dead_letters": 1}).encode() + b" " * 200)

    with pytest.raises(NotPossible, match="a line of more than 100 bytes"):
        letter_export.opened(str(path))


def test_headers_come_back_as_they_were_listed() -> None:
    text = json.dumps([["a", "b"], ["c", None], ["d", "\\xff"]])
    found = letter_export._pairs(text)

    assert found == [("a", b"b"), ("c", None), ("d", b"\\xff")]
