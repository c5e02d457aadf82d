"""
The commit: guard, marks and files in one compare-and-swap, and what is believed of its answer.
"""

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.manifest import DataFile as IcebergDataFile
from pyiceberg.manifest import DataFileContent, FileFormat
from pyiceberg.table.update import SetPropertiesUpdate
from pyiceberg.typedef import Record

from bookkeeper.catalogs import commit as catalogs
from bookkeeper.config.units import epoch_ms
from bookkeeper.contract import marks as marks_format
from bookkeeper.contract import marks_json
from bookkeeper.errors import BookkeeperError, CommitConflict, CommitUnknown
from bookkeeper.format.entries import DataFile
from bookkeeper.ledger.build_commit import CommitAttempt
from bookkeeper.ledger.commit_clock import CommitClock
from bookkeeper.ledger.ledger import Ledger
from bookkeeper.ledger.view import View
from tests.chaos.scenes.ticking import Ticking
from tests.rules.rule import Chapter, Patch, breaks, put, set_value
from tests.rules.systems import Fails, Killed, Modelled, Recorded, Scene, Simulated
from tests.support.faults import AFTER, BEFORE

rule = Chapter()
OUTCOMES = "tests/tick/test_outcomes.py::"
CATALOGS = "tests/catalogs/test_faults.py::"


@rule(
    "A commit holds only while `main` is the snapshot whose marks it was made from.",
    Simulated(6000),
    Recorded(24),
    Modelled("Guard"),
    Fails(f"{OUTCOMES}test_an_attempt_that_is_applied_after_our_retry_is_refused_by_its_guard"),
    Fails(f"{CATALOGS}test_no_row_is_lost_or_doubled_whatever_happens_to_a_commit[rest-late_after]"),
)
@breaks("bookkeeper.ledger.build_commit.commit_guards")
def main_is_not_guarded(rightly: Any, view: View) -> Any:
    """A commit is guarded by the table's uuid alone."""
    return rightly(view)[:1]


@rule(
    "A commit holds only while the table has the uuid that was loaded.",
    Fails("tests/catalogs/test_contract.py::test_a_commit_to_another_table_of_that_name_is_refused"),
)
@breaks("bookkeeper.ledger.build_commit.commit_guards")
def the_uuid_is_not_guarded(rightly: Any, view: View) -> Any:
    """A commit is guarded by `main` alone, which is null in every empty table."""
    return rightly(view)[1:]


@rule(
    "No commit leaves files in the table whose marks a later commit moves.",
    Simulated(400, "the marks do not say so"),
    Recorded(1),
    Modelled("MarksInCommit"),
    Scene(Ticking, AFTER, "commit_table", "double"),
)
@breaks("bookkeeper.ledger.ledger.Ledger.append")
def marks_after_the_files(rightly: Any, ledger: Ledger, view: View, txlogs: Any, marks: Any, beside: Any = ()) -> View:
    """The files are committed first, and the marks that say so in a commit of their own."""
    after = rightly(ledger, view, txlogs, view.marks, beside)
    carried = replace(marks, snapshot=after.marks.snapshot)
    change = SetPropertiesUpdate(updates={marks_format.PROPERTY: marks_json.dumps(carried)})
    catalogs.commit(after.table, (), (change,))
    return View(ledger.catalog.load_table(ledger.identifier), carried)


@rule(
    "No commit moves marks before the files that they speak of are in the table.",
    Simulated(6000),
    Recorded(1),
    Scene(Ticking, AFTER, "commit_table", "missing"),
)
@breaks("bookkeeper.ledger.ledger.Ledger.append")
def marks_before_the_files(rightly: Any, ledger: Ledger, view: View, txlogs: Any, marks: Any, beside: Any = ()) -> View:
    """The marks are committed first, and the files that they speak of in a commit of their own."""
    change = SetPropertiesUpdate(updates={marks_format.PROPERTY: marks_json.dumps(marks)})
    catalogs.commit(view.table, (), (change,))
    return rightly(ledger, View(ledger.catalog.load_table(ledger.identifier), marks), txlogs, marks, beside)


@rule(
    "After an unknown outcome the table is loaded and its marks are read again.",
    Simulated(6000),
    Recorded(12),
    Scene(Ticking, AFTER, "commit_table", "double", errors=True),
    Fails(f"{CATALOGS}test_no_row_is_lost_or_doubled_whatever_happens_to_a_commit"),
)
def old_marks_after_an_unknown_outcome(patch: Patch) -> None:
    """It goes on with the marks that it knew, on whatever head there is now."""

    def load(rightly: Any, ledger: Any, folder: str, accept_rollback: bool = False) -> View:
        seen = rightly(ledger, folder, accept_rollback)
        ledger.known = getattr(ledger, "known", None) or seen.marks
        return View(seen.table, ledger.known)

    def commit(rightly: Any, ledger: Any, view: View) -> CommitAttempt:
        made: Any = rightly(ledger, view)
        made.ledger = ledger
        return made  # type: ignore[no-any-return]

    def send(rightly: Any, commit: Any, marks: Any, beside: Any = ()) -> View:
        after: View = rightly(commit, marks, beside)
        commit.ledger.known = after.marks
        return after

    put(patch, "bookkeeper.ledger.ledger.Ledger.load", load)
    put(patch, "bookkeeper.ledger.ledger.Ledger.commit", commit)
    put(patch, "bookkeeper.ledger.build_commit.CommitAttempt.send", send)


@rule(
    "An unknown outcome is no success: only a reply to this attempt says that it is in.",
    Simulated(6000),
    Modelled("OwnReply"),
    Scene(Ticking, BEFORE, "commit_table", "missing", errors=True),
    Fails(f"{OUTCOMES}test_an_error_of_the_catalog_leaves_every_row_in_once"),
    Fails(f"{CATALOGS}test_no_row_is_lost_or_doubled_whatever_happens_to_a_commit"),
)
@breaks("bookkeeper.ledger.ledger.Ledger.append")
def an_unknown_outcome_is_success(
    rightly: Any, ledger: Ledger, view: View, txlogs: Any, marks: Any, beside: Any = ()
) -> View:
    """A commit without an answer counts as done."""
    try:
        return rightly(ledger, view, txlogs, marks, beside)
    except CommitUnknown:
        return View(view.table, replace(marks, snapshot=view.marks.snapshot))


@rule(
    "No library commits again what was refused: only the marks know what is in.",
    Fails("tests/catalogs/test_faults.py::test_no_row_is_lost_or_doubled_whatever_happens_to_a_commit"),
)
@breaks("bookkeeper.ledger.ledger.Ledger.append")
def pyiceberg_tries_again(rightly: Any, ledger: Ledger, view: View, txlogs: Any, marks: Any, beside: Any = ()) -> View:
    """Commits as pyiceberg's documentation says, with pyiceberg's own retry."""
    transaction = view.table.transaction()
    # The snapshot's id is not known yet, so these marks name none.
    carried = replace(marks, snapshot=None)
    transaction.set_properties({marks_format.PROPERTY: marks_json.dumps(carried)})
    with transaction.update_snapshot().fast_append() as append:
        for txlog in txlogs:
            for file in txlog.files:
                append.append_data_file(_as_pyiceberg(file, txlog.spec_id))
    try:
        return View(transaction.commit_transaction(), carried)
    except CommitFailedException as exc:
        raise CommitConflict(str(exc)) from exc
    except Exception as exc:
        raise CommitUnknown(str(exc)) from exc


def _as_pyiceberg(file: DataFile, spec_id: int) -> IcebergDataFile:
    made = IcebergDataFile.from_args(
        content=DataFileContent.DATA,
        file_path=file.path,
        file_format=FileFormat.PARQUET,
        partition=Record(*file.partition),
        record_count=file.record_count,
        file_size_in_bytes=file.size_bytes,
    )
    made.spec_id = spec_id
    return made


@rule(
    "The compare-and-swap waits until every file of the commit is durable.",
    Simulated(400, "is not there"),
    Scene(Ticking, AFTER, "commit_table", "wrong"),
    Fails("tests/tick/test_flight.py::test_the_swap_is_not_sent_before_all_of_the_writes_are_durable"),
)
def the_swap_before_its_files(patch: Patch) -> None:
    """What a commit writes is sent and not waited for: it arrives after the compare-and-swap."""

    def write(rightly: Any, commit: Any, needed: Sequence[Any], spare: Sequence[Any]) -> list[Exception]:
        commit.under_way = [*needed, *spare]
        return []

    def send(rightly: Any, commit: Any, *given: Any) -> View:
        after: View = rightly(commit, *given)
        for task in commit.under_way:
            task()
        return after

    put(patch, "bookkeeper.ledger.build_commit.CommitAttempt._write", write)
    put(patch, "bookkeeper.ledger.build_commit.CommitAttempt.send", send)


@rule(
    "No file of an attempt is deleted by the bookkeeper, also not of one that was refused: it may be in all the same.",
    Simulated(6000),
    Scene(Ticking, AFTER, "commit_table", "wrong", errors=True),
    Fails(f"{OUTCOMES}test_files_of_a_refused_attempt_are_left_to_the_orphan_sweep"),
)
@breaks("bookkeeper.ledger.build_commit.CommitAttempt.send")
def files_of_an_attempt_are_deleted(rightly: Any, commit: CommitAttempt, marks: Any, beside: Any = ()) -> View:
    """After an attempt that failed its manifests are deleted."""
    try:
        return rightly(commit, marks, beside)
    except Exception:
        for new in commit.snapshots:
            with suppress(BookkeeperError):
                new.unsent.store.delete_many([*new.unsent.objects])
        raise


@rule(
    "A txlog leaves pending/ only after the commit that holds it.",
    Simulated(400, "is deleted, and it is not in the table"),
    Recorded(1),
    Scene(Ticking, BEFORE, "commit_table", "missing"),
    Fails(f"{CATALOGS}test_no_row_is_lost_or_doubled_whatever_happens_to_a_commit"),
    Fails("tests/chaos/test_storms.py::test_storms_lose_and_double_nothing", timed=True),
    Killed(2),
)
@breaks("bookkeeper.tick.tick.Bookkeeper._commit")
def deleted_before_the_commit(rightly: Any, book: Any, tick: Any, attempt: Any) -> Any:
    """Txlogs are deleted before they are committed; the bookkeeper dawdles a little in between."""
    book.folder.delete(attempt.batch.names)
    time.sleep(0.1)
    return rightly(book, tick, attempt)


@rule(
    "A txlog is deleted only once marks.json says that it is in: writers read pending/ first, then the marks.",
    Modelled("CopyFirst"),
    Fails("tests/tick/test_tick.py::test_nothing_is_deleted_before_marks_json_says_that_it_is_in"),
)
@breaks("bookkeeper.ledger.marks_publisher.MarksPublisher.publish")
def deleted_without_marks_json(
    rightly: Any, publisher: Any, view: View, even_older: bool = False, verify: bool = False
) -> None:
    """A tick goes on, and deletes, though marks.json could not be written."""
    with suppress(BookkeeperError):
        rightly(publisher, view, even_older, verify)


@rule(
    "marks.json is never replaced by an older one.",
    Modelled("CopyNewer"),
    Fails("tests/tick/test_marks.py::test_marks_json_is_never_replaced_by_an_older_one"),
    Fails("tests/contract/test_folder_records_contract.py::test_marks_are_never_replaced_by_older_ones"),
)
@breaks("bookkeeper.contract.txlog_folder.Folder.publish_marks")
def marks_json_goes_back(rightly: Any, folder: Any, copy: Any, even_older: bool = False) -> Any:
    """Who writes marks.json last is right."""
    return rightly(folder, copy, True)


@rule(
    "An attempt that is older than ten minutes is built anew: the orphan sweep may take its files.",
    Fails(f"{OUTCOMES}test_an_attempt_that_took_too_long_is_built_anew"),
    Fails("tests/tick/test_flight.py::test_an_attempt_that_waited_too_long_for_its_writes_sends_no_swap"),
)
def old_attempts_are_sent(patch: Patch) -> None:
    """An attempt is sent however old it is."""
    set_value(patch, "bookkeeper.ledger.build_commit.ATTEMPT_AGE", timedelta.max)


@rule(
    "The times of snapshots rise, whatever the clock does: Spark refuses a log that is not sorted.",
    Fails("tests/tick/test_clocks.py::test_snapshot_times_never_go_back_when_the_clock_does"),
)
@breaks("bookkeeper.ledger.commit_clock.CommitClock.snapshot_ms")
def times_go_back(rightly: Any, clock: CommitClock, view: View, now: datetime) -> int:
    """A snapshot has the time of our clock."""
    return epoch_ms(clock.stamp(now))


@rule(
    "Nobody commits whose clock is more than 30 s behind the table's last update.",
    Fails("tests/tick/test_clocks.py::test_a_clock_31_s_behind_commits_nothing_until_it_has_caught_up"),
)
@breaks("bookkeeper.ledger.commit_clock.CommitClock.check_behind")
def a_clock_behind_commits(rightly: Any, clock: CommitClock, view: View) -> datetime:
    """Any clock is right."""
    return clock()


@rule(
    "A commit is stamped by the storage's time where our clock is ahead of it, so that others can commit after it.",
    Fails(
        "tests/tick/test_clocks.py::"
        "test_a_clock_55_minutes_ahead_stamps_the_storages_time_and_the_next_bookkeeper_commits_at_once"
    ),
)
@breaks("bookkeeper.ledger.commit_clock.CommitClock.stamp")
def stamped_by_a_clock_ahead(rightly: Any, clock: CommitClock, now: datetime) -> datetime:
    """A commit has the time of our clock, however far it is ahead."""
    return now
