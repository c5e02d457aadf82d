"""
Duties that are due are done: nothing is lost by one that is left undone, so only these rules see it.
"""

from datetime import datetime, timedelta
from typing import Any

from tests.rules.rule import Chapter, Patch, breaks
from tests.rules.systems import Fails, Simulated

rule = Chapter()


@rule(
    "Files that are past retention go.",
    Fails("tests/retention/test_retention.py::test_a_file_goes_when_its_newest_row_is_past_the_cutoff_and_not_before"),
)
@breaks("bookkeeper.tick.retain.Retain.run")
def retention_never_runs(rightly: Any, retain: Any, view: Any, now: datetime) -> Any:
    """Nothing is ever past retention."""
    return view


@rule(
    "Small manifests are merged: a table has few, however many commits.",
    Fails("tests/ledger/test_engine.py::test_manifests_stay_few_however_many_commits"),
)
@breaks("bookkeeper.ledger.merge.groups")
def manifests_are_never_merged(rightly: Any, manifests: Any) -> list[Any]:
    """No tier is ever full."""
    return []


@rule(
    "Equality deletes are folded: readers that cannot apply them wait for that.",
    Fails("tests/folds/test_duty.py::test_it_folds_at_eight_files_and_not_before"),
    Fails("tests/folds/test_duty.py::test_it_folds_one_file_after_a_minute"),
)
@breaks("bookkeeper.folds.duty.Folds.run")
def folds_never_run(rightly: Any, folds: Any, view: Any, now: datetime) -> Any:
    """No fold is ever due."""
    return view


@rule(
    "Rewrites that compactors publish are committed.",
    Fails("tests/tick/test_take_rewrites.py::test_a_published_rewrite_is_committed_and_leaves_the_folder"),
)
@breaks("bookkeeper.tick.take_rewrites.Rewrites.run")
def rewrites_are_never_committed(rightly: Any, rewrites: Any, view: Any, now: datetime) -> Any:
    """Nobody looks into rewrites/."""
    return view


@rule(
    "Small files are rewritten into few.",
    Fails(
        "tests/reaper/compactor/test_compactor.py::test_a_round_and_a_tick_make_one_file_of_a_tier_with_the_same_rows"
    ),
)
@breaks("reaper.compactor.rewrite_plan.choose")
def files_are_never_compacted(rightly: Any, *given: Any, **named: Any) -> list[Any]:
    """No group of files is worth it."""
    return []


@rule(
    "Old snapshots expire.",
    Fails("tests/reaper/test_run.py::test_expired_snapshots_go_with_their_files_and_the_rest_reads_the_same"),
)
@breaks("reaper.run.expire_step")
def nothing_ever_expires(rightly: Any, context: Any, now: datetime) -> None:
    """There is never anything to expire."""


@rule(
    "Orphans are swept.",
    Fails("tests/reaper/test_orphans.py::test_a_run_sweeps_when_it_is_due_and_the_outlook_says_so_before"),
)
@breaks("reaper.run.orphans.is_due")
def orphans_are_never_swept(rightly: Any, context: Any, now: datetime) -> bool:
    """No sweep is ever due."""
    return False


@rule(
    "Old metadata files go.",
    Fails("tests/reaper/test_old_metadata.py::test_the_current_one_and_the_ten_before_it_stay_however_old"),
)
@breaks("reaper.run.old_metadata")
def metadata_is_never_deleted(rightly: Any, table: Any, storage: Any, now: datetime, keep: timedelta) -> dict[str, int]:
    """No metadata file is old."""
    return {}


@rule(
    "What is in leaves rejected/, and so do lost positions by age.",
    Fails("tests/tick/test_gaps.py::test_the_sweep_takes_lost_positions_by_age_and_leaves_every_other_reject"),
    Fails("tests/commands/test_replay.py::test_a_replayed_txlog_gets_in_exactly_once_and_only_then_leaves_rejected"),
)
@breaks("bookkeeper.tick.sweep_rejected.Sweep.run")
def rejected_is_never_swept(rightly: Any, sweep: Any, view: Any, now: datetime) -> None:
    """rejected/ only grows."""


@rule(
    "Marks of idle incarnations are pruned: every commit writes them.",
    Fails("tests/tick/test_marks.py::test_marks_of_an_idle_incarnation_are_pruned_and_positions_never"),
)
@breaks("bookkeeper.tick.prune.Prune.pruned")
def marks_are_never_pruned(rightly: Any, prune: Any, marks: Any, now: datetime, keyed: bool = False) -> Any:
    """Marks only grow."""
    return marks


@rule(
    "A writer that waits at the pending limit goes on once there is room.",
    Fails("tests/writers/test_outcomes.py::test_a_full_queue_makes_publish_wait_until_the_bookkeeper_catches_up"),
)
@breaks("writers.publish.pending_monitor.PendingMonitor.look")
def backpressure_is_never_released(rightly: Any, monitor: Any) -> None:
    """pending/ is listed once."""
    if monitor._listed_at is None:
        rightly(monitor)


@rule(
    "Consumed txlogs leave pending/.",
    Simulated(400),
    Fails("tests/tick/test_tick.py::test_a_published_txlog_is_committed_and_discarded"),
)
@breaks("bookkeeper.tick.delete_consumed.Consumed.delete")
def consumed_txlogs_stay(rightly: Any, consumed: Any, names: Any) -> None:
    """pending/ only grows."""


@rule(
    "A consumed txlog that stayed is deleted by a later tick.",
    Fails("tests/tick/test_marks.py::test_txlogs_left_by_a_crash_are_recognised_and_deleted"),
)
@breaks("bookkeeper.tick.tick.Bookkeeper._delete_committed")
def leftovers_stay(rightly: Any, book: Any, tick: Any, attempt: Any) -> None:
    """What is in and pending is passed over."""
    attempt.left = [item for item in tick.found if not attempt.view.marks.is_in(item.name)]
    tick.result.waiting = len(attempt.left)


@rule(
    "Requests for columns are answered.",
    Fails("tests/tick/test_columns.py::test_a_column_that_is_asked_for_is_added_and_the_card_has_it"),
)
@breaks("bookkeeper.tick.answer_column_requests.Columns.run")
def requests_are_never_answered(rightly: Any, columns: Any, view: Any, now: datetime) -> Any:
    """Nobody looks into columns/."""
    return view


@rule(
    "Dangling delete files go with the last row that they may apply to.",
    Fails("tests/retention/test_retention_keyed.py::test_all_delete_files_go_with_the_last_data_file"),
    Fails("tests/retention/test_retention_keyed.py::test_dangling_equality_deletes_go_and_needed_ones_stay"),
)
@breaks("bookkeeper.ledger.ledger.Ledger._dangling")
def delete_files_stay_for_ever(rightly: Any, ledger: Any, view: Any, drops: Any) -> Any:
    """Delete files outlive every row."""
    return iter(())


@rule(
    "The table is loaded again after a while: others commit too.",
    Fails("tests/tick/test_reload.py::test_commits_of_others_are_seen_and_built_on"),
)
def the_table_is_never_reloaded(patch: Patch) -> None:
    """A view is good for ever."""
    patch.setattr(
        "bookkeeper.tick.loaded.abs",
        lambda span: timedelta(0) if isinstance(span, timedelta) else abs(span),
        raising=False,
    )
