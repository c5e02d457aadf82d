"""
What must hold of the table after every step, as the names of the properties that do not.

Each property is a generator of complaints, so that a broken engine can be asked which of them it breaks.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from tests.histories.decoded import ADDED, DELETED, EXISTING, Entry, Snapshot, pairs, plain
from tests.histories.model import Model, comparable, seen

SIZES = ("column_sizes", "value_counts", "null_value_counts", "nan_value_counts", "lower_bounds", "upper_bounds")


@dataclass(frozen=True)
class State:
    """The table after a step: its metadata, its snapshots by id, those the step made, and what should be in it."""

    metadata: dict[str, Any]
    snapshots: dict[int, Snapshot]
    new: list[Snapshot]
    model: Model

    @property
    def head(self) -> Snapshot | None:
        return self.snapshots.get(self.metadata.get("current-snapshot-id") or -1)

    def before(self, snapshot: Snapshot) -> list[Entry]:
        """What was live in its parent."""
        parent = self.snapshots.get(snapshot.said.get("parent-snapshot-id") or -1)
        return parent.live() if parent else []


Property = Callable[[State], Iterator[str]]


def ours(snapshot: Snapshot) -> bool:
    return any(key.startswith("bookkeeper.") for key in snapshot.summary)


def rewrites(snapshot: Snapshot) -> bool:
    return "bookkeeper.rewrites" in snapshot.summary


def live_files_are_the_models(state: State) -> Iterator[str]:
    """Every file of the model once, and no other."""
    live = Counter(entry.path for entry in state.head.live()) if state.head else Counter[str]()
    yield from (f"{path} is live {count} times" for path, count in live.items() if count > 1)
    yield from (f"{path} is missing" for path in state.model.live.keys() - live.keys())
    yield from (f"{path} should be gone" for path in live.keys() - state.model.live.keys())


def entries_say_what_the_writer_said(state: State) -> Iterator[str]:
    """Counts, sizes, partition and every statistic."""
    for manifest in state.head.data if state.head else []:
        for entry in manifest.live():
            known = state.model.live.get(entry.path)
            if known is None:
                continue
            said = known.described
            found = (entry.file["record_count"], entry.file["file_size_in_bytes"], manifest.line["partition_spec_id"])
            if found != (said.record_count, said.size_bytes, known.spec_id):
                yield f"{entry.path}: {found}"
            if seen(entry.partition) != seen(known.partition):
                yield f"{entry.path}: partition {entry.partition}, not {known.partition}"
            wrong = [name for name in SIZES if pairs(entry.file[name]) != dict(getattr(said, name))]
            yield from (f"{entry.path}: {name} {entry.file[name]}" for name in wrong)


def totals_are_the_models(state: State) -> Iterator[str]:
    """The head's summary."""
    if state.head:
        for key, value in state.model.totals.items():
            if state.head.summary.get(key) != str(value):
                yield f"{key} is {state.head.summary.get(key)}, not {value}"


def summaries_count_what_their_snapshot_holds(state: State) -> Iterator[str]:
    """Totals, added and deleted files of each new snapshot of ours; absent means 0."""
    for snapshot in state.new:
        for key, value in _counted(snapshot).items():
            said = snapshot.summary.get(key, "0" if key in _SUMMED else None)
            if ours(snapshot) and said != str(value):
                yield f"snapshot {snapshot.said['sequence-number']}: {key} is {said}, not {value}"


_SUMMED = {
    f"{what}{key}"
    for what, keys in (("added-", ("data-files", "records", "files-size")), ("deleted-", ("data-files", "records")))
    for key in keys
} | {"removed-files-size", "changed-partition-count"}


def _counted(snapshot: Snapshot) -> dict[str, int]:
    live, added, gone = snapshot.live(), snapshot.of(ADDED), snapshot.of(DELETED)
    deletes = [entry for manifest in snapshot.deletes for entry in manifest.live()]
    by_content = [[entry for entry in deletes if entry.file["content"] == content] for content in (1, 2)]
    changed = {
        (manifest.line["partition_spec_id"], seen(entry.partition))
        for manifest in snapshot.data
        for entry in manifest.entries
        if entry.snapshot_id == snapshot.id and entry.status != EXISTING
    }
    return {
        "total-data-files": len(live),
        "total-records": rows_in(live),
        "total-files-size": _bytes(live) + _bytes(deletes),
        "total-delete-files": len(deletes),
        "total-position-deletes": rows_in(by_content[0]),
        "total-equality-deletes": rows_in(by_content[1]),
        "added-data-files": len(added),
        "added-records": rows_in(added),
        "added-files-size": _bytes(added),
        "deleted-data-files": len(gone),
        "deleted-records": rows_in(gone),
        "removed-files-size": _bytes(gone),
        "changed-partition-count": len(changed),
    }


def rows_in(entries: list[Entry]) -> int:
    return sum(entry.file["record_count"] for entry in entries)


def _bytes(entries: list[Entry]) -> int:
    return sum(entry.file["file_size_in_bytes"] for entry in entries)


def snapshots_follow_from_their_parents(state: State) -> Iterator[str]:
    """Live files are the parent's, and those added, without those deleted; the operation says which of it."""
    for snapshot in state.new:
        before = {entry.path: entry for entry in state.before(snapshot)}
        added, gone = ({entry.path for entry in snapshot.of(status)} for status in (ADDED, DELETED))
        after = {entry.path for entry in snapshot.live()}
        if ours(snapshot) and (before.keys() | added) - gone != after:
            yield f"live files are not the parent's + {len(added)} added - {len(gone)} with DELETED entries"
        operation = snapshot.summary["operation"]
        allowed = {"append": (True, False), "delete": (False, True), "replace": (False, False)}
        if rewrites(snapshot):
            allowed = {"replace": (True, True)}
        if ours(snapshot) and allowed.get(operation) != (bool(added), bool(gone)):
            yield f"{operation} snapshot: {len(added)} files added, {len(gone)} deleted"


def entries_are_carried_on_as_they_were(state: State) -> Iterator[str]:
    """
    New files have this snapshot's id and sequence number, carried ones their own, deleted ones their sequence; those
    of a rewrite have the largest sequence number of those they replace.
    """
    for snapshot in filter(ours, state.new):
        before = {entry.path: entry for entry in state.before(snapshot)}
        sequence = snapshot.said["sequence-number"]
        for entry in [*snapshot.live(), *snapshot.of(DELETED)]:
            known = before.get(entry.path)
            if known is None:
                gone = [deleted.sequence for deleted in snapshot.of(DELETED)]
                expected = (snapshot.id, max(gone) if rewrites(snapshot) else sequence, sequence)
            else:
                expected = (snapshot.id, *known.ids[1:]) if entry.status == DELETED else known.ids
            if entry.ids != expected:
                yield f"{entry.path}: status {entry.status}, ids {entry.ids}, not {expected}"
            if known and _comparable(known.file) != _comparable(entry.file):
                yield f"{entry.path} is described otherwise than before"


def _comparable(file: dict[str, Any]) -> dict[str, Any]:
    # Layouts differ in names, optional fields and in the order of statistics.
    known = {name: pairs(file[name]) for name in SIZES}
    partition = [comparable(plain(item)) for item in file["partition"].values()]
    rest = {key: item for key, item in file.items() if key not in known and key != "partition" and item is not None}
    return {**rest, **known, "partition": partition}
