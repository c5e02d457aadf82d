"""
The ledger: the table as the bookkeeper commits to it. One load, one guarded commit, nothing retried.

Every snapshot it makes carries the marks in the same commit, guarded by the table's uuid and by `main` still being
the snapshot those marks were read with. So a commit does both or neither, and an attempt that is applied late is
refused by its own guard once somebody else moved `main`.
"""

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from pyiceberg.catalog import Catalog
from pyiceberg.manifest import ManifestContent, ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    AssertRefSnapshotId,
    AssertTableUUID,
    SetPropertiesUpdate,
    SetSnapshotRefUpdate,
    TableUpdate,
)

from bookkeeper.core import catalog as catalogs
from bookkeeper.core import marks as marks_format
from bookkeeper.core.errors import ClockBehind, CommitConflict
from bookkeeper.core.marks import Marks
from bookkeeper.core.names import TxlogName
from bookkeeper.core.store import Store, open_store
from bookkeeper.core.txlog import Txlog
from bookkeeper.format.entries import DataFile, added
from bookkeeper.ledger import retain, summary
from bookkeeper.ledger.manifests import write_list, write_manifest
from bookkeeper.ledger.retain import Doomed, Drops, Range, Ranges
from bookkeeper.ledger.view import MAIN, View, view

CLOCK_BEHIND = timedelta(seconds=30)
ATTEMPT_AGE = timedelta(minutes=10)


@dataclass(frozen=True, slots=True)
class Share:
    """Data files written with one schema and one partition spec."""

    schema_id: int
    spec_id: int
    files: Sequence[DataFile]


def shares(txlogs: Iterable[Txlog]) -> list[Share]:
    """
    The data files of a batch, grouped by the schema and spec they were written with.
    """
    grouped: dict[tuple[int, int], list[Txlog]] = {}
    for txlog in txlogs:
        grouped.setdefault((txlog.spec_id, txlog.schema_id), []).append(txlog)
    return [
        Share(schema_id, spec_id, [file for txlog in group for file in txlog.files])
        for (spec_id, schema_id), group in grouped.items()
    ]


@dataclass(frozen=True, slots=True)
class _Draft:
    """A snapshot in the making."""

    id: int
    timestamp_ms: int
    started: datetime
    tag: str

    def key(self, index: int) -> str:
        return f"{self.tag}-m{index}.avro"


class Ledger:
    """Loads one table and commits to it; `store` overrides where metadata files are written (tests)."""

    def __init__(
        self,
        catalog: Catalog,
        identifier: str,
        clock: Callable[[], datetime],
        store: Callable[[str], Store] = open_store,
    ) -> None:
        self.catalog = catalog
        self.identifier = identifier
        self.clock = clock
        self.open_store = store
        self.ranges = Ranges()

    def load(self, folder: str, accept_rollback: bool = False) -> View:
        """
        The table now, for the folder with this id.

        Raises CatalogUnavailable, or Halt when its marks cannot be trusted.
        """
        return view(catalogs.load_table(self.catalog, self.identifier), folder, accept_rollback)

    def append(self, seen: View, shares: Sequence[Share], marks: Marks, names: Sequence[TxlogName]) -> View:
        """
        ONE fast append of all shares, and the marks that say so.

        Raises Retry; then the outcome is unknown: load again, look at the marks, build a new attempt.
        """
        draft = self._draft(seen)
        store = self.open_store(seen.metadata_path)
        new = [
            write_manifest(
                store,
                draft.key(index),
                seen.schemas[share.schema_id],
                seen.specs[share.spec_id],
                [added(file) for file in share.files],
                draft.id,
            )
            for index, share in enumerate(shares)
        ]
        counts = summary.appended([file for share in shares for file in share.files]) | summary.named(names)
        if sum(manifest.added_files_count or 0 for manifest in new) != int(counts["added-data-files"]):
            raise AssertionError("the summary does not count what the manifests hold")
        return self._commit(seen, draft, Operation.APPEND, new + _live(self.manifests(seen)), counts, marks)

    def manifests(self, seen: View) -> list[ManifestFile]:
        """The manifests of the head, empty for an empty table; raises CatalogUnavailable."""
        with catalogs.asked(f"read the manifest list of {self.identifier}"):
            return list(seen.head.manifests(seen.table.io)) if seen.head else []

    def live_count(self, seen: View) -> int:
        """How many data files are live."""
        data = [item for item in self.manifests(seen) if item.content == ManifestContent.DATA]
        return sum((item.added_files_count or 0) + (item.existing_files_count or 0) for item in data)

    def live_files(self, seen: View) -> Iterator[DataFile]:
        """Every live data file; decodes every manifest, so only a person should ask."""
        store = self.open_store(seen.metadata_path)
        for manifest in self.manifests(seen):
            if manifest.content == ManifestContent.DATA:
                yield from (entry.data_file for entry in retain.live_entries(store, manifest))

    def find(self, seen: View, column: int | None, may_drop: Callable[[Range], bool], drops: Drops) -> list[Doomed]:
        """The manifests that lose whole files under a retention rule."""
        store = self.open_store(seen.metadata_path)
        return retain.find(store, self.manifests(seen), column, may_drop, drops, self.ranges)

    def drop(self, seen: View, doomed: Sequence[Doomed]) -> View:
        """
        A `delete` snapshot without the doomed files; each leaves a DELETED entry for whoever expires later.

        Raises Retry like `append`.
        """
        draft = self._draft(seen)
        store = self.open_store(seen.metadata_path)
        schema, written = seen.metadata.schema(), []
        for index, item in enumerate(doomed):
            spec = seen.specs[item.manifest.partition_spec_id]
            entries = retain.tombstones(item, draft.id)
            written.append(write_manifest(store, draft.key(index), schema, spec, entries, draft.id))
        replaced = {item.manifest.manifest_path for item in doomed}
        others = [manifest for manifest in self.manifests(seen) if manifest.manifest_path not in replaced]
        counts = summary.deleted([entry.data_file for item in doomed for entry in item.dropped])
        return self._commit(seen, draft, Operation.DELETE, written + _live(others), counts, seen.marks)

    def record(self, seen: View, marks: Marks, why: str) -> View:
        """
        Changes marks only, with an empty `replace` snapshot, which streams pass over. Raises Retry like `append`.
        """
        draft = self._draft(seen)
        counts = {"bookkeeper.reason": why}
        return self._commit(seen, draft, Operation.REPLACE, self.manifests(seen), counts, marks)

    def check_clock(self, seen: View) -> datetime:
        """The time now; raises ClockBehind when the table was updated in the future of this clock."""
        now = self.clock()
        behind = seen.metadata.last_updated_ms - int(now.timestamp() * 1000)
        if behind > CLOCK_BEHIND / timedelta(milliseconds=1):
            raise ClockBehind(f"{self.identifier} was last updated {behind / 1000:.0f} s in the future of this clock")
        return now

    def _draft(self, seen: View) -> _Draft:
        started = self.check_clock(seen)
        now_ms = int(started.timestamp() * 1000)
        # Spark refuses a snapshot log that is not sorted, so time never goes back in it.
        parent_ms = seen.head.timestamp_ms + 1 if seen.head else 0
        timestamp_ms = max(now_ms, seen.metadata.last_updated_ms, parent_ms)
        return _Draft(seen.metadata.new_snapshot_id(), timestamp_ms, started, str(uuid.uuid4()))

    def _commit(
        self,
        seen: View,
        draft: _Draft,
        operation: Operation,
        manifests: Sequence[ManifestFile],
        counts: Mapping[str, str],
        marks: Marks,
    ) -> View:
        sequence = seen.metadata.last_sequence_number + 1
        store = self.open_store(seen.metadata_path)
        key = f"snap-{draft.id}-1-{draft.tag}.avro"
        snapshot = Snapshot(
            snapshot_id=draft.id,
            parent_snapshot_id=seen.head.snapshot_id if seen.head else None,
            sequence_number=sequence,
            timestamp_ms=draft.timestamp_ms,
            manifest_list=write_list(store, key, manifests, draft.id, seen.head, sequence),
            summary=summary.summary(operation, counts, manifests, seen.head),
            schema_id=seen.metadata.current_schema_id,
        )
        carried = replace(marks, snapshot=draft.id)
        if self.clock() - draft.started > ATTEMPT_AGE:
            raise CommitConflict(f"{self.identifier}: the attempt took longer than {ATTEMPT_AGE}, it is built anew")
        response = catalogs.commit(seen.table, _guards(seen), _updates(seen, snapshot, carried))
        table = Table(seen.table.name(), response.metadata, response.metadata_location, seen.table.io, self.catalog)
        return View(table, carried)


def _live(manifests: Sequence[ManifestFile]) -> list[ManifestFile]:
    """
    Without manifests whose entries are all DELETED: their snapshot has told expiry about them.
    """
    return [item for item in manifests if item.content != ManifestContent.DATA or _has_live(item)]


def _has_live(manifest: ManifestFile) -> bool:
    # Counts are optional in v1 manifests: None means "may have some".
    return manifest.added_files_count != 0 or manifest.existing_files_count != 0


def _guards(seen: View) -> tuple[AssertTableUUID, AssertRefSnapshotId]:
    head = seen.head.snapshot_id if seen.head else None
    return (
        AssertTableUUID(uuid=seen.metadata.table_uuid),
        AssertRefSnapshotId(ref=MAIN, snapshot_id=head),
    )


def _updates(seen: View, snapshot: Snapshot, marks: Marks) -> tuple[TableUpdate, ...]:
    ref = seen.metadata.refs.get(MAIN)
    move = SetSnapshotRefUpdate(
        ref_name=MAIN,
        type=SnapshotRefType.BRANCH,
        snapshot_id=snapshot.snapshot_id,
        max_ref_age_ms=ref.max_ref_age_ms if ref else None,
        max_snapshot_age_ms=ref.max_snapshot_age_ms if ref else None,
        min_snapshots_to_keep=ref.min_snapshots_to_keep if ref else None,
    )
    carried = SetPropertiesUpdate(updates={marks_format.PROPERTY: marks_format.dumps(marks)})
    return (AddSnapshotUpdate(snapshot=snapshot), move, carried)
