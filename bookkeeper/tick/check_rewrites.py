"""
Which rewrites the head of the table can take (docs/maintain/rewrite-format.md, "What is rejected"); changes nothing.

Checked in the attempt itself, against the view that its commit is guarded by. Each rule prevents a loss:

1. The table, its spec and its schema are known, and the table takes the new files.
2. Every file that is replaced is live, once, as the rewrite says: else rows would be in the table twice, or come back.
3. Every delete file that applies to a replaced file and would not apply to the new one was applied: else deleted rows
   would come back. What was applied is live and applies: else rows would be lost that are not deleted.
4. The rows are as many as before, or fewer where a delete was applied.
5. Of two rewrites that replace one file the first is taken.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial

from bookkeeper.contract.delete_scope import DeleteFile, Scope, scopes_of
from bookkeeper.contract.rewrite import FileVersion, Rewrite, comparable, file_key
from bookkeeper.errors import (
    DeletesNotApplied,
    ManifestCorrupt,
    Missing,
    PathRefused,
    Reject,
    ReplacedFilesChanged,
    RewriteOverlaps,
    RewriteRejected,
    RewriteUnfit,
    StorageUnavailable,
    Unfit,
)
from bookkeeper.format.entries import EQUALITY_DELETES
from bookkeeper.format.skim import EntrySummary
from bookkeeper.history.main_history import ancestors, is_ancestor
from bookkeeper.ledger.ledger import Ledger
from bookkeeper.ledger.live_files import find_live, live_delete_files
from bookkeeper.ledger.summary import rewrites_of
from bookkeeper.ledger.view import View
from bookkeeper.manifests.blocks import ManifestDelete
from bookkeeper.manifests.header import Header, PartitionKey
from bookkeeper.manifests.walk import Heads
from bookkeeper.stores.locations import normal_file
from bookkeeper.stores.store import Store, key_in
from bookkeeper.stores.together import together
from bookkeeper.tick.check_txlog import Rules, check_added, rules_of
from bookkeeper.tick.intake import file_error

#: of one commit: their ids are in its summary
MOST_REWRITES = 100
#: of a partition's floats
Signs = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CheckedRewrites:
    """What can be committed, with the manifests that lose files by it; what is in the table; and what is rejected."""

    good: Sequence[Rewrite] = ()
    deletes: Sequence[ManifestDelete] = ()
    #: ids
    in_table: Sequence[str] = ()
    rejected: Mapping[str, RewriteRejected] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _LiveFile:
    version: FileVersion
    spec_id: int
    header: Header
    row: EntrySummary


def check_rewrites(ledger: Ledger, view: View, rewrites: Sequence[Rewrite]) -> CheckedRewrites:
    """
    Checks up to MOST_REWRITES rewrites, in this order, against the head of the table.

    Raises Retry, also when a manifest of the table does not decode.
    """
    given, rejected, in_table = rewrites[:MOST_REWRITES], dict[str, RewriteRejected](), list[str]()
    with _manifests_decode():
        found = _find(ledger, view, given)
    head = _Head(ledger, view, rules_of(view), _by_key(found))
    good, taken = list[Rewrite](), set[str]()
    for rewrite in given:
        try:
            if head.has(rewrite):
                in_table.append(rewrite.id)
                continue
            if not taken.isdisjoint(rewrite.replaced):
                raise RewriteOverlaps("an earlier rewrite of this commit replaces the same file")
            head.check(rewrite)
        except RewriteRejected as error:
            rejected[rewrite.id] = error
        else:
            good.append(rewrite)
            taken |= rewrite.replaced.keys()
    return CheckedRewrites(good, _only(found, taken), in_table, rejected)


@contextmanager
def _manifests_decode() -> Iterator[None]:
    """A manifest of the table that does not decode is no fault of a rewrite."""
    try:
        yield
    except (ManifestCorrupt, PathRefused) as error:
        raise StorageUnavailable(f"a manifest of the table cannot be read: {error}") from error


def _find(ledger: Ledger, view: View, rewrites: Sequence[Rewrite]) -> list[ManifestDelete]:
    """
    Every live file that the rewrites name, new or replaced, with a sequence number that a replaced one has, or one that
    a compactor did not know: add_files may have added a replaced file again since, and expiry would delete it.
    """
    numbers, named = set[int](), set[str]()
    for rewrite in rewrites:
        numbers |= {version.sequence_number for version in rewrite.replaced.values()}
        named |= rewrite.replaced.keys()
        named |= {file_key(row.path) for row in rewrite.added}
    since = min((rewrite.base.sequence_number for rewrite in rewrites), default=view.metadata.last_sequence_number)
    return find_live(ledger, view, numbers, since, named)


def _by_key(found: Iterable[ManifestDelete]) -> dict[str, list[_LiveFile]]:
    live: dict[str, list[_LiveFile]] = {}
    for item in found:
        heads = Heads(item.manifest)
        for row in item.dropped:
            prefix = heads.of(row)
            version = FileVersion(prefix.sequence or 0, prefix.file_sequence or 0)
            file = _LiveFile(version, item.manifest.partition_spec_id, item.header, row)
            live.setdefault(file_key(row.path), []).append(file)
    return live


def _only(found: Iterable[ManifestDelete], keys: Collection[str]) -> list[ManifestDelete]:
    """The manifests that lose these files, and nothing else of what was found."""
    kept = []
    for item in found:
        blocks = [{at: row for at, row in block.items() if file_key(row.path) in keys} for block in item.deleted]
        if any(blocks):
            kept.append(replace(item, deleted=blocks))
    return kept


class _Head:
    """The head of the table, as rewrites are checked against it."""

    def __init__(self, ledger: Ledger, view: View, rules: Rules, live: Mapping[str, list[_LiveFile]]) -> None:
        self.ledger, self.view, self.rules, self.live = ledger, view, rules, live
        self._deletes: list[DeleteFile] | None = None
        self._committed: frozenset[str] | None = None

    @property
    def deletes(self) -> list[DeleteFile]:
        """The live delete files of the table, read when first asked for."""
        if self._deletes is None:
            with _manifests_decode():
                self._deletes = live_delete_files(self.ledger, self.view)
        return self._deletes

    @property
    def committed(self) -> frozenset[str]:
        """The ids of the rewrites that kept snapshots of `main` name."""
        if self._committed is None:
            line = ancestors(self.view.metadata)
            self._committed = frozenset(name for snapshot in line for name in rewrites_of(snapshot))
        return self._committed

    def has(self, rewrite: Rewrite) -> bool:
        """
        Whether the rewrite is in: one of its new files is live, or a summary names it though a replaced file is gone.

        A rewrite that was committed and is seen again looks like one whose replaced files are gone.
        """
        if any(file_key(row.path) in self.live for row in rewrite.added):
            return True
        return not rewrite.replaced.keys() <= self.live.keys() and rewrite.id in self.committed

    def check(self, rewrite: Rewrite) -> None:
        """Raises the first RewriteRejected that applies."""
        self._check_fit(rewrite)
        header = self.ledger.writer.header(self.view.schemas[rewrite.schema_id], self.view.specs[rewrite.spec_id])
        partition = _partition_key(header, rewrite.partition_values)
        files = self._replaced_files(rewrite, partition)
        self._check_deletes(rewrite, partition[0])
        before = sum(file.row.record_count for file in files)
        after = sum(row.record_count for row in rewrite.added)
        if after > before or (after < before and not rewrite.applied_deletes):
            raise RewriteUnfit(f"its new files have {after} rows, those they replace {before}")

    def _check_fit(self, rewrite: Rewrite) -> None:
        base, metadata = rewrite.base, self.view.metadata
        if base.table_uuid != self.rules.table_uuid:
            raise RewriteUnfit(f"it is for table {base.table_uuid[:60]}, this one is {self.rules.table_uuid}")
        if not self.rules.knows(rewrite):
            raise RewriteUnfit(f"schema {rewrite.schema_id} or partition spec {rewrite.spec_id} is unknown")
        kept = metadata.snapshot_by_id(base.snapshot_id)
        stated = base.sequence_number if kept is None else kept.sequence_number
        if base.sequence_number > metadata.last_sequence_number or base.sequence_number != stated:
            raise RewriteUnfit(f"snapshot {base.snapshot_id} has not the sequence number {base.sequence_number}")
        if kept is not None and not is_ancestor(metadata, base.snapshot_id):
            raise RewriteUnfit(f"snapshot {base.snapshot_id}, which it read, is neither main nor an ancestor of it")
        try:
            paths = [(index, normal_file(rewrite.body.rows[index].path)) for index in rewrite.added_indexes]
            check_added(rewrite, paths, self.rules)
        except Reject as error:
            raise RewriteUnfit(str(error)) from error

    def _replaced_files(self, rewrite: Rewrite, partition: tuple[PartitionKey, Signs]) -> list[_LiveFile]:
        files = list[_LiveFile]()
        for key, version in rewrite.replaced.items():
            live = self.live.get(key, [])
            if len(live) != 1:
                raise ReplacedFilesChanged(f"{key[:300]} is live {len(live)} times with a sequence number it may have")
            (file,) = live
            if file.version != version:
                raise ReplacedFilesChanged(f"{key[:300]} has the sequence numbers {file.version}, not {version}")
            if file.spec_id != rewrite.spec_id or _partition_key(file.header, file.row.partition) != partition:
                raise ReplacedFilesChanged(f"{key[:300]} lies in another partition or spec")
            files.append(file)
        return files

    def _check_deletes(self, rewrite: Rewrite, partition: PartitionKey) -> None:
        if not self.deletes and not rewrite.applied_deletes:
            return  # as in most queues
        least = _least_numbers(rewrite, partition)
        applicable = {
            item.key: item for item in self.deletes if item.scope in least and least[item.scope] <= item.largest_number
        }
        for key, item in applicable.items():
            # An equality delete with a larger number than the new files' applies to them as well.
            outlived = item.content == EQUALITY_DELETES and rewrite.sequence_number <= item.largest_number
            if key not in rewrite.applied_deletes and not outlived:
                raise DeletesNotApplied(f"the delete file {key[:300]} applies to a replaced file and was not applied")
        if strange := rewrite.applied_deletes - applicable.keys():
            raise DeletesNotApplied(f"the delete file {min(strange)[:300]} was applied, and applies to no file of it")


def _partition_key(header: Header, values: tuple[object, ...]) -> tuple[PartitionKey, Signs]:
    # 0.0 and -0.0 are two partitions of Iceberg's, and equal to Python.
    signs = tuple(comparable(value) for value in values if isinstance(value, float))
    (key,) = header.partition_keys([values])
    return key, signs


def _least_numbers(rewrite: Rewrite, partition: PartitionKey) -> dict[Scope, int]:
    """The smallest sequence number of the replaced files, by the scopes that they lie in."""
    least = dict[Scope, int]()
    for key, version in rewrite.replaced.items():
        for scope in scopes_of(key, rewrite.spec_id, partition):
            least[scope] = min(version.sequence_number, least.get(scope, version.sequence_number))
    return least


def check_new_files(
    rewrites: Iterable[Rewrite], open_store: Callable[[], Store], written_after: datetime
) -> dict[str, RewriteRejected | StorageUnavailable]:
    """
    What is wrong with the new files as the storage has them, by rewrite: missing, of another size or format, or
    written before a time of the storage's clock. An old file may be in the orphan sweep's hands already.
    """
    rewrites, found = list(rewrites), dict[str, RewriteRejected | StorageUnavailable]()
    if not rewrites:
        return found

    def check(rewrite: Rewrite, store: Store) -> None:
        try:
            _check_stored(rewrite, store, written_after)
        except (RewriteRejected, StorageUnavailable) as error:
            found[rewrite.id] = error
        except PathRefused as error:
            found[rewrite.id] = RewriteUnfit(str(error))

    try:
        store = open_store()
    except StorageUnavailable as error:
        return {rewrite.id: error for rewrite in rewrites}
    except PathRefused as error:
        return {rewrite.id: RewriteUnfit(str(error)) for rewrite in rewrites}
    together([partial(check, rewrite, store) for rewrite in rewrites], store.at_once)
    return found


def _check_stored(rewrite: Rewrite, store: Store, written_after: datetime) -> None:
    keys = {row.path: key_in(store, normal_file(row.path)) for row in rewrite.added}
    heads = store.heads([*keys.values()])
    for row in rewrite.added:
        head = heads[keys[row.path]]
        if isinstance(head, StorageUnavailable):
            raise head
        if (error := file_error(row, head, "the rewrite")) is not None:
            raise RewriteUnfit(str(error))

    def check_age(path: str) -> None:
        try:
            modified = store.modified(keys[path])
        except (Missing, Unfit) as error:
            raise RewriteUnfit(f"{path[:300]} does not exist any more") from error
        if modified < written_after:
            raise RewriteUnfit(f"{path[:300]} was written too long ago: it may be swept as an orphan")

    together([partial(check_age, path) for path in keys], store.at_once)
