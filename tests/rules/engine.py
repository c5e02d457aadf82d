"""
What a commit writes: summaries, labels, manifests, and the entries that are carried on.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from pyiceberg.manifest import ManifestFile
from pyiceberg.table.snapshots import Operation

from bookkeeper.contract.rewrite import Rewrite
from bookkeeper.format import partition_tuples
from bookkeeper.format.records import EXISTING, Prefix, Records, write_prefix
from bookkeeper.ledger.build_commit import CommitAttempt, NewSnapshot
from tests.rules.rule import Chapter, Patch, breaks, put
from tests.rules.systems import Fails, Simulated, Walked

rule = Chapter()


@rule(
    "The summary counts exactly the files that its snapshot adds: Spark's stream reads no more than it says.",
    Simulated(400, "added-data-files"),
    Fails("tests/tick/test_totals.py::test_summaries_say_the_truth_after_every_step_of_any_history"),
)
def one_added_file_too_many(patch: Patch) -> None:
    """The summary counts a file more, and the engine does not compare it with its manifests."""

    def append_counts(rightly: Any, rows: Any) -> dict[str, str]:
        counts = dict(rightly(rows))
        return counts | {"added-data-files": str(int(counts["added-data-files"]) + 1)}

    put(patch, "bookkeeper.ledger.summary.append_counts", append_counts)
    put(patch, "bookkeeper.ledger.build_commit._check_added", lambda rightly, written, stated: None)


@rule(
    "The engine compares what a summary says with the manifests that it is about to commit.",
    Fails("tests/ledger/test_engine.py::test_a_summary_that_counts_another_number_of_files_is_never_committed"),
)
@breaks("bookkeeper.ledger.build_commit._check_added")
def added_files_are_not_compared(rightly: Any, written: Any, stated: int) -> None:
    """A summary is believed."""


@rule(
    "The summary's totals are what the table holds: retention's brake weighs by them.",
    Simulated(400, "total-records"),
    Walked("summaries_count_what_their_snapshot_holds"),
    Fails("tests/tick/test_totals.py::test_summaries_say_the_truth_after_every_step_of_any_history"),
)
@breaks("bookkeeper.ledger.summary.summary")
def totals_off_by_one(rightly: Any, *given: Any) -> Any:
    """The summary says a row more than the table holds."""
    made = rightly(*given)
    made.additional_properties["total-records"] = str(int(made["total-records"] or 0) + 1)
    return made


@rule(
    "The summary names the txlogs that its snapshot holds.",
    Fails("tests/tick/test_tick.py::test_the_summary_names_the_txlogs_of_a_snapshot"),
)
@breaks("bookkeeper.ledger.summary.txlog_names")
def txlogs_are_not_named(rightly: Any, names: Any) -> dict[str, str]:
    """Which snapshot has a txlog is nowhere."""
    return {}


@rule(
    "A commit lists every manifest of its parent that has a live file.",
    Simulated(6000),
    Fails("tests/ledger/test_engine.py::test_manifests_stay_few_however_many_commits"),
)
@breaks("bookkeeper.ledger.build_commit._with_live_files")
def a_manifest_is_forgotten(rightly: Any, manifests: Sequence[ManifestFile]) -> Any:
    """A commit forgets the oldest manifest."""
    return rightly(manifests)[:-1] if len(manifests) > 2 else rightly(manifests)


@rule(
    "A manifest of nothing but DELETED entries is not carried on: else each commit would list more of them.",
    Fails(
        "tests/retention/test_retention.py::test_a_manifest_of_nothing_but_deleted_entries_is_dropped_by_the_next_append"
    ),
)
@breaks("bookkeeper.ledger.build_commit._with_live_files")
def dead_manifests_are_carried_on(rightly: Any, manifests: Sequence[ManifestFile]) -> Any:
    """Every manifest of the parent is listed for ever."""
    return list(manifests)


@rule(
    "Entries that are carried on keep their snapshot and both sequence numbers.",
    Walked("entries_are_carried_on_as_they_were"),
)
@breaks("bookkeeper.manifests.blocks._StatusRewrite._rewrite")
def carried_with_the_manifests_number(rightly: Any, rewrite: Any, raw: bytes, gone: bool) -> Any:
    """An entry gets the sequence number of the manifest that it comes from."""
    made = rightly(rewrite, raw, gone)
    after = made and replace(made[0], sequence=rewrite._manifest.sequence_number)
    return after and (after, write_prefix(after))


@rule(
    "Files that go leave DELETED entries: by them other programs' expiry deletes the files.",
    Walked("snapshots_follow_from_their_parents"),
    Fails("tests/retention/test_retention.py::test_files_go_in_a_delete_snapshot_and_leave_deleted_entries_for_expiry"),
)
@breaks("bookkeeper.manifests.blocks._StatusRewrite._rewrite")
def no_deleted_entries(rightly: Any, rewrite: Any, raw: bytes, gone: bool) -> Any:
    """A manifest that loses a file does not say so."""
    return None if gone else rightly(rewrite, raw, gone)


@rule(
    "The line of a manifest in its list has the bounds of all its partitions: readers skip by them.",
    Walked("lists_describe_their_manifests"),
)
@breaks("bookkeeper.manifests.header.summarise")
def bounds_of_one_partition(rightly: Any, kinds: Any, tuples: Any) -> Any:
    """The list has the bounds of the first partition only."""
    return partition_tuples.summarise(kinds, list(tuples)[:1])


@rule(
    "Records are joined undecoded only within one layout.",
    Walked("undecodable"),
    Fails("tests/ledger/test_engine.py::test_a_txlog_in_another_layout_is_committed_beside_ours"),
)
@breaks("bookkeeper.manifests.header.Header.joins")
def joined_across_layouts(rightly: Any, header: Any, layout: Any) -> bool:
    """Records of any layout stand beside ours in one manifest."""
    return True


@rule(
    "A block of entries is known by its bytes and its schema.",
    Walked("snapshots_follow_from_their_parents"),
)
@breaks("bookkeeper.manifests.walk.digester")
def blocks_known_by_their_count(rightly: Any, avro_schema: bytes, codec: bytes = b"") -> Callable[[Any], bytes]:
    """Two blocks of as many entries are the same."""
    return lambda block: b"%d" % block.count


@rule(
    "A block that inherits anything is not carried on unread.",
    Walked("snapshots_follow_from_their_parents"),
)
@breaks("bookkeeper.manifests.blocks.stats_of")
def blocks_that_inherit_are_carried_on(rightly: Any, rows: Any, size: int) -> Any:
    """Blocks of a manifest that was just added count as carried on before."""
    written = write_prefix(Prefix(EXISTING, 1, 1, 1))
    return rightly([row._replace(prefix=written) for row in rows], size)


@rule(
    "A block that may lose a file is read.",
    Walked("live_files_are_the_models"),
    Fails("tests/manifests/test_blocks.py::test_a_retention_reads_and_writes_only_the_blocks_that_lose_files"),
)
@breaks("bookkeeper.retention.scan.selected_files")
def blocks_that_lose_files_are_not_read(rightly: Any, *given: Any) -> Any:
    """Every block of a manifest that loses files is passed on as it is."""
    return rightly(*given[:-2], lambda _: False, given[-1])


@rule(
    "The manifest of rewritten files says their smallest number: with a larger one, readers do not apply deletes.",
    Walked("lists_describe_their_manifests", rewrites=True),
    Fails("tests/ledger/test_rewrites.py::test_new_files_get_the_largest_number_they_replace_and_the_manifest_says_it"),
)
@breaks("bookkeeper.ledger.rewrite_groups.RewriteGroup.records")
def rewrites_hide_their_smallest_number(rightly: Any, group: Any, header: Any) -> Records:
    """The manifest says that its smallest number is its own."""
    return replace(rightly(group, header), least_sequence=None)


@rule(
    "Retention commits a `delete` snapshot, at which Spark's streams do not stop.",
    Simulated(6000),
    Fails("tests/retention/test_retention.py::test_files_go_in_a_delete_snapshot_and_leave_deleted_entries_for_expiry"),
)
@breaks("bookkeeper.ledger.build_commit.NewSnapshot.label")
def retention_is_a_replace(rightly: Any, new: NewSnapshot, operation: Operation, about: Any) -> None:
    """Snapshots that drop files say that no row changes."""
    rightly(new, Operation.REPLACE if operation == Operation.DELETE else operation, about)


@rule(
    "Merges and rewrites commit a `replace` snapshot, which streams pass over.",
    Simulated(6000),
    Fails("tests/ledger/test_rewrites.py::test_the_summary_says_in_icebergs_words_what_became_of_what"),
)
@breaks("bookkeeper.ledger.build_commit.NewSnapshot.label")
def rewrites_are_appends(rightly: Any, new: NewSnapshot, operation: Operation, about: Any) -> None:
    """Snapshots that change no row say that they add rows."""
    rightly(new, Operation.APPEND if operation == Operation.REPLACE else operation, about)


@rule(
    "New files of a rewrite have the largest number of those that they replace: no delete takes rows after it.",
    Walked("entries_are_carried_on_as_they_were", rewrites=True),
    Fails("tests/contract/test_rewrite.py::test_its_new_files_get_the_largest_sequence_number_that_they_replace"),
    Fails("tests/ledger/test_rewrites_deletes.py::test_a_rewrite_changes_no_row[an update in between]"),
)
def rewrites_have_the_smallest_number(patch: Patch) -> None:
    """New files have the smallest number of those that they replace."""
    smallest = property(lambda self: min(version.sequence_number for version in self.replaced.values()))
    patch.setattr(Rewrite, "sequence_number", smallest)


@rule(
    "A merge that fails stops no append.",
    Fails("tests/tick/test_lying_counts.py::test_a_merge_that_fails_stops_no_append"),
    Fails("tests/tick/test_flight.py::test_a_merge_that_cannot_be_written_keeps_no_append_from_its_commit"),
)
@breaks("bookkeeper.ledger.build_commit.CommitAttempt.leave_unmerged")
def a_merge_that_fails_ends_the_commit(
    rightly: Any, commit: CommitAttempt, error: Exception, manifests: Any = ()
) -> None:
    """What fails in a merge fails the commit."""
    raise error
