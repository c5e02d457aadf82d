"""
Replay of a rejected txlog whose fault was mended; and a forced one, whose mark was pruned.
"""

from datetime import timedelta
from pathlib import Path

from bookkeeper.commands.replay import replay
from tests.chaos.scenes.scene import HOUR, Scene, lake_at
from tests.support.faults import Faults
from tests.support.lake import Lake, Writes


class Replaying(Scene):
    """Its data file was not there when it was looked at, and came later."""

    name = "replay"
    parts = ("create folder/pending/w1.", "commit_table", "delete folder/rejected/w1.")

    def prepare(self, root: Path) -> Lake:
        lake = lake_at(root)
        writer = Writes(lake)
        writer.publish("first")
        file = writer.file(["late"])
        path = Path(file.path.removeprefix("file://"))
        data = path.read_bytes()
        path.unlink()
        self.rejected, encoded = writer.encoded([file])
        lake.folder.publish(self.rejected, encoded)
        writer.publish("last")
        lake.tick()
        path.write_bytes(data)
        return lake

    def act(self, faults: Faults) -> None:
        book = self.lake.book(faults)
        replay(book.folder, book.ledger, self.lake.settings, self.rejected, self.lake.clock.now)
        for seconds in (1, 70):
            self.lake.tick(book, seconds=seconds)

    def published(self) -> list[str]:
        return ["first", "last", "late"]

    def wrong(self) -> list[str]:
        return super().wrong() + [f"rejected: {name}" for name in self.lake.rejected()]


class ForcedReplaying(Replaying):
    """It is unknown whether it is in, and a person says that it is not."""

    name = "replay --force"
    parts = ("commit_table", "create folder/pending/w1.")

    def prepare(self, root: Path) -> Lake:
        lake = lake_at(root)
        writer = Writes(lake)
        writer.publish("first")
        lake.tick()
        lake.clock.move(days=2)
        Writes(lake, "other").publish("last")
        lake.tick()
        created = lake.clock.now - timedelta(days=2) - HOUR
        self.rejected = writer.publish("late", created_ms=int(created.timestamp() * 1000))
        lake.tick()
        return lake

    def act(self, faults: Faults) -> None:
        book = self.lake.book(faults)
        replay(book.folder, book.ledger, self.lake.settings, self.rejected, self.lake.clock.now, force=True)
