"""
The status line of each minute: what was published and committed, what is kept, how long rows took, who was killed.
"""

import json
import re
import sqlite3
import threading
import time
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.support.harness import percentile
from bookkeeper.contract import marks, marks_json
from bookkeeper.contract.names import TxlogName
from tests.soak.journal import DONE
from tests.soak.plan import Ground, local
from tests.support.crew import Crew, rss_mb

TABLES = ("events", "state")
HEADS = [
    "minute",
    "published",
    "committed",
    "commits",
    "live files",
    "unfolded",
    "snapshots",
    "metadata KiB",
    "daemon MiB",
    "reaper MiB",
    "p50 ms",
    "p99 ms",
    "copied",
    "by Spark",
    "CPU cores",
    "kills",
]


@dataclass
class Watch:
    """Looks again and again at what the catalog points to, and notes when each txlog could be seen."""

    database: Path
    pause: float = 0.02
    #: when a txlog could be seen, ms
    seen: dict[str, int] = field(default_factory=dict)
    commits: int = 0
    wrong: list[str] = field(default_factory=list)
    _last: dict[str, int] = field(default_factory=dict)
    _at: dict[str, str] = field(default_factory=dict)
    _stop: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> "Watch":
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _look(self) -> None:
        catalog = sqlite3.connect(self.database, timeout=30)
        query = "SELECT table_name, metadata_location FROM iceberg_tables WHERE table_name IN ('events', 'state')"
        while not self._stop.wait(self.pause):
            for name, location in catalog.execute(query).fetchall():
                if self._at.get(name) != location:
                    self._note(location, int(time.time() * 1000))
                    self._at[name] = location
                    self.commits += 1
        catalog.close()

    def _note(self, location: str, at: int) -> None:
        try:
            text = local(location).read_text("utf-8")
        except FileNotFoundError:
            self.wrong.append(f"the catalog names {location}, which is not there")
            return
        said = json.loads(text)["properties"].get(marks.PROPERTY)
        for writer, known in marks_json.loads(said).writers.items() if said else ():
            for run, mark in known.incarnations.items():
                new = range(self._last.get(run, 0) + 1, mark.last + 1)
                self.seen |= {str(TxlogName(writer, run, number)): at for number in new}
                self._last[run] = max(mark.last, self._last.get(run, 0))


@dataclass
class Status:
    """Writes the lines; what was not seen yet waits for the next minute."""

    ground: Ground
    crew: Crew
    watch: Watch
    began: float
    rows: list[list[str]] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)
    published: int = 0
    committed: int = 0
    _read: dict[Path, int] = field(default_factory=dict)
    _waiting: dict[str, tuple[int, int]] = field(default_factory=dict)
    _commits: int = 0
    _cpu: tuple[float, float] = (0.0, 0.0)

    def line(self, kills: list[str]) -> None:
        """One more line."""
        for line in self._news():
            rows = line["last"] - line["first"] + 1
            self.published += rows
            if "txlog" in line:
                self._waiting[line["txlog"]] = line["published"], rows
            else:
                self.committed += rows  # a batch of a query ends when it is in the table
        seen = {name: self._waiting.pop(name) for name in list(self._waiting) if name in self.watch.seen}
        waited = [float(max(0, self.watch.seen[name] - at)) for name, (at, _) in seen.items()]
        self.committed += sum(rows for _, rows in seen.values())
        self.waits += waited
        commits, self._commits = self.watch.commits - self._commits, self.watch.commits
        said = [self.published, self.committed, commits, *self._tables(), *self._memory()]
        said += [f"{percentile(waited, share):.0f}" if waited else "-" for share in (0.5, 0.99)]
        said += [self._copied(), self._by_spark(), self._cores(), ",".join(kills) or "-"]
        self.rows.append([f"{(time.monotonic() - self.began) / 60:.1f}", *map(str, said)])
        with open(self.ground.plan.root / "status.log", "a", encoding="utf-8") as out:
            out.write(("" if len(self.rows) > 1 else shown(HEADS)) + shown(self.rows[-1]))

    def _news(self) -> list[dict[str, Any]]:
        found = []
        for path in (self.ground.plan.root / "journal").iterdir():
            with path.open("rb") as file:
                file.seek(self._read.get(path, 0))
                data = file.read()
            whole = data.rfind(b"\n") + 1
            self._read[path] = self._read.get(path, 0) + whole
            found += [json.loads(line) for line in data[:whole].splitlines()]
        return [line for line in found if line["what"] == DONE]

    def _tables(self) -> list[Any]:
        """Live files of events, unfolded delete files of state, snapshots and bytes of metadata of both."""
        live, snapshots, size = "-", 0, 0
        for name in TABLES:
            metadata = self.ground.table(name)
            path = local(metadata.metadata_location)
            snapshots += len(metadata.metadata.snapshots)
            size += path.stat().st_size if path.exists() else 0
            head = metadata.current_snapshot()
            if name == "events" and head:
                live = head.summary.additional_properties.get("total-data-files", "-")
        return [live, self._unfolded(), snapshots, size // 1024]

    def _unfolded(self) -> str:
        try:
            with urllib.request.urlopen(f"http://{self.ground.listen}/metrics", timeout=5) as answer:
                text = answer.read().decode()
        except OSError:
            return "-"
        found = re.search(r'^bookkeeper_delete_files\{kind="equality",table="state"\} (\d+)', text, re.MULTILINE)
        return found[1] if found else "-"

    def _memory(self) -> list[str]:
        running = self.crew.running
        return [f"{rss_mb(running[role].pid):.0f}" if role in running else "-" for role in ("daemon", "reaper")]

    def _copied(self) -> int:
        with sqlite3.connect(self.ground.plan.output, timeout=30) as output:
            known = output.execute("SELECT count(*) FROM sqlite_master WHERE name = 'seen'").fetchone()[0]
            return int(output.execute("SELECT max(rowid) FROM seen").fetchone()[0] or 0) if known else 0

    def _by_spark(self) -> int:
        path = self.ground.plan.root / "progress.ndjson"
        lines = path.read_text("utf-8").splitlines() if path.exists() else []
        return sum(json.loads(line)["rows"] for line in lines)

    def _cores(self) -> str:
        at, used = time.monotonic(), self.crew.cpu()
        (since, before), self._cpu = self._cpu, (at, used)
        return f"{max(0.0, used - before) / (at - since):.2f}" if since else "-"


def shown(row: list[str]) -> str:
    """
    A line of the table.
    """
    return "  ".join(f"{cell:>{len(head)}}" for cell, head in zip(row, HEADS, strict=True)) + "\n"
