"""
Orphans: files that nothing names, and the order in which is asked who names them.
"""

from datetime import datetime, timedelta
from typing import Any
from unittest import mock

from bookkeeper.errors import Retry
from tests.rules.rule import Chapter, Patch, breaks, set_value
from tests.rules.systems import Fails, Simulated

rule = Chapter()
ORPHANS = "tests/reaper/test_orphans.py::"


@rule(
    "The disk is listed first, the folder read second, the table loaded last: a file on its way is named somewhere.",
    Fails(f"{ORPHANS}test_a_replay_of_an_old_rejected_txlog_loses_no_file_however_it_meets_a_sweep"),
)
@breaks("reaper.orphans.find_orphans")
def the_table_is_loaded_first(rightly: Any, context: Any, now: datetime, older_than: timedelta | None = None) -> Any:
    """The table is loaded before disk and folder."""
    table = context.load()
    with mock.patch.object(type(context), "load", return_value=table):
        return rightly(context, now, older_than)


@rule(
    "A file goes only when two sweeps an hour apart found it unnamed.",
    Fails(f"{ORPHANS}test_an_old_unnamed_file_goes_when_two_sweeps_an_hour_apart_found_it"),
)
@breaks("reaper.orphans.Orphan.due")
def one_sweep_is_enough(rightly: Any, orphan: Any, now: datetime) -> bool:
    """A file that is found unnamed goes at once."""
    return True


@rule(
    "A file goes only when it is older than the orphan age, which a writer's files never are when they are published.",
    Fails(f"{ORPHANS}test_a_young_file_stays_and_so_does_one_that_was_written_again"),
)
@breaks("reaper.orphans.age_of")
def young_files_are_orphans(rightly: Any, context: Any, older_than: Any = None) -> timedelta:
    """A file of any age is an orphan."""
    return timedelta(0)


@rule(
    "The orphan age is never under an hour.",
    Fails(f"{ORPHANS}test_an_age_below_an_hour_is_refused"),
)
def any_orphan_age(patch: Patch) -> None:
    """A person may give any age."""
    set_value(patch, "reaper.orphans.LEAST_AGE", timedelta(0))


@rule(
    "What a txlog, a rewrite or the journal names is no orphan.",
    Fails(f"{ORPHANS}test_what_a_txlog_names_stays"),
)
@breaks("reaper.orphans.txlogs.named")
def txlogs_name_no_file(rightly: Any, store: Any) -> set[str]:
    """The folder is not read."""
    return set()


@rule(
    "What the journal names is the journal's.",
    Fails(f"{ORPHANS}test_what_the_journal_names_is_the_journals"),
)
@breaks("reaper.orphans.journals.read")
def the_journal_names_no_file(rightly: Any, store: Any) -> None:
    """The journal is not read."""


@rule(
    "A txlog that cannot be read stops the sweep if it may still get in.",
    Fails(f"{ORPHANS}test_a_txlog_that_cannot_be_read_stops_the_sweep_if_it_may_still_get_in"),
)
@breaks("reaper.files.txlogs._paths")
def an_unreadable_txlog_names_no_file(rightly: Any, key: str, data: bytes, folder: str) -> set[str]:
    """A txlog that does not decode names nothing."""
    try:
        found: set[str] = rightly(key, data, folder)
        return found
    except Retry:
        return set()


@rule(
    "Metadata files of an attempt go only once `main` has moved on from it.",
    Fails(f"{ORPHANS}test_manifests_of_a_lost_attempt_go_once_main_has_moved_on"),
)
def attempts_are_orphans(patch: Patch) -> None:
    """An attempt may be under way when its manifests go."""
    set_value(patch, "reaper.orphans.MARGIN", -timedelta(days=10**4))


@rule(
    "What no txlog is named after goes only once `main` has moved: a commit that stands still may name it yet.",
    Fails(f"{ORPHANS}test_what_a_commit_under_way_may_still_name_stays_until_main_has_moved_on"),
)
@breaks("reaper.orphans._is_of_writer")
def every_file_is_a_writers(rightly: Any, location: str) -> bool:
    """Files of folds and rewrites go by their age, like those of writers."""
    return True


@rule(
    "What a writer left goes by its age, also where nothing is committed.",
    Fails(f"{ORPHANS}test_what_a_writer_left_goes_by_age_alone"),
)
@breaks("reaper.orphans._is_of_writer")
def no_file_is_a_writers(rightly: Any, location: str) -> bool:
    """Files of writers wait for a commit."""
    return False


@rule(
    "Nothing goes while marks.json knows a later commit than the table: its files would look like orphans.",
    Fails(f"{ORPHANS}test_nothing_goes_while_marks_json_knows_a_later_commit_than_the_table"),
    Fails("tests/reaper/test_races.py::test_a_table_put_back_from_a_backup_keeps_the_files_of_what_came_after"),
)
@breaks("reaper.orphans.check_not_older", "reaper.run.check_not_older")
def an_older_table_is_swept(rightly: Any, metadata: Any, copy: Any) -> None:
    """An old table is swept like any other."""


@rule(
    "Very many orphans want a person.",
    Fails(f"{ORPHANS}test_very_many_orphans_want_a_person"),
)
def any_number_of_orphans(patch: Patch) -> None:
    """Any number of files may go at once."""
    set_value(patch, "reaper.orphans.FEW", 10**9)


@rule(
    "Only files below the table's data and metadata folders are swept, and none that belongs to another program.",
    Fails(f"{ORPHANS}test_what_is_not_the_tables_own_kind_of_file_stays"),
)
@breaks("reaper.orphans._may_be_swept")
def any_file_is_swept(rightly: Any, location: str, root: str, partitions: Any) -> bool:
    """Whatever lies there may go."""
    return True


@rule(
    "What is named at another location keeps each file of its name: a link, or an alias, may lead from there to here.",
    Fails("tests/reaper/test_other_ways.py::test_files_that_are_named_by_the_old_location_stay_and_an_orphan_goes"),
)
@breaks("reaper.orphans._known_by")
def locations_alone_name_files(rightly: Any, named: Any, roots: Any) -> Any:
    """A file is named by its location only."""
    return iter(named)


@rule(
    "DELETED entries name their files: an older snapshot that stays may still have them.",
    Simulated(6000),
    Fails("tests/reaper/test_orphans.py::test_an_old_unnamed_file_goes_when_two_sweeps_an_hour_apart_found_it"),
)
@breaks("reaper.orphans._referenced")
def only_the_head_names_files(rightly: Any, table: Any, reader: Any) -> Any:
    """Files of the head alone are named."""
    from types import SimpleNamespace

    metadata = table.metadata
    head = metadata.current_snapshot()
    seen = SimpleNamespace(
        metadata=SimpleNamespace(
            metadata_log=metadata.metadata_log,
            statistics=metadata.statistics,
            partition_statistics=metadata.partition_statistics,
            snapshots=[head] if head else [],
        ),
        metadata_location=table.metadata_location,
    )
    return rightly(seen, reader)
