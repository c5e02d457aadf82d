"""
The place of a consumer: which rows of the table it has read.

A place counts files in the order in which `snapshot_files` gives them.
"""

import json
from dataclasses import dataclass, replace
from typing import Any

from bookkeeper.config.units import from_epoch_ms
from bookkeeper.errors import PlaceRefused

#: with ancestors; a place without any has version 1
VERSION = 2
#: a place takes about 200 bytes, and 20 for each ancestor
PLACE_BYTES = 4096
#: the year 9999, the last that a message can show
LATEST_MS = 253_402_300_799_000
_KEYS = {"version", "table", "snapshot", "files", "rows", "whole", "at"}
_KEYS_OF = {1: _KEYS, VERSION: _KEYS | {"ancestors"}}


@dataclass(frozen=True, slots=True)
class Place:
    """
    `files` files of `snapshot` are read (None: all), `rows` rows of the next one, and everything before the snapshot.

    Snapshot None: nothing was read of a table that had no snapshot yet. `whole`: the files are counted among all that
    were in the table then, not only among those that the snapshot added. `at` is when the snapshot was committed, in ms
    since 1970, for messages. `table` is the table's uuid. `ancestors` are snapshots of main before this one, newest
    first (`MainHistory.ancestors`): after a rollback they tell how far main was read, even if `snapshot` is expired.
    """

    table: str
    snapshot: int | None = None
    files: int | None = None
    rows: int = 0
    whole: bool = False
    at: int = 0
    ancestors: tuple[int, ...] = ()

    def __str__(self) -> str:
        """The place as it is stored; two equal places have the same text."""
        data: dict[str, object] = {
            "version": VERSION if self.ancestors else 1,
            "table": self.table,
            "snapshot": self.snapshot,
            "files": self.files,
            "rows": self.rows,
            "whole": self.whole,
            "at": self.at,
        }
        if self.ancestors:
            data["ancestors"] = self.ancestors
        return json.dumps(data, separators=(",", ":"))

    @property
    def brief(self) -> str:
        """The place for messages."""
        return str(replace(self, ancestors=()))

    @property
    def passed(self) -> tuple[int, ...]:
        """The snapshots that it knows to be read, newest first."""
        return self.ancestors if self.snapshot is None or self.files is not None else (self.snapshot, *self.ancestors)

    @property
    def named(self) -> str:
        """Its snapshot, for messages."""
        if self.snapshot is None:
            return "the table's beginning"
        return f"snapshot {self.snapshot}" + (f" of {self.when}" if self.at else "")

    @property
    def when(self) -> str:
        """When its snapshot was committed, for messages."""
        return from_epoch_ms(self.at).isoformat(timespec="seconds")


def parse(text: object, table: str, where: str) -> Place:
    """
    The place in `text`, which `where` holds; raises PlaceRefused, whatever it is, unless it is one of this `table`.
    """
    raw = _decoded(text, where)
    if type(raw.get("version")) is int and raw["version"] > VERSION:
        raise PlaceRefused(
            f"{where} holds a place of version {raw['version']}, this one knows {VERSION}",
            hint="Upgrade this program: a newer one has read further.",
        )
    version = raw.get("version")
    if type(version) is not int or set(raw) != _KEYS_OF.get(version) or not _is_sound(raw):
        raise PlaceRefused(f"{where} holds no place: {str(text)[:200]!r}")
    if raw["table"] != table:
        raise PlaceRefused(
            f"{where} holds a place in the table {raw['table']}, this one is {table}",
            hint="Was the table created anew? Then take another name, or a new output.",
        )
    return Place(**{key: raw[key] for key in _KEYS - {"version"}}, ancestors=tuple(raw.get("ancestors", ())))


def _decoded(text: object, where: str) -> dict[str, Any]:
    if isinstance(text, str) and len(text) <= PLACE_BYTES:
        try:
            raw = json.loads(text)
        except (ValueError, RecursionError):
            raw = None
        if isinstance(raw, dict):
            return raw
    raise PlaceRefused(f"{where} holds no place: {str(text)[:200]!r}")


def _is_sound(raw: dict[str, Any]) -> bool:
    def is_count(value: object) -> bool:
        return type(value) is int and 0 <= value < 2**63

    def counts(key: str) -> bool:
        return is_count(raw[key])

    ancestors = raw.get("ancestors", [])
    within = raw["files"] is None or counts("files")
    return (
        isinstance(raw["table"], str)
        and (raw["snapshot"] is None or counts("snapshot"))
        and within
        and all(counts(key) for key in ("rows", "at"))
        and raw["at"] < LATEST_MS
        and type(raw["whole"]) is bool
        # Rows are those of the next file, and there is none after all of them; nothing is read before any snapshot.
        and not (raw["files"] is None and (raw["rows"] or raw["whole"]))
        and not (raw["snapshot"] is None and (raw["files"] is not None or ancestors))
        and isinstance(ancestors, list)
        and bool(ancestors) == (raw["version"] > 1)
        and all(map(is_count, ancestors))
    )
