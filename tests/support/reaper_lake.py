"""
A small lake for the reaper's tests: a table on SQLite and local disk, snapshots with any date, and readers that
share no code with the reaper.
"""

import json
import os
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.refs import SnapshotRef
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    RemoveSnapshotRefUpdate,
    SetPropertiesUpdate,
    SetSnapshotRefUpdate,
)
from pyiceberg.types import LongType, NestedField

from bookkeeper.config.settings import Reaper
from bookkeeper.contract import card as cards
from bookkeeper.contract import marks as marks_format
from bookkeeper.contract import marks_json
from bookkeeper.contract.marks import Marks
from bookkeeper.stores.open import open_store
from bookkeeper.stores.store import Store
from reaper import Reaped, outlook, reap
from tests.support.cards import card
from tests.support.lake import Clock, Lake
from tests.support.pyiceberg_files import parquet_file
from tests.support.reaper_drafts import Draft
from tests.support.wrapped import WrappedStore

#: far from today, so that no test depends on the real clock
START = datetime(2050, 1, 1, tzinfo=UTC)
SCHEMA = Schema(NestedField(1, "n", LongType(), required=False))
NAME = "demo.events"
REAPER = Reaper(older_than=timedelta(minutes=10), retain_last=2, metadata_keep=timedelta(hours=1))


class ReaperLake(Lake):
    """A table without a bookkeeper, whose snapshots a test makes one by one; each moves the clock a minute."""

    def __init__(self, root: Path, reaper: Reaper = REAPER, stock: bool = False, **settings: Any) -> None:
        super().__init__(root, Clock(START), stock=stock, reaper=reaper, file_names=None, **settings)

    def make(self, schema: Schema | None = None, **properties: str) -> None:
        """The table, empty, and its txlog folder."""
        self.catalog.create_namespace_if_not_exists("demo")
        self.location = (
            self.catalog.create_table(NAME, SCHEMA, properties=properties).location().removeprefix("file://")
        )
        self.folder_path = Path(self.location) / "_bookkeeper"
        for place in ("pending", "rejected"):
            os.makedirs(self.folder_path / place, exist_ok=True)
        self.count = 0

    @property
    def now(self) -> datetime:
        return self.clock.now

    @now.setter
    def now(self, at: datetime) -> None:
        self.clock.now = at

    # -- looking

    def history(self) -> list[int]:
        """Snapshots in the table, oldest first."""
        return [item.snapshot_id for item in sorted(self.table().metadata.snapshots, key=lambda it: it.timestamp_ms)]

    def disk(self) -> dict[str, int]:
        """Every file below the table but those of its txlog folder: location -> bytes."""
        found = {}
        for folder, _, names in os.walk(self.location):
            for name in names:
                path = os.path.join(folder, name)
                if "/_bookkeeper/" not in path:
                    found[f"file://{path}"] = os.path.getsize(path)
        return found

    def rows(self, head: int | None = None) -> list[int]:
        """What pyiceberg and duckdb read, which must be the same."""
        table = self.table()
        seen = sorted(table.scan(snapshot_id=head).to_arrow()["n"].to_pylist())
        head = head or table.metadata.current_snapshot_id
        live = self.live(table, head) if head else []
        paths = [path.removeprefix("file://") for path in live]
        read = duckdb.read_parquet(paths).fetchall() if paths else []
        assert sorted(row[0] for row in read) == seen
        return seen

    def live(self, table: Table, head: int) -> list[str]:
        """The live data files of a snapshot, read with fastavro."""
        return [path for manifest in self._lists(table)[head] for status, path in _entries(manifest) if status != 2]

    def reachable(self) -> set[str]:
        """Everything some snapshot or the catalog stands on, read with fastavro and json."""
        table = self.table()
        metadata = json.loads(Path(table.metadata_location.removeprefix("file://")).read_text())
        found = {table.metadata_location, *(item["manifest-list"] for item in metadata.get("snapshots", []))}
        for head, manifests in self._lists(table).items():
            found |= {*manifests, *self.live(table, head)}
        return found

    def _lists(self, table: Table) -> dict[int, list[str]]:
        lists = {}
        for snapshot in table.metadata.snapshots:
            with open(snapshot.manifest_list.removeprefix("file://"), "rb") as file:
                lists[snapshot.snapshot_id] = [row["manifest_path"] for row in fastavro.reader(file)]
        return lists

    # -- changing

    def append(self, *files: DataFile, rows: int = 1, parent: int | None = None, branch: str = "main") -> int:
        """A snapshot that adds `files`, or one new file with the next numbers."""
        added = files or (self.data_file(rows),)
        return self._snapshot(Operation.APPEND, added=added, parent=parent, branch=branch)

    def delete(self, *paths: str, once: bool = False) -> int:
        """A snapshot without these data files, their DELETED entries in it; `once`: of each the newest entry alone."""
        return self._snapshot(Operation.DELETE, deleted=paths, once=once)

    def merge(self) -> int:
        """A `replace` snapshot with all live entries in one manifest."""
        return self._snapshot(Operation.REPLACE, merged=True)

    def burst(self, count: int) -> None:
        """`count` empty `append` snapshots in one commit, a second apart."""
        table = self.table()
        head = table.metadata.current_snapshot()
        updates: list[Any] = []
        for turn in range(1, count + 1):
            self.now += timedelta(seconds=1)
            number = table.metadata.new_snapshot_id()
            location = f"{self.location}/metadata/snap-{number}.avro"
            Path(location).write_bytes(Path(head.manifest_list.removeprefix("file://")).read_bytes())
            own = {
                "snapshot_id": number,
                "parent_snapshot_id": updates[-1].snapshot.snapshot_id if updates else head.snapshot_id,
                "sequence_number": table.metadata.last_sequence_number + turn,
                "timestamp_ms": int(self.now.timestamp() * 1000),
                "manifest_list": f"file://{location}",
            }
            updates.append(AddSnapshotUpdate(snapshot=head.model_copy(update=own)))
        newest = updates[-1].snapshot.snapshot_id
        self._commit(*updates, SetSnapshotRefUpdate(ref_name="main", type="branch", snapshot_id=newest))

    def data_file(self, rows: int = 1, name: str | None = None) -> DataFile:
        """A new Parquet file, not yet in the table."""
        path = f"{self.location}/data/{name or f'{self.count:05d}.parquet'}"
        os.makedirs(os.path.dirname(path), exist_ok=True)
        numbers = list(range(self.count, self.count + rows))
        pq.write_table(pa.table({"n": numbers}, schema=schema_to_pyarrow(SCHEMA)), path)
        self.count += rows
        return parquet_file(f"file://{path}", record_count=rows)

    def ref(self, name: str, snapshot: int, kind: str = "tag", **says: int) -> None:
        """A tag or branch on a snapshot; main too, as a rollback does it."""
        self._commit(SetSnapshotRefUpdate(ref_name=name, type=kind, snapshot_id=snapshot, **says))

    def drop_ref(self, name: str) -> None:
        self._commit(RemoveSnapshotRefUpdate(ref_name=name))

    def rollback(self, snapshot: int) -> None:
        """main goes back to `snapshot`."""
        self.ref("main", snapshot, "branch")

    def refs(self) -> dict[str, SnapshotRef]:
        return dict(self.table().metadata.refs)

    def properties(self, **values: str) -> None:
        """Sets properties, `_` for `-` and `__` for `.`."""
        names = {key.replace("__", ".").replace("_", "-"): value for key, value in values.items()}
        self._commit(SetPropertiesUpdate(updates=names))

    def mark(self, snapshot: int) -> None:
        """The property bookkeeper.marks, as if it had come with `snapshot`, and the table's card."""
        own = card(table_uuid=str(self.table().metadata.table_uuid))
        (self.folder_path / "card.json").write_bytes(cards.dumps(own))
        self._commit(SetPropertiesUpdate(updates={marks_format.PROPERTY: marks_json.dumps(Marks("f", snapshot))}))

    def _commit(self, *updates: Any) -> None:
        self.catalog.commit_table(self.table(), (), updates)

    def _snapshot(
        self,
        operation: Operation,
        added: Sequence[DataFile] = (),
        deleted: Sequence[str] = (),
        merged: bool = False,
        parent: int | None = None,
        branch: str = "main",
        once: bool = False,
    ) -> int:
        self.now += timedelta(minutes=1)
        table = self.table()
        head = table.metadata.snapshot_by_id(parent) if parent else table.metadata.snapshot_by_name(branch)
        draft = Draft(table, head, table.metadata.new_snapshot_id())
        manifests = draft.rewritten(deleted, merged, once) + ([draft.manifest(added)] if added else [])
        snapshot = Snapshot(
            snapshot_id=draft.id,
            parent_snapshot_id=head.snapshot_id if head else None,
            sequence_number=table.metadata.last_sequence_number + 1,
            timestamp_ms=int(self.now.timestamp() * 1000),
            manifest_list=draft.manifest_list(manifests),
            summary=Summary(operation, **{"added-data-files": str(len(added))}),
            schema_id=0,
        )
        move = SetSnapshotRefUpdate(ref_name=branch, type="branch", snapshot_id=draft.id)
        self.catalog.commit_table(table, (), (AddSnapshotUpdate(snapshot=snapshot), move))
        return draft.id

    # -- reaping

    def reap(self, **given: Any) -> Reaped:
        """A run an hour later, unless told otherwise."""
        now = given.pop("now", self.now + timedelta(hours=1))
        catalog = given.pop("catalog", None) or self.opened()
        return reap(catalog, self.settings, now, open_store=given.pop("open_store", self.stores(now)), **given)

    def outlook(self, now: datetime | None = None, **given: Any) -> Any:
        return outlook(self.opened(), self.settings, now or self.now + timedelta(hours=1), **given)

    def stores(self, now: datetime, **given: Any) -> Callable[[str], Store]:
        """Stores whose clock shows `now`."""
        return lambda url: ClockStore(open_store(url), now, **given)  # type: ignore[return-value]


class ClockStore(WrappedStore):
    """A store on a storage whose clock shows `now`."""

    def __init__(self, inner: Store, now: datetime) -> None:
        def around(name: str, act: Callable[..., Any], *given: Any, **named: Any) -> Any:
            found = act(*given, **named)
            if name == "list":
                return [item._replace(modified=now) if item.key == "reaper/clock" else item for item in found]
            return found

        super().__init__(inner, around)


def _entries(manifest: str) -> list[tuple[int, str]]:
    with open(manifest.removeprefix("file://"), "rb") as file:
        return [(row["status"], row["data_file"]["file_path"]) for row in fastavro.reader(file)]
