"""
Expiry: what may go, the journal, the guarded commit, and the look before anything is deleted.
"""

from collections.abc import Collection
from dataclasses import replace
from typing import Any
from unittest import mock

import reaper.run
from bookkeeper.errors import BookkeeperError, Retry, StorageUnavailable
from bookkeeper.format import avro
from reaper.expiry import journal as journals
from reaper.expiry.journal import Journal
from reaper.expiry.verify_journal import Verdict
from reaper.files.expired import Files
from tests.chaos.scenes.reaping import Reaping
from tests.rules.rule import Chapter, Patch, breaks, put, set_value
from tests.rules.systems import Fails, Modelled, Scene, Simulated
from tests.support.faults import BEFORE

rule = Chapter()
RACES = "tests/reaper/test_races.py::"
PLAN = "tests/reaper/test_plan.py::"
FILES = "tests/reaper/test_files.py::"
TXLOGS = "tests/reaper/test_txlogs.py::"
GUARD = "tests/reaper/test_consumer_guard.py::"


@rule(
    "The journal is durable before the expiry is committed: a crash leaves no file unaccounted for.",
    Simulated(400, "no journal names their files"),
    Fails("tests/reaper/test_crash.py::test_a_run_killed_anywhere_is_finished_by_the_next"),
)
def the_journal_after_the_commit(patch: Patch) -> None:
    """The journal is written behind the commit."""
    write, expire = journals.write, reaper.run.expire

    def behind(rightly: Any, context: Any, table: Any, journal: Any) -> None:
        expire(context, table, journal)
        write(context.folder, journal)

    put(patch, "reaper.run.journals.write", lambda rightly, store, journal: journal)
    put(patch, "reaper.run.expire", behind)


@rule(
    "A journal that a crash left is finished by the next run.",
    Simulated(6000),
    Fails("tests/reaper/test_resume.py::test_a_journal_is_finished_after_hours_of_other_commits"),
)
@breaks("reaper.run.journals.read")
def the_journal_is_not_read(rightly: Any, store: Any) -> None:
    """No journal is looked for."""


@rule(
    "A journal is dropped only once its files are gone, or will never go.",
    Simulated(6000),
    Fails("tests/reaper/test_resume.py::test_a_journal_is_finished_after_hours_of_other_commits"),
)
@breaks("reaper.run.journals.read")
def the_journal_is_dropped_unread(rightly: Any, store: Any) -> None:
    """A journal that a crash left is dropped."""
    if (left := rightly(store)) is not None:
        journals.drop(store, left)


@rule(
    "Files are deleted after the commit that expires their snapshots.",
    Simulated(6000),
)
def files_before_the_commit(patch: Patch) -> None:
    """Files go and the commit does not."""
    put(patch, "reaper.run.expire", lambda rightly, context, table, journal: None)
    put(patch, "reaper.run.verify_journal", _unverified)


def _unverified(rightly: Any, context: Any, journal: Journal) -> tuple[Verdict, Any]:
    return Verdict(files=journal.files), context.load()


@rule(
    "Before anything is deleted, the plan is held against a new load of folder and table.",
    Modelled("Verify"),
    Simulated(6000),
    Scene(Reaping, BEFORE, "commit_table", "wrong"),
    Fails(f"{RACES}test_a_tag_made_between_plan_and_commit_is_restored_and_nothing_deleted"),
)
@breaks("reaper.run.verify_journal")
def no_second_look(rightly: Any, context: Any, journal: Journal) -> tuple[Verdict, Any]:
    """The reaper deletes what its journal says, whatever the table says now."""
    return Verdict(files=journal.files), context.load()


@rule(
    "Before a deletion the folder is read first and the table last: a txlog that leaves the folder is in the table.",
    Fails(f"{RACES}test_a_txlog_that_is_committed_between_the_reads_of_folder_and_table_keeps_its_file"),
)
@breaks("reaper.run.finish")
def the_table_before_the_folder(rightly: Any, context: Any, journal: Journal) -> Any:
    """The table is loaded before the folder is read."""
    table = context.load()
    with mock.patch.object(type(context), "load", return_value=table):
        return rightly(context, journal)


@rule(
    "No data file is deleted that a pending or rejected txlog, or a rewrite, names.",
    Fails(f"{TXLOGS}test_a_txlog_published_after_the_plan_keeps_its_files"),
    Fails(f"{TXLOGS}test_a_data_file_that_a_txlog_names_stays_and_the_rest_goes"),
)
@breaks("reaper.files.txlogs.named")
def txlogs_name_nothing(rightly: Any, store: Any) -> set[str]:
    """The folder is not read."""
    return set()


@rule(
    "Delete files that a txlog names are kept like its data files.",
    Simulated(6000),
    Fails(f"{TXLOGS}test_a_delete_file_that_a_txlog_names_stays"),
    Fails("tests/reaper/test_keyed.py::test_the_sweep_keeps_live_delete_files_and_those_of_a_waiting_txlog"),
)
@breaks("reaper.files.txlogs._paths")
def delete_files_are_not_named(rightly: Any, key: str, data: bytes, folder: str) -> Any:
    """Of a txlog only its data files are asked for."""
    whole = avro.read_header

    def without_deletes(data: bytes) -> avro.Header:
        found = whole(data)
        return found._replace(meta={key: value for key, value in found.meta.items() if key != "bookkeeper.deletes"})

    with mock.patch.object(avro, "read_header", without_deletes):
        return rightly(key, data, folder)


@rule(
    "A txlog that cannot be read now stops every deletion: what it names is unknown.",
    Fails(f"{TXLOGS}test_an_unreadable_pending_txlog_stops_the_run_this_time"),
    Fails(f"{TXLOGS}test_storage_that_fails_on_one_txlog_stops_the_run"),
)
@breaks("reaper.files.txlogs._named_in")
def unreadable_txlogs_name_nothing(rightly: Any, store: Any, folder: str, suffix: str) -> Any:
    """A txlog that cannot be read is passed over."""
    found = rightly(store, folder, suffix)
    while True:
        try:
            yield next(found)
        except StopIteration:
            return
        except (Retry, StorageUnavailable):
            return


@rule(
    "No data file is deleted that a snapshot which stays can read, though it is listed twice or was added again.",
    Fails(f"{FILES}test_a_file_that_is_listed_twice_stays_as_long_as_a_snapshot_reads_it"),
    Fails(f"{FILES}test_a_file_that_was_added_again_after_its_deletion_lives"),
    Fails("tests/reaper/test_live_paths.py::test_a_file_that_a_snapshot_reads_stays_by_what_an_earlier_run_read"),
)
@breaks("reaper.expiry.verify_journal._readable")
def readable_files_go(rightly: Any, context: Any, table: Any, files: Files) -> frozenset[str]:
    """Only DELETED entries say what goes."""
    return frozenset()


@rule(
    "No file is deleted that a snapshot made since the plan names.",
    Fails(f"{RACES}test_a_branch_grown_from_an_expiring_snapshot_keeps_its_files"),
)
@breaks("reaper.expiry.verify_journal._named_since")
def later_snapshots_name_nothing(rightly: Any, reader: Any, table: Any, journal: Any) -> Any:
    """What came since the plan is not read."""
    return iter(())


@rule(
    "With a snapshot go only files that no other snapshot has.",
    Fails(f"{FILES}test_whatever_the_history_nothing_reachable_goes_and_nothing_else_stays[0]"),
)
@breaks("reaper.run.deletable")
def all_files_of_a_snapshot_go(rightly: Any, metadata: Any, reader: Any, expire: Collection[int]) -> Files:
    """With a snapshot goes every file that it has."""
    snapshots = [item for item in metadata.snapshots if item.snapshot_id in expire]
    lines = reader.by_path(snapshots).values()
    return Files(data={entry.path: entry.bytes for _, entries in reader.files(lines) for entry in entries})


@rule(
    "The expiry is guarded by every ref that its plan saw.",
    Modelled("ExpireGuard"),
    Simulated(6000),
    Fails(f"{RACES}test_a_rollback_between_plan_and_commit_stops_the_expiry"),
)
@breaks("reaper.expiry.expire.guards")
def expiry_without_guards(rightly: Any, metadata: Any) -> tuple[()]:
    """The expiry holds against any table."""
    return ()


@rule(
    "After a conflict the expiry goes on only where the table differs by children of its `main`.",
    Fails(f"{RACES}test_other_refs_that_moved_stop_the_expiry"),
    Fails(f"{RACES}test_a_rollback_between_plan_and_commit_stops_the_expiry"),
)
@breaks("reaper.expiry.expire.check_covered")
def any_change_is_covered(rightly: Any, metadata: Any, journal: Any) -> None:
    """After a conflict the plan is sent again against whatever there is."""


@rule(
    "After a conflict with commits on top the expiry is tried again: else a busy table never expires.",
    Fails(f"{RACES}test_a_busy_table_gets_through_twenty_appends_between_plan_and_commit"),
)
def one_attempt_to_expire(patch: Patch) -> None:
    """A conflict ends the run."""
    set_value(patch, "reaper.expiry.expire.MOST_ATTEMPTS", 1)


@rule(
    "A ref that the commit removed unseen is restored, and nothing is deleted.",
    Fails(f"{RACES}test_a_tag_made_between_plan_and_commit_is_restored_and_nothing_deleted"),
    Fails("tests/reaper/test_crash.py::test_a_tag_made_in_the_last_moment_survives_a_run_killed_anywhere"),
)
@breaks("reaper.expiry.verify_journal._lost_refs")
def lost_refs_are_not_seen(rightly: Any, context: Any, table: Any, journal: Any) -> tuple[()]:
    """A tag that was made between plan and commit is gone."""
    return ()


@rule(
    "Nothing is deleted of a table that was dropped and made anew.",
    Fails(f"{RACES}test_a_table_dropped_and_made_anew_loses_nothing"),
)
def another_tables_journal(patch: Patch) -> None:
    """Neither the journal's uuid is compared, nor is the metadata looked for that its commit replaced."""

    def refusal(rightly: Any, context: Any, metadata: Any, journal: Journal) -> Any:
        return rightly(context, metadata, replace(journal, table_uuid=str(metadata.table_uuid)))

    put(patch, "reaper.expiry.verify_journal._refusal", refusal)
    put(patch, "reaper.expiry.verify_journal._lost_refs", lambda rightly, context, table, journal: ())


@rule(
    "A commit that never arrived deletes nothing.",
    Fails(f"{RACES}test_a_commit_that_never_arrived_deletes_nothing"),
)
@breaks("reaper.expiry.expire.commit")
def an_unknown_expiry_is_success(rightly: Any, *given: Any) -> Any:
    """An expiry without an answer counts as done, and its snapshots as gone."""
    try:
        return rightly(*given)
    except BookkeeperError:
        return None


@rule(
    "With gc.enabled = false nothing is deleted.",
    Fails(f"{FILES}test_gc_disabled_deletes_nothing_at_all"),
    Fails("tests/reaper/test_resume.py::test_gc_disabled_after_the_commit_deletes_nothing"),
)
@breaks(
    "reaper.expiry.expiry_plan.rules", "reaper.expiry.verify_journal.rules", "reaper.orphans.rules", "reaper.run.rules"
)
def gc_is_always_enabled(rightly: Any, settings: Any, properties: Any, main: Any = None) -> Any:
    """The table's property is not asked."""
    return rightly(settings, {key: value for key, value in properties.items() if key != "gc.enabled"}, main)


@rule(
    "Of `main` a contiguous prefix expires: a stream stops at a snapshot that is missing.",
    Fails(f"{PLAN}test_a_tag_holds_its_snapshot_and_all_after_it_so_that_history_stays_contiguous"),
    Fails(f"{PLAN}test_main_stays_contiguous_and_refs_keep_their_snapshots"),
)
@breaks("reaper.expiry.expiry_plan._on_main")
def main_expires_in_pieces(rightly: Any, *given: Any) -> dict[int, Any]:
    """A snapshot behind a kept one expires."""
    found = rightly(*given)
    return {snapshot: () if why == ("after a kept one",) else why for snapshot, why in found.items()}


@rule(
    "The newest append never expires: the offset of a stream that has read everything names it.",
    Fails(f"{PLAN}test_the_newest_append_stays_below_later_deletes_and_replaces"),
)
@breaks("reaper.expiry.expiry_plan._newest_append")
def the_newest_append_expires(rightly: Any, history: Any) -> None:
    """No append is the newest."""


@rule(
    "The snapshot of the marks never expires: without it a rollback cannot be told from an expiry.",
    Fails(f"{PLAN}test_the_snapshot_of_the_marks_and_all_after_it_stay"),
)
@breaks("reaper.expiry.expiry_plan._starts")
def the_marks_snapshot_expires(rightly: Any, *given: Any) -> Any:
    """The marks' snapshot is like any other."""
    return ((reason, index) for reason, index in rightly(*given) if not reason.startswith("the marks'"))


@rule(
    "Snapshots that a tag or branch names stay.",
    Fails(f"{PLAN}test_a_tag_holds_its_snapshot_and_all_after_it_so_that_history_stays_contiguous"),
)
@breaks("reaper.expiry.expiry_plan._reasons_of_refs")
def refs_hold_nothing(rightly: Any, metadata: Any, history: Any) -> dict[int, list[str]]:
    """No ref but `main` is asked."""
    found: dict[int, list[str]] = rightly(metadata, history)
    return {snapshot: ["main"] for snapshot, reasons in found.items() if "main" in reasons}


@rule(
    "The last snapshots stay, however old.",
    Fails(f"{PLAN}test_the_last_ones_are_retained_however_old"),
)
@breaks("reaper.expiry.expiry_plan.rules")
def none_is_retained(rightly: Any, settings: Any, properties: Any, main: Any = None) -> Any:
    """retain-last is 1."""
    return replace(rightly(settings, properties, main), retain_last=1)


@rule(
    "Only snapshots older than the limit expire.",
    Fails(f"{PLAN}test_only_snapshots_older_than_the_limit_expire"),
)
@breaks("reaper.expiry.expiry_plan._too_young")
def young_snapshots_expire(rightly: Any, snapshot: Any, limits: Any, now: Any) -> list[str]:
    """No snapshot is too young."""
    return []


@rule(
    "Nothing expires that a registered consumer still needs.",
    Simulated(6000),
    Fails(f"{GUARD}test_a_registered_query_keeps_its_snapshot_and_all_after_it"),
)
@breaks("reaper.consumer_guard.Guard.holds")
def consumers_hold_nothing(rightly: Any, guard: Any, table: Any, checkpoints: Any) -> tuple[()]:
    """Consumers are not asked."""
    return ()


@rule(
    "Consumers are read again just before each attempt to commit an expiry.",
    Fails(f"{GUARD}test_consumers_are_asked_again_before_each_attempt_to_commit"),
    Fails(f"{RACES}test_a_consumer_that_went_back_stops_the_expiry"),
)
@breaks("reaper.expiry.expire.check_consumers")
def consumers_are_asked_once(rightly: Any, context: Any, table: Any, journal: Any) -> None:
    """What consumers needed when the plan was made is right."""


@rule(
    "A consumer that cannot be read holds everything.",
    Fails(f"{GUARD}test_a_consumer_that_cannot_be_read_holds_everything_and_is_named"),
)
@breaks("bookkeeper.history.consumer_state._first_needed")
def unreadable_consumers_hold_nothing(rightly: Any, checkpoint_read: Any, history: Any) -> Any:
    """A consumer whose need is unknown needs nothing."""
    state, first, why = rightly(checkpoint_read, history)
    return state, None if checkpoint_read.trouble else first, why


@rule(
    "A consumer is named in the log well before it is cut off.",
    Fails(f"{GUARD}test_a_consumer_is_named_a_while_before_it_is_cut_off"),
)
@breaks("reaper.consumer_guard.notice_period")
def cut_off_without_notice(rightly: Any, settings: Any) -> Any:
    """The notice is over as soon as it is given."""
    return rightly(settings) * 0


@rule(
    "Nothing expires by a clock that differs from the storage's.",
    Fails("tests/reaper/test_journal.py::test_a_clock_that_differs_from_the_storages_stops_the_run"),
    Fails(
        "tests/reaper/test_clock.py::test_a_run_after_a_jump_of_two_hours_expires_nothing_until_the_clock_is_set_right"
    ),
)
@breaks("reaper.run.check_storage_clock")
def any_clock_expires(rightly: Any, store: Any, now: Any, steady: Any = None) -> None:
    """No clock is compared."""


@rule(
    "The last metadata files stay, however old: by them a run sees what its commit replaced.",
    Fails("tests/reaper/test_old_metadata.py::test_the_current_one_and_the_ten_before_it_stay_however_old"),
)
def old_metadata_goes(patch: Patch) -> None:
    """Every metadata file but the current one goes by its age."""
    set_value(patch, "reaper.files.old_metadata._log", lambda table: [])
