"""
A writer of a keyed table that does everything: inserts of new keys, upserts, deletes by key, several steps in a txlog.

The oracle is told what each txlog holds, before it is published: of each key the last operation that is in counts.
"""

from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from bookkeeper.errors import BookkeeperError
from writers.writer import Writer

if TYPE_CHECKING:
    from tests.simulation.world import Run, World

NAME = "mixed-1"
#: operations, and how often each is taken
KINDS, INSERTS = {"insert": 2, "upsert": 3, "delete": 5}, {"insert": 1}
#: a step of a writer ends at so many operations
STEP_ROWS = 3
#: of the keys that it inserted it upserts and deletes one of so many
YOUNGEST = 4


class Change(NamedTuple):
    """One operation: the key, and the version that it has then; None: it is deleted."""

    key: str
    version: str | None


@dataclass
class Changes:
    """All runs of this writer."""

    world: "World"
    #: versions so far, and keys that were inserted, with the incarnation
    versions: int = 0
    inserted: list[tuple[str, str]] = field(default_factory=list)
    #: names of confirmed txlogs
    confirmed: list[str] = field(default_factory=list)

    def publish(self, run: "Run", dice: Random) -> None:
        """One txlog, which is not sent again when its outcome is unknown."""
        try:
            writer, done = self.world.open_writer(run), list[Change]()
            kinds = INSERTS if dice.random() < 0.3 else KINDS  # without deletes it is a txlog of version 1
            for _ in range(dice.randint(1, 4)):
                done += self._change(writer, dice.choices([*kinds], [*kinds.values()])[0], dice)
            self.world.oracle.expect(writer.incarnation, writer._publisher.sequence, done)
            name = writer.publish()
        except BookkeeperError:
            run.writer = None
            raise
        self.confirmed.append(str(name))
        self.world.counts["changes confirmed"] += len(done)

    def _change(self, writer: Writer, what: str, dice: Random) -> list[Change]:
        self.world.counts[f"keyed {what}"] += 1
        if what == "insert":
            key = f"{NAME}-new-{len(self.inserted)}"
            self.inserted.append((key, writer.incarnation))
            done = [self._version(key)]
            writer.write(self.world.versions(done))
        elif what == "upsert":
            done = [self._version(self._known(writer, dice)) for _ in range(dice.randint(1, 2))]
            writer.upsert(self.world.versions(done))
        else:
            done = [Change(self._known(writer, dice), None)]
            writer.delete(pa.table({"key": [change.key for change in done]}))
        return done

    def _version(self, key: str) -> Change:
        self.versions += 1
        return Change(key, f"{NAME}-{self.versions}")

    def _known(self, writer: Writer, dice: Random) -> str:
        """
        One of a few keys, of which those that were inserted last may not be in yet. What a later run inserted comes
        behind all that this one does: with another version there the insert would not be one of a new key.
        """
        youngest = [key for key, by in self.inserted if by <= writer.incarnation][-YOUNGEST:]
        return dice.choice([*youngest, *youngest[-2:], f"{NAME}-a", f"{NAME}-b"])
