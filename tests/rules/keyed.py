"""
Keyed tables: the numbers of a commit, the order of a writer, and which delete files are taken.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from unittest import mock

import pyarrow as pa

from bookkeeper.contract.marks import Marks
from bookkeeper.contract.names import TxlogName
from bookkeeper.format.records import Records
from tests.chaos.scenes.upserting import Upserting
from tests.rules.rule import Chapter, breaks
from tests.rules.systems import Fails, Fuzzed, Modelled, Scene, Simulated
from tests.support.faults import AFTER
from writers.files.rolling_writer import RollingWriter

rule = Chapter()
HISTORIES = (
    "tests/tick/test_upsert_histories.py::test_the_table_is_what_its_txlogs_make_of_it_in_the_order_of_their_writers"
)
ORDER = "tests/tick/test_writer_order.py::"
SCENES = "tests/histories/test_keyed_scenes.py::"
UPSERTS = "tests/ledger/test_upserts.py::"
BAD_DELETES = "tests/tick/test_bad_deletes.py::"
WRITER = "tests/writers/test_upserts.py::"


@rule(
    "Each step of a commit with deletes has a number of its own.",
    Modelled("StepNumbers"),
    Simulated(400, "has the number"),
    Fails(HISTORIES),
    Fails(f"{UPSERTS}test_each_step_has_its_own_number_and_a_shadow_file_that_of_the_step_before"),
)
@breaks("bookkeeper.ledger.ledger.numbered_data")
def steps_share_a_number(rightly: Any, txlogs: Any, first: Any) -> Any:
    """Every data file has the number of the snapshot that adds it, behind all deletes."""
    most = max(first.values()) + 100
    return [
        replace(group, bodies=[(body, [most] * len(numbers)) for body, numbers in group.bodies])
        for group in rightly(txlogs, first)
    ]


@rule(
    "Beside deletes a txlog without them has a number of its own: it inherits none.",
    Modelled("ExplicitNumbers"),
    Simulated(6000),
    Fails(HISTORIES),
    Fails(f"{UPSERTS}test_a_txlog_without_deletes_inherits_no_number_beside_deletes"),
)
@breaks("bookkeeper.ledger.ledger.numbered_data")
def version_1_inherits_beside_deletes(rightly: Any, txlogs: Any, first: Any) -> Any:
    """Only txlogs with deletes get numbers; the others get that of the append."""
    listed = list(txlogs)
    last = max(first[txlog.name] + txlog.span for txlog in listed)
    return rightly(listed, {**first, **{txlog.name: last for txlog in listed if txlog.deletes is None}})


@rule(
    "A shadow row's number lies below that of its own step's deletes, which hide it from batch readers.",
    Modelled("ShadowBelow"),
    Simulated(6000),
    Fails(f"{WRITER}test_a_stream_sees_every_version_where_all_are_kept"),
)
@breaks("writers.files.upsert_steps.Steps._end_step")
def shadow_rows_at_their_own_step(rightly: Any, steps: Any, spec: Any, sequence: int) -> None:
    """Shadow rows have the number of their step, whose deletes do not hide them."""
    whole = RollingWriter.take

    def take(files: Any, rows: Any, spec: Any, sequence: int, number: int = 0) -> Any:
        return whole(files, rows, spec, sequence, steps._number)

    with mock.patch.object(RollingWriter, "take", take):
        rightly(steps, spec, sequence)


@rule(
    "Deletes and data of a batch are in one commit.",
    Modelled("OneCommit"),
    Scene(Upserting, AFTER, "commit_table", "wrong"),
    Fails(f"{UPSERTS}test_ten_updates_and_a_delete_are_one_commit_with_two_snapshots_and_two_manifests"),
)
@breaks("bookkeeper.ledger.build_commit.CommitAttempt.send")
def deletes_in_a_commit_of_their_own(rightly: Any, commit: Any, marks: Any, beside: Any = ()) -> Any:
    """The `delete` snapshot is committed first, and the `append` in a commit of its own."""
    if len(commit.snapshots) < 2:
        return rightly(commit, marks, beside)
    later, commit.snapshots, commit.spare = commit.snapshots[1:], commit.snapshots[:1], []
    commit.view = rightly(commit, commit.view.marks, beside)
    commit.snapshots = later
    return rightly(commit, marks)


@rule(
    "Of the two snapshots of a commit with deletes the `append` is last: streams stand on it.",
    Fails(f"{SCENES}test_the_head_is_an_append_with_the_largest_number"),
)
@breaks("bookkeeper.ledger.ledger.Ledger._add_upserts")
def the_append_comes_first(rightly: Any, ledger: Any, commit: Any, *given: Any) -> None:
    """The `append` is committed before the `delete`."""
    rightly(ledger, commit, *given)
    if len(commit.snapshots) < 2:
        return
    delete, append = commit.snapshots
    commit.snapshots = [append, delete]
    append.sequence, delete.sequence = delete.sequence, append.sequence
    delete.manifests = append.manifests
    append.manifests = [item for item in append.manifests if item.added_snapshot_id != delete.id]


@rule(
    "The manifest of numbered entries says their smallest number: readers and retention pass over older deletes.",
    Fails(f"{SCENES}test_manifests_say_their_smallest_number"),
    Fails(f"{SCENES}test_a_delete_that_is_needed_outlives_other_rows"),
)
@breaks("bookkeeper.ledger.txlog_groups.NumberedGroup.records")
def the_smallest_number_is_left_out(rightly: Any, group: Any, header: Any) -> Records:
    """A manifest says that its smallest number is its own."""
    return replace(rightly(group, header), least_sequence=None)


@rule(
    "A delete file goes only once no row that it may apply to stays.",
    Simulated(6000),
    Fails("tests/retention/test_retention_keyed.py::test_dangling_equality_deletes_go_and_needed_ones_stay"),
)
@breaks("bookkeeper.ledger.ledger.least_number")
def delete_files_go_while_rows_need_them(rightly: Any, manifests: Any, drops: Any) -> int:
    """Whenever retention drops a file, all delete files go."""
    return 2**63


@rule(
    "A delete file stays while a row stays that is one number older.",
    Fails(f"{SCENES}test_a_delete_that_is_needed_outlives_other_rows"),
)
@breaks("bookkeeper.ledger.ledger.least_number")
def one_dangling_too_many(rightly: Any, manifests: Any, drops: Any) -> int:
    """The smallest number that stays is taken for one larger."""
    return int(rightly(manifests, drops)) + 1


@rule(
    "A txlog is rejected once a later one of its writer is in: an old version would be back.",
    Modelled("OlderRefused"),
    Simulated(6000, seed=5),
    Fails(f"{ORDER}test_an_insert_is_not_back_after_its_delete_though_it_comes_late"),
    Fails(f"{ORDER}test_an_older_run_s_txlog_that_appears_after_a_newer_one_s_is_rejected"),
)
@breaks("bookkeeper.tick.writer_order.is_overtaken")
def late_txlogs_are_taken(rightly: Any, marks: Marks, name: TxlogName) -> bool:
    """A txlog goes in after a later one of its writer."""
    return False


@rule(
    "The order of a writer's runs holds for every txlog.",
    Simulated(6000, seed=5),
    Fails(f"{SCENES}test_nothing_comes_back_when_a_txlog_is_late"),
    Fails(f"{SCENES}test_an_insert_is_not_replayed_after_its_delete"),
)
@breaks("bookkeeper.tick.writer_order.WriterOrder.check")
def no_order_of_runs(rightly: Any, order: Any, txlog: Any, accepted: Any, refused: Any) -> None:
    """Runs of a writer go in as they come."""


@rule(
    "A txlog waits while an earlier one of its writer is pending.",
    Modelled("WaitsForEarlier"),
    Fails(f"{ORDER}test_a_newer_run_waits_while_a_txlog_of_an_older_one_cannot_be_read"),
)
@breaks("bookkeeper.tick.writer_order.WriterOrder.__init__")
def earlier_runs_are_not_waited_for(
    rightly: Any, order: Any, marks: Any, pending: Any, rejected: Any = (), before: Any = None
) -> None:
    """What is pending of earlier runs is not asked."""
    rightly(order, marks, (), rejected, before)


@rule(
    "A run's first txlog waits for a second listing: the first may have missed an earlier run's.",
    Modelled("ListedTwice"),
    Fails(f"{ORDER}test_a_new_run_is_listed_twice_before_its_first_txlog_goes_in"),
)
@breaks("bookkeeper.tick.writer_order.WriterOrder.begins")
def runs_begin_by_one_listing(rightly: Any, order: Any, name: TxlogName) -> bool:
    """No run begins."""
    return False


@rule(
    "A writer waits behind its rejected txlog, until that is replayed or given up.",
    Modelled("HoldsBehindRejected"),
    Fails(f"{ORDER}test_a_rejected_txlog_without_a_position_holds_its_writer_until_it_is_replayed"),
)
@breaks("bookkeeper.tick.writer_order.WriterOrder._add_rejected")
def rejected_txlogs_are_overtaken(rightly: Any, order: Any, name: TxlogName) -> None:
    """Nobody waits for what was rejected."""


@rule(
    "Of each writer of a keyed table the newest mark is kept: by it a late txlog is known.",
    Modelled("PruneKeepsNewest"),
    Fails(f"{ORDER}test_the_marks_of_the_newest_run_outlive_pruning"),
    Fails(f"{SCENES}test_nothing_comes_back_days_later"),
)
@breaks("bookkeeper.tick.prune.Prune.pruned")
def newest_marks_are_pruned(rightly: Any, prune: Any, marks: Marks, now: Any, keyed: bool = False) -> Marks:
    """A keyed table's marks are pruned like any other's."""
    return rightly(prune, marks, now, False)


@rule(
    "A paused run of a writer that was forgotten is rejected: it may be older than what is in.",
    Fails("tests/commands/test_forget.py::test_a_paused_run_of_a_forgotten_writer_brings_no_old_rows_back"),
)
@breaks("bookkeeper.contract.marks.Marks.may_go_on")
def forgotten_runs_go_on(rightly: Any, marks: Marks, name: TxlogName, created_ms: int) -> bool:
    """A run whose writer was forgotten goes on as a new one."""
    return bool(rightly(marks, name, created_ms)) and bool(marks.writer(name.writer).incarnations)


@rule(
    "A new run comes after every earlier one of its writer, whatever the clocks say.",
    Fails(f"{WRITER}test_a_new_run_comes_after_every_earlier_one_though_the_clock_went_back"),
    Fails(f"{WRITER}test_a_new_run_comes_after_a_rejected_one_and_after_the_marks"),
)
@breaks("writers.publish.publisher._behind")
def runs_begin_by_the_clock(rightly: Any, name: TxlogName) -> int:
    """A run begins when the clock says."""
    return 0


@rule(
    "Deletes that are bound to partitions are held while live rows have another spec: they would miss them.",
    Fails("tests/tick/test_plan_deletes.py::test_deletes_of_a_partition_wait_while_rows_of_another_spec_are_live"),
)
@breaks("bookkeeper.tick.plan_batch._Planner._check_delete_spec")
def bound_deletes_miss_rows(rightly: Any, planner: Any, txlog: Any) -> None:
    """The specs of live rows are not asked."""


@rule(
    "A delete file has the table's keys, its delete spec and the content of an equality delete.",
    Fuzzed(2000),
    Fails(f"{BAD_DELETES}test_a_bad_txlog_is_rejected_with_a_reason[deletes by other columns]"),
)
@breaks("bookkeeper.tick.check_txlog._check_deletes")
def any_delete_file(rightly: Any, schema_id: int, deletes: Any, rules: Any) -> None:
    """What a delete file says of itself is not compared."""


@rule(
    "The footer of a delete file is what its entry says: an odd one would keep its scope from being folded.",
    Fails(f"{BAD_DELETES}test_the_good_ones_beside_all_the_bad_ones_get_in"),
)
@breaks("bookkeeper.tick.intake.footer_error")
def footers_are_not_read(rightly: Any, *given: Any) -> None:
    """A delete file is what it says it is."""


@rule(
    "Relative numbers of a txlog are dense, and its span is bounded: a lie would use up the table's numbers.",
    Fails("tests/contract/test_txlog_steps.py::test_numbers_that_are_not_those_of_steps_are_refused_on_both_sides"),
    Fails("tests/contract/test_txlog_steps.py::test_a_span_is_bounded"),
)
@breaks("bookkeeper.contract.txlog.check_numbers")
def any_numbers(rightly: Any, *given: Any) -> None:
    """Numbers of steps are not compared."""


@rule(
    "The marks note the number of the append: max-age counts from it, not from an earlier one.",
    Fails(f"{SCENES}test_rows_live_as_long_as_retention_says"),
)
@breaks("bookkeeper.tick.planning.committed_number")
def times_of_the_first_number(rightly: Any, last: int, txlogs: Sequence[Any]) -> int:
    """The time of a commit is noted with its first number."""
    return last + 1


@rule(
    "The marks note the number of the append: max-age counts from it, not from a later one.",
    Fails(f"{SCENES}test_rows_live_as_long_as_retention_says"),
)
@breaks("bookkeeper.tick.planning.committed_number")
def times_of_a_later_number(rightly: Any, last: int, txlogs: Sequence[Any]) -> int:
    """The time of a commit is noted with a number that a later commit takes."""
    return int(rightly(last, txlogs)) + 3


@rule(
    "Of each key the last operation of a step wins.",
    Fails(f"{WRITER}test_changes_are_upserts_and_deletes_in_their_order"),
    Simulated(6000),
)
@breaks("writers.files.upsert_steps.versions")
def the_first_operation_wins(rightly: Any, columns: Any, kinds: Any, keep_all: bool) -> Any:
    """Of each key the first operation of a step wins."""
    found = rightly(columns, kinds, keep_all)
    seen, first = set[Any](), list[bool]()
    for key in zip(*(column.to_pylist() for column in columns), strict=True):
        first.append(key not in seen)
        seen.add(key)
    return replace(found, last=pa.array(first, pa.bool_()))
