"""
The ledger: the table as the bookkeeper commits to it. One load, one guarded commit, nothing retried.

Every commit adds its snapshots and sets the marks together. It is guarded by the table's uuid and by `main` still
being the snapshot those marks were read with. So a commit does both or neither, and an attempt that is applied late
is refused by its own guard once another commit moved `main`. What a crash leaves, `commit` says.
"""

import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from functools import cache

from pyiceberg.catalog import Catalog
from pyiceberg.manifest import ManifestContent
from pyiceberg.table.snapshots import Operation

from bookkeeper.catalogs import commit as catalogs
from bookkeeper.catalogs.handed_out import stores_of
from bookkeeper.contract.marks import Marks
from bookkeeper.contract.rewrite import Rewrite, file_key
from bookkeeper.contract.txlog import Txlog
from bookkeeper.format.entries import DataFile, Entry
from bookkeeper.format.manifest_list import ListedManifest
from bookkeeper.ledger import summary
from bookkeeper.ledger.build_commit import CommitAttempt, Stamp
from bookkeeper.ledger.commit_clock import CommitClock
from bookkeeper.ledger.dangling import dangling, least_number, listed_no_more
from bookkeeper.ledger.fold_plan import grouped_positions
from bookkeeper.ledger.merge import Merges
from bookkeeper.ledger.numbers import has_data, has_deletes, numbered
from bookkeeper.ledger.rewrite_groups import grouped_rewrites
from bookkeeper.ledger.txlog_groups import TxlogGroup, grouped_by_spec, numbered_data, numbered_deletes
from bookkeeper.ledger.view import View
from bookkeeper.ledger.view import view as checked_view
from bookkeeper.manifests.blocks import ManifestDelete
from bookkeeper.manifests.header import Header, ManifestWriter
from bookkeeper.manifests.reader import Manifests, with_live_files
from bookkeeper.manifests.stats import StatsCache, range_of
from bookkeeper.manifests.walk import live_rows
from bookkeeper.stores.store import Store


class Ledger:
    """
    Loads one table and commits to it; `store` overrides where metadata files are written (tests).

    A program that commits passes a CommitClock; any other clock is not compared with the storage's.
    """

    def __init__(
        self,
        catalog: Catalog,
        identifier: str,
        clock: Callable[[], datetime],
        store: Callable[[str], Store] | None = None,
    ) -> None:
        self.catalog = catalog
        self.identifier = identifier
        self.clock = clock if isinstance(clock, CommitClock) else CommitClock(clock)
        self.open_store = store or stores_of(catalog, identifier)
        #: of the column that retention asked for last, see `use_column`
        self.cache = StatsCache()
        self.writer = ManifestWriter()
        self.merges = Merges()

    def load(self, folder: str, accept_rollback: bool = False) -> View:
        """
        The table now, for the folder with this id.

        Raises CatalogUnavailable, or Halt when its marks cannot be trusted.
        """
        table = catalogs.load_table(self.catalog, self.identifier, for_commit=True)
        return checked_view(table, folder, accept_rollback)

    def commit(self, view: View) -> CommitAttempt:
        """A new attempt to commit, on the head as it was loaded; raises ClockBehind, ClockAhead."""
        began = self.clock.check_behind(view)
        stamp = Stamp(began, self.clock.snapshot_ms(view, began), str(uuid.uuid4()))
        return self._commit(view, stamp, self.manifests(view))

    def _commit(self, view: View, stamp: Stamp, head: Sequence[ListedManifest]) -> CommitAttempt:
        return CommitAttempt(view, head, stamp, self.writer, self.metadata_store(view), self.catalog, self.clock)

    def append(
        self,
        view: View,
        txlogs: Sequence[Txlog],
        marks: Marks,
        beside: Sequence[Callable[[], object]] = (),
    ) -> View:
        """
        ONE fast append of all txlogs, together with their marks; small manifests are merged in the same commit.

        Where a txlog has delete files, a `delete` snapshot adds them before the `append`. Both are in the one commit,
        so a crash leaves both or neither; never one `overwrite`, at which streams stop. With delete files and no data
        file it is the `delete` snapshot alone: streams pass over it as over retention's. Txlogs without any file have
        offsets alone: where the batch has no other, it is an empty `replace` snapshot, never an empty append.

        `beside` is done at once with the writes, and the commit waits for it too: what it raises ends the attempt.
        Raises Retry; then the outcome is unknown: load again, read the marks, build a new attempt.
        """
        commit = self.commit(view)
        self._add_txlogs(commit, txlogs)
        self.merges.add_to(commit, self.cache)
        return commit.send(marks, beside)

    def rehearse(self, view: View, txlogs: Sequence[Txlog]) -> None:
        """
        What an append does with these txlogs before it sends anything; raises what they make it raise.
        """
        commit = self._commit(view, Stamp(self.clock(), 0, "rehearsal"), [])
        self._add_txlogs(commit, txlogs)
        commit.rehearse()

    def _add_txlogs(self, commit: CommitAttempt, txlogs: Sequence[Txlog]) -> None:
        """The snapshots that add the files of txlogs, in their order."""
        if has_deletes(txlogs):
            self._add_upserts(commit, txlogs)
            return
        about, new = summary.txlog_names([txlog.name for txlog in txlogs]), commit.snapshot()
        with_rows = [group for group in grouped_by_spec(txlogs) if has_data(group.txlogs)]
        if not with_rows:
            new.label(Operation.REPLACE, about | summary.reason("offsets"))
            return
        rows = [row for group in with_rows for txlog in group.txlogs for row in txlog.rows]
        written = new.add(with_rows, summary.append_counts(rows))
        new.label(Operation.APPEND, about)
        for group, manifest in zip(with_rows, written, strict=True):
            self._remember(group, manifest)

    def _remember(self, group: TxlogGroup, manifest: ListedManifest) -> None:
        """Its range, where the txlogs were decoded for retention's column: retention need not read it."""
        column = self.cache.column
        if column is not None and all(txlog.body.column == column for txlog in group.txlogs):
            rows = live_rows([row for txlog in group.txlogs for row in txlog.rows], manifest)
            covered = range_of((row.upper, sequence) for _, row, sequence in rows)
            self.cache.put_manifest(manifest.manifest_path, covered)

    def _add_upserts(self, commit: CommitAttempt, txlogs: Sequence[Txlog]) -> None:
        """A `delete` snapshot with the delete files, then an `append` with the data files, if there are any."""
        about, last = summary.txlog_names([txlog.name for txlog in txlogs]), commit.view.metadata.last_sequence_number
        numbers = numbered(last, txlogs)
        delete, deletes = commit.snapshot(numbers.delete), numbered_deletes(txlogs, numbers.first)
        counts = summary.added_delete_counts([row for group in deletes for row in group.rows])
        delete.add(deletes, counts, "d", ManifestContent.DELETES)
        if has_data(txlogs):
            append = commit.snapshot(numbers.append)
            counts = summary.append_counts([row for txlog in txlogs for row in txlog.rows])
            append.add(numbered_data(txlogs, numbers.first), counts)
            append.label(Operation.APPEND, about)
            about = summary.half_of(append.id)
        delete.label(Operation.DELETE, about | summary.numbers_taken(numbers.delete - last))

    def drop(self, view: View, deletes: Sequence[ManifestDelete]) -> View:
        """
        A `delete` snapshot without the deleted files; each leaves a DELETED entry for the job that expires snapshots.

        Delete files that then apply to nothing go with them.

        Raises Retry like `append`.
        """
        commit = self.commit(view)
        new = commit.snapshot()
        new.without([*deletes, *self._dangling(view, deletes)])
        new.label(Operation.DELETE, summary.reason("retention"))
        return commit.send(view.marks)

    def _dangling(self, view: View, drops: Sequence[ManifestDelete]) -> Iterator[ManifestDelete]:
        """What the manifests of delete files lose when these data files go."""
        manifests, going = self.manifests(view), Counter(file_key(row.path) for item in drops for row in item.dropped)
        least = least_number(manifests, drops)
        gone = cache(lambda: listed_no_more(self.reader(view), manifests, going))  # most tables never need it

        def is_gone(key: str) -> bool:
            return key in going and key in gone()

        for manifest, data in self.reader(view).contents(with_live_files(manifests, ManifestContent.DELETES)):
            header = self.header_for(view, manifest)
            if header is not None and (found := dangling(data, manifest, header, least, is_gone)) is not None:
                yield found

    def rewrite(self, view: View, rewrites: Sequence[Rewrite], deletes: Sequence[ManifestDelete]) -> View:
        """
        A `replace` snapshot with the new files of checked rewrites, and without the files they replace: `deletes`.

        Streams pass over it. A crash before the commit leaves manifests that no snapshot names, for the orphan sweep;
        a crash after it leaves the rewrites, which are recognised by the new files. Raises Retry like `append`.
        """
        commit = self.commit(view)
        new = commit.snapshot()
        new.without(deletes)
        if int(new.counts["deleted-data-files"]) != sum(len(rewrite.replaced) for rewrite in rewrites):
            raise AssertionError("the manifests do not lose what the rewrites replace")
        counts = summary.append_counts([row for rewrite in rewrites for row in rewrite.added])
        new.add(grouped_rewrites(rewrites), counts, "a")
        new.label(Operation.REPLACE, summary.rewrite_ids(rewrite.id for rewrite in rewrites))
        return commit.send(view.marks)

    def fold(
        self, view: View, removed: Sequence[ManifestDelete], added: Sequence[tuple[int, Entry]], why: str = "fold"
    ) -> View:
        """
        A `delete` snapshot with new position delete files, each with its spec's id, and without `removed` files.

        Only `fold_commit` may ask for it, which checks what goes, and says why it is a `delete`. Raises Retry like
        `append`.
        """
        commit = self.commit(view)
        new = commit.snapshot()
        new.without(removed)
        counts = summary.added_position_deletes([entry for _, entry in added])
        new.add(grouped_positions(view, added), counts, "p", ManifestContent.DELETES)
        new.label(Operation.DELETE, summary.reason(why))
        return commit.send(view.marks)

    def record(self, view: View, marks: Marks, why: str) -> View:
        """
        Changes marks only, with an empty `replace` snapshot, which streams pass over. Raises Retry like `append`.
        """
        commit = self.commit(view)
        new = commit.snapshot()
        new.manifests = commit.head
        new.label(Operation.REPLACE, summary.reason(why))
        return commit.send(marks)

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
        return view.reader(self.metadata_store(view))

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
