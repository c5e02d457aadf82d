"""
Retention: which files are past it, and what holds it back.
"""

from datetime import datetime, timedelta
from typing import Any

from bookkeeper.config.settings import Retention
from bookkeeper.stores.store import key_in
from tests.rules.rule import Chapter, Patch, breaks, set_value
from tests.rules.systems import Fails, Simulated

rule = Chapter()
RETENTION = "tests/retention/test_retention.py::"
CLOCKS = "tests/tick/test_clocks.py::"


@rule(
    "A file goes when its newest row is older than the cutoff, and not before.",
    Simulated(6000),
    Fails(f"{RETENTION}test_a_file_goes_when_its_newest_row_is_past_the_cutoff_and_not_before"),
)
@breaks("bookkeeper.retention.apply.rules.rule")
def retention_two_hours_early(
    rightly: Any, settings: Retention, schema: Any, times: Any, now: datetime, *more: Any
) -> Any:
    """The cutoff lies two hours too late."""
    return rightly(settings, schema, times, now + timedelta(hours=2), *more)


@rule(
    "Where no column is named, retention never goes on by another one than it did.",
    Fails(f"{RETENTION}test_another_column_of_times_drops_nothing"),
)
@breaks("bookkeeper.retention.apply.rules.rule")
def only_the_schema_of_now(rightly: Any, settings: Any, schema: Any, times: Any, now: datetime, *more: Any) -> Any:
    """What was the first column in earlier schemas is not asked."""
    return rightly(settings, schema, times, now)


@rule(
    "A file that may have null timestamps goes by the age of its commit only.",
    Fails(f"{RETENTION}test_null_timestamps_and_files_without_bounds_go_by_max_age_only"),
)
@breaks("bookkeeper.retention.rule.Rule.drops")
def nulls_are_old(rightly: Any, rule: Any, nulls: int | None, upper: bytes | None, sequence: int) -> Any:
    """Null timestamps do not count."""
    return rightly(rule, 0, upper if upper is not None else bytes(rule.width), sequence)


@rule(
    "Every file goes by the age of its commit in the end: a row dated 2099 does not live for ever.",
    Fails(f"{RETENTION}test_a_row_dated_2099_goes_by_the_age_of_its_commit"),
)
@breaks("bookkeeper.retention.rule.rule")
def max_age_is_not_asked(rightly: Any, settings: Retention, schema: Any, times: Any, now: datetime, *more: Any) -> Any:
    """No time of a commit is known."""
    return rightly(settings, schema, (), now, *more)


@rule(
    "The age of a commit is known though its snapshot is expired: marks note the times.",
    Fails(f"{RETENTION}test_max_age_counts_from_the_commit_also_when_its_snapshot_is_expired"),
)
@breaks("bookkeeper.retention.apply.rules.with_commit")
def times_are_not_noted(rightly: Any, times: Any, sequence: int, at_ms: int, max_age: Any) -> Any:
    """Only the newest commit has a time."""
    return ((sequence, at_ms),)


@rule(
    "Nothing goes when more than half of the live files would: a person looks first.",
    Fails(f"{RETENTION}test_the_brake_holds_when_more_than_half_of_the_live_files_would_go"),
)
@breaks("bookkeeper.retention.apply.rules.braked")
def no_brake(rightly: Any, dropped: int, live: int, brake: float) -> bool:
    """Any share may go."""
    return False


@rule(
    "The brake weighs rows too: two compacted files may hold nearly all of them.",
    Fails(f"{RETENTION}test_the_brake_holds_when_few_files_with_most_of_the_rows_would_go"),
)
@breaks("bookkeeper.retention.apply._live_rows")
def the_brake_counts_files_only(rightly: Any, ledger: Any, view: Any) -> None:
    """Rows are not counted."""


@rule(
    "Nothing is dropped or pruned while our clock and the storage's differ by more than five minutes.",
    Fails(f"{RETENTION}test_nothing_is_dropped_or_pruned_while_our_clock_and_the_storages_differ"),
)
@breaks("bookkeeper.ledger.commit_clock.CommitClock.agrees")
def any_clock_destroys(rightly: Any, clock: Any) -> bool:
    """The storage's clock is not asked."""
    return True


@rule(
    "Nothing is dropped after our clock has jumped ahead, until it is set right.",
    Fails(f"{CLOCKS}test_rows_a_minute_old_outlive_a_jump_of_two_hours_though_writers_go_on_by_it"),
)
@breaks("bookkeeper.contract.steady_clock.Steady.ahead")
def a_jump_is_time(rightly: Any, steady: Any) -> timedelta:
    """The monotonic clock is not asked."""
    return timedelta(0)


@rule(
    "The retention column always has bounds, whatever the metrics modes.",
    Fails("tests/writers/test_metrics.py::test_timestamps_always_have_bounds_for_retention"),
)
def times_without_bounds(patch: Patch) -> None:
    """A mode without bounds holds for times too."""
    set_value(patch, "bookkeeper.format.bounds.ALWAYS", frozenset())


@rule(
    "Files that go by retention are not deleted by the bookkeeper: snapshots still read them.",
    Fails(f"{RETENTION}test_the_data_files_themselves_are_left_to_the_reaper"),
    Simulated(400),
)
@breaks("bookkeeper.ledger.ledger.Ledger.drop")
def retention_deletes_files(rightly: Any, ledger: Any, view: Any, deletes: Any) -> Any:
    """What a commit drops is deleted at once."""
    after = rightly(ledger, view, deletes)
    store = ledger.open_store(view.data_root)
    store.delete_many([key_in(store, row.path) for item in deletes for row in item.dropped])
    return after
