"""
What kind of world a seed has: its table, what else is switched on in it, and which programs are at work.
"""

from datetime import timedelta
from random import Random
from typing import NamedTuple

KEEP, KEEP_SHORT = timedelta(hours=3), timedelta(minutes=12)
#: how bookkeepers find txlogs
LIST, PROBE, NOTIFY = "list", "probe", "notify"
#: where consumers keep their place
SQL, PARQUET, FOLDER = "sql", "parquet", "folder"
#: a table's own limit, and one at which writers must wait
PENDING_LIMIT, SMALL_LIMIT = 1000, 3
#: the last seed of the worlds without a slot
FIRST = 20


class Traits(NamedTuple):
    """The traits of one world."""

    #: rows are versions of keys
    keyed: bool
    #: streams see deletes, by rows with an op; then versions of a key lie in several partitions
    ops: bool
    #: others roll the table back
    rollbacks: bool
    #: others expire snapshots
    expires: bool
    #: how long rows are kept: soon much of the table is older than its newest rows, and deletes are live
    keep: timedelta
    compression: str
    #: an expiry leaves parents that are gone in their children: Java's catalogs do, pyiceberg does not
    parents: bool
    #: the two bookkeepers are one that works and one that takes over; reapers and compactors have leases too
    leases: bool = False
    discover: str = LIST
    #: writers may ask for columns, and do
    columns: bool = False
    pending_limit: int = PENDING_LIMIT
    place: str = SQL
    #: the two consumers are members of a group; else two runs of one
    group: bool = False
    #: a writer of many channels is at work
    slots: bool = False

    @property
    def plain(self) -> "Traits":
        """Without what the model of the protocol does not know."""
        known = self._asdict()
        return Traits(**{name: known[name] for name in Traits._fields if name not in Traits._field_defaults})


def is_keyed(seed: int) -> bool:
    """Whether rows are versions of keys in the world of this seed."""
    return seed % 3 == 1


def traits_of(seed: int) -> Traits:
    """The traits of the world of this seed."""
    keyed, dice = is_keyed(seed), Random(f"traits of {seed}")
    return Traits(
        keyed=keyed,
        ops=keyed and seed // 13 % 2 == 1,
        rollbacks=seed % 3 == 0,
        expires=seed // 3 % 2 == 1,
        keep=KEEP_SHORT if seed % 7 in ((0, 1, 2, 4, 5) if keyed else (1, 2, 4)) else KEEP,
        # A codec is nothing that can go wrong here, and zstd takes 0.17 ms for each file of a few rows, both ways.
        compression="zstd" if seed % 8 == 0 else "snappy",
        parents=seed % 2 == 0,
        leases=dice.random() < 0.25,
        discover=dice.choices((LIST, PROBE, NOTIFY), (4, 1, 3))[0],
        columns=dice.random() < 0.4,
        pending_limit=SMALL_LIMIT if dice.random() < 0.25 else PENDING_LIMIT,
        place=dice.choices((SQL, PARQUET, FOLDER), (3, 2, 1))[0],
        group=dice.random() < 0.35,
        # Tests know the first worlds by their seeds, for what happens there.
        slots=seed > FIRST and dice.random() < 0.3,
    )
