"""
A tick with something of everything: append, rejects, a hole closed, merge, marks.json, deletes, retention, the sweep.
"""

from contextlib import suppress
from datetime import timedelta
from pathlib import Path

from bookkeeper.config.settings import Retention
from bookkeeper.errors import Retry
from tests.chaos.scenes.scene import DAY, HOUR, Scene, lake_at
from tests.support.faults import Faults
from tests.support.lake import Lake, Writes


class Ticking(Scene):
    """Two ticks, the second late enough for retention and the sweep."""

    name = "tick"
    parts = (
        "commit_table",
        "replace folder/marks.json",
        "create metadata/snap-",
        "-r0.avro",
        "create folder/rejected/bad.",
        "create folder/rejected/stranger",
        "delete folder/pending/",
        "delete folder/rejected/plain.",
        "replace folder/clock",
    )

    def prepare(self, root: Path) -> Lake:
        lake = lake_at(root, retention=Retention(keep=timedelta(hours=12), brake=1.0))
        old, chained, plain = Writes(lake, "old"), Writes(lake, "chained"), Writes(lake, "plain")
        replayed = plain.publish("q1", created_ms=int((lake.clock.now + 2 * HOUR).timestamp() * 1000))
        plain.publish("q1b")  # q1 is rejected, and becomes a hole below this one
        old.publish("expired", at=lake.clock.now - DAY)
        chained.goes_on(b"1", "p1")
        old.publish("m1")
        book = lake.book(retention=Retention())
        lake.tick(book)
        for key in ("m2", "m3", "m4"):
            old.publish(key)
        lake.tick(book)
        lake.clock.move(hours=2)
        lake.folder.replay(replayed)
        self._publish(lake, chained, plain)
        for spoiled in ("pending/stranger.txlog.avro", "marks.json"):
            lake.put(spoiled, b"spoiled")
        return lake

    def _publish(self, lake: Lake, chained: Writes, plain: Writes) -> None:
        plain.publish("q2")
        lake.folder.delete([plain.publish("q3")])
        plain.publish("q4")
        self.bad = str(Writes(lake, "bad").publish("x", table_uuid="another"))
        self.chain = [str(chained.goes_on(b"2", "p2")), str(chained.goes_on(b"3", "p3"))]
        fork = Writes(lake, "chained")
        fork.position = b"1"
        lake.clock.move(seconds=1)
        self.fork = str(fork.goes_on(b"x", "fork"))
        name, data = plain.encoded([plain.file(["q5"])])
        lake.folder.publish(name, data)

    def act(self, faults: Faults) -> None:
        book = self.lake.book(faults)
        for seconds in (1, 70):
            with suppress(Retry):
                self.lake.tick(book, seconds=seconds)

    def again(self) -> None:
        return None  # that is what draining does

    def _forked(self) -> bool:
        """Whether p2 could not be read in time: then the other branch wins, whole."""
        return self.lake.keys()[0] == "fork"

    def published(self) -> list[str]:
        branch = ["fork"] if self._forked() else ["p2", "p3"]
        return ["m1", "m2", "m3", "m4", "p1", "q1", "q1b", "q2", "q4", "q5", *branch]

    def wrong(self) -> list[str]:
        refused = {self.bad, *(self.chain if self._forked() else [self.fork])}
        rejected = set(self.lake.rejected())
        kept = self.lake.folder.store.size("rejected/stranger.txlog.avro") == len(b"spoiled")
        found = [] if rejected == refused and kept else [f"rejected are {sorted(rejected)}"]
        return super().wrong() + found
