"""What the ledger asks of a catalog, and what core.catalog makes of its answers: the same for every kind."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField, StringType

from bookkeeper.catalogs.commit import load_table
from bookkeeper.commands.accept_clock import date_back, dated_ahead
from bookkeeper.commands.init import initialise, schema_for
from bookkeeper.contract import marks as marks_format
from bookkeeper.contract import marks_json
from bookkeeper.errors import CatalogUnavailable, CommitConflict, CommitUnknown, NotPossible, Retry, TableUnusable
from bookkeeper.ledger.ledger import Ledger
from bookkeeper.ledger.view import View
from bookkeeper.stores.store import Store
from tests.servers.line import Fault, Line
from tests.support.catalog_lake import CatalogLake, Chain, Place

AT_ONCE = (
    Fault.REQUEST_LOST,
    Fault.REFUSED_500,
    Fault.REFUSED_503,
    Fault.REPLY_LOST,
    Fault.APPLIED_500,
    Fault.APPLIED_503,
    Fault.TWICE,
)


def test_what_is_published_is_committed_with_its_marks(lake: CatalogLake) -> None:
    chain = Chain(lake, "w1", positions=True)
    names = [chain.publish(), chain.publish()]
    turn = lake.tick()
    assert (turn.commit.txlogs, turn.commit.rows) == (2, 4)
    assert lake.keys() == lake.published
    marks = marks_json.loads(lake.table().metadata.properties[marks_format.PROPERTY])
    assert marks.snapshot == lake.table().current_snapshot().snapshot_id
    assert all(map(marks.is_in, names)) and marks.writer("w1").position == b"2"
    assert lake.wrong() == []


def test_init_again_changes_nothing(lake: CatalogLake) -> None:
    before = lake.table().metadata_location
    made = initialise(lake.where.open(), lake.settings, schema_for(lake.settings))
    assert made.made == () and lake.table().metadata_location == before


def test_a_commit_for_an_older_head_is_a_conflict(lake: CatalogLake) -> None:
    first, second = _ledger(lake), _ledger(lake)
    seen = _seen(lake, first)
    second.record(_seen(lake, second), seen.marks, "second")
    with pytest.raises(CommitConflict):
        first.record(seen, seen.marks, "first")
    assert lake.operations() == ["replace"]


def test_a_commit_whose_head_is_the_head_again_after_a_rollback_is_refused(lake: CatalogLake) -> None:
    """Its marks are older than the table's: it would end the halt. A sequence number or a file name is not new."""
    first, second = _ledger(lake), _ledger(lake)
    second.record(_seen(lake, second), _seen(lake, second).marks, "head")
    seen, (head,) = _seen(lake, first), lake.table().metadata.snapshots
    second.record(_seen(lake, second), seen.marks, "abandoned")
    lake.table().manage_snapshots().rollback_to_snapshot(head.snapshot_id).commit()
    with pytest.raises(Retry):
        first.record(seen, seen.marks, "too late")
    assert lake.table().current_snapshot() == head


def test_a_commit_to_another_table_of_that_name_is_refused(lake: CatalogLake) -> None:
    seen = _seen(lake, _ledger(lake))
    lake.catalog.drop_table(lake.settings.identifier)
    anew = replace(lake.settings, folder=f"{lake.root}/folder-of-the-new-{lake.settings.name}")
    initialise(lake.catalog, anew, schema_for(anew))
    with pytest.raises(Retry):
        _ledger(lake).record(seen, seen.marks, "too late")
    assert lake.operations() == []


def test_a_table_that_is_not_there_halts_and_asks_for_init(where: Place) -> None:
    with pytest.raises(TableUnusable, match="nothing"):
        load_table(where.near, "demo.nothing")


def test_a_commit_to_a_dropped_table_is_a_retry_and_the_load_after_it_halts(lake: CatalogLake) -> None:
    ledger = _ledger(lake)
    seen = _seen(lake, ledger)
    lake.catalog.drop_table(lake.settings.identifier)
    with pytest.raises(Retry):
        ledger.record(seen, seen.marks, "too late")
    with pytest.raises(TableUnusable):
        ledger.load("any")


def test_a_table_of_another_format_version_halts(where: Place) -> None:
    schema = Schema(NestedField(1, "key", StringType(), required=False))
    where.near.create_namespace_if_not_exists("demo")
    where.near.create_table("demo.version1", schema, properties={"format-version": "1"})
    with pytest.raises(TableUnusable, match="format version 1"):
        load_table(where.near, "demo.version1")


@pytest.mark.parametrize("fault", AT_ONCE)
def test_whatever_comes_back_from_a_commit_is_a_retry(lake: CatalogLake, fault: Fault) -> None:
    ledger = Ledger(lake.where.over(Line(fault)), lake.settings.identifier, lake.clock)
    seen = _seen(lake, ledger)
    # What is nothing but storage may find the very bytes there that it is to create: then its commit is in.
    same = suppress(CommitConflict) if lake.where.kind == "storage" else pytest.raises(CommitConflict)
    with same if fault is Fault.TWICE else pytest.raises(CommitUnknown):
        ledger.record(seen, seen.marks, "faulty")
    assert lake.operations() == (["replace"] if fault.value.startswith("applied") else [])


@pytest.mark.parametrize("fault", [Fault.REQUEST_LOST, Fault.REFUSED_500, Fault.REFUSED_503, Fault.REPLY_LOST])
def test_a_load_that_fails_is_a_retry(lake: CatalogLake, fault: Fault) -> None:
    catalog = lake.where.over(Line(fault), all_requests=True)
    with pytest.raises(CatalogUnavailable, match=lake.settings.identifier):
        load_table(catalog, lake.settings.identifier)


def test_a_clock_far_ahead_of_a_rest_catalogs_commits_nothing_until_it_is_set_right(rest: Place) -> None:
    lake = rest.lake()
    Chain(lake, "w1").publish()
    book = lake.book(store=_same_clock(lake))
    with pytest.raises(Retry):
        lake.tick(book, minutes=10)
    assert lake.operations() == [] and len(lake.pending()) == 1
    assert lake.tick(book, minutes=-10).commit.rows == 2


def test_commits_that_are_refused_again_and_again_name_the_cause(rest: Place) -> None:
    lake = rest.lake()
    Chain(lake, "w1").publish()
    with pytest.raises(Retry) as caught:
        lake.tick(lake.book(store=_same_clock(lake)), minutes=10)
    assert "timestamp" in str(caught.value) and "clock" in caught.value.hint


def test_a_table_that_a_clock_of_2038_has_stamped_goes_on_or_was_never_stamped(lake: CatalogLake) -> None:
    Chain(lake, "w1").publish()
    lake.tick()
    right, store = lake.clock.now, _same_clock(lake)
    Chain(lake, "w2").publish()
    lake.clock.now = datetime(2038, 1, 19, tzinfo=UTC)
    if lake.where.kind == "rest":
        with pytest.raises(Retry):
            lake.tick(lake.book(store=store))
    else:
        lake.tick(lake.book(store=store))
    lake.clock.now = right
    ledger = lake.book(store=store).ledger
    if lake.where.kind == "rest":
        with pytest.raises(NotPossible, match="not updated in the future"):
            dated_ahead(ledger, lake.folder)
    else:
        with pytest.raises(Retry):
            ledger.record(_seen(lake, ledger), _seen(lake, ledger).marks, "behind")
        date_back(ledger, lake.folder, dated_ahead(ledger, lake.folder))
    Chain(lake, "w3").publish()
    lake.settle(lake.book())
    assert lake.keys() == sorted(lake.published) and lake.rejected() == {}


def _same_clock(lake: CatalogLake) -> Callable[[str], Store]:
    """A disk that has the bookkeeper's clock, as on its own machine: it proves nothing."""
    lake.disk_clock = lake.clock
    return lake.store


def _ledger(lake: CatalogLake) -> Ledger:
    return Ledger(lake.where.near, lake.settings.identifier, lake.clock)


def _seen(lake: CatalogLake, ledger: Ledger) -> View:
    return ledger.load(lake.folder.card().folder)
