"""Tests of the tests: a bookkeeper that is broken on purpose loses or doubles rows under the same faults."""

import random
from contextlib import suppress
from functools import partial
from typing import Any

import pytest
from pyiceberg.table import TableProperties
from pyiceberg.table.update import AssertTableUUID

from bookkeeper.ledger.ledger import Ledger
from tests.chaos.broken import DeafLedger, HastyBookkeeper, StockLedger, TrustingLedger
from tests.servers.line import Fault
from tests.support.catalog_chaos import Trial
from tests.support.catalog_lake import CatalogLake, Place


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
