"""
What lies in a txlog folder (txlog-format.md and rewrite-format.md in docs/maintain), read by code of the oracle's own.
"""

import base64
import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from tests.simulation.avro_files import header_of, records

PENDING, REJECTED, REWRITES, COLUMNS, CONSUMERS = "pending", "rejected", "rewrites", "columns", "consumers"
TXLOG, REASON, REWRITE = ".txlog.avro", ".reason.json", ".avro"
_UUID = "[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}"
_NAME = re.compile(rf"([a-z0-9][a-z0-9_-]*)\.({_UUID})\.(\d{{10}})\.txlog\.avro")
ADDED, DELETED = 1, 2


class Name(NamedTuple):
    """What the name of a txlog says."""

    writer: str
    incarnation: str
    sequence: int

    @property
    def rank(self) -> tuple[str, int]:
        """The order of the txlogs of one writer."""
        return self.incarnation, self.sequence


def name_of(text: str) -> Name:
    """What the last segment of a txlog's location says."""
    found = _NAME.fullmatch(text)
    assert found is not None, text
    return Name(found[1], found[2], int(found[3]))


def started_ms(incarnation: str) -> int:
    """When a run began: the first 48 bits of its UUIDv7."""
    return int(incarnation.replace("-", "")[:12], 16)


class Txlog(NamedTuple):
    """A txlog: the data files and the delete files that it names, the positions of its source, and its offsets."""

    name: Name
    created_ms: int
    files: tuple[str, ...]
    deletes: tuple[str, ...]
    rows: int
    position: bytes | None
    previous: bytes | None
    offsets: Mapping[str, str] = {}


def txlog(data: bytes) -> Txlog:
    """The txlog in these bytes."""
    said = header_of(data)
    own = {key.removeprefix("bookkeeper."): value for key, value in said.items() if key.startswith("bookkeeper.")}
    files = [entry["data_file"] for entry in records(data)]
    deletes = records(own["deletes"]) if "deletes" in own else ()
    return Txlog(
        Name(own["writer"].decode(), own["incarnation"].decode(), int(own["sequence"])),
        int(own["created-ms"]),
        tuple(file["file_path"] for file in files),
        tuple(entry["data_file"]["file_path"] for entry in deletes),
        sum(file["record_count"] for file in files),
        own.get("position"),
        own.get("previous-position"),
        json.loads(own.get("offsets", b"{}")),
    )


class Rewrite(NamedTuple):
    """A rewrite: its new files, and those they replace with the data sequence numbers that it names."""

    id: str
    added: tuple[str, ...]
    replaced: Mapping[str, int]


def rewrite(data: bytes) -> Rewrite:
    """The rewrite in these bytes."""
    entries = [*records(data)]
    added = tuple(entry["data_file"]["file_path"] for entry in entries if entry["status"] == ADDED)
    gone = {
        entry["data_file"]["file_path"]: entry["sequence_number"] for entry in entries if entry["status"] == DELETED
    }
    return Rewrite(header_of(data)["bookkeeper.rewrite-id"].decode(), added, gone)


class Mark(NamedTuple):
    """How far the txlogs of one run are in."""

    last: int
    holes: frozenset[int]
    seen_ms: int


class Marks(NamedTuple):
    """The marks of a table: of each writer its position, the offsets of its channels, and the marks of its runs."""

    folder: str
    snapshot: int | None
    pruned_before_ms: int
    positions: Mapping[str, bytes]
    runs: Mapping[tuple[str, str], Mark]
    offsets: Mapping[str, Mapping[str, str]]

    def has(self, name: Name) -> bool:
        """Whether they say that this txlog is in."""
        mark = self.runs.get((name.writer, name.incarnation))
        return mark is not None and name.sequence <= mark.last and name.sequence not in mark.holes


def marks(text: str | bytes) -> Marks:
    """The marks in the table's property, or in `marks` of marks.json."""
    return _marks(json.loads(text))


def _marks(raw: Mapping[str, Any]) -> Marks:
    writers = raw["writers"].items()
    offsets = {name: writer["offsets"] for name, writer in writers if "offsets" in writer}
    assert raw["version"] == (2 if offsets else 1)
    return Marks(
        raw["folder"],
        raw["snapshot"],
        raw["pruned-before-ms"],
        {name: base64.b64decode(writer["position"]) for name, writer in writers if "position" in writer},
        {
            (name, run): Mark(mark["last"], frozenset(mark.get("holes", ())), mark["seen-ms"])
            for name, writer in writers
            for run, mark in writer["incarnations"].items()
        },
        offsets,
    )


def text_of(raw: Any) -> str:
    """A JSON value, spelled in one way."""
    return json.dumps(raw, sort_keys=True)


def text(given: str) -> str:
    """JSON, spelled in one way."""
    return text_of(json.loads(given))


class MarksCopy(NamedTuple):
    """marks.json."""

    table: str
    number: int
    marks: Marks
    raw: Mapping[str, Any]


def marks_copy(data: bytes) -> MarksCopy:
    """The marks.json in these bytes."""
    raw = json.loads(data)
    return MarksCopy(raw["table-uuid"], raw["sequence-number"], _marks(raw["marks"]), raw["marks"])


def card(data: bytes) -> Mapping[str, Any]:
    """The card.json in these bytes."""
    raw: Mapping[str, Any] = json.loads(data)
    assert raw["version"] == 1
    return raw


def reason(data: bytes) -> str:
    """Why something lies in rejected/, as the class of an error."""
    return str(json.loads(data)["error"])


class Record(NamedTuple):
    """A registered consumer: the snapshot that it needs, None for all of them, its place and its start as text."""

    name: str
    snapshot: int | None
    place: str
    start: str


def record(name: str, data: bytes) -> Record:
    """The record of a consumer in consumers/."""
    raw = json.loads(data)
    return Record(name, None if raw["snapshot"] == -1 else raw["snapshot"], raw["place"], raw["start"])


class Place(NamedTuple):
    """
    Where a consumer is: `files` files of the snapshot are read (None: all), and `rows` rows of the next one. `whole`:
    of all files that it holds, not only of those that it added. Snapshot None: the table had none.
    """

    snapshot: int | None
    files: int | None
    rows: int
    whole: bool

    @property
    def is_beginning(self) -> bool:
        """Whether it is before the first row of all that a snapshot holds."""
        return self.whole and self.files == 0 and not self.rows


def place(text: str) -> Place:
    """The place in the text of a record or of an output."""
    raw = json.loads(text)
    return Place(raw["snapshot"], raw["files"], raw["rows"], raw["whole"])


class ColumnRequest(NamedTuple):
    """What a writer asks for: to add or to widen a column."""

    change: str
    name: str
    type: str


def column_request(data: bytes) -> ColumnRequest:
    """The request in columns/ in these bytes."""
    raw = json.loads(data)
    return ColumnRequest(raw["change"], raw["name"], raw["type"])
