"""
Queries of Spark that write through txlogs: each micro-batch once, by its position, and by one checkpoint only; of
upserts the newest row of each key.
"""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from tests.rules.rule import Chapter, breaks
from tests.rules.systems import Fails

rule = Chapter()
BATCHES = "tests/spark/test_sink_batches.py::"
JOBS = "tests/spark/test_batch_write.py::"
CRASHES = "tests/spark/test_sink_crashes.py::"
UPSERTS = "tests/spark/test_sink_upserts.py::"


@rule(
    "A micro-batch that was published is recognised by its position, before its tasks run again.",
    Fails(f"{BATCHES}test_a_batch_that_is_given_again_is_recognised_before_its_tasks_run[True]"),
    Fails(f"{CRASHES}test_a_crash_at_each_operation_of_a_driver_its_tasks_and_spark_loses_and_doubles_nothing"),
)
@breaks("spark_jobs.sink_position.QueryCheckpoint.has_published")
def no_batch_is_recognised(rightly: Any, checkpoint: Any, last: bytes | None, given: Any, writer: str) -> bool:
    """No batch counts as published, and every one as the next."""
    return False


@rule(
    "A batch is known by what it reads, too: a copy of the checkpoint may have planned other rows under its number.",
    Fails(f"{BATCHES}test_a_copy_that_planned_another_batch_of_the_same_number_is_refused"),
    Fails(f"{BATCHES}test_a_copy_whose_own_batch_had_no_rows_is_refused_at_the_next"),
)
@breaks("spark_jobs.sink_position.QueryCheckpoint._digest")
def plans_are_not_read(rightly: Any, checkpoint: Any, batch: int) -> str | None:
    """All plans are alike."""
    return None if rightly(checkpoint, batch) is None else "0" * 32


@rule(
    "A run goes on only where its own checkpoint planned what the chain ends with.",
    Fails(f"{BATCHES}test_a_copy_whose_own_batch_had_no_rows_is_refused_at_the_next"),
    Fails(f"{BATCHES}test_a_plan_that_is_missing_between_others_is"),
)
@breaks("spark_jobs.sink_position.QueryCheckpoint.check_planned")
def any_plan_will_do(rightly: Any, checkpoint: Any, last: bytes, writer: str) -> None:
    """The plan of the batch that was published last is not looked for."""


@rule(
    "A micro-batch and a batch job are done when their txlog is in: a reject is raised in them, and none comes later.",
    Fails(f"{BATCHES}test_a_batch_is_done_when_its_txlog_is_in"),
    Fails(f"{BATCHES}test_a_batch_whose_txlog_is_pending_is_waited_for_when_it_is_given_again"),
    Fails(f"{JOBS}test_a_rejected_txlog_is_said_and_the_job_run_again_writes_its_rows"),
    Fails(f"{JOBS}test_of_two_runs_of_one_job_at_the_same_time_one_writes"),
)
@breaks("spark_jobs.arrival.Arrival.until_in")
def batches_end_with_their_publish(rightly: Any, arrival: Any, name: Any) -> None:
    """No txlog is waited for."""


@rule(
    "A run and a batch job begin when txlogs of earlier ones are in: behind a rejected one theirs would be rejected.",
    Fails(f"{BATCHES}test_a_pending_txlog_of_an_earlier_run_is_in_before_the_next_batch_is_written"),
    Fails(f"{JOBS}test_a_job_waits_for_the_one_before_it"),
)
@breaks("spark_jobs.arrival.Arrival.until_chain_is_in")
def pending_chains_are_not_waited_for(rightly: Any, arrival: Any) -> None:
    """A pending txlog of an earlier run counts as one that is in."""


@rule(
    "Pending txlogs are looked for before the marks: one that gets in in between is in the marks then.",
    Fails(f"{BATCHES}test_a_txlog_that_gets_in_between_two_looks_is_not_taken_for_rejected"),
)
@breaks("spark_jobs.arrival.Arrival._is_in")
def sinks_read_the_marks_first(rightly: Any, arrival: Any, names: Any, arrived: Any) -> bool:
    """The marks are read first."""
    copy = arrival._folder.marks()

    def before(marks: Any) -> bool:
        return copy is not None and arrived(copy.marks)

    return bool(rightly(arrival, names, before))


@rule(
    "An error ends the writer of a run: the next batch begins with what is stored.",
    Fails(
        f"{BATCHES}test_a_txlog_that_is_rejected_is_raised_in_its_batch_which_is_written_when_it_is_given_again[False]"
    ),
)
@breaks("spark_jobs.sink_batches.BatchPublisher._end")
def broken_writers_go_on(rightly: Any, publisher: Any) -> None:
    """The writer is kept."""


@rule(
    "A second call in one run is refused: its rows would be taken for a batch that is given again.",
    Fails(f"{BATCHES}test_a_batch_that_is_given_twice_in_one_run_is_refused"),
)
@breaks("spark_jobs.sink_batches.BatchPublisher._published")
def second_calls_are_passed_over(rightly: Any, publisher: Any, *given: Any) -> int:
    """It is forgotten which batch was done last."""
    publisher._last = None
    return int(rightly(publisher, *given))


@rule(
    "All rows of a key are in one task: a newer one in another task would be a second row of the key.",
    Fails(f"{UPSERTS}test_of_each_key_the_newest_change_counts_and_keys_are_compared_as_the_table_has_them"),
)
@breaks("pyspark.sql.classic.dataframe.DataFrame.repartition")
def rows_stay_in_their_tasks(rightly: Any, frame: Any, count: Any, *columns: Any) -> Any:
    """Rows are not moved by their keys."""
    return frame if columns else rightly(frame, count)


@rule(
    "Keys are in the types of the table before they are moved: texts that differ may be one key.",
    Fails(f"{UPSERTS}test_texts_are_keys_of_uuids_however_they_are_spelled"),
)
@breaks("spark_jobs.sink_upserts._written")
def keys_are_moved_as_they_are_given(rightly: Any, rows: Any, name: str, key: Any) -> Any:
    """Only the writer in the task casts."""
    return rightly(rows, name, None)


@rule(
    "Two newest rows of a key end the batch: which of them the table has would be chance.",
    Fails(f"{UPSERTS}test_a_tie_is_found_wherever_a_batch_of_arrow_ends"),
)
@breaks("spark_jobs.sink_upserts._same")
def ties_are_not_looked_for(rightly: Any, table: pa.Table, names: Any, *, nulls: bool = False) -> pa.Array:
    """No two rows have the same place in the order."""
    return pa.repeat(pa.scalar(False), table.num_rows - 1) if nulls else rightly(table, names)


@rule(
    "The last rows of a batch of Arrow are held back, for their key may go on in the next.",
    Fails(f"{UPSERTS}test_a_key_may_go_on_in_any_number_of_batches_and_a_task_have_any_number_of_steps"),
)
@breaks("spark_jobs.sink_upserts.Arranged._newest")
def batches_of_arrow_are_taken_by_themselves(rightly: Any, where: Any, batches: Any) -> Iterator[pa.Table]:
    """Each batch has a newest row of each of its keys."""
    for batch in batches:
        yield from rightly(where, [batch])


@rule(
    "What is held back at the end is written, too.",
    Fails(f"{UPSERTS}test_a_key_may_go_on_in_any_number_of_batches_and_a_task_have_any_number_of_steps"),
)
@breaks("spark_jobs.sink_upserts.Arranged._newest")
def rows_held_back_are_dropped(rightly: Any, where: Any, batches: Any) -> list[pa.Table]:
    """The last part is left out."""
    return list(rightly(where, batches))[:-1]


@rule(
    "Rows are appended where a table has no key, and upserted where it has one; the other way is refused.",
    Fails(f"{BATCHES}test_a_keyed_table_is_refused"),
    Fails(f"{BATCHES}test_upserts_into_a_table_without_a_key_are_refused_before_a_task_runs"),
)
@breaks("spark_jobs.sink_batches.check", "spark_jobs.batch_write.check")
def rows_are_taken_either_way(rightly: Any, writer: Any, columns: Any, changes: Any, helpers: Any) -> None:
    """The table is not looked at."""


@rule(
    "Where rows are appended the output mode complete is refused: each batch would append all of its rows again.",
    Fails("tests/spark/test_sink.py::test_the_output_mode_complete_is_refused"),
)
@breaks("spark_jobs.sink._check_mode")
def any_output_mode_is_taken(rightly: Any, spark: Any, query: str) -> None:
    """The mode is not looked at."""
