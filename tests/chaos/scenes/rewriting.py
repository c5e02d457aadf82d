"""
Compactors have published rewrites, good and bad ones; the bookkeeper takes them up beside a txlog.
"""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bookkeeper.contract.pending_rewrites import pending_rewrites, rejected_rewrites
from bookkeeper.contract.rewrite import key_of
from bookkeeper.retention.scan import find
from reaper import reap
from tests.chaos.scenes.deciding import AcceptingRollback
from tests.chaos.scenes.reaping import RULES
from tests.chaos.scenes.scene import Scene, lake_at
from tests.support.compactor import base_of, compacted, encoded, live, published
from tests.support.faults import Faults
from tests.support.lake import Lake, Writes, live_files
from tests.support.pyiceberg_files import parquet_file


class Rewriting(Scene):
    """Two good rewrites, one of them given back after it was committed, one whose file is gone, and one of garbage."""

    name = "rewrites"
    parts = (
        "create metadata/snap-",
        "commit_table",
        "-a0.avro",
        "delete folder/rewrites/",
        "create folder/rejected/",
    )

    def prepare(self, root: Path) -> Lake:
        lake = lake_at(root, partition_by=())
        writer, book = Writes(lake), lake.book()
        for key in "abcdefgh":
            writer.publish(key, key.upper())
            lake.tick(book)
        old = live(lake)
        published(lake, old[:3])
        published(lake, old[3:5])
        published(lake, old[5:7])
        self.late = encoded(lake, old[:3])
        lake.put("rewrites/garbage.avro", b"garbage")
        taken_out(lake, old[6])
        writer.publish("new")
        return lake

    def act(self, faults: Faults) -> None:
        book = self.lake.book(faults)
        for _ in range(3):
            self.lake.tick(book, seconds=6)

    def drain(self) -> None:
        book = self.lake.book()
        self.lake.tick(book)
        self.lake.put(f"rewrites/{self.late[0]}.avro", self.late[1])
        for _ in range(4):
            self.lake.tick(book, minutes=2)

    def published(self) -> list[str]:
        return [*"abcdefh", *"ABCDEFH", "new"]

    def wrong(self) -> list[str]:
        left = [f"still there: {item.name}" for item in pending_rewrites(self.lake.folder)]
        files = len(live(self.lake))
        # a b c, d e, f, h, new
        found = [] if files == 5 else [f"{files} live files"]
        rejected = len(rejected_rewrites(self.lake.folder))
        found += [] if rejected == 2 else [f"{rejected} rejected rewrites"]
        return super().wrong() + left + found


class RewritingAmongOthers(Scene):
    """
    Before the bookkeeper's commit another program compacts files of one rewrite, and retention takes one of another.

    Two more overlap. Each is given back twice after it was settled, and once more when its new files are old. In the
    end the reaper expires and sweeps.
    """

    name = "rewrites among others"
    parts = (
        "create metadata/snap-",
        "commit_table",
        "delete folder/rewrites/",
        "create folder/rejected/",
        "delete folder/rejected/",
    )

    def prepare(self, root: Path) -> Lake:
        lake = lake_at(root, partition_by=(), reaper=RULES)
        writer, book = Writes(lake), lake.book()
        for key in "abcdefgh":
            writer.publish(key, key.upper())
            lake.tick(book)
        self.old = old = live(lake)
        self.given = [encoded(lake, group) for group in (old[:3], old[3:5], old[5:7], old[6:])]
        self.lake, self.more = lake, False
        self.give()
        return lake

    def restore(self) -> None:
        super().restore()
        self.more = False

    def give(self) -> None:
        for rewrite_id, data in self.given:
            self.lake.put(key_of(rewrite_id), data)

    def others(self) -> None:
        """Once: what they have done already is not live any more."""
        there = {item.file.path for item in live(self.lake)}
        _, b, c, d, *_ = self.old
        if b.file.path in there:
            compacted_by_others(self.lake, [b, c])
        if d.file.path in there:
            taken_out(self.lake, d)

    def act(self, faults: Faults) -> None:
        faults.between("commit_table", self.others)
        book = self.lake.book(faults)
        for _ in range(3):
            self.lake.tick(book, seconds=6)
        for _ in range(2):
            self.give()
            for _ in range(2):
                self.lake.tick(book, seconds=6)
        self.lake.tick(book, days=4)
        self.give()
        self.lake.tick(book, seconds=6)

    def drain(self) -> None:
        if not self.more:
            self.more = True
            Writes(self.lake).publish("new")
        book = self.lake.book()
        for _ in range(3):
            self.lake.tick(book, minutes=2)
        for _ in range(3):
            self.lake.tick(book, days=2)
            reap(
                self.lake.catalog,
                self.lake.settings,
                self.lake.clock.now,
                open_store=self.lake.store,
                release_brake=True,
            )

    def published(self) -> list[str]:
        return [*"abcefgh", *"ABCEFGH", "new"]

    def wrong(self) -> list[str]:
        left = [f"still there: {item.name}" for item in pending_rewrites(self.lake.folder)]
        left += [f"not swept: {item.name}" for item in rejected_rewrites(self.lake.folder)]
        now = live(self.lake)
        # a, b c, e, two of f g h, new
        found = [] if len(now) == 6 else [f"{len(now)} live files"]
        orphans = sum(rewrite_id in path.name for rewrite_id, _ in self.given for path in self.lake.root.rglob("*"))
        found += [] if orphans == 1 else [f"{orphans} new files of rewrites on the disk"]
        return super().wrong() + left + found + [*not_there(self.lake)]


class AcceptingRollbackOfRewrites(AcceptingRollback):
    """`main` was put back behind a rewrite; two more, made since, are pending. They are rejected before it goes on."""

    name = "accept-rollback of rewrites"
    parts = ("create folder/rejected/", "delete folder/rewrites/", "commit_table")

    def prepare(self, root: Path) -> Lake:
        lake = lake_at(root, partition_by=())
        writer, book = Writes(lake), lake.book()
        for key in "abc":
            writer.publish(key)
            lake.tick(book)
        self.old, before = live(lake), lake.table().metadata.current_snapshot_id
        self.first = encoded(lake, self.old[:2])
        lake.put(key_of(self.first[0]), self.first[1])
        lake.tick(seconds=6)
        writer.publish("abandoned")
        lake.tick()
        # One that read the abandoned snapshot, and one with a base that is not kept any more.
        published(lake, self.old[2:])
        published(lake, self.old[2:], replace(base_of(lake), snapshot_id=1))
        lake.table().manage_snapshots().rollback_to_snapshot(before).commit()
        writer.publish("d")
        return lake

    def drain(self) -> None:
        for _ in range(2):
            self.lake.put(key_of(self.first[0]), self.first[1])
            super().drain()

    def published(self) -> list[str]:
        return [*"abcd"]

    def wrong(self) -> list[str]:
        rejected, files = len(rejected_rewrites(self.lake.folder)), len(live(self.lake))
        # The one that was committed before fits again: a b, c, d.
        found = [] if (rejected, files) == (2, 3) else [f"{rejected} rejected rewrites, {files} live files"]
        return super().wrong() + found + [*not_there(self.lake)]


def taken_out(lake: Lake, old: Any) -> None:
    """
    Retention takes a file.
    """
    ledger, view = lake.book().ledger, lake.view()
    ledger.drop(view, find(ledger, view, None, lambda _: True, lambda row, _: row.path == old.file.path))


def compacted_by_others(lake: Lake, old: Any) -> None:
    """
    Another program makes one file of these, in a snapshot of its own.
    """
    (new,) = compacted(lake, old).added
    names = {item.file.path for item in old}
    gone = [file for file in live_files(lake) if file.file_path in names]
    with lake.table().transaction() as change, change.update_snapshot().overwrite() as both:
        both.append_data_file(parquet_file(new.path, record_count=new.record_count))
        for file in gone:
            both.delete_data_file(file)
    # It stamps by this machine's clock, and a bookkeeper whose clock is behind that commits nothing.
    stamped = datetime.fromtimestamp(lake.table().metadata.last_updated_ms / 1000, UTC)
    lake.clock.now = max(lake.clock.now, stamped)


def not_there(lake: Lake) -> Iterator[str]:
    """
    Files that a kept snapshot names and that do not exist.
    """
    table = lake.table()
    for snapshot in table.metadata.snapshots:
        for manifest in snapshot.manifests(table.io):
            for entry in manifest.fetch_manifest_entry(table.io, True):
                path = entry.data_file.file_path
                if not Path(path.removeprefix("file://")).exists():
                    yield f"snapshot {snapshot.sequence_number} needs {path}"
