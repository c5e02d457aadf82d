"""
The protocol broken on purpose, rule by rule: what the tests of the tests put in place of the real parts.
"""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.manifest import DataFile as IcebergDataFile
from pyiceberg.manifest import DataFileContent, FileFormat
from pyiceberg.table.update import SetPropertiesUpdate
from pyiceberg.typedef import Record

from bookkeeper.catalogs import open as catalogs
from bookkeeper.core import marks as marks_format
from bookkeeper.core import pending_rewrites
from bookkeeper.core.folder import PENDING, REJECTED, Folder
from bookkeeper.core.marks import Mark, Marks
from bookkeeper.core.names import TxlogName
from bookkeeper.core.rewrite import REWRITES
from bookkeeper.errors import BookkeeperError, CommitConflict, CommitUnknown, Missing
from bookkeeper.format.entries import DataFile
from bookkeeper.ledger.ledger import Ledger
from bookkeeper.ledger.txlog_groups import TxlogGroup
from bookkeeper.ledger.view import View
from bookkeeper.stores.store import Store
from bookkeeper.tick.tick import Bookkeeper
from reaper.context import ReaperContext
from reaper.expiry.journal import Journal
from reaper.expiry.verify_journal import Verdict
from writers.files.unpublished import UnpublishedFiles


class StockLedger(Ledger):
    """Commits as pyiceberg's documentation says, with pyiceberg's own retry."""

    def append(
        self, seen: View, shares: Sequence[TxlogGroup], marks: Marks, names: Sequence[TxlogName], *beside: Any
    ) -> View:
        transaction = seen.table.transaction()
        # The snapshot's id is not known yet, so these marks name none.
        carried = replace(marks, snapshot=None)
        transaction.set_properties({marks_format.PROPERTY: marks_format.dumps(carried)})
        with transaction.update_snapshot().fast_append() as append:
            for txlog in (txlog for share in shares for txlog in share.txlogs):
                for file in txlog.files:
                    append.append_data_file(_as_pyiceberg(file, txlog.spec_id))
        try:
            return View(transaction.commit_transaction(), carried)
        except CommitFailedException as exc:
            raise CommitConflict(str(exc)) from exc
        except Exception as exc:
            raise CommitUnknown(str(exc)) from exc


def _as_pyiceberg(file: DataFile, spec_id: int) -> IcebergDataFile:
    made = IcebergDataFile.from_args(
        content=DataFileContent.DATA,
        file_path=file.path,
        file_format=FileFormat.PARQUET,
        partition=Record(*file.partition),
        record_count=file.record_count,
        file_size_in_bytes=file.size_bytes,
    )
    made.spec_id = spec_id
    return made


class DeafLedger(Ledger):
    """After an unknown outcome it goes on with the marks it knew, on whatever head there is now."""

    known: Marks | None = None

    def load(self, folder: str, accept_rollback: bool = False) -> View:
        seen = super().load(folder, accept_rollback)
        self.known = self.known or seen.marks
        return View(seen.table, self.known)

    def _commit(self, *given: Any) -> View:
        after = super()._commit(*given)
        self.known = after.marks
        return after


class TrustingLedger(Ledger):
    """Takes an unknown outcome for success."""

    def append(
        self, seen: View, shares: Sequence[TxlogGroup], marks: Marks, names: Sequence[TxlogName], *beside: Any
    ) -> View:
        try:
            return super().append(seen, shares, marks, names, *beside)
        except CommitUnknown:
            return View(seen.table, replace(marks, snapshot=seen.marks.snapshot))


class MarksApart(Ledger):
    """Commits the files first, and the marks that say so in a commit of their own."""

    def append(
        self, seen: View, shares: Sequence[TxlogGroup], marks: Marks, names: Sequence[TxlogName], *beside: Any
    ) -> View:
        after = super().append(seen, shares, seen.marks, names, *beside)
        carried = replace(marks, snapshot=after.marks.snapshot)
        change = SetPropertiesUpdate(updates={marks_format.PROPERTY: marks_format.dumps(carried)})
        catalogs.commit(after.table, (), (change,))
        return View(self.catalog.load_table(self.identifier), carried)


class MarksFirst(Ledger):
    """Commits the marks first, and the files that they speak of in a commit of their own."""

    def append(
        self, seen: View, shares: Sequence[TxlogGroup], marks: Marks, names: Sequence[TxlogName], *beside: Any
    ) -> View:
        change = SetPropertiesUpdate(updates={marks_format.PROPERTY: marks_format.dumps(marks)})
        catalogs.commit(seen.table, (), (change,))
        return super().append(View(self.catalog.load_table(self.identifier), marks), shares, marks, names, *beside)


class SwapFirst(Ledger):
    """Sends what a commit writes, and does not wait for it: it arrives after the compare-and-swap."""

    def _send(self, view: View, needed: Sequence[Callable[[], object]], spare: Sequence[Callable[[], None]]) -> bool:
        self.under_way = [*needed, *spare]
        return True

    def _commit(self, *given: Any) -> View:
        after = super()._commit(*given)
        for task in self.under_way:
            task()
        return after


class HastyBookkeeper(Bookkeeper):
    """Deletes txlogs before they are committed; it dawdles a little in between."""

    pause_seconds = 0.0

    def _commit(self, tick: Any) -> Any:
        self.folder.delete(tick.batch.names)
        time.sleep(self.pause_seconds)
        return super()._commit(tick)


class CarelessFolder(Folder):
    """Takes a bad txlog out of pending/ before it is durable in rejected/."""

    def reject(self, name: TxlogName | str, why: Any, now: Any) -> None:
        data = self.store.read(f"{PENDING}{name}")
        self.store.delete_many([f"{PENDING}{name}"])
        self.store.create(f"{REJECTED}{name}", data)


def holes_forgotten(mark: Mark, name: TxlogName, at_ms: int = 0) -> Mark:
    """
    Whatever was passed over counts as in.
    """
    return Mark(max(mark.last, name.sequence), (), max(at_ms, mark.seen_ms))


def uploaded_late(files: UnpublishedFiles, store: Store, item: Any) -> None:
    """
    A data file counts as durable at once; its bytes follow with the next one.
    """
    for key, data in vars(files).setdefault("late", []):
        store.upload(key, data)
    vars(files)["late"] = [(item.key, item.data)]
    item.stored_at = files._clock()


def any_position(planner: Any, txlog: Any) -> None:
    """
    A txlog is taken wherever in its source it begins.
    """


def new_files_deleted(folder: Folder, name: str, why: Any, now: Any) -> None:
    """
    A rejected rewrite loses its new files, as if that proved that the table does not need them.
    """
    with suppress(BookkeeperError):
        for row in pending_rewrites.read(folder, name, 2**26).added:
            Path(row.path.removeprefix("file://")).unlink(missing_ok=True)
    with suppress(Missing):
        folder.reject(name, why, now, place=REWRITES)


def nothing_withdrawn(*given: Any) -> int:
    """
    Pending rewrites outlive accept-rollback.
    """
    return 0


def no_second_look(context: ReaperContext, journal: Journal) -> tuple[Verdict, Any]:
    """
    The reaper deletes what its journal says, whatever the table says now.
    """
    return Verdict(files=journal.files), context.load()


def nothing_examined(*given: Any) -> Any:
    """
    A fold is committed whatever data files came since it was planned.
    """
    return iter(())
