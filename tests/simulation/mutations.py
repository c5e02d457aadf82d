"""
`python -m tests.simulation.mutations`: the protocol broken on purpose, one rule at a time, and how many ticks each
defect lives before the simulation finds it.
"""

import argparse
import statistics
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast
from unittest import mock

import pyarrow as pa
from pyiceberg.table.snapshots import Operation

import reaper.run
from bookkeeper.core.folder import PENDING, REJECTED, Folder
from bookkeeper.core.rewrite import REWRITES, file_key
from bookkeeper.fold import select
from bookkeeper.fold.read import FILE_PATH, position_rows
from bookkeeper.format.entries import POSITION_DELETES
from bookkeeper.ledger import contents, ledger, summary, txlog_groups
from bookkeeper.ledger.blocks import live_summaries
from bookkeeper.ledger.commit_request import NewSnapshot, guards
from bookkeeper.retention import rule as retention_rule
from reaper.expiry import journal as journals
from reaper.expiry.verify_journal import Verdict
from reaper.files import txlogs
from reaper.files.expired import Files
from tests.chaos import broken
from tests.simulation.events import events
from tests.simulation.play import play
from writers.files.steps import Steps
from writers.files.unpublished import UnpublishedFiles

EVENTS = 300
MOST_TICKS = 6000
Patches = list[tuple[str, Any]]


def relabelled(old: Operation, new: Operation) -> Callable[..., NewSnapshot]:
    """Snapshots of one operation are committed as another."""
    return lambda id, operation, *rest: NewSnapshot(id, new if operation == old else operation, *rest)


def fold_as_replace(id: int, operation: Operation, manifests: Any, counts: Any, *rest: Any) -> NewSnapshot:
    """A fold is committed as a `replace`."""
    fold = counts.get("bookkeeper.reason") == "fold"
    return NewSnapshot(id, Operation.REPLACE if fold else operation, manifests, counts, *rest)


def believed(checker: Any, rewrite: Any, partition: Any) -> list[Any]:
    """Of the files that a rewrite replaces, those that are gone are taken for what the rewrite says of them."""
    said = {file_key(row.path): SimpleNamespace(row=row) for row in rewrite.body.rows}
    return [file for key in rewrite.replaced for file in checker.live.get(key, [said[key]])]


def all_data_of(metadata: Any, reader: Any, expire: Collection[int]) -> Files:
    """With a snapshot goes every file that it has."""
    snapshots = [item for item in metadata.snapshots if item.snapshot_id in expire]
    lines = reader.by_path(snapshots).values()
    return Files(data={entry.path: entry.bytes for _, entries in reader.entries(lines) for entry in entries})


def new_files_deleted(folder: Folder, name: str, why: Any, now: datetime) -> None:
    """A rejected rewrite loses its new files."""
    store: Any = folder.store
    rewrite = check_rewrites_decode(name, store.read(f"{REWRITES}{name}"))
    for row in rewrite.added:
        store.disk.delete(row.path)
    folder.reject(name, why, now, place=REWRITES)


def check_rewrites_decode(name: str, data: bytes) -> Any:
    """The rewrite of this name."""
    from bookkeeper.core.rewrite import decode

    return decode(name.removesuffix(".avro"), data, 2**26)


def carelessly(folder: Folder, name: Any, why: Any, now: datetime, *given: Any, place: str = PENDING) -> None:
    """A bad txlog leaves pending/ before it is durable in rejected/."""
    data = folder.store.read(f"{place}{name}")
    folder.store.delete_many([f"{place}{name}"])
    folder.store.create(f"{REJECTED}{name}", data)


def too_early(settings: Any, schema: Any, times: Any, now: datetime) -> Any:
    """Retention two hours ahead of time."""
    return _rule(settings, schema, times, now + timedelta(hours=2))


def one_more(*given: Any) -> dict[str, str]:
    """The summary counts a file too many."""
    counts = dict(_append_counts(*given))
    return counts | {"added-data-files": str(int(counts["added-data-files"]) + 1)}


def total_off_by_one(*given: Any) -> Any:
    """The summary says a row more than the table holds."""
    made = _summary(*given)
    made.additional_properties["total-records"] = str(int(made["total-records"] or 0) + 1)
    return made


def without_one(manifests: Any) -> Any:
    """A commit forgets the oldest manifest."""
    return _with_live_files(manifests)[:-1] if len(manifests) > 2 else _with_live_files(manifests)


def not_looked_at(context: Any, journal: Any) -> tuple[Verdict, Any]:
    """The reaper trusts its journal."""
    return broken.no_second_look(context, journal)


def forgotten(store: Any) -> None:
    """A journal that a crash left is dropped unread."""
    if (left := _read_journal(store)) is not None:
        journals.drop(store, left)


def journal_later(store: Any, journal: Any) -> Any:
    """The journal is not durable before the commit."""
    return journal


def journal_behind(context: Any, table: Any, journal: Any) -> None:
    """It is written behind it."""
    _expire(context, table, journal)
    _write_journal(context.folder, journal)


def examined_or_not(header: Any, manifest: Any, store: Any, plan: Any, newest: Any) -> Iterator[str]:
    """A fold does not ask what came since it was planned."""
    for _, row, _ in live_summaries(contents.read_manifest(store, manifest).rows, manifest):
        if (key := file_key(row.path)) in plan.files:
            yield key


def inherited(body: Any, numbers: Sequence[int], header: Any) -> Any:
    """Files of txlogs with deletes inherit the numbers of their snapshots."""
    return _numbered(body, [cast(int, None)] * len(numbers), header)


def inherited_beside(body: Any, numbers: Sequence[int], header: Any) -> Any:
    """Those of a version-1 txlog do, beside txlogs with deletes."""
    if any(entry.sequence_number is not None for entry in body.entries):
        return _numbered(body, numbers, header)
    return inherited(body, numbers, header)


def shadow_at_its_step(steps: Any, spec: Any, sequence: int) -> None:
    """Shadow rows have the number of their step, whose deletes do not hide them."""
    before = UnpublishedFiles.take

    def take(files: Any, rows: Any, spec: Any, sequence: int, number: int = 0) -> Any:
        return before(files, rows, spec, sequence, steps._number)

    with mock.patch.object(UnpublishedFiles, "take", take):
        _end_step(steps, spec, sequence)


def data_files_only(*given: Any) -> set[str]:
    """The reaper does not ask which delete files a txlog names."""
    return {path for path in _paths(*given) if not path.endswith("-deletes.parquet")}


def for_one_file(ledger: Any, view: Any) -> Any:
    """A fold takes a position delete file for that of the first data file that it is for."""
    for manifest, header, item in _live_deletes(ledger, view):
        paths = item.entry.data_file.lower_bounds
        if item.entry.content == POSITION_DELETES and FILE_PATH in paths:
            of_one = item.file._replace(scope=file_key(paths[FILE_PATH].decode()))
            yield manifest, header, item._replace(file=of_one)
        else:
            yield manifest, header, item


def positions_of_one(file: Any, data: Any, of: str) -> Any:
    """And the positions of others are forgotten."""
    rows = position_rows(file, data)
    own = [file_key(path) == of for path in rows.column("file_path").to_pylist()]
    return rows.filter(pa.array(own, pa.bool_())).column("pos").combine_chunks()


def fold_without_positions(ledger: Any, view: Any, removed: Any, added: Any) -> Any:
    """A fold takes equality deletes out, and forgets to put position deletes in their place."""
    return _fold(ledger, view, removed, [])


_fold = ledger.Ledger.fold
_numbered, _end_step, _paths = txlog_groups._numbered, Steps._end_step, txlogs._paths
_live_deletes = select.live_deletes
_expire, _read_journal, _write_journal = reaper.run.expire, journals.read, journals.write
_rule, _append_counts, _with_live_files = retention_rule.rule, summary.append_counts, ledger._with_live_files
_summary = summary.summary
_LEDGER = "tests.simulation.books.Ledger"

MUTATIONS: dict[str, Patches] = {
    "the guard of main is left out": [("bookkeeper.ledger.ledger.guards", lambda view: guards(view)[:1])],
    "marks in a commit after that of the files": [(_LEDGER, broken.MarksApart)],
    "marks in a commit before that of the files": [(_LEDGER, broken.MarksFirst)],
    "old marks after an unknown outcome": [(_LEDGER, broken.DeafLedger)],
    "an unknown outcome taken for success": [(_LEDGER, broken.TrustingLedger)],
    "the swap before its files are durable": [(_LEDGER, broken.SwapFirst)],
    "delete before the commit": [("tests.simulation.books.Bookkeeper", broken.HastyBookkeeper)],
    "out of pending/ before it is in rejected/": [("bookkeeper.core.folder.Folder.reject", carelessly)],
    "positions are not compared": [("bookkeeper.tick.plan._Planner._check_position", broken.any_position)],
    "a data file may be named by any txlog": [("bookkeeper.tick.check.check_names", lambda *given: None)],
    "marks are not asked": [("bookkeeper.core.marks.Mark.is_in", lambda mark, sequence: False)],
    "the next sequence counts as in": [
        ("bookkeeper.core.marks.Mark.is_in", lambda mark, sequence: sequence <= mark.last + 1)
    ],
    "a commit forgets a manifest": [("bookkeeper.ledger.ledger._with_live_files", without_one)],
    "the summary counts a file too many": [
        ("bookkeeper.ledger.summary.append_counts", one_more),
        ("bookkeeper.ledger.ledger._check_added", lambda written, stated: None),
    ],
    "the total of records is off by one": [("bookkeeper.ledger.summary.summary", total_off_by_one)],
    "a txlog before its data files are durable": [
        ("writers.files.unpublished.UnpublishedFiles._upload", broken.uploaded_late)
    ],
    "retention labelled replace": [
        ("bookkeeper.ledger.ledger.NewSnapshot", relabelled(Operation.DELETE, Operation.REPLACE))
    ],
    "rewrites labelled append": [
        ("bookkeeper.ledger.ledger.NewSnapshot", relabelled(Operation.REPLACE, Operation.APPEND))
    ],
    "a fold labelled replace": [("bookkeeper.ledger.ledger.NewSnapshot", fold_as_replace)],
    "a fold forgets its position deletes": [("bookkeeper.ledger.ledger.Ledger.fold", fold_without_positions)],
    "a fold does not ask what came since its plan": [("bookkeeper.ledger.fold_commit._planned", examined_or_not)],
    "files of a keyed txlog inherit their numbers": [("bookkeeper.ledger.txlog_groups._numbered", inherited)],
    "files of a version-1 txlog inherit theirs beside deletes": [
        ("bookkeeper.ledger.txlog_groups._numbered", inherited_beside)
    ],
    "shadow rows at the number of their own step": [("writers.files.steps.Steps._end_step", shadow_at_its_step)],
    "a txlog goes in after a later one of its writer": [
        ("bookkeeper.tick.writer_order.is_overtaken", lambda *given: False)
    ],
    "delete files of a waiting txlog are swept": [("reaper.files.txlogs._paths", data_files_only)],
    "a fold takes out position deletes of other files": [
        ("bookkeeper.fold.select.live_deletes", for_one_file),
        ("bookkeeper.fold.compute.positions_of", positions_of_one),
    ],
    "delete files go while rows need them": [("bookkeeper.ledger.ledger.least_number", lambda *given: 2**63)],
    "the order of a writer's runs is not asked": [
        ("bookkeeper.tick.writer_order.WriterOrder.check", lambda *given: None)
    ],
    "retention two hours early": [("bookkeeper.retention.apply.rules.rule", too_early)],
    "a rewrite of files that are gone": [("bookkeeper.tick.check_rewrites._Head._replaced_files", believed)],
    "new files of a rejected rewrite are deleted": [("bookkeeper.core.pending_rewrites.reject", new_files_deleted)],
    "the reaper deletes all data of what expires": [("reaper.run.deletable", all_data_of)],
    "the reaper deletes before it commits": [
        ("reaper.run.expire", lambda *given: None),
        ("reaper.run.verify_journal", not_looked_at),
    ],
    "the reaper deletes without a second look": [("reaper.run.verify_journal", not_looked_at)],
    "the reaper does not read its journal": [("reaper.run.journals.read", lambda store: None)],
    "a journal that a crash left is dropped unread": [("reaper.run.journals.read", forgotten)],
    "the journal after the commit": [
        ("reaper.run.journals.write", journal_later),
        ("reaper.run.expire", journal_behind),
    ],
    "expiry without guards": [("reaper.expiry.expire.guards", lambda metadata: ())],
    "the reaper does not ask consumers": [("reaper.consumer_guard.Guard.holds", lambda *given: ())],
    "consumers read what replace snapshots add": [("bookkeeper.streams.work.is_append", lambda snapshot: True)],
}


def ticks_to_find(patches: Patches, seed: int, most: int = MOST_TICKS) -> tuple[int | None, str]:
    """After how many ticks, over worlds of a few hundred events, something is wrong, and what; None: never."""
    ticks = 0
    with ExitStack() as stack:
        for where, what in patches:
            stack.enter_context(mock.patch(where, what))
        while ticks < most:
            played = play(seed, list(events(seed, EVENTS)))
            ticks += played.ticks
            if played.wrong:
                return ticks, played.wrong
            seed += 1000
    return None, ""


def main() -> int:
    """Prints the table; 1 when a defect was not found."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.mutations", description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--most", type=int, default=MOST_TICKS, help="give up after so many ticks (default: 6000)")
    parser.add_argument("--only", default="", help="defects whose name contains this")
    given = parser.parse_args()
    print("| defect | found by seeds | median ticks | what is wrong |\n|---|---|---|---|", flush=True)
    missed = 0
    for name, patches in MUTATIONS.items():
        if given.only not in name:
            continue
        found = [ticks_to_find(patches, seed, given.most) for seed in range(1, given.seeds + 1)]
        ticks = [given.most if count is None else count for count, _ in found]
        wrong = next((wrong for count, wrong in found if count is not None), "nothing")
        caught = sum(count is not None for count, _ in found)
        missed += caught == 0
        print(f"| {name} | {caught} of {len(found)} | {statistics.median(ticks):.0f} | {wrong[:70]} |", flush=True)
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
