"""
Rewrites: which are committed, and what becomes of their files.
"""

from contextlib import suppress
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any

from bookkeeper.contract import pending_rewrites
from bookkeeper.contract.rewrite import file_key
from bookkeeper.errors import BookkeeperError
from bookkeeper.format.records import Prefix
from reaper.compactor import worker
from tests.chaos.scenes.rewriting import AcceptingRollbackOfRewrites, RewritingAmongOthers
from tests.rules.rule import Chapter, Patch, breaks, put, set_value
from tests.rules.systems import Fails, Modelled, Scene, Simulated
from tests.support.faults import AFTER

rule = Chapter()
LEDGER = "tests/ledger/test_rewrites.py::"
DELETES = "tests/ledger/test_rewrites_deletes.py::"
TICK = "tests/tick/test_take_rewrites.py::"
WORKER = "tests/reaper/compactor/test_worker.py::"


@rule(
    "Every file that a rewrite replaces is live, once, as it says: else rows are in twice, or come back.",
    Modelled("ReplacedLive"),
    Simulated(6000),
    Fails(f"{LEDGER}test_a_file_that_is_gone_rejects_the_whole_rewrite"),
    Fails(f"{DELETES}test_a_rewrite_of_a_file_that_retention_dropped_is_rejected"),
)
@breaks("bookkeeper.tick.check_rewrites._Head._replaced_files")
def replaced_files_may_be_gone(rightly: Any, head: Any, rewrite: Any, partition: Any) -> list[Any]:
    """Of the files that a rewrite replaces, those that are gone are taken for what it says of them."""
    said = {file_key(row.path): SimpleNamespace(row=row) for row in rewrite.body.rows}
    return [file for key in rewrite.replaced for file in head.live.get(key, [said[key]])]


@rule(
    "A rewrite has the rows that it replaces: as many, or fewer where it applied a delete.",
    Fails(f"{LEDGER}test_fewer_or_more_rows_without_a_delete_are_rejected"),
)
@breaks("bookkeeper.tick.check_rewrites._Head.check")
def rows_are_not_counted(rightly: Any, head: Any, rewrite: Any) -> None:
    """A rewrite may have any number of rows."""
    from bookkeeper.errors import RewriteUnfit

    try:
        rightly(head, rewrite)
    except RewriteUnfit as error:
        if "rows, those they replace" not in str(error):
            raise


@rule(
    "A rewrite applied every equality delete that applies to its files and not to the new ones: else rows come back.",
    Modelled("DeletesApplied"),
    Fails(f"{DELETES}test_a_rewrite_changes_no_row[an equality delete not applied]"),
    Fails(f"{DELETES}test_an_equality_delete_with_the_newest_number_must_have_been_applied"),
)
@breaks("bookkeeper.tick.check_rewrites.live_delete_files")
def equality_deletes_are_not_looked_at(rightly: Any, ledger: Any, view: Any) -> list[Any]:
    """Equality deletes are not asked for."""
    return [item for item in rightly(ledger, view) if item.content != 2]


@rule(
    "A rewrite applied every position delete of its files: else rows come back.",
    Fails(f"{DELETES}test_a_rewrite_changes_no_row[a position delete not applied]"),
    Fails(f"{DELETES}test_a_position_delete_must_have_been_applied"),
)
@breaks("bookkeeper.tick.check_rewrites.live_delete_files")
def position_deletes_are_not_looked_at(rightly: Any, ledger: Any, view: Any) -> list[Any]:
    """Position deletes are not asked for."""
    return [item for item in rightly(ledger, view) if item.content != 1]


@rule(
    "New files keep an old data sequence number: with a new one, newer deletes miss their rows.",
    Modelled("RewriteNumber"),
    Fails(f"{DELETES}test_a_rewrite_changes_no_row[a delete afterwards]"),
)
def rewrites_have_numbers_of_their_own(patch: Patch) -> None:
    """New files inherit the number of their snapshot."""
    set_value(patch, "bookkeeper.ledger.rewrite_groups.Prefix", lambda status, *_: Prefix(status))


@rule(
    "Of two rewrites that replace one file the first is taken.",
    Fails(f"{LEDGER}test_of_two_that_replace_one_file_the_first_is_taken"),
)
def overlaps_are_taken(patch: Patch) -> None:
    """Two rewrites of one commit may replace one file."""

    class Never(set[str]):
        def isdisjoint(self, other: Any) -> bool:
            return True

        def __ior__(self, other: Any) -> Any:
            self.update(other)
            return self

    set_value(patch, "bookkeeper.tick.check_rewrites.set", Never, raising=False)


@rule(
    "A rewrite that is in is recognised, by its new files or by a summary: it looks like one whose files are gone.",
    Fails(f"{TICK}test_a_rewrite_that_is_given_back_is_recognised"),
    Fails(f"{LEDGER}test_a_rewrite_whose_files_were_rewritten_since_is_recognised_by_the_summary"),
)
@breaks("bookkeeper.tick.check_rewrites._Head.has")
def committed_rewrites_are_new(rightly: Any, head: Any, rewrite: Any) -> bool:
    """No rewrite is in."""
    return False


@rule(
    "The new files of a rejected rewrite stay: if it is in after all, the table needs them.",
    Simulated(6000),
    Scene(RewritingAmongOthers, AFTER, "commit_table", "wrong"),
    Fails(f"{TICK}test_what_is_rejected_says_why_and_its_new_files_stay"),
)
@breaks("bookkeeper.contract.pending_rewrites.reject")
def new_files_of_a_rejected_rewrite_go(
    rightly: Any, folder: Any, name: str, why: BookkeeperError, now: datetime
) -> None:
    """A rejected rewrite loses its new files, as if that proved that the table does not need them."""
    from pathlib import Path

    with suppress(BookkeeperError):
        for row in pending_rewrites.read(folder, name, 2**26).added:
            disk = getattr(folder.store, "disk", None)
            if disk is not None:
                disk.delete(row.path)
            else:
                Path(row.path.removeprefix("file://")).unlink(missing_ok=True)
    rightly(folder, name, why, now)


@rule(
    "accept-rollback withdraws pending rewrites first: they were made from what is rolled back.",
    Scene(AcceptingRollbackOfRewrites, AFTER, "commit_table", "wrong"),
    Fails(f"{TICK}test_accept_rollback_rejects_pending_rewrites_first"),
)
@breaks("bookkeeper.contract.pending_rewrites.withdraw")
def rewrites_outlive_accept_rollback(rightly: Any, folder: Any, why: Any, now: Any) -> int:
    """Pending rewrites outlive accept-rollback."""
    return 0


@rule(
    "accept-rollback is refused where a live file was deleted: compacted files may be gone.",
    Fails(f"{TICK}test_accept_rollback_is_refused_when_a_file_was_deleted_after_compaction"),
)
@breaks("bookkeeper.commands.check_live_files.check_files")
def rollbacks_to_files_that_are_gone(rightly: Any, *given: Any) -> None:
    """Live files are not looked up."""


@rule(
    "New files were written less than half the orphan age ago.",
    Fails(f"{TICK}test_new_files_must_be_there_as_described_and_not_old"),
)
@breaks("bookkeeper.tick.take_rewrites.check_new_files")
def old_new_files_are_taken(rightly: Any, rewrites: Any, open_store: Any, written_after: datetime) -> Any:
    """New files may be of any age."""
    return rightly(rewrites, open_store, written_after - timedelta(days=10**4))


@rule(
    "A rewrite's new files belong to no txlog by their names, and hold its id.",
    Fails("tests/contract/test_rewrite.py::test_a_new_file_that_has_not_the_id_in_its_name_is_rejected"),
)
@breaks("bookkeeper.contract.rewrite._check_paths")
def new_files_of_any_name(rightly: Any, rewrite_id: str, new: Any, replaced: Any) -> None:
    """A rewrite may add a file that a txlog names."""


@rule(
    "The base of a rewrite is `main` or an ancestor of it.",
    Fails(f"{LEDGER}test_a_base_on_an_abandoned_line_of_history_is_rejected"),
)
@breaks("bookkeeper.tick.check_rewrites.is_ancestor")
def bases_off_main(rightly: Any, metadata: Any, snapshot_id: int) -> bool:
    """A rewrite may have read a line of history that was rolled back."""
    return True


@rule(
    "Nothing is rewritten by a clock that differs from the storage's.",
    Fails(f"{TICK}test_nothing_is_rewritten_by_a_clock_that_differs_from_the_storages"),
)
@breaks("bookkeeper.ledger.commit_clock.CommitClock.allows_destroying")
def any_clock_rewrites(rightly: Any, clock: Any) -> bool:
    """No clock is compared."""
    return True


@rule(
    "Rows are committed before rewrites, and none waits for them.",
    Fails(f"{TICK}test_rows_are_committed_before_rewrites_and_none_waits"),
)
@breaks("bookkeeper.tick.tick.Bookkeeper.tick")
def rewrites_come_first(rightly: Any, book: Any, now: datetime) -> Any:
    """The duties of a tick come before its rows."""
    if book.view is not None:
        book.loaded.view = book.duties.run(book.view, now).after
    return rightly(book, now)


@rule(
    "Files that a pending rewrite names are left out of the next plan.",
    Fails("tests/reaper/compactor/test_compactor.py::test_files_that_a_pending_rewrite_names_are_left_out"),
)
@breaks("reaper.compactor.rewrite_plan.pending_rewrites")
def pending_files_are_rewritten_again(rightly: Any, folder: Any) -> list[Any]:
    """No rewrite is pending."""
    return []


@rule(
    "Once the create of a rewrite was sent, the compactor deletes no new file.",
    Fails(f"{WORKER}test_once_the_create_was_sent_no_new_file_is_ever_deleted"),
    Fails(f"{WORKER}test_a_create_whose_reply_was_lost_arrives_late_and_is_committed"),
)
def new_files_of_a_sent_rewrite_go(patch: Patch) -> None:
    """After an error of the publish the new files are deleted, as before it."""
    begun = list[Any]()

    def begin(rightly: Any, context: Any, *given: Any) -> Any:
        files, new = rightly(context, *given)
        begun[:] = [context, new]
        return files, new

    def publish(rightly: Any, folder: Any, rewrite_id: str, data: bytes) -> None:
        try:
            rightly(folder, rewrite_id, data)
        except Exception:
            worker._discard(*begun)
            raise

    put(patch, "reaper.compactor.worker._begun", begin)
    put(patch, "reaper.compactor.worker.publish", publish)
