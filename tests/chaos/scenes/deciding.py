"""
What a person decides by a command: forget, rehash, accept-rollback, retain --force, discard, verify --repair.

The commands themselves run, on a lake whose storage and catalog go through faults.
"""

import io
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

import click
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.update import SetSnapshotRefUpdate

from bookkeeper.cli import maintain_now, repair, status, waiting_txlogs
from bookkeeper.cli.context import Opened
from bookkeeper.config.settings import Retention, Settings
from bookkeeper.contract.offsets import slot_of
from tests.chaos.scenes.scene import DAY, Scene, lake_at
from tests.support.faults import Faults
from tests.support.lake import Lake, Writes
from tests.support.slots import Slot

_COMMON: dict[str, Any] = {"config": None, "table": None, "as_json": True}


@contextmanager
def _opening(lake: Lake, faults: Faults) -> Iterator[None]:
    """Commands open this lake, tell its time, and say nothing."""
    book = lake.book(faults)
    there = Opened(Settings(), lake.settings, book.folder, book.ledger)
    quiet = io.StringIO()
    with ExitStack() as stack:
        stack.enter_context(redirect_stdout(quiet))
        stack.enter_context(redirect_stderr(quiet))
        for module in (maintain_now, repair, status, waiting_txlogs):
            stack.enter_context(patch.object(module, "opened", lambda *_: there))
        for module in (maintain_now, repair, waiting_txlogs):
            stack.enter_context(patch.object(module, "utc_now", lake.clock))
        yield


class Forgetting(Scene):
    """After it the writer's source is read from its beginning."""

    name = "forget"
    parts = ("commit_table", "replace folder/marks.json")

    def prepare(self, root: Path) -> Lake:
        lake = lake_at(root)
        writer = Writes(lake, "source")
        writer.goes_on(b"1", "a")
        writer.goes_on(b"2", "b")
        lake.tick()
        self.anew: Writes | None = None
        return lake

    def restore(self) -> None:
        super().restore()
        self.anew = None

    def act(self, faults: Faults) -> None:
        with _opening(self.lake, faults):
            waiting_txlogs.forget.callback(writers=("source",), idle=None, channel=None, **_COMMON)  # type: ignore[misc]

    def drain(self) -> None:
        if self.anew is None:
            self.anew = Writes(self.lake, "source")
            self.anew.goes_on(b"1", "anew")
        super().drain()

    def published(self) -> list[str]:
        return ["a", "b", "anew"]


class Rehashing(Scene):
    """A source of four channels in one slot gets three; then its slots go on, each from its own offsets."""

    name = "rehash"
    parts = ("commit_table", "replace folder/marks.json")
    channels = tuple(f"c{number}" for number in range(4))

    def prepare(self, root: Path) -> Lake:
        lake = lake_at(root)
        Slot(lake, "source-00").reaches(
            *[f"{channel}-1" for channel in self.channels], **dict.fromkeys(self.channels, "1")
        )
        lake.tick()
        return lake

    def act(self, faults: Faults) -> None:
        with _opening(self.lake, faults):
            waiting_txlogs.rehash.callback(source="source", slots=3, yes=True, **_COMMON)  # type: ignore[misc]

    def drain(self) -> None:
        writers = self.lake.view().marks.writers
        for name, known in writers.items():
            unread = {channel: "2" for channel, offset in known.offsets.items() if offset == "1"}
            if unread:
                Slot(self.lake, name, known.position).reaches(*[f"{channel}-2" for channel in unread], **unread)
        super().drain()

    def published(self) -> list[str]:
        return [f"{channel}-{offset}" for channel in self.channels for offset in "12"]

    def wrong(self) -> list[str]:
        writers = self.lake.view().marks.writers
        places = {channel: name for name, known in writers.items() for channel in known.offsets}
        moved = places == {channel: slot_of("source", channel, 3) for channel in self.channels}
        return super().wrong() + ([] if moved else [f"offsets are at {places}"])


class AcceptingRollback(Scene):
    """Another program put `main` back behind the marks: the rows of what was abandoned stay out, all others get in."""

    name = "accept-rollback"
    parts = ("commit_table", "replace folder/marks.json")

    def prepare(self, root: Path) -> Lake:
        lake = lake_at(root)
        writer = Writes(lake)
        for key in ("a", "abandoned"):
            writer.publish(key)
            lake.tick()
        writer.publish("b")
        table = lake.table()
        back = SetSnapshotRefUpdate(
            ref_name="main", type=SnapshotRefType.BRANCH, snapshot_id=table.metadata.snapshots[0].snapshot_id
        )
        lake.catalog.commit_table(table, (), (back,))
        return lake

    def act(self, faults: Faults) -> None:
        with _opening(self.lake, faults):
            repair.accept_rollback.callback(yes=True, **_COMMON)  # type: ignore[misc]

    def published(self) -> list[str]:
        return ["a", "b"]


class Retaining(Scene):
    """More is past retention than the brake allows, and a person says go."""

    name = "retain --force"
    parts = ("create metadata/snap-", "commit_table", "replace folder/marks.json")

    def prepare(self, root: Path) -> Lake:
        lake = lake_at(root, retention=Retention(keep=timedelta(hours=12), brake=0.1))
        writer = Writes(lake)
        for number in range(3):
            writer.publish(f"old-{number}", at=lake.clock.now - DAY)
        writer.publish("a")
        lake.tick()
        writer.publish("b")
        return lake

    def act(self, faults: Faults) -> None:
        with _opening(self.lake, faults):
            maintain_now.retain.callback(dry_run=False, force=True, **_COMMON)  # type: ignore[misc]

    def published(self) -> list[str]:
        return ["a", "b"]


class Discarding(Scene):
    """More txlogs of a run vanished than it may have holes, and a person gives them up."""

    name = "discard"
    parts = ("commit_table", "replace folder/marks.json")

    def prepare(self, root: Path) -> Lake:
        lake = lake_at(root)
        writer = Writes(lake)
        writer.publish("first")
        lake.tick()
        self.last = writer.publish("last", sequence=70)
        lake.tick()
        return lake

    def act(self, faults: Faults) -> None:
        run = f"{self.last.writer}.{self.last.incarnation}"
        with _opening(self.lake, faults):
            waiting_txlogs.discard.callback(run=run, up_to=69, yes=True, **_COMMON)  # type: ignore[misc]

    def published(self) -> list[str]:
        return ["first", "last"]


class Repairing(Scene):
    """Consumed txlogs are still pending, and marks.json is old."""

    name = "verify --repair"
    parts = ("replace folder/marks.json", "delete folder/pending/")

    def prepare(self, root: Path) -> Lake:
        lake = lake_at(root)
        writer = Writes(lake)
        names = [writer.publish(key) for key in ("a", "b")]
        kept = {name: lake.folder.store.read(f"pending/{name}") for name in names}
        lake.tick()
        old = lake.folder.store.read("marks.json")
        writer.publish("c")
        lake.tick()
        lake.put("marks.json", old)
        for name, data in kept.items():
            lake.put(f"pending/{name}", data)
        return lake

    def act(self, faults: Faults) -> None:
        # Exit is how it says that something was wrong.
        with _opening(self.lake, faults), suppress(click.exceptions.Exit), click.Context(status.verify):
            status.verify.callback(repair=True, yes=True, deep=False, **_COMMON)  # type: ignore[misc]

    def published(self) -> list[str]:
        return ["a", "b", "c"]
