"""
One commit while it is built: snapshots, each on the one before it, then one guarded call that adds all of them.

What a commit writes first (manifests, manifest lists, with SQL catalogs metadata.json) is sent at once: their names,
sizes and contents are known before. Only the compare-and-swap at the end makes any of it part of the table, and it
waits until all of it is durable. So a crash may leave any subset of these files: no snapshot names them, no other
attempt uses their names (each has a random UUID), and the orphan sweep deletes them. The same holds for a put that
arrives after its attempt was given up.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Protocol

from pyiceberg.catalog import Catalog
from pyiceberg.manifest import ManifestContent
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation, Snapshot

from bookkeeper.catalogs import commit as catalogs
from bookkeeper.contract.marks import Marks
from bookkeeper.errors import CommitConflict
from bookkeeper.format.manifest_list import ListedManifest
from bookkeeper.format.records import Records
from bookkeeper.format.skim import EntrySummary
from bookkeeper.ledger import summary
from bookkeeper.ledger.commit_request import commit_guards, new_snapshot_id, updates
from bookkeeper.ledger.view import View
from bookkeeper.manifests.blocks import ManifestBody, ManifestDelete, assemble, copy_entries
from bookkeeper.manifests.header import Header, ManifestWriter, PartitionKey
from bookkeeper.manifests.stats import StatsCache
from bookkeeper.stores.store import Store
from bookkeeper.stores.together import together
from bookkeeper.stores.unsent import Unsent

log = logging.getLogger("bookkeeper")

ATTEMPT_AGE = timedelta(minutes=10)


class NotConfirmed(Exception):
    """Raised by what is done beside a commit's writes: the commit must not be made, and nothing was committed."""


class FileGroup(Protocol):
    """Files that are new in the table, written with one schema and one partition spec: one manifest."""

    @property
    def schema_id(self) -> int:
        """The schema they were written with."""

    @property
    def spec_id(self) -> int:
        """The partition spec they were written with."""

    def records(self, header: Header) -> Records:
        """Their records, for a manifest with this header."""


@dataclass(frozen=True, slots=True)
class Stamp:
    """Of one commit: when it was begun, the time of its snapshots, and a tag that makes its files' names unique."""

    begun: datetime
    timestamp_ms: int
    tag: str


class NewSnapshot:
    """
    A snapshot while it is built: the manifests it lists, its part of the summary, and what must be durable before it
    may be committed.
    """

    def __init__(self, commit: "CommitAttempt", sequence: int, manifests: Sequence[ListedManifest]) -> None:
        self.view, self.writer, self.tag = commit.view, commit.writer, commit.stamp.tag
        self.sequence, self.manifests = sequence, manifests
        self.id: int = new_snapshot_id([new.id for new in commit.snapshots])
        sent = {key: data for new in commit.snapshots for key, data in new.unsent.objects.items()}
        self.unsent: Unsent = Unsent(commit.store, sent)
        self.operation, self.about = Operation.REPLACE, dict[str, str]()
        self.files, self.partitions = dict[str, str](), set[PartitionKey]()

    def add(
        self,
        groups: Sequence[FileGroup],
        counts: Mapping[str, str],
        name: str = "m",
        content: ManifestContent = ManifestContent.DATA,
    ) -> list[ListedManifest]:
        """A manifest of added files for each group, in this order; `counts` is what the summary says of all of them."""
        written = list[ListedManifest]()
        for index, group in enumerate(groups):
            header = self.writer.header(self.view.schemas[group.schema_id], self.view.specs[group.spec_id], content)
            records = group.records(header)
            written.append(self._write(f"{name}{index}", header, records))
            self.partitions |= header.partition_keys(records.partitions)
        stated = "added-data-files" if content == ManifestContent.DATA else "added-delete-files"
        _check_added(written, int(counts.get(stated, 0)))
        self.manifests = [*written, *self.manifests]
        self.files |= counts
        return written

    def without(self, deletes: Sequence[ManifestDelete]) -> None:
        """Takes files out; each leaves a DELETED entry for the job that expires snapshots."""
        written = list[ListedManifest]()
        for index, item in enumerate(deletes):
            self.partitions |= item.header.partition_keys(entry.partition for entry in item.dropped)
            cache = item.source.cache
            body = assemble(copy_entries(item.source, item.header, item.deleted, self.id), item.header, cache)
            written.append(self.write(f"m{index}", item.header, body, cache))
        self.put(written, {item.manifest.manifest_path for item in deletes})
        self.files |= _removed_counts(deletes)

    def write(self, name: str, header: Header, body: ManifestBody, cache: StatsCache) -> ListedManifest:
        """A manifest of entries that are carried on; `cache` knows what is in it from now on."""
        written = self._write(name, header, body.records)
        cache.put_manifest(written.manifest_path, body.range, body.digests)
        return written

    def put(self, written: Sequence[ListedManifest], replaced: set[str]) -> None:
        """Lists these manifests in the place of those at the locations `replaced`."""
        kept = [manifest for manifest in self.manifests if manifest.manifest_path not in replaced]
        self.manifests = [*written, *kept]

    def label(self, operation: Operation, about: Mapping[str, str]) -> None:
        """What the snapshot does, and what its summary says beside the counts of files."""
        self.operation, self.about = operation, dict(about)

    @property
    def counts(self) -> dict[str, str]:
        """Its part of the summary."""
        touched = summary.partition_count(self.partitions) if self.files else {}
        return self.files | touched | self.about

    def after(self, parent: Snapshot | None, timestamp_ms: int) -> Snapshot:
        """The snapshot as the child of `parent`; its manifest list is added to what must be durable."""
        parent_id, key = parent.snapshot_id if parent else None, f"snap-{self.id}-1-{self.tag}.avro"
        return Snapshot(
            snapshot_id=self.id,
            parent_snapshot_id=parent_id,
            sequence_number=self.sequence,
            timestamp_ms=timestamp_ms,
            manifest_list=self.writer.write_list(self.unsent, key, self.manifests, self.id, parent_id, self.sequence),
            summary=summary.summary(self.operation, self.counts, self.manifests, parent),
            schema_id=self.view.metadata.current_schema_id,
        )

    def _write(self, name: str, header: Header, records: Records) -> ListedManifest:
        return self.writer.write(self.unsent, f"{self.tag}-{name}.avro", header, records, self.id, self.sequence)


class CommitAttempt:
    """One attempt to commit on the head of `view`, whose manifests are `head`. Nothing is sent before `send`."""

    def __init__(
        self,
        view: View,
        head: Sequence[ListedManifest],
        stamp: Stamp,
        writer: ManifestWriter,
        store: Store,
        catalog: Catalog,
        clock: Callable[[], datetime],
    ) -> None:
        self.view, self.head, self.stamp, self.writer, self.store = view, head, stamp, writer, store
        self.catalog, self.clock = catalog, clock
        self.snapshots: list[NewSnapshot] = []
        #: behind the others, and left out when one of its files cannot be written
        self.spare: list[NewSnapshot] = []

    def snapshot(self, sequence: int | None = None) -> NewSnapshot:
        """The next snapshot, which lists what the one before it lists; `sequence`: not the number behind that one's."""
        self.snapshots.append(self.following(sequence))
        return self.snapshots[-1]

    def following(self, sequence: int | None = None) -> NewSnapshot:
        """The next snapshot, which is not added to the commit yet."""
        if self.snapshots:
            before, manifests = self.snapshots[-1].sequence, self.snapshots[-1].manifests
        else:
            before, manifests = self.view.metadata.last_sequence_number, _with_live_files(self.head)
        return NewSnapshot(self, sequence or before + 1, manifests)

    def send(self, marks: Marks, beside: Sequence[Callable[[], object]] = ()) -> View:
        """
        The table after ONE guarded commit of all snapshots, with these marks, which name the last of them.

        `beside` is done at once with the writes, and the commit waits for it too: what it raises ends the attempt.
        Raises Retry; then the outcome is unknown: load again, read the marks, build a new attempt.
        """
        planned, made = [*self.snapshots, *self.spare], list[Snapshot]()
        for number, new in enumerate(planned):
            parent = made[-1] if made else self.view.head
            made.append(new.after(parent, self.stamp.timestamp_ms + number))
        moved = replace(marks, snapshot=planned[-1].id)
        prepared = catalogs.prepare(self.view.table, commit_guards(self.view), updates(self.view, made, moved))
        needed = [*beside, *(write for new in self.snapshots for write in new.unsent.writes), *prepared.writes]
        failed = self._write(needed, [write for new in self.spare for write in new.unsent.writes])
        if failed:
            self.leave_unmerged(failed[0])
            self.spare = []
            return self.send(marks)
        if self.clock() - self.stamp.begun > ATTEMPT_AGE:
            raise CommitConflict(f"{self.view.name}: the attempt took longer than {ATTEMPT_AGE}, it is built anew")
        response = prepared.swap()
        before = self.view.table
        table = Table(before.name(), response.metadata, response.metadata_location, before.io, self.catalog)
        return View(table, moved, tuple(planned[-1].manifests))

    def _write(
        self, needed: Sequence[Callable[[], object]], spare: Sequence[Callable[[], None]]
    ) -> Sequence[Exception]:
        """
        Does all of this at once, and returns when none of it is under way: why what is `spare` was not done.

        Raises the first error of what is `needed`.
        """
        failed: list[Exception] = []
        together([*needed, *(partial(_note, write, failed) for write in spare)], self.store.at_once)
        return failed

    def leave_unmerged(self, error: Exception, manifests: Sequence[str] = ()) -> None:
        """Logs why manifests stay as they are."""
        about = {"action": "merge", "table": self.view.name, "cause": str(error) or repr(error)}
        log.warning("manifests left unmerged", extra={**about, "manifests": [*manifests]})

    def rehearse(self) -> None:
        """What `send` does before it sends anything; raises what that raises, and keeps nothing."""
        for new in self.snapshots:
            self.writer.rehearse(new.manifests)
            summary.summary(new.operation, new.counts, new.manifests, self.view.head)


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
