"""
Marks: what is in, holes, pruning, and the history that they are believed by.
"""

from dataclasses import replace
from datetime import datetime
from typing import Any
from unittest import mock

from bookkeeper.contract.marks import Mark, Marks
from bookkeeper.contract.names import TxlogName
from bookkeeper.ledger.commit_request import commit_guards
from tests.chaos.scenes.ticking import Ticking
from tests.rules.rule import Chapter, Patch, breaks
from tests.rules.systems import Fails, Modelled, Scene, Simulated
from tests.support.faults import AFTER

rule = Chapter()
MARKS = "tests/tick/test_marks.py::"
REPLAY = "tests/commands/test_replay.py::"


@rule(
    "A txlog that the marks say is in is never committed again.",
    Simulated(6000),
    Fails(f"{MARKS}test_txlogs_left_by_a_crash_are_recognised_and_deleted"),
)
@breaks("bookkeeper.contract.marks.Mark.is_in")
def marks_are_not_asked(rightly: Any, mark: Mark, sequence: int) -> bool:
    """Whatever is pending is new."""
    return False


@rule(
    "A txlog counts as in only up to its incarnation's mark.",
    Simulated(400),
)
@breaks("bookkeeper.contract.marks.Mark.is_in")
def the_next_sequence_counts_as_in(rightly: Any, mark: Mark, sequence: int) -> bool:
    """The mark is one too high."""
    return sequence <= mark.last + 1


@rule(
    "A hole lets its txlog in, once, whenever it comes.",
    Fails("tests/tick/test_gaps.py::test_a_txlog_that_comes_late_gets_in_through_its_hole"),
    Fails(f"{REPLAY}test_a_replayed_txlog_gets_in_exactly_once_and_only_then_leaves_rejected"),
)
@breaks("bookkeeper.contract.marks.Mark.is_in")
def holes_count_as_in(rightly: Any, mark: Mark, sequence: int) -> bool:
    """Whatever is below the mark is in."""
    return sequence <= mark.last


@rule(
    "A sequence that is passed over becomes a hole, in the same commit.",
    Simulated(6000),
    Scene(Ticking, AFTER, "commit_table", "wrong"),
    Fails("tests/tick/test_gaps.py::test_a_txlog_that_comes_late_gets_in_through_its_hole"),
)
@breaks("bookkeeper.contract.marks.Mark.advanced")
def holes_are_forgotten(rightly: Any, mark: Mark, name: TxlogName, at_ms: int = 0) -> Mark:
    """Whatever is passed over counts as in."""
    return Mark(max(mark.last, name.sequence), (), max(at_ms, mark.seen_ms))


@rule(
    "An incarnation with more than 64 holes is held: marks stay small, and a person looks.",
    Fails("tests/tick/test_gaps.py::test_more_than_64_missing_hold_the_incarnation_loudly_and_no_other"),
    Fails("tests/tick/test_plan.py::test_more_than_64_holes_hold_the_incarnation_and_no_other"),
)
def any_number_of_holes(patch: Patch) -> None:
    """A gap of any length becomes holes."""
    for where in ("bookkeeper.contract.marks", "bookkeeper.tick.plan_batch"):
        patch.setattr(f"{where}.MOST_HOLES", 10**6)


@rule(
    "Positions are never pruned: by them a source goes on for ever.",
    Fails(f"{MARKS}test_marks_of_an_idle_incarnation_are_pruned_and_positions_never"),
    Fails("tests/contract/test_marks.py::test_pruning_drops_what_is_idle_and_keeps_every_position"),
)
@breaks("bookkeeper.contract.marks.Marks.pruned")
def positions_are_pruned(rightly: Any, marks: Marks, *given: Any, **named: Any) -> Marks:
    """A writer without a mark loses its position."""
    left: Marks = rightly(marks, *given, **named)
    return replace(left, writers={writer: known for writer, known in left.writers.items() if known.incarnations})


@rule(
    "Only marks of incarnations that were idle for long are pruned.",
    Modelled("PruneIdle"),
    Simulated(1500),
    Fails("tests/contract/test_marks.py::test_pruning_drops_nothing_that_was_seen_since"),
)
@breaks("bookkeeper.contract.marks.Marks.pruned")
def busy_marks_are_pruned(rightly: Any, marks: Marks, idle_before_ms: int, *given: Any, **named: Any) -> Marks:
    """A mark is pruned that was just seen."""
    return rightly(marks, idle_before_ms + 10**9, *given, **named)


@rule(
    "No mark is pruned that a name in pending/ or rejected/ needs.",
    Modelled("PruneNamed"),
    Fails(f"{MARKS}test_marks_stay_while_a_name_in_the_folder_needs_them"),
    Fails("tests/contract/test_marks.py::test_pruning_keeps_a_run_that_a_name_in_the_folder_needs"),
)
@breaks("bookkeeper.contract.marks.Marks.pruned")
def named_marks_are_pruned(
    rightly: Any, marks: Marks, idle_before_ms: int, named: Any, *given: Any, **more: Any
) -> Marks:
    """Nobody asks which marks the folder needs."""
    return rightly(marks, idle_before_ms, (), *given, **more)


@rule(
    "The bound of pruning never passes the start of a run whose first txlog waits.",
    Modelled("PruneWaiting"),
    Fails(f"{MARKS}test_a_first_txlog_that_waits_is_not_overtaken_by_the_pruning"),
)
@breaks("bookkeeper.contract.marks.Marks.pruned")
def waiting_runs_are_overtaken_by_pruning(
    rightly: Any, marks: Marks, idle_before_ms: int, named: Any, waiting: Any = (), of: Any = None
) -> Marks:
    """The bound of pruning moves whatever waits."""
    return rightly(marks, idle_before_ms, named, (), of)


@rule(
    "A txlog from before the pruning, of an unknown incarnation, is rejected: it may have been in.",
    Modelled("PrunedRejected"),
    Fails(f"{MARKS}test_a_txlog_from_before_the_pruning_is_rejected_and_never_committed"),
)
@breaks("bookkeeper.contract.marks.Marks.is_pruned")
def pruned_txlogs_are_new(rightly: Any, marks: Marks, name: TxlogName, created_ms: int) -> bool:
    """What no mark knows is new."""
    return False


@rule(
    "Of a run that goes on after its mark was pruned, what is not in rejected/ counts as in.",
    Modelled("GoesOn"),
    Fails(f"{MARKS}test_a_writer_that_was_idle_past_the_pruning_goes_on_without_holes"),
)
@breaks("bookkeeper.tick.planning.resumed")
def a_run_that_goes_on_is_new(rightly: Any, marks: Marks, *given: Any) -> Marks:
    """All that came before it in its run becomes holes."""
    return marks


@rule(
    "Of a mark that was made anew only holes that a forced replay opened take txlogs from before the pruning.",
    Modelled("RemadeRefused"),
    Fails(f"{REPLAY}test_what_was_rejected_beside_a_forced_replay_and_arrives_again_is_rejected_again"),
    Fails(f"{REPLAY}test_what_was_rejected_of_a_run_that_goes_on_and_arrives_again_is_rejected_again"),
)
@breaks("bookkeeper.contract.marks.Marks.is_pruned")
def remade_marks_are_believed(rightly: Any, marks: Marks, name: TxlogName, created_ms: int) -> bool:
    """A mark that was made anew counts as if it had always been there."""
    return marks.mark(name) is None and rightly(marks, name, created_ms)


@rule(
    "Of a pruned run that was given up in part, the rest stays rejected.",
    Fails(
        "tests/tick/test_writer_order.py::test_what_else_is_of_a_pruned_run_that_was_given_up_in_part_stays_rejected"
    ),
)
@breaks("bookkeeper.contract.marks.Marks.discarded")
def discarded_runs_were_never_pruned(rightly: Any, marks: Marks, name: TxlogName, *given: Any) -> Marks:
    """The mark that is made anew counts as if it had always been there."""
    made: Marks = rightly(marks, name, *given)
    mark = made.mark(name)
    assert mark is not None
    return made._with(name, mark._replace(remade_ms=0, forced=()))


@rule(
    "The table halts when the snapshot of its marks is no ancestor of `main`: somebody has rolled it back.",
    Modelled("Halt"),
    Fails("tests/tick/test_reload.py::test_a_rollback_beneath_what_is_remembered_halts_the_table"),
    Fails("tests/tick/test_expired_marks.py::test_a_rollback_that_expiry_covers_up_is_still_found"),
)
@breaks("bookkeeper.ledger.view.descends")
def rollbacks_are_not_seen(rightly: Any, table: Any, snapshot_id: int) -> bool:
    """Any history of `main` will do."""
    return True


@rule(
    "The table halts when marks.json, read before it, knows a later commit: an old catalog was put back.",
    Fails("tests/tick/test_restored.py::test_a_catalog_put_back_from_a_backup_halts_the_table"),
)
@breaks("bookkeeper.history.main_history.is_older")
def an_older_table_is_taken(rightly: Any, metadata: Any, snapshot: int | None, copy: Any) -> bool:
    """Marks and table that go back together are believed."""
    return False


@rule(
    "marks.json is read before the table: else a commit in between would look like an old catalog.",
    Fails("tests/tick/test_reload.py::test_another_bookkeeper_that_commits_anywhere_in_a_reload_halts_nothing"),
)
@breaks("bookkeeper.tick.loaded.load")
def the_table_before_marks_json(rightly: Any, ledger: Any, folder: Any, *given: Any, **named: Any) -> Any:
    """The table is loaded before marks.json is read."""
    known = folder._known_card
    if known is None:
        return rightly(ledger, folder, *given, **named)
    view = ledger.load(known.card.folder)
    with mock.patch.object(ledger, "load", return_value=view):
        return rightly(ledger, folder, *given, **named)


@rule(
    "The table halts when its marks are gone though its snapshots hold txlogs.",
    Fails("tests/tick/test_history.py::test_the_table_is_halted_and_nothing_is_touched"),
)
@breaks("bookkeeper.ledger.view._marks")
def lost_marks_begin_anew(rightly: Any, table: Any) -> Marks:
    """A table without marks has none yet."""
    text = table.metadata.properties.get("bookkeeper.marks")
    return rightly(table) if text is not None else Marks("")


@rule(
    "A folder serves the table that its card names, and no other.",
    Fails("tests/tick/test_history.py::test_a_folder_whose_card_names_another_table_is_refused_at_every_tick"),
)
def another_tables_folder_is_taken(patch: Patch) -> None:
    """The card's table is not compared."""
    from bookkeeper.ledger import load as loading

    whole = loading.load

    def load(ledger: Any, folder: Any, *given: Any, **named: Any) -> Any:
        records = folder.records

        def of_this_table() -> Any:
            card, copy = records()
            table = ledger.catalog.load_table(ledger.identifier)
            return replace(card, table_uuid=str(table.metadata.table_uuid)), copy

        folder.records = of_this_table
        try:
            return whole(ledger, folder, *given, **named)
        finally:
            del folder.records

    for where in ("bookkeeper.ledger.load.load", "bookkeeper.tick.loaded.load"):
        patch.setattr(where, load)


@rule(
    "Marks change only together with a snapshot, so that a change beside a commit conflicts.",
    Fails(f"{MARKS}test_a_change_of_marks_alone_conflicts_with_a_commit_in_between"),
)
@breaks("bookkeeper.ledger.ledger.Ledger.record")
def marks_alone_are_not_guarded(rightly: Any, ledger: Any, view: Any, marks: Marks, why: str) -> Any:
    """A commit that adds no file is not guarded by `main`."""
    with mock.patch("bookkeeper.ledger.build_commit.commit_guards", lambda view: commit_guards(view)[:1]):
        return rightly(ledger, view, marks, why)


@rule(
    "The marks' snapshot stays a kept ancestor of `main`: it is renewed while only others commit.",
    Fails("tests/tick/test_expired_marks.py::test_marks_are_renewed_while_only_others_commit"),
)
@breaks("bookkeeper.tick.duties.renew")
def marks_are_not_renewed(rightly: Any, ledger: Any, view: Any, settings: Any, now: datetime) -> Any:
    """Marks stay with the last commit of ours, however old."""
    return view
