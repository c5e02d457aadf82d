"""
Compaction by another program, as Iceberg Java's `RewriteDataFiles` does it with `use-starting-sequence-number`.

It reads a snapshot, applies its deletes, writes one file in the place of several, and commits with `RewriteFiles`:

1. The new file has the sequence number of the snapshot that was read, so that later equality deletes apply to it.
2. Every file that goes must be live at the head, and no position delete for one of them may have come since: looked for
   in snapshots of the operations `overwrite` and `delete`. Without their history nothing is committed.
3. A `replace` snapshot, guarded by the table's uuid and the head; after a conflict all is checked again.
4. Delete files that are older than every live data file go with it.
"""

import io
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.exceptions import CommitFailedException, ValidationException
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    ManifestWriterV2,
    read_manifest_list,
    write_manifest_list,
)
from pyiceberg.table.snapshots import Operation, Snapshot, SnapshotSummaryCollector, Summary, update_snapshot_summaries
from pyiceberg.table.update import AddSnapshotUpdate, AssertRefSnapshotId, AssertTableUUID, SetSnapshotRefUpdate

from tests.support.pyiceberg_files import parquet_file

if TYPE_CHECKING:
    from tests.simulation.world import World

ATTEMPTS = 5
FIELD_ID = b"PARQUET:field_id"
#: operations whose snapshots may add delete files
WITH_DELETES = (Operation.OVERWRITE, Operation.DELETE)


class Task(NamedTuple):
    """What was read and written: the snapshot, the files that go by path, and the new file."""

    start: Snapshot
    replaced: dict[str, DataFile]
    new: DataFile | None


class DeleteManifestWriter(ManifestWriterV2):
    """A manifest of delete files: pyiceberg writes manifests of data files only."""

    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}


def described(path: str, rows: pa.Table, size: int, spec_id: int, partition: tuple[Any, ...]) -> DataFile:
    """A data file with the bounds of its timestamps and keys."""
    times = sorted(int(value.timestamp() * 1_000_000) for value in rows["timestamp"].to_pylist())
    keys = sorted(rows["key"].to_pylist())
    return parquet_file(
        path,
        spec_id,
        partition,
        record_count=rows.num_rows,
        file_size_in_bytes=size,
        lower_bounds={1: times[0].to_bytes(8, "little"), 2: keys[0].encode()},
        upper_bounds={1: times[-1].to_bytes(8, "little"), 2: keys[-1].encode()},
    )


def rewrite(world: "World", table: Any, dice: Random, name: str) -> str:
    """Compacts some files of one partition; says so when there are none."""
    start = table.metadata.current_snapshot()
    files = chosen(table, start, dice) if start is not None else []
    if not files:
        return ": nothing to do"
    rows = pa.concat_tables([_rows(table, start, entry) for entry in files])
    file, new = files[0].data_file, None
    if rows.num_rows:
        out, path = io.BytesIO(), f"{table.location()}/data/foreign-rewrite-{name}.parquet"
        pq.write_table(rows, out)
        world.disk.put(path, out.getvalue())
        partition = tuple(file.partition[at] for at in range(len(file.partition)))
        new = described(path, rows, len(out.getvalue()), file.spec_id, partition)
    task = Task(start, {entry.data_file.file_path: entry.data_file for entry in files}, new)
    for left in reversed(range(ATTEMPTS)):
        table = table.catalog.load_table(world.settings.identifier)
        try:
            _commit(world, table, task, name)
            return ""
        except CommitFailedException:
            if not left:
                raise
    return ""


def _entries(table: Any, snapshot: Snapshot, content: ManifestContent) -> Iterator[ManifestEntry]:
    for manifest in read_manifest_list(table.io.new_input(snapshot.manifest_list)):
        if manifest.content == content:
            yield from manifest.fetch_manifest_entry(table.io)


def chosen(table: Any, start: Snapshot, dice: Random) -> list[ManifestEntry]:
    """Two to six live data files of one partition, if one has so many."""
    groups = defaultdict[Any, list[ManifestEntry]](list)
    for entry in _entries(table, start, ManifestContent.DATA):
        groups[entry.data_file.spec_id, str(entry.data_file.partition)].append(entry)
    many = [group for group in groups.values() if len(group) > 1]
    if not many:
        return []
    group = sorted(dice.choice(many), key=lambda entry: entry.data_file.file_path)
    return dice.sample(group, dice.randint(2, min(6, len(group))))


# -- reading


def _read(table: Any, path: str) -> pa.Table:
    return pq.ParquetFile(table.io.new_input(path).open()).read(use_threads=False)


def _rows(table: Any, start: Snapshot, entry: ManifestEntry) -> pa.Table:
    """The rows of a file that the deletes of the snapshot leave, in the table's schema: columns by field id."""
    stored, path = _read(table, entry.data_file.file_path), entry.data_file.file_path
    by_id = {int(field.metadata[FIELD_ID]): stored[at] for at, field in enumerate(stored.schema)}
    wanted, nothing = schema_to_pyarrow(table.schema()), stored.num_rows
    columns = []
    for field, column in zip(wanted, table.schema().fields, strict=True):
        found = by_id.get(column.field_id)
        columns.append(pa.nulls(nothing, field.type) if found is None else found.cast(field.type))
    rows, dead, keys = pa.table(columns, schema=wanted), set[int](), set[str]()
    for delete in _entries(table, start, ManifestContent.DELETES):
        found = _read(table, delete.data_file.file_path)
        if delete.data_file.content == DataFileContent.EQUALITY_DELETES:
            keys |= set(found["key"].to_pylist()) if _number(delete) > _number(entry) else set()
        elif _number(delete) >= _number(entry):
            places = zip(found["file_path"].to_pylist(), found["pos"].to_pylist(), strict=True)
            dead |= {place for at, place in places if at == path}
    live = [place not in dead and key not in keys for place, key in enumerate(rows["key"].to_pylist())]
    return rows.filter(pa.array(live, pa.bool_()))


def _number(entry: ManifestEntry) -> int:
    assert entry.sequence_number is not None
    return entry.sequence_number


# -- committing


def _commit(world: "World", table: Any, task: Task, name: str) -> None:
    metadata, head = table.metadata, table.metadata.current_snapshot()
    if head is None:
        raise ValidationException("the table is empty")
    _check_no_new_deletes(table, task, head)
    made = _Commit(world, table, task, f"foreign-{name}-{world.random(4).hex()}")
    manifests = made.manifests(head)
    if missing := task.replaced.keys() - made.gone.keys():
        raise ValidationException(f"Missing required files to delete: {sorted(missing)[0]}")
    number, place = metadata.last_sequence_number + 1, f"{table.location()}/metadata/snap-{made.name}.avro"
    with write_manifest_list(
        2, table.io.new_output(place), made.snapshot_id, head.snapshot_id, number, "deflate"
    ) as out:
        out.add_manifests(manifests)
    snapshot = Snapshot(
        snapshot_id=made.snapshot_id,
        parent_snapshot_id=head.snapshot_id,
        sequence_number=number,
        timestamp_ms=max(int(world.scheduler.now.timestamp() * 1000), metadata.last_updated_ms),
        manifest_list=place,
        summary=_summary(table, task, made.gone.values(), head),
        schema_id=metadata.current_schema_id,
    )
    move = SetSnapshotRefUpdate(ref_name="main", type="branch", snapshot_id=made.snapshot_id)
    guards = (
        AssertTableUUID(uuid=metadata.table_uuid),
        AssertRefSnapshotId(ref="main", snapshot_id=head.snapshot_id),
    )
    table.catalog.commit_table(table, guards, (AddSnapshotUpdate(snapshot=snapshot), move))


def _check_no_new_deletes(table: Any, task: Task, head: Snapshot) -> None:
    """`validateNoNewDeletesForDataFiles`, without equality deletes: those apply to the new file too."""
    at: Snapshot | None = head
    while at is not None and at.snapshot_id != task.start.snapshot_id:
        if at.summary is not None and at.summary.operation in WITH_DELETES:
            for manifest in read_manifest_list(table.io.new_input(at.manifest_list)):
                if manifest.content == ManifestContent.DELETES and manifest.added_snapshot_id == at.snapshot_id:
                    _check_positions(table, manifest, task.replaced)
        at = table.metadata.snapshot_by_id(at.parent_snapshot_id or 0)
    if at is None:
        raise ValidationException("Cannot determine history between starting snapshot and the head")


def _check_positions(table: Any, manifest: ManifestFile, replaced: Iterable[str]) -> None:
    for entry in manifest.fetch_manifest_entry(table.io):
        if entry.status != ManifestEntryStatus.ADDED or entry.data_file.content != DataFileContent.POSITION_DELETES:
            continue
        if not set(_read(table, entry.data_file.file_path)["file_path"].to_pylist()).isdisjoint(replaced):
            raise ValidationException("Cannot commit, found new position delete for replaced data file")


class _Commit:
    """One attempt: writes the manifests of the new snapshot; `gone` are the files that it takes out."""

    def __init__(self, world: "World", table: Any, task: Task, name: str) -> None:
        self.world, self.table, self.task, self.name = world, table, task, name
        self.snapshot_id = int.from_bytes(world.random(8), "big") >> 2 | 1
        self.gone, self.written = dict[str, DataFile](), 0

    def manifests(self, head: Snapshot) -> list[ManifestFile]:
        found = list(read_manifest_list(self.table.io.new_input(head.manifest_list)))
        data = [item for item in found if item.content == ManifestContent.DATA]
        kept = [self._without(item, ManifestWriterV2, self._is_replaced) for item in data]
        if self.task.new is not None:
            number = self.task.start.sequence_number
            added = ManifestEntry.from_args(
                status=ManifestEntryStatus.ADDED, sequence_number=number, data_file=self.task.new
            )
            kept.append(self._write(ManifestWriterV2, self.task.new.spec_id, [added]))
        least = min((item.min_sequence_number for item in kept if item.min_sequence_number > 0), default=0)
        return kept + [
            self._without(item, DeleteManifestWriter, lambda entry: 0 < _number(entry) < least)
            for item in found
            if item.content == ManifestContent.DELETES
        ]

    def _is_replaced(self, entry: ManifestEntry) -> bool:
        return entry.data_file.file_path in self.task.replaced

    def _without(self, manifest: ManifestFile, kind: type[ManifestWriterV2], goes: Any) -> ManifestFile:
        entries = manifest.fetch_manifest_entry(self.table.io)
        going = [entry for entry in entries if goes(entry)]
        if not going:
            return manifest
        self.gone |= {entry.data_file.file_path: entry.data_file for entry in going}
        for entry in entries:
            entry.status = ManifestEntryStatus.DELETED if entry in going else ManifestEntryStatus.EXISTING
            if entry in going:
                entry.snapshot_id = self.snapshot_id
        return self._write(kind, manifest.partition_spec_id, entries)

    def _write(self, kind: type[ManifestWriterV2], spec_id: int, entries: Sequence[ManifestEntry]) -> ManifestFile:
        self.written += 1
        place = f"{self.table.location()}/metadata/{self.name}-m{self.written}.avro"
        output, spec = self.table.io.new_output(place), self.table.specs()[spec_id]
        with kind(spec, self.table.schema(), output, self.snapshot_id, "deflate") as out:
            for entry in entries:
                out.add(entry) if entry.status == ManifestEntryStatus.ADDED else out.add_entry(entry)
        return out.to_manifest_file()


def _summary(table: Any, task: Task, gone: Iterable[DataFile], head: Snapshot) -> Summary:
    collector, schema = SnapshotSummaryCollector(), table.schema()
    if task.new is not None:
        collector.add_file(task.new, schema, table.specs()[task.new.spec_id])
    for file in gone:
        collector.remove_file(file, schema, table.specs()[file.spec_id])
    before = head.summary.additional_properties if head.summary is not None else None
    counted = update_snapshot_summaries(Summary(operation=Operation.OVERWRITE, **collector.build()), before)
    return Summary(operation=Operation.REPLACE, **counted.additional_properties)
