"""
Folds: equality deletes become position deletes, and no row changes.
"""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.table.snapshots import Operation

from bookkeeper.contract.delete_scope import DeleteFile
from bookkeeper.contract.rewrite import file_key
from bookkeeper.folds import compute
from bookkeeper.folds.read import FILE_PATH, position_rows
from bookkeeper.format.entries import POSITION_DELETES
from bookkeeper.ledger.build_commit import NewSnapshot
from tests.chaos.scenes.folding import FoldingAmongOthers
from tests.rules.rule import Chapter, Patch, breaks, put, set_value
from tests.rules.systems import Fails, Modelled, Scene, Simulated
from tests.support.faults import AFTER

rule = Chapter()
RANDOM = "tests/folds/test_random.py::test_a_fold_changes_no_row_of_the_state"
RACES = "tests/folds/test_races.py::"
FOLD = "tests/folds/test_fold.py::"
ANY_ORDER = "tests/folds/test_interleavings.py::test_no_deleted_row_returns_in_any_order"


@rule(
    "A fold is refused where a data file that it applies to was not examined: it may have rows that only it hides.",
    Modelled("FoldExamined"),
    Simulated(6000),
    Scene(FoldingAmongOthers, AFTER, "commit_table", "double", errors=True),
    Fails(f"{RACES}test_an_older_row_that_comes_between_plan_and_commit_refuses_the_fold"),
    Fails(f"{ANY_ORDER}[a rewrite that knows none, and retention]"),
)
@breaks("bookkeeper.ledger.fold_commit._planned")
def folds_are_not_examined(
    rightly: Any, header: Any, manifest: Any, rows: Any, plan: Any, newest: Any
) -> Iterator[str]:
    """A fold does not ask what came since it was planned."""
    for row, _ in rows:
        if (key := file_key(row.path)) in plan.files:
            yield key


@rule(
    "The snapshot of a fold is a `delete`, so that Iceberg Java's compactions look at it.",
    Modelled("FoldIsDelete"),
    Simulated(6000),
    Fails(f"{FOLD}test_the_snapshot_is_a_delete_with_exact_counts"),
    Fails("tests/spark/test_fold.py::test_a_compaction_by_java_that_began_before_a_fold_is_refused"),
)
@breaks("bookkeeper.ledger.build_commit.NewSnapshot.label")
def folds_are_replaces(rightly: Any, new: NewSnapshot, operation: Operation, about: Any) -> None:
    """A fold says that no row changes."""
    fold = about.get("bookkeeper.reason") == "fold"
    rightly(new, Operation.REPLACE if fold else operation, about)


@rule(
    "A fold puts position deletes in the place of the equality deletes that it takes out.",
    Simulated(400),
    Fails(f"{FOLD}test_dead_rows_become_positions_and_live_rows_stay"),
)
@breaks("bookkeeper.ledger.ledger.Ledger.fold")
def folds_forget_their_positions(
    rightly: Any, ledger: Any, view: Any, removed: Any, added: Any, why: str = "fold"
) -> Any:
    """Equality deletes go, and nothing comes in their place."""
    return rightly(ledger, view, removed, [], why)


@rule(
    "A fold writes the position of every dead row.",
    Fails("tests/folds/test_readers.py::test_duckdb_reads_the_table_after_a_fold"),
    Fails("tests/folds/test_readers.py::test_iceberg_rust_reads_the_table_before_a_fold_and_after_it"),
    Fails("tests/folds/test_readers.py::test_pyiceberg_reads_the_table_after_a_fold_and_not_before"),
)
@breaks("bookkeeper.folds.position_deletes.NewFiles.add")
def a_position_is_forgotten(rightly: Any, files: Any, file: Any, positions: Any) -> Any:
    """The first position of each data file is left out."""
    return rightly(files, file, positions.slice(len(positions) > 1))


@rule(
    "Of position delete files only those for one data file go: others hide rows of further files.",
    Simulated(6000),
    Fails(f"{FOLD}test_a_predecessor_that_speaks_of_another_file_too_stays"),
)
def wide_position_deletes_go(patch: Patch) -> None:
    """A position delete file counts as that of the first data file that it is for; the others are forgotten."""

    def live_deletes(rightly: Any, ledger: Any, view: Any) -> Any:
        for manifest, header, item in rightly(ledger, view):
            paths = item.entry.data_file.lower_bounds
            if item.entry.content == POSITION_DELETES and FILE_PATH in paths:
                of_one = item.file._replace(scope=file_key(paths[FILE_PATH].decode()))
                yield manifest, header, item._replace(file=of_one)
            else:
                yield manifest, header, item

    def positions_of(rightly: Any, file: Any, data: Any, of: str) -> Any:
        rows = position_rows(file, data)
        own = [file_key(path) == of for path in rows.column("file_path").to_pylist()]
        return rows.filter(pa.array(own, pa.bool_())).column("pos").combine_chunks()

    put(patch, "bookkeeper.folds.select.live_deletes", live_deletes)
    put(patch, "bookkeeper.folds.compute.positions_of", positions_of)


@rule(
    "A new position delete file has the positions of those that it replaces.",
    Fails(RANDOM),
    Fails(f"{FOLD}test_a_predecessor_is_replaced_and_partition_wide_files_stay"),
)
@breaks("bookkeeper.folds.compute.positions_of")
def predecessors_are_forgotten(rightly: Any, file: Any, data: Any, of: str) -> Any:
    """The positions of a predecessor are not read."""
    return rightly(file, data, of).slice(0, 0)


class _Compute:
    """pyarrow.compute, with a function in the place of another."""

    def __init__(self, **other: Any) -> None:
        self.__dict__.update({name: getattr(pc, name) for name in dir(pc)} | other)


@rule(
    "A row with the delete's own number is alive.",
    Fails(RANDOM),
    Fails(f"{FOLD}test_a_row_as_new_as_the_delete_is_alive"),
)
def rows_of_the_deletes_own_number_die(patch: Patch) -> None:
    """A delete takes the rows of its own step."""
    patch.setattr(compute, "pc", _Compute(greater=pc.greater_equal))
    patch.setattr(DeleteFile, "largest_number", property(lambda self: self.sequence_number))


@rule(
    "A row that is newer than the newest delete of its key is alive.",
    Fails(RANDOM),
    Fails(f"{FOLD}test_dead_rows_become_positions_and_live_rows_stay"),
)
def rows_of_any_number_die(patch: Patch) -> None:
    """A delete takes every row of its key."""
    patch.setattr(compute, "pc", _Compute(greater=lambda numbers, _: pc.greater(numbers, -1)))


@rule(
    "A delete that is bound to a partition holds in that partition of that spec.",
    Fails(RANDOM),
    Fails(f"{FOLD}test_a_bound_delete_holds_in_its_partition_of_its_spec_and_a_global_one_everywhere"),
)
@breaks("bookkeeper.folds.select._GroupsOf.__call__")
def bound_deletes_hold_everywhere(rightly: Any, groups: Any, partition: Any, sequence: int) -> Any:
    """A delete of one partition holds in all."""
    rightly(groups, partition, sequence)
    return tuple(group for group, most in groups._newest.items() if most >= sequence)


@rule(
    "A key of several columns is all of them.",
    Fails(RANDOM),
)
@breaks("bookkeeper.folds.keys._pairs")
def the_first_column_is_the_key(rightly: Any, codes: Any, column: Any, values: Any) -> Any:
    """Only the first key column counts."""
    return codes.cast("int64")


@rule(
    "A fold is refused where an equality delete file of its plan is gone: a rewrite may have applied it.",
    Fails(f"{RACES}test_an_equality_delete_that_is_gone_refuses_the_fold"),
    Fails(f"{RACES}test_two_folds_of_one_table_are_one"),
)
@breaks("bookkeeper.ledger.fold_commit._delete_files")
def folded_deletes_may_be_gone(rightly: Any, ledger: Any, view: Any, folded: Any, predecessors: Any) -> Any:
    """What of the plan's delete files is gone is not missed."""
    from bookkeeper.errors import FoldOutdated

    try:
        return rightly(ledger, view, folded, predecessors)
    except FoldOutdated:
        return []


@rule(
    "A fold is committed within twenty minutes: the orphan sweep may take its files.",
    Fails(f"{RACES}test_a_plan_is_good_for_twenty_minutes_and_for_its_table"),
)
def old_folds_are_committed(patch: Patch) -> None:
    """A fold is good for ever."""
    from datetime import timedelta

    set_value(patch, "bookkeeper.ledger.fold_commit.MOST_AGE", timedelta(days=10**4))


@rule(
    "Folds wait for a job that asks for it, so that its work is not refused.",
    Fails("tests/folds/test_pause.py::test_folds_wait_for_a_job_and_go_on_after_it"),
    Fails("tests/spark/test_maintain_keyed.py::test_deletes_beyond_the_budget_are_applied_and_folds_wait_for_it"),
)
@breaks("bookkeeper.folds.duty.fold_pause.paused")
def folds_wait_for_no_job(rightly: Any, store: Any, now: Any) -> bool:
    """No job asks for a pause."""
    return False


@rule(
    "A job that rewrites data files asks for folds to pause.",
    Fails("tests/spark/test_maintain_keyed.py::test_folds_pause_while_iceberg_itself_rewrites"),
)
@breaks("bookkeeper.contract.fold_pause._write")
def jobs_pause_no_fold(rightly: Any, store: Any, key: str) -> bool:
    """The pause is not written."""
    return True


@rule(
    "A fold that was planned when a job began is dropped.",
    Fails("tests/folds/test_pause.py::test_a_fold_that_was_planned_when_a_job_began_is_dropped"),
)
@breaks("bookkeeper.folds.duty.Attempt._pause_since_the_plan")
def planned_folds_are_committed_in_a_pause(rightly: Any, attempt: Any, files: int, before: Any) -> Any:
    """A pause is asked for before a fold is planned, and not again before it is committed."""
    return before


@rule(
    "A plan from the process that plans folds is checked before a fold of it is committed.",
    Fails("tests/folds/test_messages.py::test_a_plan_of_something_else_is_refused"),
)
@breaks("bookkeeper.folds.messages._check")
def plans_are_not_checked(rightly: Any, plan: Any, job: Any, data_path: str) -> None:
    """Whatever the process says is committed."""
