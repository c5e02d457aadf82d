"""
New Spark queries: all rows that the table holds by a batch, then what is committed after them by the stream.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from bookkeeper.errors import NotPossible
from bookkeeper.history.checkpoint import Offset
from spark_jobs import start_option as starts
from spark_jobs.begin_plan import Plan
from tests.rules.rule import Chapter, breaks
from tests.rules.systems import Fails

rule = Chapter()
BEGIN = "tests/spark/test_begin.py::"
HOLD = "tests/spark/test_begin_hold.py::"
START = "tests/spark/test_start_option.py::"


@rule(
    "A new query reads all rows that the table holds: what expired snapshots added is live too.",
    Fails(f"{START}test_it_begins_with_all_rows_and_goes_on_whatever_start_says_then"),
)
@breaks("spark_jobs.begin._Run._new")
def new_queries_begin_at_the_oldest(rightly: Any, run: Any, start: Any, loaded: Any) -> Plan:
    """It begins with the oldest snapshot that is kept."""
    plan: Plan = rightly(run, starts.OLDEST, loaded)
    return plan


@rule(
    "The stream begins behind the files that the snapshot of the batch added.",
    Fails(f"{START}test_it_begins_with_all_rows_and_goes_on_whatever_start_says_then"),
)
@breaks("spark_jobs.start_option.Loaded.after")
def streams_begin_before_the_batchs_own_files(rightly: Any, loaded: Any, snapshot: int | None) -> Offset:
    """The stream begins with the files of that snapshot."""
    return Offset(snapshot, 0)


@rule(
    "A stream begins only behind a snapshot that is still on main: else it would miss what came after it.",
    Fails(f"{START}test_main_that_is_rolled_back_behind_the_batch_begins_no_stream"),
)
@breaks("spark_jobs.start_option.Loaded.has_all_after")
def streams_begin_off_main(rightly: Any, loaded: Any, offset: Offset) -> bool:
    """Nobody looks for the snapshot again."""
    return True


@rule(
    "A batch whose rows are in the output is not written again.",
    Fails(f"{START}test_a_batch_that_is_in_goes_on_behind_it_whatever_start_says_then"),
)
@breaks("spark_jobs.sinks.TableOutput.has")
def outputs_are_not_asked(rightly: Any, output: Any, plan: Plan | None) -> None:
    """The output has no rows of it."""


@rule(
    "Where the commits since the plan are expired, the batch is not written: its rows may be in.",
    Fails(f"{START}test_whether_a_batch_is_in_is_not_guessed_when_the_commits_of_the_target_are_expired"),
)
@breaks("spark_jobs.sinks.TableOutput._check_known")
def expired_commits_held_no_batch(rightly: Any, output: Any, history: Any, plan: Plan) -> None:
    """What is not found is not in."""


@rule(
    "A batch that was interrupted reads the same snapshot again, under the same id.",
    Fails(f"{BEGIN}test_a_batch_that_is_cut_in_half_leaves_nothing_of_it"),
)
@breaks("spark_jobs.begin.plan_in")
def each_run_makes_a_plan(rightly: Any, store: Any) -> None:
    """A plan of an earlier run is not looked for."""


@rule(
    "A first offset that Spark wrote and no batch used does not count.",
    Fails(f"{BEGIN}test_its_snapshot_is_held_from_the_plan_to_the_first_micro_batch"),
)
@breaks("spark_jobs.hadoop.HadoopCheckpointStore.delete")
def unused_offsets_stay(rightly: Any, store: Any, key: str) -> None:
    """It stays in the checkpoint."""


@rule(
    "The snapshot of the batch, and all after it, stay until the stream has begun.",
    Fails(f"{BEGIN}test_its_snapshot_is_held_from_the_plan_to_the_first_micro_batch"),
    Fails(f"{HOLD}test_the_record_is_renewed_while_the_batch_runs_also_after_an_outage"),
)
@breaks("spark_jobs.begin_hold.Record.hold")
def batches_hold_everything(rightly: Any, record: Any, snapshot: int | None) -> bool:
    """The record names no snapshot, and is not renewed."""
    if record.registry is not None and record.consumer is not None:
        record.registry.add(record.consumer)
    return False


@rule(
    "One run at a time reads the first batch of a checkpoint: two would each write all rows.",
    Fails(f"{BEGIN}test_a_second_run_of_one_checkpoint_is_refused_while_the_first_reads_and_then_goes_on"),
)
@breaks("spark_jobs.begin_hold.alone")
def runs_begin_at_once(rightly: Any, lease: Any, name: str, clock: Any, wait: Any) -> Any:
    """The lease is not asked for."""

    @contextmanager
    def at_once() -> Iterator[None]:
        yield

    return at_once()


@rule(
    "A batch that lost its lease, or would outlast its snapshot, is not done.",
    Fails(f"{HOLD}test_a_batch_that_takes_too_long_and_one_whose_lease_is_lost_are_ended"),
)
@breaks("spark_jobs.begin_hold.Watch.check")
def ended_batches_are_done(rightly: Any, watch: Any) -> None:
    """Whatever ended the batch, its rows count."""


@rule(
    "A batch that would take longer than its snapshot may be held is refused early.",
    Fails(f"{HOLD}test_a_batch_that_would_take_longer_than_max_hold_is_refused_with_the_estimate"),
    Fails(f"{HOLD}test_a_batch_under_which_metadata_json_would_outgrow_its_bound_is_refused"),
)
@breaks("spark_jobs.begin_hold.Batch.trouble")
def batches_may_take_for_ever(rightly: Any, batch: Any, history: Any, settings: Any, now: Any) -> None:
    """How long it will take is not estimated."""


@rule(
    "A time before the commits that are kept is refused: what came since is unknown.",
    Fails(f"{START}test_a_time_reads_what_was_committed_since_and_is_refused_when_that_is_expired"),
)
@breaks("spark_jobs.start_option.Loaded._since")
def expired_times_are_the_oldest(rightly: Any, loaded: Any, moment: Any) -> Offset:
    """Such a time means the oldest commit."""
    try:
        found: Offset = rightly(loaded, moment)
    except NotPossible:
        return Offset(loaded.history.snapshots[0].snapshot_id, 0)
    return found


@rule(
    "A time that has not come yet, or names no zone, is refused.",
    Fails(f"{START}test_a_time_without_a_zone_or_in_the_future_and_other_words_are_refused"),
)
@breaks("spark_jobs.start_option.check")
def queries_begin_at_any_time(rightly: Any, start: Any, now: Any) -> None:
    """Any time will do."""
