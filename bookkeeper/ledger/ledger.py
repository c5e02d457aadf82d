"""
The ledger: the table as the bookkeeper commits to it. One load, one guarded commit, nothing retried.

Every commit adds its snapshots and sets the marks together. It is guarded by the table's uuid and by `main` still
being the snapshot those marks were read with. So a commit does both or neither, and an attempt that is applied late
is refused by its own guard once another commit moved `main`.

What a commit writes first (manifests, manifest lists, with SQL catalogs metadata.json) is sent at once: their names,
sizes and contents are known before. Only the compare-and-swap at the end makes any of it part of the table, and it
waits until all of it is durable. So a crash may leave any subset of these files: no snapshot names them, no other
attempt uses their names (each has a random UUID), and the orphan sweep deletes them. The same holds for a put that
arrives after its attempt was given up.
"""

import logging
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial

from pyiceberg.catalog import Catalog
from pyiceberg.manifest import ManifestContent
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation, Snapshot

from bookkeeper.catalogs import open as catalogs
from bookkeeper.config.units import epoch_ms, format_duration
from bookkeeper.core.marks import Marks
from bookkeeper.core.names import TxlogName
from bookkeeper.core.rewrite import Rewrite
from bookkeeper.core.steady_clock import Steady
from bookkeeper.core.txlog import Txlog
from bookkeeper.errors import BookkeeperError, ClockBehind, CommitConflict, ManifestCorrupt, PathRefused
from bookkeeper.format.entries import DataFile, Entry
from bookkeeper.format.manifest_list import ListedManifest
from bookkeeper.format.records import of_entries
from bookkeeper.format.skim import EntrySummary
from bookkeeper.ledger import merge, summary
from bookkeeper.ledger.commit_request import Attempt, NewSnapshot, guards, new_snapshot_id, updates
from bookkeeper.ledger.dangling import dangling, least_number
from bookkeeper.ledger.numbers import has_data, has_deletes, numbered
from bookkeeper.ledger.rewrite_groups import RewriteGroup, grouped_rewrites
from bookkeeper.ledger.txlog_groups import (
    NumberedGroup,
    TxlogGroup,
    grouped_by_spec,
    numbered_data,
    numbered_deletes,
)
from bookkeeper.ledger.view import View
from bookkeeper.ledger.view import view as checked_view
from bookkeeper.manifests.blocks import ManifestBody, ManifestDelete, assemble, copy_entries
from bookkeeper.manifests.fetch import Fetch
from bookkeeper.manifests.header import Header, ManifestWriter, PartitionKey
from bookkeeper.manifests.reader import Manifests, with_live_files
from bookkeeper.manifests.stats import StatsCache
from bookkeeper.stores.open import stores_with
from bookkeeper.stores.store import Store
from bookkeeper.stores.together import together
from bookkeeper.stores.unsent import Unsent

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
        #: the time that stamps commits; a clock that jumped ahead must not stamp one
        self.steady = clock if isinstance(clock, Steady) else Steady(clock)
        #: how far the clock, which shows this time, is ahead of the storage's; raises ClockAhead
        self.ahead: Callable[[datetime], timedelta] = lambda now: timedelta(0)
        self.open_store = store or stores_with(catalog.properties)
        #: of the column that retention asked for last, see `use_column`
        self.cache = StatsCache()
        self.writer = ManifestWriter()
        #: paths of manifests that do not decode, or that a defect of ours keeps from being merged
        self.unreadable: set[str] = set()

    def load(self, folder: str, accept_rollback: bool = False) -> View:
        """
        The table now, for the folder with this id.

        Raises CatalogUnavailable, or Halt when its marks cannot be trusted.
        """
        table = catalogs.load_table(self.catalog, self.identifier, for_commit=True)
        return checked_view(table, folder, accept_rollback)

    def append(
        self,
        view: View,
        groups: Sequence[TxlogGroup],
        marks: Marks,
        names: Sequence[TxlogName],
        beside: Sequence[Callable[[], object]] = (),
    ) -> View:
        """
        ONE fast append of all groups, together with their marks; small manifests are merged in the same commit.

        Where a txlog has delete files, a `delete` snapshot adds them before the `append`. Both are in the one commit,
        so a crash leaves both or neither; never one `overwrite`, at which streams stop. With delete files and no data
        file it is the `delete` snapshot alone: streams pass over it as over retention's.

        `beside` is done at once with the writes, and the commit waits for it too: what it raises ends the attempt.
        Raises Retry; then the outcome is unknown: load again, read the marks, build a new attempt.
        """
        attempt = self._attempt(view)
        planned, manifests = list[NewSnapshot](), _with_live_files(self.manifests(view))
        for new in self._build(view, attempt.tag, groups, names):
            manifests = [*new.manifests, *manifests]
            planned.append(replace(new, manifests=manifests))
        return self._commit(view, attempt, planned, marks, beside, self._merge(view, attempt, planned))

    def rehearse(self, view: View, txlogs: Sequence[Txlog]) -> None:
        """
        What an append does with these txlogs before it sends anything; raises what they make it raise.
        """
        names = [txlog.name for txlog in txlogs]
        for new in self._build(view, "rehearsal", grouped_by_spec(txlogs), names):
            self.writer.rehearse(new.manifests)
            summary.summary(new.operation, new.counts, new.manifests, view.head)

    def _build(
        self, view: View, tag: str, groups: Sequence[TxlogGroup], names: Sequence[TxlogName]
    ) -> list[NewSnapshot]:
        """The snapshots that add the files of txlogs, each with its own manifests only; `names` is their order."""
        if has_deletes(txlog for group in groups for txlog in group.txlogs):
            return self._build_upserts(view, tag, groups, names)
        entries = [entry for group in groups for txlog in group.txlogs for entry in txlog.rows]
        return [self._build_append(view, tag, groups, entries, summary.txlog_names(names))]

    def _build_append(
        self,
        view: View,
        tag: str,
        groups: Sequence[TxlogGroup | NumberedGroup],
        entries: Sequence[EntrySummary],
        about: Mapping[str, str],
        sequence: int | None = None,
    ) -> NewSnapshot:
        snapshot_id, unsent = new_snapshot_id(), Unsent(self.metadata_store(view))
        written, partitions = self._write_groups(view, unsent, f"{tag}-m", groups, snapshot_id, sequence)
        counts = {**summary.append_counts(entries), **summary.partition_count(partitions), **about}
        _check_added(written, int(counts["added-data-files"]))
        return NewSnapshot(snapshot_id, Operation.APPEND, written, counts, unsent, sequence)

    def _build_upserts(
        self, view: View, tag: str, groups: Sequence[TxlogGroup], names: Sequence[TxlogName]
    ) -> list[NewSnapshot]:
        """A `delete` snapshot with the delete files, then an `append` with the data files, if there are any."""
        by_name = {txlog.name: txlog for group in groups for txlog in group.txlogs}
        txlogs, about = [by_name[name] for name in names], summary.txlog_names(names)
        numbers = numbered(view.metadata.last_sequence_number, txlogs)
        append = list[NewSnapshot]()
        if has_data(txlogs):
            data, entries = numbered_data(txlogs, numbers.first), [row for txlog in txlogs for row in txlog.rows]
            append.append(self._build_append(view, tag, data, entries, about, numbers.append))
            about = summary.half_of(append[0].id)
        delete_groups = numbered_deletes(txlogs, numbers.first)
        snapshot_id, unsent = new_snapshot_id([new.id for new in append]), Unsent(self.metadata_store(view))
        written, partitions = self._write_groups(
            view, unsent, f"{tag}-d", delete_groups, snapshot_id, numbers.delete, ManifestContent.DELETES
        )
        counts = summary.added_delete_counts([row for group in delete_groups for row in group.rows])
        counts |= summary.partition_count(partitions) | about
        counts |= summary.numbers_taken(numbers.delete - view.metadata.last_sequence_number)
        _check_added(written, int(counts["added-delete-files"]))
        return [NewSnapshot(snapshot_id, Operation.DELETE, written, counts, unsent, numbers.delete), *append]

    def _write_groups(
        self,
        view: View,
        unsent: Unsent,
        name: str,
        groups: Sequence[TxlogGroup | NumberedGroup | RewriteGroup],
        snapshot_id: int,
        sequence: int | None = None,
        content: ManifestContent = ManifestContent.DATA,
    ) -> tuple[list[ListedManifest], set[PartitionKey]]:
        """A manifest of added files for each group; all their partitions."""
        sequence = sequence or view.metadata.last_sequence_number + 1
        written, partitions = list[ListedManifest](), set[PartitionKey]()
        for index, group in enumerate(groups):
            header = self.writer.header(view.schemas[group.schema_id], view.specs[group.spec_id], content)
            records = group.records(header)
            written.append(self.writer.write(unsent, f"{name}{index}.avro", header, records, snapshot_id, sequence))
            partitions |= header.partition_keys(records.partitions)
        return written, partitions

    def _merge(self, view: View, attempt: Attempt, planned: Sequence[NewSnapshot]) -> list[NewSnapshot]:
        """A `replace` snapshot in which full tiers of manifests have become one manifest each, when there are any."""
        manifests, sequence = planned[-1].manifests, view.metadata.last_sequence_number + 2
        if planned[-1].sequence is not None:
            sequence = planned[-1].sequence + 1
        snapshot_id = new_snapshot_id([new.id for new in planned])
        written, replaced = list[ListedManifest](), set[str]()
        sent = {key: data for new in planned for key, data in new.unsent.objects.items()}
        unsent = Unsent(self.metadata_store(view), sent)
        self.cache.forget_unlisted(manifest.manifest_path for manifest in manifests)
        readable = [manifest for manifest in manifests if manifest.manifest_path not in self.unreadable]
        for index, group in enumerate(merge.groups(readable)):
            merged = self._merge_group(view, unsent, group, f"{attempt.tag}-r{index}.avro", snapshot_id, sequence)
            if merged is not None:
                written.append(merged)
                replaced.update(manifest.manifest_path for manifest in group)
        kept = [manifest for manifest in manifests if manifest.manifest_path not in replaced]
        counts = summary.merge_counts(written, replaced, kept)
        return [NewSnapshot(snapshot_id, Operation.REPLACE, written + kept, counts, unsent)] if written else []

    def _merge_group(
        self, view: View, unsent: Unsent, group: Sequence[ListedManifest], key: str, snapshot_id: int, sequence: int
    ) -> ListedManifest | None:
        """One manifest for a group. None when the group stays as it is: a merge never makes an append fail."""
        header = self.header_for(view, group[0])
        if header is None:
            return None
        try:
            body = merge.merge(self._reader(view, unsent), group, header, self.cache)
            return self._write(unsent, key, header, body, self.cache, snapshot_id, sequence)
        except Exception as error:  # noqa: BLE001 - a merge can wait, whatever it is
            self._leave_unmerged(view, group, error)
            return None

    def _write(
        self,
        unsent: Unsent,
        key: str,
        header: Header,
        body: ManifestBody,
        cache: StatsCache,
        snapshot_id: int,
        sequence: int,
    ) -> ListedManifest:
        written = self.writer.write(unsent, key, header, body.records, snapshot_id, sequence)
        cache.put_manifest(written.manifest_path, body.range, body.digests)
        return written

    def _leave_unmerged(self, view: View, group: Sequence[ListedManifest], error: Exception) -> None:
        """Logs why a group stays as it is; manifests that no later try can read are not tried again."""
        if isinstance(error, BookkeeperError):
            bad = self._unreadable(view, group)
        else:  # a defect of ours
            bad = [manifest.manifest_path for manifest in group]
        self.unreadable.update(bad)
        about = {"action": "merge", "table": self.identifier, "cause": str(error) or repr(error), "manifests": bad}
        log.warning("manifests left unmerged", extra=about)

    def _unreadable(self, view: View, group: Sequence[ListedManifest]) -> list[str]:
        """Manifests that will never be read: outside of all that can be reached, or in a form that we do not know."""
        reader, found = self.reader(view), list[str]()
        for manifest in group:
            try:
                [*reader.rows([manifest])]
            except (ManifestCorrupt, PathRefused):
                found.append(manifest.manifest_path)
            except BookkeeperError:
                continue  # the next try may read it
        return found

    def header_for(self, view: View, manifest: ListedManifest) -> Header | None:
        """
        The header for a new version of this manifest; None when a column of its spec was dropped: the manifest stays.
        """
        return view.header_of(manifest, self.writer)

    def manifests(self, view: View) -> list[ListedManifest]:
        """The manifests of the head, empty for an empty table; raises CatalogUnavailable."""
        if view.manifests is not None:
            return list(view.manifests)
        with catalogs.asked(f"read the manifest list of {self.identifier}"):
            lists = self.reader(view).lists([view.head] if view.head else [])
        return [manifest for listed in lists for manifest in listed]

    def reader(self, view: View) -> Manifests:
        """Reads the table's manifests; one of a layout that no commit could write anew is refused."""
        return self._reader(view, self.metadata_store(view))

    def _reader(self, view: View, store: Store | Unsent) -> Manifests:
        return Manifests(Fetch.of(store, view.table.io), foreign=False)

    def live_specs(self, view: View) -> set[int]:
        """The specs of manifests with live data files; raises CatalogUnavailable."""
        live = (item for item in self.manifests(view) if item.live_files)
        return {item.partition_spec_id for item in live if item.content == ManifestContent.DATA}

    def use_column(self, column: int | None) -> StatsCache:
        """The cache with the bounds of this column; after a change of column, everything is read again."""
        if column != self.cache.column:
            self.cache = StatsCache(column)
        return self.cache

    def metadata_store(self, view: View) -> Store:
        """The store of the table's manifests."""
        return view.metadata_store(self.open_store)

    def data_store(self, view: View) -> Store:
        """The store of the table's data files."""
        return view.data_store(self.open_store)

    def live_files(self, view: View) -> Iterator[DataFile]:
        """Every live data file; decodes every manifest: for a command, not for the tick."""
        return (entry.data_file for entry in self.live_entries(view, ManifestContent.DATA))

    def live_entries(self, view: View, content: ManifestContent) -> Iterator[Entry]:
        """Every live entry of data or of deletes, with what it inherits; decodes all their manifests."""
        for _, entries in self.reader(view).entries(self.manifests(view), content):
            yield from entries

    def drop(self, view: View, deletes: Sequence[ManifestDelete]) -> View:
        """
        A `delete` snapshot without the deleted files; each leaves a DELETED entry for the job that expires snapshots.

        Delete files that then apply to nothing go with them.

        Raises Retry like `append`.
        """
        attempt, snapshot_id, unsent = self._attempt(view), new_snapshot_id(), Unsent(self.metadata_store(view))
        deletes = [*deletes, *self._dangling(view, deletes)]
        manifests, counts, partitions = self._without(view, attempt, unsent, deletes, snapshot_id)
        counts |= summary.partition_count(partitions) | {"bookkeeper.reason": "retention"}
        delete = NewSnapshot(snapshot_id, Operation.DELETE, manifests, counts, unsent)
        return self._commit(view, attempt, [delete], view.marks)

    def _dangling(self, view: View, drops: Sequence[ManifestDelete]) -> Iterator[ManifestDelete]:
        """What the manifests of delete files lose when these data files go."""
        manifests, gone = self.manifests(view), [row for item in drops for row in item.dropped]
        least = least_number(manifests, drops)
        for manifest, data in self.reader(view).contents(with_live_files(manifests, ManifestContent.DELETES)):
            header = self.header_for(view, manifest)
            if header is not None and (found := dangling(data, manifest, header, least, gone)) is not None:
                yield found

    def rewrite(self, view: View, rewrites: Sequence[Rewrite], deletes: Sequence[ManifestDelete]) -> View:
        """
        A `replace` snapshot with the new files of checked rewrites, and without the files they replace: `deletes`.

        Streams pass over it. A crash before the commit leaves manifests that no snapshot names, for the orphan sweep;
        a crash after it leaves the rewrites, which are recognised by the new files. Raises Retry like `append`.
        """
        attempt, snapshot_id, unsent = self._attempt(view), new_snapshot_id(), Unsent(self.metadata_store(view))
        manifests, counts, partitions = self._without(view, attempt, unsent, deletes, snapshot_id)
        written, into = self._write_groups(view, unsent, f"{attempt.tag}-a", grouped_rewrites(rewrites), snapshot_id)
        counts |= summary.append_counts([row for rewrite in rewrites for row in rewrite.added])
        counts |= summary.partition_count(partitions | into) | summary.rewrite_ids(rewrite.id for rewrite in rewrites)
        if int(counts["deleted-data-files"]) != sum(len(rewrite.replaced) for rewrite in rewrites):
            raise AssertionError("the manifests do not lose what the rewrites replace")
        replaced = NewSnapshot(snapshot_id, Operation.REPLACE, [*written, *manifests], counts, unsent)
        return self._commit(view, attempt, [replaced], view.marks)

    def fold(
        self, view: View, removed: Sequence[ManifestDelete], added: Sequence[tuple[int, Entry]], why: str = "fold"
    ) -> View:
        """
        A `delete` snapshot with new position delete files, each with its spec's id, and without `removed` files.

        Only `fold_commit` may ask for it, which checks what goes, and says why it is a `delete`. Raises Retry like
        `append`.
        """
        attempt, snapshot_id, unsent = self._attempt(view), new_snapshot_id(), Unsent(self.metadata_store(view))
        manifests, counts, partitions = self._without(view, attempt, unsent, removed, snapshot_id)
        written, sequence = list[ListedManifest](), view.metadata.last_sequence_number + 1
        for spec_id in sorted({spec_id for spec_id, _ in added}):
            schema = view.schema_for(spec_id)
            assert schema is not None
            header = self.writer.header(schema, view.specs[spec_id], ManifestContent.DELETES)
            records = of_entries([entry for its_spec, entry in added if its_spec == spec_id], header.encode_blocks)
            key = f"{attempt.tag}-p{spec_id}.avro"
            written.append(self.writer.write(unsent, key, header, records, snapshot_id, sequence))
            partitions |= header.partition_keys(records.partitions)
        counts |= summary.added_position_deletes([entry for _, entry in added])
        counts |= summary.partition_count(partitions) | {"bookkeeper.reason": why}
        folded = NewSnapshot(snapshot_id, Operation.DELETE, [*written, *manifests], counts, unsent)
        return self._commit(view, attempt, [folded], view.marks)

    def _without(
        self, view: View, attempt: Attempt, unsent: Unsent, deletes: Sequence[ManifestDelete], snapshot_id: int
    ) -> tuple[list[ListedManifest], dict[str, str], set[PartitionKey]]:
        """The manifests of the head, without the deleted files; the counts of these, and their partitions."""
        sequence = view.metadata.last_sequence_number + 1
        written, partitions = list[ListedManifest](), set[PartitionKey]()
        for index, item in enumerate(deletes):
            partitions |= item.header.partition_keys(entry.partition for entry in item.dropped)
            cache = item.source.cache
            body = assemble(copy_entries(item.source, item.header, item.deleted, snapshot_id), item.header, cache)
            key = f"{attempt.tag}-m{index}.avro"
            written.append(self._write(unsent, key, item.header, body, cache, snapshot_id, sequence))
        touched = {item.manifest.manifest_path for item in deletes}
        others = [manifest for manifest in self.manifests(view) if manifest.manifest_path not in touched]
        counts = _removed_counts(deletes)
        return written + _with_live_files(others), counts, partitions

    def record(self, view: View, marks: Marks, why: str) -> View:
        """
        Changes marks only, with an empty `replace` snapshot, which streams pass over. Raises Retry like `append`.
        """
        attempt, counts, unsent = self._attempt(view), {"bookkeeper.reason": why}, Unsent(self.metadata_store(view))
        empty = NewSnapshot(new_snapshot_id(), Operation.REPLACE, self.manifests(view), counts, unsent)
        return self._commit(view, attempt, [empty], marks)

    def check_clock(self, view: View) -> datetime:
        """The time now; raises ClockBehind when the table was updated in the future of this clock."""
        now = self.clock()
        behind = view.metadata.last_updated_ms - epoch_ms(now)
        if behind > CLOCK_BEHIND / timedelta(milliseconds=1):
            late = format_duration(timedelta(milliseconds=behind))
            raise ClockBehind(f"{self.identifier} was last updated {late} in the future of this clock")
        return now

    def stamp(self, now: datetime) -> datetime:
        """
        `now` less what this clock is known to be ahead; a snapshot from the future would stop every commit until then.

        Raises ClockAhead when that is too much to go on.
        """
        return now - max(self.steady.ahead(), self.ahead(now))

    def _attempt(self, view: View) -> Attempt:
        started = self.check_clock(view)
        now_ms = epoch_ms(self.stamp(started))
        # Spark refuses a snapshot log that is not sorted, so time never goes back in it.
        parent_ms = view.head.timestamp_ms + 1 if view.head else 0
        return Attempt(started, max(now_ms, view.metadata.last_updated_ms, parent_ms), str(uuid.uuid4()))

    def _commit(
        self,
        view: View,
        attempt: Attempt,
        planned: Sequence[NewSnapshot],
        marks: Marks,
        beside: Sequence[Callable[[], object]] = (),
        merges: Sequence[NewSnapshot] = (),
    ) -> View:
        """
        Sends all snapshots as one guarded commit; the marks name the last of them.

        When a file of the merges cannot be written, the others are committed without them.
        """
        snapshots: list[Snapshot] = []
        for new in (*planned, *merges):
            snapshots.append(self._snapshot(view, attempt, new, snapshots))
        last = [*planned, *merges][-1]
        moved = replace(marks, snapshot=last.id)
        prepared = catalogs.prepare(view.table, guards(view), updates(view, snapshots, moved))
        needed = [*beside, *(write for new in planned for write in new.unsent.writes), *prepared.writes]
        if not self._send(view, needed, [write for new in merges for write in new.unsent.writes]):
            return self._commit(view, attempt, planned, marks)
        if self.clock() - attempt.started > ATTEMPT_AGE:
            raise CommitConflict(f"{self.identifier}: the attempt took longer than {ATTEMPT_AGE}, it is built anew")
        response = prepared.swap()
        table = Table(view.table.name(), response.metadata, response.metadata_location, view.table.io, self.catalog)
        return View(table, moved, tuple(last.manifests))

    def _send(self, view: View, needed: Sequence[Callable[[], object]], spare: Sequence[Callable[[], None]]) -> bool:
        """
        Does all of this at once, and returns when none of it is under way: whether what is `spare` was done too.

        Raises the first error of what is `needed`.
        """
        failed: list[Exception] = []
        together([*needed, *(partial(_note, write, failed) for write in spare)], self.metadata_store(view).at_once)
        if failed:
            self._leave_unmerged(view, [], failed[0])
        return not failed

    def _snapshot(self, view: View, attempt: Attempt, new: NewSnapshot, before: Sequence[Snapshot]) -> Snapshot:
        """The snapshot behind those `before` it in its commit; its manifest list is added to what it must send."""
        parent, number = before[-1] if before else view.head, len(before)
        parent_id = parent.snapshot_id if parent else None
        last = before[-1].sequence_number if before else view.metadata.last_sequence_number
        sequence, key = new.sequence or (last or 0) + 1, f"snap-{new.id}-1-{attempt.tag}.avro"
        return Snapshot(
            snapshot_id=new.id,
            parent_snapshot_id=parent_id,
            sequence_number=sequence,
            timestamp_ms=attempt.timestamp_ms + number,
            manifest_list=self.writer.write_list(new.unsent, key, new.manifests, new.id, parent_id, sequence),
            summary=summary.summary(new.operation, new.counts, new.manifests, parent),
            schema_id=view.metadata.current_schema_id,
        )


def _removed_counts(deletes: Sequence[ManifestDelete]) -> dict[str, str]:
    """The counts of data files and of delete files that go."""
    files: dict[bool, list[EntrySummary]] = {False: [], True: []}
    for item in deletes:
        files[item.manifest.content == ManifestContent.DATA] += item.dropped
    return summary.total(summary.removed_counts(files[True]), summary.removed_delete_counts(files[False]))


def _note(write: Callable[[], None], failed: list[Exception]) -> None:
    try:
        write()
    except Exception as error:  # noqa: BLE001 - a merge can wait, whatever it is
        failed.append(error)


def _with_live_files(manifests: Sequence[ListedManifest]) -> list[ListedManifest]:
    """
    Without manifests whose entries are all DELETED: the snapshot that wrote them lists them for expiry.
    """
    return [item for item in manifests if item.live_files]


def _check_added(written: Sequence[ListedManifest], stated: int) -> None:
    if sum(manifest.added_files_count for manifest in written) != stated:
        raise AssertionError("the summary does not count what the manifests hold")
