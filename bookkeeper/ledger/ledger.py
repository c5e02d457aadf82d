"""
The ledger: the table as the bookkeeper commits to it. One load, one guarded commit, nothing retried.

Every snapshot it makes carries the marks in the same commit, guarded by the table's uuid and by `main` still being
the snapshot those marks were read with. So a commit does both or neither, and an attempt that is applied late is
refused by its own guard once somebody else moved `main`.
"""

import logging
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from pyiceberg.catalog import Catalog
from pyiceberg.manifest import ManifestContent, ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation, Snapshot

from bookkeeper.catalogs import open as catalogs
from bookkeeper.config.units import format_duration
from bookkeeper.core.clock import Steady
from bookkeeper.core.marks import Marks
from bookkeeper.core.names import TxlogName
from bookkeeper.core.txlog import Txlog
from bookkeeper.errors import BookkeeperError, ClockBehind, CommitConflict
from bookkeeper.format.entries import DataFile
from bookkeeper.ledger import contents, merge, summary
from bookkeeper.ledger.block_cache import BlockCache
from bookkeeper.ledger.copy_entries import ManifestDelete, carried
from bookkeeper.ledger.manifests import Header, ManifestWriter, Partition
from bookkeeper.ledger.output_blocks import ManifestBody, assembled
from bookkeeper.ledger.snapshots import Draft, Step, guards, new_id, updates
from bookkeeper.ledger.txlog_groups import TxlogGroup, grouped_by_spec
from bookkeeper.ledger.view import View, view
from bookkeeper.stores.open import stores_with
from bookkeeper.stores.store import Creating, Nowhere, Store

log = logging.getLogger("bookkeeper")

CLOCK_BEHIND = timedelta(seconds=30)
ATTEMPT_AGE = timedelta(minutes=10)


class Ledger:
    """Loads one table and commits to it; `store` overrides where metadata files are written (tests)."""

    def __init__(
        self,
        catalog: Catalog,
        identifier: str,
        clock: Callable[[], datetime],
        store: Callable[[str], Store] | None = None,
    ) -> None:
        self.catalog = catalog
        self.identifier = identifier
        self.clock = clock
        #: stamps commits: a clock that jumped ahead must not
        self.steady = clock if isinstance(clock, Steady) else Steady(clock)
        #: how far the clock, which shows this time, is ahead of the storage's; raises ClockAhead
        self.ahead: Callable[[datetime], timedelta] = lambda now: timedelta(0)
        self.open_store = store or stores_with(catalog.properties)
        #: of the column that retention asked for last, see `use_column`
        self.memory = BlockCache()
        self.writer = ManifestWriter()
        #: paths of manifests that do not decode, or that a defect of ours keeps from being merged
        self.unreadable: set[str] = set()

    def load(self, folder: str, accept_rollback: bool = False) -> View:
        """
        The table now, for the folder with this id.

        Raises CatalogUnavailable, or Halt when its marks cannot be trusted.
        """
        return view(catalogs.load_table(self.catalog, self.identifier), folder, accept_rollback)

    def append(self, seen: View, given: Sequence[TxlogGroup], marks: Marks, names: Sequence[TxlogName]) -> View:
        """
        ONE fast append of all shares, and the marks that say so; small manifests are merged in the same commit.

        Raises Retry; then the outcome is unknown: load again, look at the marks, build a new attempt.
        """
        draft = self._draft(seen)
        step = self._appended(seen, self.metadata_store(seen), draft.tag, given, names)
        step = replace(step, manifests=[*step.manifests, *_live(self.manifests(seen))])
        return self._commit(seen, draft, [step, *self._merge(seen, draft, step)], marks)

    def rehearse(self, seen: View, txlogs: Sequence[Txlog]) -> None:
        """
        What an append does with these txlogs before its commit, written nowhere; raises what they make it raise.
        """
        names = [txlog.name for txlog in txlogs]
        step = self._appended(seen, Nowhere(seen.metadata_path), "rehearsal", grouped_by_spec(txlogs), names)
        self.writer.rehearse(step.manifests)
        summary.summary(step.operation, step.counts, step.manifests, seen.head)

    def _appended(
        self, seen: View, store: Creating, tag: str, given: Sequence[TxlogGroup], names: Sequence[TxlogName]
    ) -> Step:
        """The step of an append, with its own manifests only."""
        step_id, sequence = new_id(), seen.metadata.last_sequence_number + 1
        new, touched = [], set[Partition]()
        for index, share in enumerate(given):
            header = self.writer.header(seen.schemas[share.schema_id], seen.specs[share.spec_id])
            records = share.records(header)
            new.append(self.writer.write(store, f"{tag}-m{index}.avro", header, records, step_id, sequence))
            touched |= header.touched(records.partitions)
        rows = [row for share in given for txlog in share.txlogs for row in txlog.rows]
        counts = summary.appended(rows) | summary.changed(touched) | summary.named(names)
        if sum(manifest.added_files_count or 0 for manifest in new) != int(counts["added-data-files"]):
            raise AssertionError("the summary does not count what the manifests hold")
        return Step(step_id, Operation.APPEND, new, counts)

    def _merge(self, seen: View, draft: Draft, before: Step) -> list[Step]:
        """A `replace` snapshot in which full tiers of manifests have become one manifest each, when there are any."""
        step_id, sequence = new_id([before.id]), seen.metadata.last_sequence_number + 2
        written, gone = list[ManifestFile](), set[str]()
        self.memory.keep(manifest.manifest_path for manifest in before.manifests)
        listed = [manifest for manifest in before.manifests if manifest.manifest_path not in self.unreadable]
        for index, group in enumerate(merge.groups(listed)):
            made = self._merged(seen, group, f"{draft.tag}-r{index}.avro", step_id, sequence)
            if made is not None:
                written.append(made)
                gone.update(manifest.manifest_path for manifest in group)
        kept = [manifest for manifest in before.manifests if manifest.manifest_path not in gone]
        counts = summary.merged(written, gone, kept)
        return [Step(step_id, Operation.REPLACE, written + kept, counts)] if written else []

    def _merged(
        self, seen: View, group: Sequence[ManifestFile], key: str, step_id: int, sequence: int
    ) -> ManifestFile | None:
        """A group as one manifest; None when it stays as it is, for an append never fails for a merge."""
        header = self.header_for(seen, group[0])
        if header is None:
            return None
        try:
            found = merge.merged(self.metadata_store(seen), group, header, self.memory)
            return self._write(seen, key, header, found, self.memory, step_id, sequence)
        except Exception as error:  # noqa: BLE001 - a merge can wait, whatever it is
            self._leave(seen, group, error)
            return None

    def _write(
        self, seen: View, key: str, header: Header, found: ManifestBody, memory: BlockCache, step_id: int, sequence: int
    ) -> ManifestFile:
        """A manifest, which is remembered."""
        written = self.writer.write(self.metadata_store(seen), key, header, found.records, step_id, sequence)
        memory.put(written.manifest_path, found.range, found.digests)
        return written

    def _leave(self, seen: View, group: Sequence[ManifestFile], error: Exception) -> None:
        """Says why a group stays as it is; what no try of this process will ever merge is not tried again."""
        if isinstance(error, BookkeeperError):
            bad = contents.unreadable(self.metadata_store(seen), group)
        else:  # a defect of ours
            bad = [manifest.manifest_path for manifest in group]
        self.unreadable.update(bad)
        about = {"action": "merge", "table": self.identifier, "cause": str(error) or repr(error), "manifests": bad}
        log.warning("manifests left unmerged", extra=about)

    def header_for(self, seen: View, manifest: ManifestFile) -> Header | None:
        """For another manifest of the same spec; None when the columns of that spec are gone: then it stays."""
        schema = seen.schema_for(manifest.partition_spec_id)
        return self.writer.header(schema, seen.specs[manifest.partition_spec_id]) if schema else None

    def manifests(self, seen: View) -> list[ManifestFile]:
        """The manifests of the head, empty for an empty table; raises CatalogUnavailable."""
        if seen.manifests is not None:
            return list(seen.manifests)
        with catalogs.asked(f"read the manifest list of {self.identifier}"):
            found = list(seen.head.manifests(seen.table.io)) if seen.head else []
        return [contents.counted_out(self.metadata_store(seen), manifest) for manifest in found]

    def use_column(self, column: int | None) -> BlockCache:
        """What is known of blocks, with the bounds of this column; with another column, everything is read again."""
        if column != self.memory.column:
            self.memory = BlockCache(column)
        return self.memory

    def metadata_store(self, seen: View) -> Store:
        """Where the table's manifests lie."""
        return self.open_store(seen.metadata_path)

    def live_files(self, seen: View) -> Iterator[DataFile]:
        """Every live data file; decodes every manifest, so only a person should ask."""
        store = self.open_store(seen.metadata_path)
        for manifest in self.manifests(seen):
            if manifest.content == ManifestContent.DATA:
                yield from (entry.data_file for entry in contents.live_entries(store, manifest))

    def drop(self, seen: View, doomed: Sequence[ManifestDelete]) -> View:
        """
        A `delete` snapshot without the doomed files; each leaves a DELETED entry for whoever expires later.

        Raises Retry like `append`.
        """
        draft, step_id, sequence = self._draft(seen), new_id(), seen.metadata.last_sequence_number + 1
        written, touched = [], set[Partition]()
        for index, item in enumerate(doomed):
            touched |= item.header.touched(row.partition for row in item.dropped)
            memory, key = item.opened.memory, f"{draft.tag}-m{index}.avro"
            left = assembled(carried(item.opened, item.header, item.gone, step_id), item.header, memory)
            written.append(self._write(seen, key, item.header, left, memory, step_id, sequence))
        replaced = {item.manifest.manifest_path for item in doomed}
        others = [manifest for manifest in self.manifests(seen) if manifest.manifest_path not in replaced]
        counts = summary.deleted([row for item in doomed for row in item.dropped])
        counts |= summary.changed(touched)
        step = Step(step_id, Operation.DELETE, written + _live(others), counts | {"bookkeeper.reason": "retention"})
        return self._commit(seen, draft, [step], seen.marks)

    def record(self, seen: View, marks: Marks, why: str) -> View:
        """
        Changes marks only, with an empty `replace` snapshot, which streams pass over. Raises Retry like `append`.
        """
        draft = self._draft(seen)
        counts = {"bookkeeper.reason": why}
        step = Step(new_id(), Operation.REPLACE, self.manifests(seen), counts)
        return self._commit(seen, draft, [step], marks)

    def check_clock(self, seen: View) -> datetime:
        """The time now; raises ClockBehind when the table was updated in the future of this clock."""
        now = self.clock()
        behind = seen.metadata.last_updated_ms - int(now.timestamp() * 1000)
        if behind > CLOCK_BEHIND / timedelta(milliseconds=1):
            late = format_duration(timedelta(milliseconds=behind))
            raise ClockBehind(f"{self.identifier} was last updated {late} in the future of this clock")
        return now

    def stamp(self, now: datetime) -> datetime:
        """
        `now` without what this clock is known to be ahead: a table from the future takes nobody's commit until then.

        Raises ClockAhead when that is too much to go on.
        """
        return now - max(self.steady.ahead(), self.ahead(now))

    def _draft(self, seen: View) -> Draft:
        started = self.check_clock(seen)
        now_ms = int(self.stamp(started).timestamp() * 1000)
        # Spark refuses a snapshot log that is not sorted, so time never goes back in it.
        parent_ms = seen.head.timestamp_ms + 1 if seen.head else 0
        return Draft(started, max(now_ms, seen.metadata.last_updated_ms, parent_ms), str(uuid.uuid4()))

    def _commit(self, seen: View, draft: Draft, steps: Sequence[Step], marks: Marks) -> View:
        """Sends all steps as one guarded commit; the marks name the last snapshot."""
        snapshots = self._snapshots(seen, draft, steps)
        moved = replace(marks, snapshot=steps[-1].id)
        if self.clock() - draft.started > ATTEMPT_AGE:
            raise CommitConflict(f"{self.identifier}: the attempt took longer than {ATTEMPT_AGE}, it is built anew")
        response = catalogs.commit(seen.table, guards(seen), updates(seen, snapshots, moved))
        table = Table(seen.table.name(), response.metadata, response.metadata_location, seen.table.io, self.catalog)
        return View(table, moved, tuple(steps[-1].manifests))

    def _snapshots(self, seen: View, draft: Draft, steps: Sequence[Step]) -> list[Snapshot]:
        """The snapshots of the steps, each the child of the one before, with their manifest lists written."""
        made: list[Snapshot] = []
        for number, step in enumerate(steps):
            parent = made[-1] if made else seen.head
            parent_id = parent.snapshot_id if parent else None
            sequence, key = seen.metadata.last_sequence_number + 1 + number, f"snap-{step.id}-1-{draft.tag}.avro"
            listed = self.writer.write_list(
                self.metadata_store(seen), key, step.manifests, step.id, parent_id, sequence
            )
            made.append(
                Snapshot(
                    snapshot_id=step.id,
                    parent_snapshot_id=parent_id,
                    sequence_number=sequence,
                    timestamp_ms=draft.timestamp_ms + number,
                    manifest_list=listed,
                    summary=summary.summary(step.operation, step.counts, step.manifests, parent),
                    schema_id=seen.metadata.current_schema_id,
                )
            )
        return made


def _live(manifests: Sequence[ManifestFile]) -> list[ManifestFile]:
    """
    Without manifests whose entries are all DELETED: their snapshot has told expiry about them.
    """
    return [item for item in manifests if item.content != ManifestContent.DATA or merge.live_files(item)]
