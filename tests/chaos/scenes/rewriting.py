"""
Compactors have published rewrites, good and bad ones; the bookkeeper takes them up beside a txlog.
"""

from pathlib import Path

from bookkeeper.core.pending_rewrites import pending_rewrites, rejected_rewrites
from bookkeeper.retention.scan import find
from tests.chaos.scenes.scene import Scene, lake_at
from tests.support.compactor import encoded, live, published
from tests.support.faults import Faults
from tests.support.lake import Lake, Writes


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
        ledger, view = lake.book().ledger, lake.view()
        ledger.drop(view, find(ledger, view, None, lambda _: True, lambda row, _: row.path == old[6].file.path))
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
