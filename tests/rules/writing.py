"""
Writers: data files before their txlog, one confirmed txlog after the other, and where a new run goes on.
"""

import re
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from bookkeeper.contract.txlog_folder import PENDING, Folder
from bookkeeper.errors import AlreadyExists, UnknownOutcome
from bookkeeper.stores.store import Store
from tests.chaos.scenes.writing import Writing
from tests.rules.rule import Chapter, Patch, breaks
from tests.rules.systems import Fails, Modelled, Recorded, Scene, Simulated
from tests.support.faults import AFTER
from writers.retries import ATTEMPTS
from writers.tasks.results import locations

rule = Chapter()
OUTCOMES = "tests/writers/test_outcomes.py::"
POSITIONS = "tests/writers/test_positions.py::"
AT_ONCE = "tests/writers/test_at_once.py::"


@rule(
    "A txlog is published only once every data file that it names is durable.",
    Modelled("FileFirst"),
    Recorded(2),
    Simulated(400),
    Scene(Writing, AFTER, "create folder/pending/source.", "wrong"),
    Fails(f"{AT_ONCE}test_a_crash_at_each_operation_in_any_order_loses_and_doubles_nothing"),
)
@breaks("writers.files.rolling_writer.RollingWriter._upload")
def the_txlog_before_its_files(rightly: Any, files: Any, store: Store, item: Any) -> None:
    """A data file counts as durable at once; its bytes follow with the next one."""
    for key, data in vars(files).setdefault("late", []):
        store.upload(key, data)
    vars(files)["late"] = [(item.key, item.data)]
    item.stored_at = files._clock()


@rule(
    "A txlog is published by an exclusive create: what has its name already stays.",
    Fails("tests/contract/test_folder_contract.py::test_publishing_other_bytes_under_a_taken_name_is_refused"),
    Fails(
        "tests/contract/test_folder_contract.py::test_of_many_that_publish_under_one_name_only_those_with_the_winning_bytes_succeed"
    ),
)
@breaks("bookkeeper.contract.txlog_folder.Folder.publish")
def txlogs_are_replaced(rightly: Any, folder: Folder, name: Any, data: bytes) -> None:
    """A publish overwrites."""
    folder.store.replace(f"{PENDING}{name}", data)


@rule(
    "A create whose name is taken by the same bytes is our own, whose reply was lost.",
    Fails(f"{OUTCOMES}test_a_lost_reply_finds_its_own_bytes"),
    Fails("tests/contract/test_folder_contract.py::test_publishing_the_same_bytes_again_is_success"),
)
@breaks("bookkeeper.contract.txlog_folder.create_once")
def own_bytes_are_foreign(rightly: Any, store: Store, key: str, data: bytes, consumed: bool = False) -> None:
    """A name that is taken is another's."""
    store.create(key, data)


@rule(
    "Other bytes under a txlog's name fence the run: another process published there.",
    Fails(f"{OUTCOMES}test_a_foreign_txlog_under_our_name_fences_the_run"),
)
@breaks("bookkeeper.contract.txlog_folder.create_once")
def foreign_bytes_are_own(rightly: Any, store: Store, key: str, data: bytes, consumed: bool = False) -> None:
    """A name that is taken is our own."""
    with suppress(AlreadyExists):
        store.create(key, data)


@rule(
    "After a publish with an unknown outcome the run publishes nothing more: the next run finds out.",
    Fails(f"{OUTCOMES}test_an_unknown_outcome_stops_the_run"),
    Fails(f"{OUTCOMES}test_an_interrupt_while_publishing_leaves_the_outcome_unknown"),
)
@breaks("writers.publish.publisher.Publisher.check")
def an_unknown_outcome_is_forgotten(rightly: Any, publisher: Any) -> None:
    """A publish that failed is done again with what was written since, under the same sequence."""


@rule(
    "Once a create was sent, the writer never deletes a file that it names.",
    Fails(f"{OUTCOMES}test_a_publish_with_an_unknown_outcome_leaves_its_data_files_where_they_are"),
)
@breaks("writers.writer.Writer.publish")
def files_of_a_failed_publish_are_deleted(
    rightly: Any, writer: Any, position: Any = None, offsets: Any = None, alone: bool = False
) -> Any:
    """After a publish with an unknown outcome its data files are deleted."""
    try:
        return rightly(writer, position, offsets, alone)
    except UnknownOutcome:
        writer._cards.store.delete_many([item.key for item in writer._files._finished])
        raise


@rule(
    "Every retry of a publish sends the same bytes.",
    Fails(f"{OUTCOMES}test_every_retry_sends_the_same_bytes"),
)
@breaks("writers.publish.publisher.retry")
def retries_send_other_bytes(rightly: Any, act: Callable[[], Any], wait: Any, attempts: int = ATTEMPTS) -> Any:
    """A txlog is encoded anew for each try."""
    tries = iter(range(100))

    def anew() -> Any:
        at = next(tries)
        if at and getattr(act, "args", ()) and isinstance(act.args[-1], bytes):  # type: ignore[attr-defined]
            return act.func(*act.args[:-1], act.args[-1] + b"\0" * at)  # type: ignore[attr-defined]
        return act()

    return rightly(anew, wait, attempts)


@rule(
    "A forked process publishes nothing: two would share an incarnation.",
    Fails("tests/writers/test_writer.py::test_a_forked_process_publishes_nothing"),
)
@breaks("writers.writer.Writer._check_process")
def forks_publish(rightly: Any, writer: Any) -> None:
    """A process that was forked goes on with its parent's run."""


@rule(
    "A data file older than half the orphan age is written again before a txlog names it.",
    Fails(f"{OUTCOMES}test_a_file_older_than_half_the_orphan_age_is_written_again_under_a_new_name"),
    Fails(f"{AT_ONCE}test_files_that_grow_old_while_the_writer_waits_at_the_limit_are_written_again"),
)
@breaks("writers.files.rolling_writer.RollingWriter.renew")
def old_files_are_named(rightly: Any, files: Any, store: Any, older_than: Any, spec: Any, sequence: int) -> None:
    """A txlog names files however old."""


@rule(
    "A publish in which the process stood still past the orphan age is not confirmed.",
    Fails(f"{OUTCOMES}test_a_publish_in_which_the_process_stood_still_for_the_orphan_age_is_not_confirmed"),
    Fails(
        "tests/spark/test_sink_crashes.py::"
        "test_a_driver_that_stands_still_past_orphan_age_at_any_operation_loses_and_doubles_nothing"
    ),
    Fails(
        "tests/spark/test_batch_write.py::"
        "test_a_process_that_stands_still_past_orphan_age_at_any_operation_loses_and_doubles_nothing"
    ),
)
@breaks("writers.writer.Writer._check_age")
def late_publishes_are_confirmed(rightly: Any, writer: Any, name: Any, card: Any) -> None:
    """A txlog that arrived counts as published, whatever became of its files."""


@rule(
    "Every start of a writer is a new incarnation.",
    Fails("tests/writers/test_writer.py::test_sequences_count_up_and_every_run_is_a_new_incarnation"),
)
@breaks("writers.writer.new_incarnation")
def one_incarnation_for_all_runs(rightly: Any, at_ms: int, random: bytes) -> str:
    """A writer's incarnation is made of nothing."""
    return str(rightly(10**12, bytes(10)))


@rule(
    "A starting writer lists pending/ first and reads marks.json second.",
    Modelled("WriterListsFirst"),
    Fails(f"{POSITIONS}test_a_commit_between_listing_and_reading_is_seen_in_the_marks"),
    Fails("tests/writers/test_offsets.py::test_offsets_are_read_from_pending_first_and_from_the_marks_second"),
    Fails("tests/writers/test_slots.py::test_a_slot_is_taken_over_at_the_end_of_its_chain_whatever_comes_between"),
)
@breaks("writers.writer.resume")
def marks_before_the_listing(rightly: Any, folder: Folder, card: Any, writer: str, now_ms: int) -> Any:
    """The marks are read before the listing."""
    copy = folder.marks()

    class Before:
        def __getattr__(self, name: str) -> Any:
            return (lambda: copy) if name == "marks" else getattr(folder, name)

    return rightly(Before(), card, writer, now_ms)


@rule(
    "A new run goes on behind what is pending, not only behind what is committed.",
    Fails(f"{POSITIONS}test_a_new_run_continues_behind_what_is_pending"),
)
@breaks("writers.publish.publisher.with_positions")
def pending_positions_are_not_read(rightly: Any, folder: Any, card: Any, sizes: Any, place: str = "") -> list[Any]:
    """Only the marks say where a source goes on."""
    return []


@rule(
    "A run whose txlog was rejected is fenced at its next publish.",
    Fails(f"{AT_ONCE}test_a_run_whose_txlog_was_rejected_is_fenced_at_its_next_publish"),
    Fails(f"{POSITIONS}test_a_reject_in_the_middle_of_a_chain_fences_the_run"),
)
@breaks("writers.publish.pending_monitor.PendingMonitor._check_own")
def rejects_fence_no_run(rightly: Any, monitor: Any, found: Any, copy: Any) -> None:
    """A run goes on behind its rejected txlog."""


@rule(
    "On a keyed table a run is fenced once a later run of its writer has published.",
    Fails("tests/writers/test_later_runs.py::test_an_earlier_run_is_fenced_once_a_later_one_has_published"),
)
@breaks("writers.publish.pending_monitor.PendingMonitor._check_later")
def later_runs_fence_none(rightly: Any, monitor: Any, pending: Any, copy: Any) -> None:
    """An earlier run publishes what will be rejected."""


@rule(
    "A writer waits while too many txlogs are pending.",
    Fails(f"{OUTCOMES}test_a_full_queue_makes_publish_wait_until_the_bookkeeper_catches_up"),
)
@breaks("writers.publish.pending_monitor.PendingMonitor.full")
def no_backpressure(rightly: Any, monitor: Any, limit: int) -> bool:
    """There is always room."""
    return False


@rule(
    "Columns of UUIDs have neither bounds nor statistics: Spark compares them in another order, and passes rows over.",
    Fails("tests/format/test_uuids.py::test_of_all_columns_of_a_parquet_file_only_those_of_uuids_have_no_statistics"),
    Fails("tests/format/test_uuids.py::test_a_file_of_either_format_has_no_bounds_of_uuids"),
)
def uuids_have_bounds(patch: Patch) -> None:
    """A UUID is like any other value."""
    for module in ("bounds", "open_file", "parquet_writer"):
        patch.setattr(f"bookkeeper.format.{module}.UNORDERED", set())


@rule(
    "A column that the table lacks is an error: no value is dropped in silence.",
    Fails("tests/writers/test_changes.py::test_a_column_that_the_table_lacks_is_refused_and_the_writer_lives_on"),
)
@breaks("writers.values.cast.unknown_columns", "writers.publish.request_columns.unknown_columns")
def unknown_columns_are_dropped(rightly: Any, names: Any, schema: Any, former: Any) -> list[str]:
    """Every column is known."""
    return []


@rule(
    "A card of another table stops a writer.",
    Fails("tests/writers/test_writer.py::test_a_table_made_anew_stops_the_writer"),
    Fails("tests/writers/test_folder_gone.py::test_another_folder_in_its_place_gets_nothing"),
)
@breaks("writers.publish.card_follower.check_same_table")
def any_table_will_do(rightly: Any, card: Any, newer: Any) -> None:
    """A writer goes on with the table that has taken its table's place."""


TASKS = "tests/writers/test_tasks.py::"


@rule(
    "What tasks wrote is taken once: a result of a reservation that was taken or discarded fits no later one.",
    Fails(f"{TASKS}test_results_are_taken_once"),
    Fails(f"{TASKS}test_discarded_files_are_deleted_and_can_be_taken_no_more"),
)
@breaks("writers.tasks.reservation.decode")
def results_fit_every_reservation(rightly: Any, name: Any, spec: Any, reservation: int, result: bytes) -> Any:
    """A result fits any reservation of its txlog."""
    own = [re.search("-t([0-9]+)-", key) for key in locations(name, spec, result)]
    return rightly(name, spec, int(own[0][1]) if own and own[0] else reservation, result)


@rule(
    "A run deletes no file that it has taken, or that a txlog may name.",
    Fails(f"{TASKS}test_what_was_taken_or_published_is_never_deleted"),
)
@breaks("writers.files.rolling_writer.RollingWriter.paths")
def taken_files_are_discarded(rightly: Any, files: Any) -> frozenset[str]:
    """No file counts as taken."""
    return frozenset()


@rule(
    "Files of tasks are as old as their task, by the clock of the writer that publishes them.",
    Fails(f"{TASKS}test_files_of_tasks_older_than_half_the_orphan_age_are_written_again"),
    Fails(f"{TASKS}test_the_age_counts_from_the_task_whatever_the_clock_of_its_process_says"),
)
@breaks("writers.files.rolling_writer.RollingWriter.add_stored")
def taken_files_are_young(rightly: Any, files: Any, given: Any, at: Any, data_path: str) -> None:
    """Files of tasks count as stored when they are taken."""
    rightly(files, given, files._clock(), data_path)


@rule(
    "On a keyed table the steps of each task have numbers behind those of the results before it.",
    Fails(
        "tests/writers/test_keyed_tasks.py::test_of_one_key_in_two_tasks_the_row_of_the_later_result_is_the_only_one"
    ),
)
@breaks("writers.files.upsert_steps.Steps.add_stored")
def tasks_share_their_numbers(rightly: Any, steps: Any, given: Any, at: Any, data_path: str) -> None:
    """The steps of all tasks have the same numbers."""
    base, last = steps._number, steps._number
    for item in given:
        steps._number = base
        rightly(steps, [item], at, data_path)
        last = max(last, steps._number)
    steps._number = last
