"""Whatever the catalog answers to a commit, or does not: every row is in the table exactly once."""

import sqlite3
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException
from pyiceberg.table import Transaction

from bookkeeper.catalogs.prepared import PreparedCommit
from bookkeeper.errors import CatalogUnavailable, CommitConflict
from tests.support.faults import AFTER, BEFORE, Faults
from tests.support.lake import Lake, Writes, append_by_others


@pytest.fixture
def lake(either: Lake) -> Lake:
    return either


ERRORS = [CommitFailedException, CommitStateUnknownException, TimeoutError, ValueError, ConnectionError, KeyError]


@pytest.mark.parametrize("when", [BEFORE, AFTER])
@pytest.mark.parametrize("error", ERRORS)
def test_an_error_of_the_catalog_leaves_every_row_in_once(
    lake: Lake, writer: Writes, faults: Faults, error: type[Exception], when: str
) -> None:
    writer.publish("a")
    writer.publish("b")
    lake.tick(lake.book(faults.on("commit_table", when, error, times=1)))
    assert (lake.keys(), lake.pending(), lake.operations()) == (["a", "b"], [], ["append"])


def test_a_catalog_that_refuses_every_time_is_left_alone_till_the_next_tick(
    lake: Lake, writer: Writes, faults: Faults
) -> None:
    writer.publish("a")
    book = lake.book(faults.on("commit_table", BEFORE, TimeoutError))
    with pytest.raises(CommitConflict):
        lake.tick(book)
    assert faults.seen.count("commit_table") <= 5
    faults.clear()
    lake.tick(book)
    assert lake.keys() == ["a"]


def test_a_commit_that_the_driver_refuses_is_not_seen_by_the_next_one_to_get_the_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The UPDATE was done in it, and read there it looks as if it were committed."""
    lake = Lake(tmp_path)
    writer, book = Writes(lake), lake.book()
    dialect = book.ledger.catalog.engine.dialect  # type: ignore[attr-defined]
    writer.publish("a")
    lake.tick(book)
    writer.publish("b")
    commit, refused = dialect.do_commit, list[object]()

    def once(connection: object) -> None:
        if not refused:
            refused.append(connection)
            raise sqlite3.OperationalError("database is locked")
        commit(connection)

    monkeypatch.setattr(dialect, "do_commit", once)
    lake.tick(book)
    assert (lake.keys(), lake.pending(), len(refused)) == (["a", "b"], [], 1)


def test_a_catalog_that_is_down_after_the_commit_loses_nothing(lake: Lake, writer: Writes, faults: Faults) -> None:
    writer.publish("a")
    book = lake.book(faults)
    lake.tick(book)
    writer.publish("b")
    faults.on("commit_table", AFTER, TimeoutError, times=1).on("load_table", BEFORE, ConnectionError)
    with pytest.raises(CatalogUnavailable):
        lake.tick(book)
    faults.clear()
    lake.tick(book)
    assert (lake.keys(), lake.pending(), lake.operations()) == (["a", "b"], [], ["append", "append"])


class Late:
    """A catalog whose first commit is not applied, answers nothing, and arrives once more when told."""

    def __init__(self, catalog: object) -> None:
        self.catalog = catalog
        self.kept: Callable[[], object] | None = None

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.catalog, name)
        return partial(self._prepare, found) if name == "prepare_commit" else found

    def _prepare(self, prepare: Callable[..., PreparedCommit], *args: object) -> PreparedCommit:
        made = prepare(*args)
        return PreparedCommit(made.writes, lambda: self._send(made.swap))

    def load_table(self, identifier: str) -> object:
        table = self.catalog.load_table(identifier)  # type: ignore[attr-defined]
        table.catalog = self
        return table

    def commit_table(self, *args: object) -> object:
        return self._send(lambda: self.catalog.commit_table(*args))  # type: ignore[attr-defined]

    def _send(self, commit: Callable[[], Any]) -> Any:
        if self.kept is None:
            self.kept = commit
            raise TimeoutError("no answer")
        self.before_retry()
        return commit()

    def before_retry(self) -> None:
        """What happens between our look at the table and our second attempt."""


def test_an_attempt_that_is_applied_after_our_retry_is_refused_by_its_guard(lake: Lake, writer: Writes) -> None:
    writer.publish("a")
    book = lake.book()
    late = book.ledger.catalog = Late(lake.catalog)
    lake.tick(book)
    assert late.kept is not None
    with pytest.raises(CommitFailedException):
        late.kept()
    lake.tick(book)
    assert (lake.keys(), lake.operations()) == (["a"], ["append"])


def test_an_attempt_that_is_applied_just_before_our_retry_makes_that_one_conflict(lake: Lake, writer: Writes) -> None:
    writer.publish("a")
    book = lake.book()

    class JustBefore(Late):
        def before_retry(self) -> None:
            if self.kept is not None:
                self.kept()
                self.before_retry = lambda: None  # type: ignore[method-assign]

    book.ledger.catalog = JustBefore(lake.catalog)
    lake.tick(book)
    assert (lake.keys(), lake.operations(), lake.pending()) == (["a"], ["append"], [])


def test_an_attempt_that_took_too_long_is_built_anew(lake: Lake, writer: Writes, faults: Faults) -> None:
    writer.publish("a")
    book = lake.book(faults)
    faults.between("create metadata/snap-", lambda: lake.clock.move(minutes=11))
    lake.tick(book)
    assert lake.keys() == ["a"]
    assert sum(operation.startswith("create metadata/snap-") for operation in faults.seen) == 2


def test_a_foreign_append_between_load_and_commit_costs_a_second_attempt(
    lake: Lake, writer: Writes, faults: Faults
) -> None:
    writer.publish("a")
    foreign = Writes(lake, "foreign")
    book = lake.book(faults)
    faults.between("commit_table", lambda: append_by_others(lake, foreign.file(["x"])))
    lake.tick(book)
    assert (lake.keys(), lake.operations()) == (["a", "x"], ["append", "append"])
    totals = lake.table().current_snapshot().summary.additional_properties
    assert (totals["total-data-files"], totals["total-records"]) == ("2", "2")


def test_foreign_appends_before_every_attempt_postpone_and_lose_nothing(
    lake: Lake, writer: Writes, faults: Faults
) -> None:
    writer.publish("a")
    foreign = Writes(lake, "foreign")

    def append_and_come_again() -> None:
        append_by_others(lake, foreign.file([f"x{len(faults.seen)}"]))
        faults.between("commit_table", append_and_come_again)

    book = lake.book(faults)
    faults.between("commit_table", append_and_come_again)
    with pytest.raises(CommitConflict):
        lake.tick(book)
    faults.clear()
    lake.tick(book)
    assert lake.keys().count("a") == 1


def test_pyicebergs_own_retry_is_never_used(
    lake: Lake, writer: Writes, faults: Faults, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(self: object) -> None:
        raise AssertionError("transaction().commit re-applies an append on a new base: it would double")

    monkeypatch.setattr(Transaction, "commit_transaction", refused)
    writer.publish("a")
    lake.tick(lake.book(faults.on("commit_table", BEFORE, CommitFailedException, times=2)))
    assert lake.keys() == ["a"]


def test_files_of_a_refused_attempt_are_left_to_the_orphan_sweep(lake: Lake, writer: Writes, faults: Faults) -> None:
    writer.publish("a")
    lake.tick(lake.book(faults.on("commit_table", BEFORE, CommitFailedException, times=1)))
    assert not [operation for operation in faults.seen if operation.startswith("delete metadata")]
    assert sum(operation.startswith("create metadata/snap-") for operation in faults.seen) == 2
