"""
Computes a fold: which rows the equality delete files of a selection delete, as position delete files and a plan.

A row is dead if the newest delete of its key in its scope has a number above the row's data sequence number (Iceberg
spec, "Scan Planning"). Each delete file and each key column is read once, whatever the number of files.

What cannot be read, or is more than the budget, is never guessed. An equality delete file stays if it cannot be read,
or while a data file that it may apply to was not examined. What was found of other files is right all the same, for its
rows are dead.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from bookkeeper.contract.names import new_incarnation
from bookkeeper.errors import CannotRead
from bookkeeper.folds.bounds import Values
from bookkeeper.folds.budget import OVER_BUDGET, UNREADABLE, Budget, Computed
from bookkeeper.folds.keys import DeletedKeys
from bookkeeper.folds.position_deletes import NewFiles
from bookkeeper.folds.read import KeyColumns, positions_of, read_files
from bookkeeper.folds.read_columns import read_columns
from bookkeeper.folds.select import Candidate, Group, LiveDelete, Selection
from bookkeeper.format.entries import DataFile
from bookkeeper.ledger.fold_plan import FoldedData, FoldPlan
from bookkeeper.stores.store import Store

#: rows whose keys are looked up at once, and their bytes in Arrow
BATCH_ROWS, BATCH_BYTES = 1_000_000, 256 * 2**20


def compute(selection: Selection, store: Store, now: datetime, random: bytes, budget: Budget | None = None) -> Computed:
    """
    The plan of a fold, its position delete files durable in `store`, which holds the table's data. `random`: 10 bytes.

    Raises StorageUnavailable; files that were written until then are orphans.
    """
    work = _Fold(selection, store, budget or Budget())
    work.set_dangling_aside()
    work.read_deletes()
    work.prune()
    work.keep_to_budget()
    work.read_keys()
    folded = tuple(item.file for item in (*work.dangling, *selection.deletes))
    if not folded:
        return Computed(None, selection.left, work.read)
    new = NewFiles(selection.view, new_incarnation(int(now.timestamp() * 1000), random))
    files = work.folded_data(new)
    new.store(store)
    plan = FoldPlan(selection.view.uuid, now, folded, files, work.examined, selection.manifests)
    return Computed(plan, selection.left, work.read, work.dead_rows)


class _OverBudget(Exception):
    """The deleted keys of a group take more memory than a fold may have."""


@dataclass
class _Fold:
    """One fold on its way."""

    selection: Selection
    store: Store
    budget: Budget
    deleted: dict[Group, DeletedKeys] = field(default_factory=dict)
    values: dict[Group, list[Values]] = field(default_factory=dict)
    columns: dict[tuple[int, ...], KeyColumns] = field(default_factory=dict)
    #: candidates that may have dead rows, by key, and the dead rows that were found, ascending
    reading: dict[str, Candidate] = field(default_factory=dict)
    dead: dict[str, list[pa.Array]] = field(default_factory=dict)
    #: deletes that apply to no live data file
    dangling: list[LiveDelete] = field(default_factory=list)
    #: of deleted keys that were read
    deleted_bytes: int = 0
    read: int = 0
    dead_rows: int = 0

    @property
    def examined(self) -> dict[str, int]:
        """The data files that the groups which are folded apply to."""
        groups = self.selection.groups
        return {
            item.key: item.sequence_number
            for item in self.selection.candidates
            if any(group in groups for group in item.groups)
        }

    def _groups_of(self, item: Candidate) -> list[Group]:
        return [group for group in item.groups if group in self.selection.groups]

    def _keys_of(self, item: Candidate) -> set[tuple[int, ...]]:
        return {group.key_ids for group in self._groups_of(item)}

    def set_dangling_aside(self) -> None:
        """Takes deletes that apply to no live data file, as after a rewrite that applied them: they go unread."""
        least = dict[Group, int]()
        for item in self.selection.candidates:
            for group in item.groups:
                least[group] = min(item.sequence_number, least.get(group, item.sequence_number))
        for group, items in [*self.selection.groups.items()]:
            needed = list[LiveDelete]()
            for delete in items:
                applies = group in least and delete.file.largest_number >= least[group]
                (needed if applies else self.dangling).append(delete)
            if needed:
                self.selection.groups[group] = needed
            else:
                del self.selection.groups[group]

    def read_deletes(self) -> None:
        """Reads the deleted keys of each group, but for files that cannot be read: they stay, and go on applying."""
        view, room = self.selection.view, self.budget.deleted_keys
        for group in [*self.selection.groups]:
            room -= self._keep_to_room(group, room)
            items = self.selection.groups.get(group)
            if items is None:
                continue
            columns = self.columns.setdefault(group.key_ids, KeyColumns(view, group.key_ids))
            before = self.deleted_bytes
            try:
                found = self._deleted(group, items, columns)
            except _OverBudget:
                self.deleted_bytes = before
                self.selection.leave([group], OVER_BUDGET)
                continue
            if found is None:
                del self.selection.groups[group]
                continue
            self.deleted[group] = found
            self.values[group] = [
                Values(column.field_id, str(column.field_type), values)
                for column, values in zip(columns.schema.fields, found.values, strict=True)
            ]

    def _keep_to_room(self, group: Group, room: int) -> int:
        """
        Leaves deletes of a group that are more than `room` keys, and returns how many keys there are without them.

        Each delete file is right by itself. The oldest come first, so the others have their turn in later folds.
        """
        taken, kept = 0, list[LiveDelete]()
        for item in sorted(self.selection.groups[group], key=lambda item: item.file.sequence_number):
            count = item.entry.data_file.record_count
            if taken + count <= room:
                taken += count
                kept.append(item)
            else:
                self.selection.left[item.file.key] = OVER_BUDGET
        if kept:
            self.selection.groups[group] = kept
        else:
            self.selection.leave([group], OVER_BUDGET)
        return taken

    def _deleted(self, group: Group, items: Sequence[LiveDelete], columns: KeyColumns) -> DeletedKeys | None:
        """
        The keys of those files of a group that can be read, which it then consists of; None where none can.

        A subset is right by itself: a row is dead by the newest delete of its key in any subset that has one above it,
        and what stays live hides all it hid.
        """
        keys, of_rows, read = list[pa.Table](), list[pa.Array](), list[LiveDelete]()
        contents = read_files(self.store, [item.entry.data_file for item in items])
        for item, (file, data) in zip(items, contents, strict=True):
            try:
                if isinstance(data, CannotRead):
                    raise data
                found = columns.of_deletes(file, data)
            except CannotRead as exc:
                self.selection.left[item.file.key] = f"{UNREADABLE}: {exc}"
                continue
            self.deleted_bytes += found.nbytes
            if self.deleted_bytes > self.budget.deleted_bytes:
                raise _OverBudget
            keys.append(found)
            read.append(item)
            of_rows.append(pa.repeat(pa.scalar(item.file.sequence_number, pa.int64()), found.num_rows))
        if not read:
            return None
        self.selection.groups[group] = read
        return DeletedKeys(pa.concat_tables(keys), pa.concat_arrays(of_rows))

    def prune(self) -> None:
        """Passes over data files that by their bounds have none of the deleted keys, as readers do."""
        for item in self.selection.candidates:
            if any(self._may_match(item.file, group) for group in self._groups_of(item)):
                self.reading[item.key] = item

    def _may_match(self, file: DataFile, group: Group) -> bool:
        return all(values.may_be_in(file) for values in self.values[group])

    def keep_to_budget(self) -> None:
        """Leaves groups whose data files are too much to read; those with the oldest deletes come first."""
        taken = dict[str, Candidate]()
        oldest = {
            group: min(item.file.sequence_number for item in items) for group, items in self.selection.groups.items()
        }
        for group in sorted(oldest, key=oldest.__getitem__):
            more = {key: item for key, item in self.reading.items() if group in item.groups}
            if self.budget.fits([*(taken | more).values()]):
                taken |= more
            else:
                self.selection.leave([group], OVER_BUDGET)
        self.reading = taken

    def read_keys(self) -> None:
        """Reads the key columns of data files, and finds their dead rows, batch by batch."""
        by_path, batch = {item.file.path: item for item in self.reading.values()}, _Batch()

        def names_in(file: DataFile, source: pa.Schema) -> set[str] | None:
            item, names = by_path[file.path], set[str]()
            for key_ids in self._keys_of(item):
                found = self.columns[key_ids].names_in(file, item.spec_id, source)
                if found is None:
                    return None
                names.update(found)
            return names

        for file, data in read_columns(self.store, [item.file for item in self.reading.values()], names_in):
            item = by_path[file.path]
            self.read += 1
            try:
                for key_ids in self._keys_of(item):
                    if isinstance(data, CannotRead):
                        raise data
                    batch.add(item, key_ids, self.columns[key_ids].of_data(file, item.spec_id, data))
            except CannotRead as exc:
                self.selection.leave(self._groups_of(item), f"a data file cannot be read: {exc}")
            if batch.full():
                self._look_up(batch)
                batch = _Batch()
        self._look_up(batch)

    def _look_up(self, batch: "_Batch") -> None:
        for key_ids, files in batch.keys.items():
            for group in {group for item, _ in files for group in item.groups if group.key_ids == key_ids}:
                if group in self.deleted:
                    self._find_dead(group, [(item, keys) for item, keys in files if group in item.groups])

    def _find_dead(self, group: Group, files: Sequence[tuple[Candidate, pa.Table]]) -> None:
        rows, numbers = self.deleted[group].deleted(pa.concat_tables([keys for _, keys in files]))
        if not len(rows):
            return
        places, begin = rows.to_pylist(), 0
        for item, keys in files:
            end = begin + keys.num_rows
            low, high = bisect_left(places, begin), bisect_left(places, end)
            newer = pc.greater(numbers.slice(low, high - low), pa.scalar(item.sequence_number, pa.int64()))
            found = rows.slice(low, high - low).cast(pa.int64()).filter(newer)
            if len(found):
                self.dead.setdefault(item.key, []).append(pc.subtract(found, pa.scalar(begin, pa.int64())))
            begin = end

    def folded_data(self, new: NewFiles) -> dict[str, FoldedData]:
        """What becomes of the data files with dead rows."""
        folded = dict[str, FoldedData]()
        with_dead = {key: self.reading[key] for key in self.dead}
        before = self._predecessors(with_dead.values())
        for key, item in with_dead.items():
            predecessors, known = before.get(key, ((), pa.array([], pa.int64())))
            dead = pc.unique(pa.concat_arrays([*self.dead[key], known])).sort()
            if len(dead) == len(known):
                continue  # all of them are in its position delete files
            self.dead_rows += len(dead) - len(known)
            whole = len(dead) == item.file.record_count
            positions = None if whole else new.add(item.file, dead)
            folded[key] = FoldedData(item.sequence_number, item.manifest, item.spec_id, positions, predecessors)
        return folded

    def _predecessors(self, files: Iterable[Candidate]) -> dict[str, tuple[Any, pa.Array]]:
        """
        The position delete files that new ones replace, and their distinct positions, by data file.

        One that cannot be read, or is for another data file too, stays.
        """
        given = {item.key: [*_applicable(item, self.selection.predecessors.get(item.key, ()))] for item in files}
        of = {one.entry.data_file.path: (key, one) for key, found in given.items() for one in found}
        read = dict[str, tuple[tuple[Any, ...], list[pa.Array]]]()
        for file, data in read_files(self.store, [one.entry.data_file for _, one in of.values()]):
            key, one = of[file.path]
            try:
                if isinstance(data, CannotRead):
                    raise data
                positions = positions_of(file, data, key)
                if not _are_rows(positions, self.reading[key].file.record_count):
                    continue
            except CannotRead:
                continue
            files_of, arrays = read.get(key, ((), []))
            read[key] = (*files_of, one.file), [*arrays, positions]
        return {key: (found, pc.unique(pa.concat_arrays(arrays))) for key, (found, arrays) in read.items()}


class _Batch:
    """Keys of data files, by the ids of their columns, that are looked up together."""

    def __init__(self) -> None:
        self.keys: dict[tuple[int, ...], list[tuple[Candidate, pa.Table]]] = {}
        self._rows = self._bytes = 0

    def add(self, item: Candidate, key_ids: tuple[int, ...], keys: pa.Table) -> None:
        self.keys.setdefault(key_ids, []).append((item, keys))
        self._rows, self._bytes = self._rows + keys.num_rows, self._bytes + keys.nbytes

    def full(self) -> bool:
        return self._rows >= BATCH_ROWS or self._bytes >= BATCH_BYTES


def _are_rows(positions: pa.Array, rows: int) -> bool:
    if not len(positions):
        return True
    ends = pc.min_max(positions).as_py()
    return bool(ends["min"] >= 0 and ends["max"] < rows)


def _applicable(item: Candidate, given: Iterable[LiveDelete]) -> Iterator[LiveDelete]:
    """Position delete files for this data file alone that every reader applies to it."""
    for one in given:
        partition = one.entry.data_file.partition
        same = one.spec_id == item.spec_id and partition == item.file.partition
        certain = same and not any(isinstance(value, float) for value in partition)
        if certain and one.file.largest_number >= item.sequence_number:
            yield one
