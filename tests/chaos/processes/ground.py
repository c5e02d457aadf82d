"""
A queue on this machine's disk as processes see it, the notes its writers take, and the account in the end.
"""

import os
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from bookkeeper.catalogs.open import open_catalog
from bookkeeper.commands.verify import ERROR, Audit, verify
from bookkeeper.config.settings import Catalog, Daemon, Reaper, Retention, Settings, Table
from bookkeeper.errors import Retry
from bookkeeper.serve.open import open_bookkeeper
from bookkeeper.tick.tick import Bookkeeper
from tests.chaos.account import account
from tests.chaos.tally import Tally
from tests.support.lake import Lake

#: rows with such keys are past retention when they are written: they may be there or not
OLD = "old/"
BRISK = Daemon(backoff_most=timedelta(milliseconds=50), lease=True)
RULES = Reaper(older_than=timedelta(milliseconds=300), retain_last=2, metadata_keep=timedelta(milliseconds=500))
KEEP = Retention(keep=timedelta(hours=12), every=timedelta(milliseconds=200), brake=1.0)


def now() -> datetime:
    """
    The time.
    """
    return datetime.now(UTC)


@dataclass(frozen=True)
class Ground:
    """Where everything lies; to be passed to a fork."""

    root: Path
    settings: Settings
    table: Table
    folder: str

    @classmethod
    def make(cls, root: Path, catalog: Catalog, number: int = 0) -> "Ground":
        """A new queue; notes and the like go to `root`."""
        (root / "notes").mkdir(parents=True)
        rules: dict[str, Any] = {"reaper": RULES, "retention": KEEP, "file_names": None}
        lake = Lake(root, catalog=catalog, identifier=f"demo.events{number}", **rules)
        settings = Settings(catalog, BRISK, tables={"events": lake.settings})
        return cls(root, settings, lake.settings, lake.made.folder)

    def book(self, lease: bool = False) -> Bookkeeper:
        """A bookkeeper that was just started."""
        settings = replace(self.settings, bookkeeper=replace(BRISK, lease=lease))
        return open_bookkeeper(settings, self.table, now)

    def note(self, writer: str, *words: str) -> None:
        """One line in the notes of a writer; it outlives its process."""
        handle = os.open(self.root / "notes" / writer, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        os.write(handle, (" ".join(words) + "\n").encode())
        os.close(handle)

    def notes(self, start: str) -> list[list[str]]:
        """The lines in the notes of all writers whose names start so."""
        files = sorted((self.root / "notes").glob(f"{start}*"))
        return [line.split() for file in files for line in file.read_text("utf-8").splitlines()]

    def drain(self) -> list[str]:
        """Ticks of a new bookkeeper until nothing is pending; what still is in the end."""
        book = self.book()
        for _ in range(40):
            try:
                if not book.tick(now()).waiting and not book.folder.pending():
                    return []
            except Retry:
                continue
        return [f"still pending: {item.name}" for item in book.folder.pending()]

    def keys(self) -> list[str]:
        """The keys of all live files, each as often as its file is in the table."""
        table = open_catalog(self.settings.catalog).load_table(self.table.identifier)
        paths = [task.file.file_path.removeprefix("file://") for task in table.scan().plan_files()]
        found = [key for path in paths for key in pq.read_table(path, columns=["key"])["key"].to_pylist()]
        return [key for key in found if not key.startswith(OLD)]

    def outcome(self, source: list[str], where: str, points: int) -> Tally:
        """What became of the rows of the source, and of those of the writers that took notes."""
        lines = self.notes("plain")
        sure = [key for word, *keys in lines if word == "!" for key in keys]
        unsure = {key for word, *keys in lines if word == "?" for key in keys} - set(sure)
        done = account(source + sure, self.keys(), unsure, points, where)
        return replace(done, wrong=done.wrong + [f"{where}: {what}" for what in self._wrong()])

    def _wrong(self) -> list[str]:
        book = self.book()
        view = book.ledger.load(book.folder.card().folder)
        found = verify(Audit(view, book.folder, book.ledger, self.table))
        died = "".join(log.read_text("utf-8") for log in sorted(self.root.glob("*.log")))[-1500:]
        return [f"{item.what}: {item.where}" for item in found if item.severity == ERROR] + ([died] if died else [])
