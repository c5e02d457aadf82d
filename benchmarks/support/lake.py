"""
A queue as a user makes it (timestamp, key, value, by day), for benchmarks with real data files and real processes.
"""

import json
import sqlite3
import threading
import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bookkeeper.catalogs.open import open_catalog
from bookkeeper.commands.init import initialise, schema_for
from bookkeeper.config import load as config
from bookkeeper.config.settings import Settings
from bookkeeper.contract import marks, marks_json
from bookkeeper.contract.names import TxlogName
from bookkeeper.contract.txlog_folder import Folder
from bookkeeper.stores.open import open_store

IDENTIFIER = "demo.events"


@dataclass
class Lake:
    """The table, its configuration file and its folder, all below `root`."""

    root: Path
    path: Path
    settings: Settings
    folder: Folder

    @classmethod
    def at(cls, root: Path, storage: Mapping[str, Any] | None = None, **table: Any) -> "Lake":
        """A new one, on this disk or where `storage` says; `table` are keys of its section."""
        root.mkdir(exist_ok=True)
        path = configured(root, {}, table, storage)
        settings = config.load(str(path), {})
        chosen = settings.tables["events"]
        done = initialise(open_catalog(settings.catalog, create=True), chosen, schema_for(chosen))
        return cls(root, path, settings, Folder(open_store(done.folder, settings.catalog.properties)))

    def table(self) -> Any:
        """As pyiceberg loads it."""
        return open_catalog(self.settings.catalog).load_table(IDENTIFIER)

    def live_files(self) -> int:
        """The data files of `main`, as the snapshot's summary counts them."""
        head = self.table().current_snapshot()
        return int(head.summary["total-data-files"]) if head is not None else 0


def configured(
    root: Path, bookkeeper: Mapping[str, Any], table: Mapping[str, Any], storage: Mapping[str, Any] | None = None
) -> Path:
    """
    Writes the configuration file; `storage` are keys of its catalog (what reaches the warehouse, and where that is).
    """
    catalog = {"name": "lake", "type": "sql", "uri": f"sqlite:///{root}/cat.db", "warehouse": f"file://{root}/wh"}
    catalog |= storage or {}
    events = {"identifier": IDENTIFIER, **table}
    return written(root / "bookkeeper.toml", {"catalog": catalog, "bookkeeper": bookkeeper, "tables.events": events})


def written(path: Path, sections: Mapping[str, Mapping[str, Any]]) -> Path:
    """
    Writes these sections of TOML to `path`, and gives that back; a key may have `_` for `-`.
    """
    lines = [
        line
        for name, values in sections.items()
        for line in (f"[{name}]", *(f"{_key(key)} = {_value(value)}" for key, value in values.items()))
    ]
    path.write_text("\n".join(lines) + "\n")
    return path


def _key(name: str) -> str:
    return json.dumps(name.replace("_", "-"))


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_key(key)} = {_value(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_value, value)) + "]"
    return json.dumps(value)


@dataclass
class Watch:
    """Looks every few milliseconds at what the catalog points to, so that it knows when a commit could be seen."""

    root: Path
    pause_seconds: float = 0.005
    #: of each table, by its name: since when (seconds of the epoch) it was at which metadata file
    seen: dict[str, list[tuple[float, str]]] = field(default_factory=lambda: defaultdict(list))
    _stop: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> "Watch":
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _look(self) -> None:
        catalog = sqlite3.connect(self.root / "cat.db", timeout=30)
        ended = False
        while not ended:
            ended = self._stop.wait(self.pause_seconds)  # and then looks once more: a commit may be that young
            rows = catalog.execute("SELECT table_name, metadata_location FROM iceberg_tables").fetchall()
            at = time.time()
            for name, location in rows:
                if not self.seen[name] or self.seen[name][-1][1] != location:
                    self.seen[name].append((at, location))
        catalog.close()

    def times(self, table: Any) -> dict[str, float]:
        """When each txlog could be seen in the table, ms: what the marks of each version say."""
        found: dict[str, float] = {}
        last: dict[str, int] = {}
        for at, location in self.seen[table.name()[-1]]:
            for writer, known in _marks(table, location).writers.items():
                for run, mark in known.incarnations.items():
                    new = range(last.get(run, 0) + 1, mark.last + 1)
                    found |= {str(TxlogName(writer, run, number)): at * 1000 for number in new}
                    last[run] = mark.last
        return found


def _marks(table: Any, location: str) -> marks.Marks:
    with table.io.new_input(location).open() as metadata:
        return marks_json.loads(json.loads(metadata.read())["properties"][marks.PROPERTY])
