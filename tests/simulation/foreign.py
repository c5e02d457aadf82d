"""
Other programs on the simulated table, by Iceberg's rules: some with pyiceberg's code, some as Iceberg Java does it.
"""

import io
from collections.abc import Callable
from random import Random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest import mock

import pyarrow.parquet as pq
from pyiceberg.manifest import clear_manifest_cache
from pyiceberg.table import snapshots
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import (
    AssertRefSnapshotId,
    RemoveSnapshotRefUpdate,
    SetPropertiesUpdate,
    SetSnapshotRefUpdate,
)
from pyiceberg.types import StringType

from bookkeeper.errors import BookkeeperError
from tests.simulation.decoder import Wrong
from tests.simulation.foreign_delete import delete
from tests.simulation.foreign_expiry import expire
from tests.simulation.foreign_rewrite import described, rewrite

if TYPE_CHECKING:
    from tests.simulation.world import World

#: what each of these programs does, and how often
DOES = {
    "foreign": {"append": 2.0, "property": 2.0, "column": 0.5, "rename": 0.2},
    "refs": {"tag": 1.5, "retag": 3.0, "untag": 1.5, "rollback": 1.2},
    "pinner": {"pin": 1.0},
    "mover": {"move": 1.0},
    "rewriter": {"rewrite": 1.0},
    "deleter": {"delete": 1.0},
    "expirer": {"expire": 1.0},
}
#: as many of the oldest snapshots are named on purpose, so that they do not expire
OLDEST = 5


class Foreign:
    """Everything that others do to the table; each program of DOES is an actor of its own."""

    def __init__(self, world: "World") -> None:
        self.world, self.count = world, 0
        #: tags that were made and not taken off, with their snapshots
        self.tags = dict[str, int]()
        clear_manifest_cache()  # by path, which another run of this seed may have used for other bytes

    def step(self, program: str, dice: Random, only: str = "") -> None:
        does = {what: weight for what, weight in DOES[program].items() if self._may(what) and only in ("", what)}
        if not does:
            return
        what = dice.choices([*does], [*does.values()])[0]
        self.world.scheduler.tell(f"   another program: {what}")
        self.count += 1
        act: Callable[..., str] = getattr(self, f"_{what}")
        try:
            done = act(self.world.catalog.load_table(self.world.settings.identifier), dice) or ""
        except (BookkeeperError, AssertionError):
            raise
        except Exception as error:  # noqa: BLE001 - its commit lost a race, or a file was expired
            self.world.scheduler.tell(f"   another program: {type(error).__name__}: {str(error)[:200]}")
            self.world.counts[f"foreign {what} failed: {type(error).__name__}"] += 1
            return
        self.world.counts[f"foreign {what}{done}"] += 1

    def look(self) -> None:
        """After all is done: each tag names what it named."""
        refs = self.world.metadata.refs
        if lost := [
            name for name, snapshot in self.tags.items() if name not in refs or refs[name].snapshot_id != snapshot
        ]:
            raise Wrong(f"tags of other programs are gone: {lost}")

    def _may(self, what: str) -> bool:
        traits = self.world.traits
        return {"rollback": traits.rollbacks, "expire": traits.expires, "delete": traits.keyed}.get(what, True)

    def _append(self, table: Any, dice: Random) -> None:
        """One file, in a snapshot of pyiceberg's."""
        rows = self.world.rows([f"foreign-{self.count}-{number}" for number in range(dice.randint(1, 2))])
        out, path = io.BytesIO(), f"{table.location()}/data/foreign-{self.count}.parquet"
        pq.write_table(rows, out)
        self.world.disk.put(path, out.getvalue())
        now = int(self.world.scheduler.now.timestamp())
        partition = (now // 3600,) if self.world.ops else () if self.world.keyed else (now // 86_400,)
        made = described(path, rows, len(out.getvalue()), table.spec().spec_id, partition)
        virtual = SimpleNamespace(time=self.world.scheduler.epoch_seconds)
        with (
            mock.patch.object(snapshots, "time", virtual),
            table.transaction() as change,
            change.update_snapshot().fast_append() as producer,
        ):
            producer.append_data_file(made)

    def _rewrite(self, table: Any, dice: Random) -> str:
        return rewrite(self.world, table, dice, f"{self.count}")

    def _delete(self, table: Any, dice: Random) -> str:
        return delete(self.world, table, dice, f"{self.count}")

    def _expire(self, table: Any, dice: Random) -> str:
        return expire(self.world, table, dice)

    def _rollback(self, table: Any, dice: Random) -> None:
        """By a few snapshots, or to any that main still has."""
        metadata = table.metadata
        line = [metadata.current_snapshot()]
        while line[-1] is not None:
            line.append(metadata.snapshot_by_id(line[-1].parent_snapshot_id or 0))
        if len(line) < 3:
            return
        back = dice.randint(1, 3) if dice.random() < 0.7 else dice.randint(1, len(line))
        target = line[min(back, len(line) - 2)]
        move = SetSnapshotRefUpdate(ref_name="main", type="branch", snapshot_id=target.snapshot_id)
        guard = AssertRefSnapshotId(ref="main", snapshot_id=metadata.current_snapshot_id)
        table.catalog.commit_table(table, (guard,), (move,))

    def _tag(self, table: Any, dice: Random) -> None:
        self._name(table, dice, f"t{self.count}")

    def _retag(self, table: Any, dice: Random) -> None:
        """A tag names another snapshot now."""
        if self.tags:
            self._name(table, dice, dice.choice(sorted(self.tags)))

    def _pin(self, table: Any, dice: Random) -> None:
        """A tag of the head, and no other one, which would keep older snapshots."""
        for name in [*self.tags]:
            table.catalog.commit_table(table, (), (RemoveSnapshotRefUpdate(ref_name=name),))
            self.tags.pop(name)
        self._name(table, dice, f"t{self.count}", table.metadata.current_snapshot())

    def _move(self, table: Any, dice: Random) -> None:
        """A tag names one of the oldest snapshots now."""
        if self.tags and table.metadata.snapshots:
            self._name(table, dice, dice.choice(sorted(self.tags)), dice.choice(table.metadata.snapshots[:OLDEST]))

    def _name(self, table: Any, dice: Random, name: str, given: Snapshot | None = None) -> None:
        """What is given, the head, any snapshot, or one that expires soon; guarded by what the tag named before."""
        metadata = table.metadata
        if (head := metadata.current_snapshot()) is None:
            return
        choice = (head, dice.choice(metadata.snapshots), dice.choice(metadata.snapshots[:OLDEST]))
        snapshot = given or dice.choice(choice)
        known = metadata.refs.get(name)
        guard = AssertRefSnapshotId(ref=name, snapshot_id=known.snapshot_id if known else None)
        tag = SetSnapshotRefUpdate(ref_name=name, type="tag", snapshot_id=snapshot.snapshot_id)
        table.catalog.commit_table(table, (guard,), (tag,))
        self.tags[name] = snapshot.snapshot_id

    def _untag(self, table: Any, dice: Random) -> None:
        tags = sorted(name for name in table.metadata.refs if name != "main")
        if tags:
            name = dice.choice(tags)
            table.catalog.commit_table(table, (), (RemoveSnapshotRefUpdate(ref_name=name),))
            self.tags.pop(name, None)

    def _property(self, table: Any, dice: Random) -> None:
        table.catalog.commit_table(table, (), (SetPropertiesUpdate(updates={"foreign": str(self.count)}),))

    def _column(self, table: Any, dice: Random) -> None:
        if len(table.schema().fields) < 6:
            with table.update_schema() as change:
                change.add_column(f"c{self.count}", StringType())

    def _rename(self, table: Any, dice: Random) -> None:
        """A column that was added has another name now; data files are read by field id."""
        more = [field.name for field in table.schema().fields if field.name.startswith("c")]
        if more:
            with table.update_schema() as change:
                change.rename_column(dice.choice(more), f"c{self.count}")
