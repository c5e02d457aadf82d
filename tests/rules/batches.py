"""
Batches of Spark that write one txlog: once by their position; and queries that change between the two sinks.
"""

from dataclasses import replace
from typing import Any

from tests.rules.rule import Chapter, breaks
from tests.rules.systems import Fails
from writers.publish.publisher import resume
from writers.timing import millis

rule = Chapter()
BATCHES = "tests/spark/test_batch_write.py::"
HANDOVER = "tests/writers/test_handover.py::"
STREAMS = "tests/spark/test_write_stream.py::"


@rule(
    "A batch job that is run again is recognised by its position, and writes nothing.",
    Fails(f"{BATCHES}test_a_job_that_was_done_runs_no_task_and_the_next_position_is_another_job"),
    Fails(f"{BATCHES}test_a_crash_at_each_operation_and_the_job_run_again_loses_and_doubles_nothing"),
)
@breaks("spark_jobs.batch_write._is_done")
def no_job_is_recognised(rightly: Any, target: Any, folder: Any, writer: Any) -> bool:
    """Each run of a job writes."""
    return False


@rule(
    "Behind a commit that failed no file is deleted: the txlog may be published.",
    Fails(f"{BATCHES}test_a_commit_that_is_not_in_yet_fails_and_the_abort_behind_it_deletes_nothing"),
)
@breaks("spark_jobs.batch_write.BatchJob.abort")
def aborts_delete_what_may_be_published(rightly: Any, job: Any, results: Any) -> int:
    """An abort takes every job for one with a failed task."""
    return int(rightly(job, [*results, None]))


@rule(
    "A run that is taken over goes on from the position that it began with: of two runs of one job one gets in.",
    Fails(f"{BATCHES}test_of_two_runs_of_one_job_at_the_same_time_one_writes"),
)
@breaks("writers.writer.Writer.__init__")
def runs_are_taken_over_from_the_newest_position(
    rightly: Any, writer: Any, folder: Any, name: str, runtime: Any, *, handed: Any = None, **given: Any
) -> None:
    """It goes on from where the writer is by then."""
    if handed is not None:
        at = runtime.folder(folder)
        handed = replace(handed, position=resume(at, at.card(), name, millis(runtime.clock())).position)
    rightly(writer, folder, name, runtime, handed=handed, **given)


@rule(
    "Files of a run that is taken over are as old as its task: they are renewed before a sweep may take them.",
    Fails(f"{HANDOVER}test_its_files_are_as_old_as_the_task[memory]"),
)
@breaks("writers.writer.Writer.__init__")
def files_are_as_old_as_the_take_over(
    rightly: Any, writer: Any, folder: Any, name: str, runtime: Any, *, handed: Any = None, **given: Any
) -> None:
    """They count from the take-over."""
    handed = None if handed is None else replace(handed, since=runtime.clock())
    rightly(writer, folder, name, runtime, handed=handed, **given)


@rule(
    "A query that goes on through txlogs leaves out what Iceberg's sink committed last: Spark may give it again.",
    Fails(f"{STREAMS}test_a_checkpoint_goes_on_through_txlogs_behind_the_last_batch_that_spark_committed"),
)
@breaks("spark_jobs.sink_by_query.last_by_spark")
def commits_of_spark_are_not_looked_at(rightly: Any, spark: Any, table: str, query: str) -> int:
    """No batch was committed by Spark."""
    return -1


@rule(
    "Iceberg's sink is not given a batch that is in a txlog.",
    Fails(f"{STREAMS}test_iceberg_s_sink_is_not_given_a_batch_that_is_in_a_txlog[None]"),
)
@breaks("spark_jobs.write_stream.check_by_spark")
def txlogs_are_not_looked_at(rightly: Any, store: Any, folder: Any) -> None:
    """Any checkpoint goes on with Iceberg's sink."""
