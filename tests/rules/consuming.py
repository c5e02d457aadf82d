"""
Consumers in Python: what they read, where their place is, and who moves it. Sources: where a load goes on.
"""

from datetime import UTC, datetime
from typing import Any

from bookkeeper.consumers.registration import Registration
from bookkeeper.errors import NotPossible
from tests.rules.rule import Chapter, Patch, breaks, set_value
from tests.rules.systems import Fails, Simulated
from writers.sources.source import SourcePosition

rule = Chapter()
CONSUMER = "tests/consumers/test_consumer.py::"
FENCE = "tests/consumers/test_fence.py::"
LOST = "tests/consumers/test_lost.py::"
GROUP = "tests/consumers/test_consumer_group.py::"


@rule(
    "A reader from the beginning takes all files of the oldest snapshot, unless nothing was there before it.",
    Fails("tests/consumers/test_upgraded.py::test_who_comes_after_its_first_snapshots_expired_misses_nothing"),
)
@breaks("bookkeeper.history.main_history.is_first")
def a_small_number_is_the_first(rightly: Any, snapshot: Any, others: int = 0) -> bool:
    """The number tells, whatever files were there before."""
    return snapshot.parent_snapshot_id is None and (snapshot.sequence_number or 0) <= 1


@rule(
    "A consumer reads what appends add, and passes over rewrites and retention.",
    Simulated(6000),
    Fails(f"{CONSUMER}test_rewrites_and_retention_are_passed_over"),
)
@breaks("bookkeeper.consumers.unread.is_append")
def rewrites_are_read(rightly: Any, snapshot: Any) -> bool:
    """What any snapshot adds is read."""
    return True


@rule(
    "An overwrite of others ends a consumer: what it changed cannot be said in rows.",
    Fails(f"{CONSUMER}test_an_overwrite_of_others_is_an_error_after_the_rows_before_it"),
)
@breaks("bookkeeper.consumers.consumer.work")
def overwrites_are_passed_over(rightly: Any, history: Any, place: Any, overwritten: Any = None) -> Any:
    """An overwrite is passed over like a rewrite."""
    return rightly(history, place, lambda snapshot: None)


@rule(
    "Rows and place are one transaction: what is in the output is passed, and nothing else is.",
    Fails("tests/consumers/test_consumer_crashes.py::test_a_kill_at_any_change_loses_no_row_and_doubles_none"),
)
@breaks("bookkeeper.consumers.place_keepers.SqlPlace._swap")
def the_place_in_a_transaction_of_its_own(rightly: Any, place: Any, *given: Any) -> None:
    """The rows are committed before the place moves."""
    place._connection.commit()
    rightly(place, *given)


@rule(
    "A place in a database moves only by the run that opened it last.",
    Fails(f"{FENCE}test_a_run_is_fenced_once_another_has_opened_also_before_that_moves_the_place"),
)
@breaks(
    "bookkeeper.consumers.place_keepers.SqlPlace._changed", "bookkeeper.consumers.place_keepers.DuckDBPlace._changed"
)
def epochs_are_not_compared(rightly: Any, place: Any, statement: str, *values: Any) -> int:
    """An earlier run moves the place on."""
    if "epoch = ? AND " in statement:
        after, consumer, _, before = values
        return int(rightly(place, statement.replace("epoch = ? AND ", ""), after, consumer, before))
    return int(rightly(place, statement, *values))


@rule(
    "A place in a file is created whole, and only where its number is free.",
    Fails(f"{CONSUMER}test_a_run_that_was_taken_over_commits_nothing"),
)
@breaks("bookkeeper.consumers.place_keepers.create_once")
def places_are_replaced(rightly: Any, store: Any, key: str, data: bytes, consumed: bool = False) -> None:
    """Who writes a place last is right."""
    store.replace(key, data)


@rule(
    "A place in the folder moves only by the run that took it over last.",
    Fails(f"{CONSUMER}test_a_run_with_its_place_in_the_folder_is_fenced_too"),
)
@breaks("bookkeeper.consumers.registration.Registration._swapped")
def records_are_replaced(rightly: Any, registration: Registration, wanted: Any) -> bool:
    """The record is written whatever is there."""
    from bookkeeper.history.registry import dumps, key_of

    registration._tag = registration._folder.replace(key_of(registration.name), dumps(wanted))
    registration.record = wanted
    return True


@rule(
    "The record in the folder never passes a place that is not durable: the reaper keeps more, never less.",
    Fails(f"{CONSUMER}test_the_record_never_passes_a_place_that_may_be_rolled_back"),
)
@breaks("bookkeeper.consumers.place_keepers.SqlPlace.durable")
def open_transactions_are_durable(rightly: Any, place: Any, consumer: str) -> Any:
    """A place counts as durable before its transaction ends."""
    found = place._execute("SELECT place FROM bookkeeper_places WHERE consumer = ?", consumer)
    return str(found[0][0]) if found else None


@rule(
    "After a rollback of `main` a consumer stops: rows that it has read are gone.",
    Fails(f"{CONSUMER}test_a_rollback_of_main_is_an_error_that_says_what_to_do"),
    Fails(f"{CONSUMER}test_after_a_rollback_whose_snapshots_are_expired_no_row_is_read_twice"),
)
@breaks("bookkeeper.consumers.place_on_main._in_common")
def rollbacks_are_expiry(rightly: Any, history: Any, place: Any) -> None:
    """What main has in common with a place is not asked."""


@rule(
    "A consumer that has fallen behind the expiry stops: rows are lost to it.",
    Fails(f"{CONSUMER}test_falling_behind_expiry_is_an_error_that_says_what_to_do"),
)
@breaks("bookkeeper.consumers.unread.ahead")
def lost_rows_are_passed_over(rightly: Any, history: Any, place: Any) -> Any:
    """It goes on with the oldest snapshot that is kept."""
    from bookkeeper.errors import PlaceExpired

    try:
        return rightly(history, place)
    except PlaceExpired:
        return history.snapshots


@rule(
    "A file with other rows than the table counts is an error: a place counts rows.",
    Fails(f"{CONSUMER}test_a_file_with_other_rows_than_the_table_counts_is_an_error"),
)
@breaks("bookkeeper.consumers.reader.Reader._pieces")
def rows_of_a_file_are_not_counted(rightly: Any, reader: Any, item: Any, data: Any) -> Any:
    """However many rows a file has, it is read."""
    try:
        yield from rightly(reader, item, data)
    except NotPossible:
        return


@rule(
    "A batch that was not committed ends the run: else its rows come twice.",
    Fails(f"{CONSUMER}test_a_batch_that_is_not_committed_ends_the_run"),
)
@breaks("bookkeeper.consumers.consumer.Consumer._check_committed")
def uncommitted_batches_are_passed(rightly: Any, consumer: Any, batch: Any) -> Any:
    """A batch counts as committed once the next is asked for."""
    consumer.place = batch.place
    return rightly(consumer, batch)


@rule(
    "A run whose place is in the folder hands out nothing once another has taken over.",
    Fails(f"{FENCE}test_a_run_whose_place_is_in_the_folder_hands_out_nothing_once_another_has_taken_over"),
)
@breaks("bookkeeper.consumers.registration.Registration.check")
def the_fence_is_met_too_late(rightly: Any, registration: Registration) -> None:
    """Output is handed out, and only its commit is refused."""


@rule(
    "Catching up is refused where a rewrite may have put read and unread rows into one file.",
    Fails(f"{LOST}test_files_that_a_rewrite_made_of_read_and_unread_rows_are_refused_and_the_place_stays"),
)
@breaks("bookkeeper.consumers.lost._odd")
def mixed_files_are_read_again(rightly: Any, entries: Any) -> None:
    """Every file holds rows of one commit."""


@rule(
    "Catching up is refused where delete files hide rows of the files.",
    Fails(f"{LOST}test_on_a_keyed_table_with_delete_files_catching_up_is_refused"),
)
@breaks("bookkeeper.consumers.snapshot_files.AllFiles.may_be_hidden")
def delete_files_hide_nothing(rightly: Any, found: Any) -> bool:
    """A table has no delete files."""
    return False


@rule(
    "Catching up is refused where the place's number is unknown, or its snapshot was read in part.",
    Fails(f"{LOST}test_a_snapshot_that_is_read_in_part_and_expired_is_refused"),
    Fails(f"{LOST}test_a_place_of_which_nothing_is_left_in_the_table_is_refused"),
)
@breaks("bookkeeper.consumers.lost._Oldest.in_doubt")
def doubtful_places_catch_up(rightly: Any, oldest: Any, place: Any) -> None:
    """Any place tells what was read."""


@rule(
    "To skip lost rows tells how many live rows are passed over.",
    Fails(f"{LOST}test_skip_lost_says_how_many_live_rows_and_files_it_passes_over"),
    Fails(f"{LOST}test_of_rewritten_files_it_says_how_many_rows_at_most"),
)
@breaks("bookkeeper.consumers.consumer.skipped")
def lost_rows_are_not_counted(rightly: Any, *given: Any) -> Any:
    """The place moves, and the rows are not counted."""
    return type(found := rightly(*given))(found.place)


@rule(
    "To begin anew moves the place in the transaction that empties the output.",
    Fails(f"{LOST}test_restart_moves_the_place_with_the_transaction_that_empties_the_output"),
)
@breaks("bookkeeper.consumers.place_keepers.SqlPlace.move")
def places_move_at_once(rightly: Any, place: Any, *given: Any) -> None:
    """The move ends the transaction."""
    rightly(place, *given)
    place._end()


@rule(
    "A place that expiry took away before the record named it is chosen again.",
    Fails(f"{LOST}test_an_expiry_between_the_choice_and_the_record_is_met_by_another_choice"),
)
def places_are_chosen_once(patch: Patch) -> None:
    """The first choice counts."""
    set_value(patch, "bookkeeper.consumers.consumer._TRIES", 1)


@rule(
    "A consumer begins at no time that is still to come, or names no zone.",
    Fails(f"{LOST}test_a_time_that_has_not_come_or_names_no_zone_is_refused_with_a_hint"),
)
@breaks("bookkeeper.consumers.source.checked_time")
def consumers_begin_at_any_time(rightly: Any, start: datetime, now: datetime) -> datetime:
    """Any time will do, and one without a zone is in UTC."""
    return start.replace(tzinfo=start.tzinfo or UTC)


@rule(
    "Of two runs the later one has the greater epoch: output that compares it refuses the earlier run's.",
    Fails(f"{FENCE}test_of_two_runs_the_later_one_has_the_greater_epoch_and_its_batches_carry_it"),
    Fails(f"{FENCE}test_output_by_key_of_an_earlier_run_replaces_none_of_a_later_one_where_epochs_are_compared"),
)
@breaks("bookkeeper.consumers.registration._later")
def epochs_do_not_grow(rightly: Any, epoch: int) -> int:
    """Each run has the epoch of the one before."""
    return epoch


@rule(
    "A member asks for the share that another one borrowed.",
    Fails(f"{GROUP}test_a_member_that_joins_has_its_share_within_ten_seconds"),
)
@breaks("bookkeeper.consumers.share_leases.Request.ask")
def shares_are_not_asked_for(rightly: Any, request: Any, now: Any) -> None:
    """It waits until the share is offered."""


@rule(
    "A request for a share counts only when it was written since: one that a crash left gives nothing back.",
    Fails(f"{GROUP}test_a_request_that_a_member_left_behind_is_heard_once_at_most"),
)
@breaks("bookkeeper.consumers.share_leases.Request.is_new")
def old_requests_count(rightly: Any, request: Any, now: Any) -> bool:
    """Any request counts."""
    return bool(request._read())


@rule(
    "A load goes on where the last one ended.",
    Fails("tests/writers/test_lines.py::test_each_line_is_loaded_once_whichever_call_the_run_dies_at"),
)
@breaks("writers.loader.lines.place_of")
def loads_begin_anew(rightly: Any, files: Any, position: Any) -> SourcePosition:
    """Every load begins at the start of its files."""
    return SourcePosition()


@rule(
    "The position of a txlog is that of its last row, not of what was read ahead.",
    Fails("tests/writers/test_lines.py::test_each_line_is_loaded_once_whichever_call_the_run_dies_at"),
)
@breaks("writers.loader.lines.position_of")
def positions_run_ahead(rightly: Any, files: list[str], place: SourcePosition, began: bytes = b"") -> bytes:
    """The position is the end of the file, as soon as one of its rows is published."""
    import os

    end = SourcePosition(place.index, os.path.getsize(files[place.index]), 99)
    position: bytes = rightly(files, end, began)
    return position


@rule(
    "A Parquet or Arrow file is told by all of it: another one may have its size and its end.",
    Fails(
        "tests/writers/test_row_files.py::test_a_file_with_the_size_and_the_end_of_the_one_that_was_read_is_another_file"
    ),
)
@breaks("writers.sources.source.fingerprint")
def files_are_told_by_their_ends(rightly: Any, name: str) -> bytes:
    """Its size and its last 4 KiB are compared."""
    with open(name, "rb") as file:
        data = file.read()
    return b"%d:" % len(data) + data[-4096:]


@rule(
    "The last line of a file that may grow is taken once it is whole.",
    Fails("tests/writers/test_lines.py::test_a_last_line_that_was_cut_is_loaded_once_it_is_whole"),
)
@breaks("writers.loader.lines.is_cut_json")
def cut_lines_are_lines(rightly: Any, text: bytes) -> bool:
    """What is there counts as the line."""
    return False


@rule(
    "What follows in the line at which a file ended before is no line of its own.",
    Fails("tests/writers/test_lines.py::test_the_rest_of_a_cut_line_of_csv_is_no_row"),
)
@breaks("writers.loader.lines.is_within_line")
def rests_of_lines_are_lines(rightly: Any, name: str, offset: int) -> bool:
    """A run begins with a line wherever the last one ended."""
    return False
