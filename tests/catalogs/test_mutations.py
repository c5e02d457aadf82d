"""Tests of the tests: a bookkeeper that is broken on purpose loses or doubles rows under the same faults."""

import random
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.manifest import DataFile as IcebergDataFile
from pyiceberg.manifest import DataFileContent, FileFormat
from pyiceberg.table import TableProperties
from pyiceberg.table.update import AssertTableUUID
from pyiceberg.typedef import Record

from bookkeeper.core import marks as marks_format
from bookkeeper.core.errors import CommitConflict, CommitUnknown
from bookkeeper.core.marks import Marks
from bookkeeper.core.names import TxlogName
from bookkeeper.daemon import Bookkeeper
from bookkeeper.format.entries import DataFile
from bookkeeper.ledger.ledger import Ledger
from bookkeeper.ledger.shares import Share
from bookkeeper.ledger.view import View
from tests.catalogs.chaos import Trial
from tests.catalogs.lake import CatalogLake, Place
from tests.servers.line import Fault


class StockLedger(Ledger):
    """Commits as pyiceberg's documentation says, with pyiceberg's own retry."""

    def append(self, seen: View, shares: Sequence[Share], marks: Marks, names: Sequence[TxlogName]) -> View:
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

    def append(self, seen: View, shares: Sequence[Share], marks: Marks, names: Sequence[TxlogName]) -> View:
        after = super().append(seen, shares, marks, names)
        self.known = after.marks
        return after


class TrustingLedger(Ledger):
    """Takes an unknown outcome for success."""

    def append(self, seen: View, shares: Sequence[Share], marks: Marks, names: Sequence[TxlogName]) -> View:
        try:
            return super().append(seen, shares, marks, names)
        except CommitUnknown:
            return View(seen.table, replace(marks, snapshot=seen.marks.snapshot))


class HastyBookkeeper(Bookkeeper):
    """Deletes txlogs before they are committed."""

    def _append(self, view: View, batch: Any, *rest: Any) -> bool:
        self.folder.delete(batch.names)
        return super()._append(view, batch, *rest)


def test_pyicebergs_own_retry_doubles_rows_that_a_second_bookkeeper_has_committed(where: Place) -> None:
    trial = _trial(where, ledger=StockLedger)
    assert TableProperties.COMMIT_NUM_RETRIES not in trial.lake.table().properties  # its default is to retry
    _set(trial.lake, **{TableProperties.COMMIT_MIN_RETRY_WAIT_MS: "1", TableProperties.COMMIT_MAX_RETRY_WAIT_MS: "1"})
    _ignoring_what_follows(trial, Fault.OVERTAKEN)
    assert trial.lake.double() != []


@pytest.mark.parametrize("ledger", [StockLedger, Ledger])
def test_nothing_is_doubled_where_the_loop_is_ours(where: Place, ledger: type[Ledger]) -> None:
    trial = _trial(where, ledger=ledger)
    _set(trial.lake, **{TableProperties.COMMIT_NUM_RETRIES: "0"})
    trial.commits(Fault.OVERTAKEN, 1)
    assert (trial.lake.double(), trial.lake.missing()) == ([], [])


def test_not_reading_the_marks_again_after_an_unknown_outcome_doubles_rows(sqlite: Place) -> None:
    trial = _trial(sqlite, ledger=DeafLedger)
    _ignoring_what_follows(trial, Fault.REPLY_LOST)
    assert trial.lake.double() != []


def test_taking_an_unknown_outcome_for_success_loses_rows(sqlite: Place) -> None:
    trial = _trial(sqlite, ledger=TrustingLedger)
    _ignoring_what_follows(trial, Fault.REQUEST_LOST)
    assert trial.lake.missing() != []


def test_deleting_before_the_commit_loses_rows(sqlite: Place) -> None:
    trial = _trial(sqlite, book=HastyBookkeeper)
    _ignoring_what_follows(trial, Fault.REFUSED_503)
    assert trial.lake.missing() != []


def test_without_the_guard_on_main_a_late_commit_is_applied(rest: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "bookkeeper.ledger.ledger.guards", lambda seen: (AssertTableUUID(uuid=seen.metadata.table_uuid),)
    )
    trial = _trial(rest)
    _ignoring_what_follows(trial, Fault.LATE_AFTER)
    assert trial.lines[0].late_applied > 0


def _trial(where: Place, **broken: Any) -> Trial:
    return Trial(where.lake(), random.Random(1), partial(CatalogLake.book, **broken))


def _set(lake: CatalogLake, **properties: str) -> None:
    lake.table().transaction().set_properties(properties).commit_transaction()


def _ignoring_what_follows(trial: Trial, fault: Fault) -> None:
    """What is broken may also break its own next tick; only the rows count here."""
    with suppress(Exception):
        trial.commits(fault, 1)
    assert trial.lines[0].injected > 0
