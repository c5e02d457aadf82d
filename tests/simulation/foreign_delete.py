"""
Deletes by another program, as Spark does them with merge-on-read: one position delete file for a few data files of one
partition, in a `delete` snapshot that is guarded by the head which was read.
"""

import io
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    ManifestEntry,
    ManifestEntryStatus,
    read_manifest_list,
    write_manifest_list,
)
from pyiceberg.table.snapshots import Operation, Snapshot, SnapshotSummaryCollector, Summary, update_snapshot_summaries
from pyiceberg.table.update import AddSnapshotUpdate, AssertRefSnapshotId, AssertTableUUID, SetSnapshotRefUpdate

from tests.simulation.foreign_rewrite import DeleteManifestWriter, chosen
from tests.support.pyiceberg_files import parquet_file

if TYPE_CHECKING:
    from tests.simulation.world import World

#: the columns of a position delete file (Iceberg spec, "Reserved Field IDs")
PATH, POSITION = 2_147_483_546, 2_147_483_545
POSITIONS = pa.schema(
    [
        pa.field("file_path", pa.string(), nullable=False, metadata={"PARQUET:field_id": str(PATH)}),
        pa.field("pos", pa.int64(), nullable=False, metadata={"PARQUET:field_id": str(POSITION)}),
    ]
)


def delete(world: "World", table: Any, dice: Random, name: str) -> str:
    """Deletes a row of each of a few files; says so when there are none."""
    head = table.metadata.current_snapshot()
    files = [entry.data_file for entry in chosen(table, head, dice)] if head is not None else []
    if not files:
        return ": nothing to do"
    places = sorted((file.file_path, dice.randrange(file.record_count)) for file in files)
    file = _written(world, table, places, files[0], f"foreign-{name}")
    _commit(world, table, head, file, places, f"foreign-{name}-{world.random(4).hex()}")
    return ""


def _written(world: "World", table: Any, places: list[tuple[str, int]], like: DataFile, name: str) -> DataFile:
    paths, positions = zip(*places, strict=True)
    out, path = io.BytesIO(), f"{table.location()}/data/{name}-deletes.parquet"
    pq.write_table(pa.table([list(paths), list(positions)], schema=POSITIONS), out)
    world.disk.put(path, out.getvalue())
    partition = tuple(like.partition[at] for at in range(len(like.partition)))
    file = parquet_file(
        path,
        like.spec_id,
        partition,
        record_count=len(places),
        file_size_in_bytes=len(out.getvalue()),
        lower_bounds={PATH: paths[0].encode()},
        upper_bounds={PATH: paths[-1].encode()},
    )
    file._data[0] = DataFileContent.POSITION_DELETES
    return file


def _commit(
    world: "World", table: Any, head: Snapshot, file: DataFile, places: list[tuple[str, int]], name: str
) -> None:
    metadata, snapshot_id = table.metadata, int.from_bytes(world.random(8), "big") >> 2 | 1
    number, place = metadata.last_sequence_number + 1, f"{table.location()}/metadata/snap-{name}.avro"
    output = table.io.new_output(f"{table.location()}/metadata/{name}-m1.avro")
    with DeleteManifestWriter(table.specs()[file.spec_id], table.schema(), output, snapshot_id, "deflate") as out:
        out.add(ManifestEntry.from_args(status=ManifestEntryStatus.ADDED, data_file=file))
    others = read_manifest_list(table.io.new_input(head.manifest_list))
    with write_manifest_list(
        2, table.io.new_output(place), snapshot_id, head.snapshot_id, number, "deflate"
    ) as list_out:
        list_out.add_manifests([out.to_manifest_file(), *others])
    snapshot = Snapshot(
        snapshot_id=snapshot_id,
        parent_snapshot_id=head.snapshot_id,
        sequence_number=number,
        timestamp_ms=max(int(world.scheduler.now.timestamp() * 1000), metadata.last_updated_ms),
        manifest_list=place,
        summary=_summary(table, file, head),
        schema_id=metadata.current_schema_id,
    )
    move = SetSnapshotRefUpdate(ref_name="main", type="branch", snapshot_id=snapshot_id)
    guards = (
        AssertTableUUID(uuid=metadata.table_uuid),
        AssertRefSnapshotId(ref="main", snapshot_id=head.snapshot_id),
    )
    world.oracle.deletes_by_others[snapshot_id] = [
        world.oracle.decoder.pairs(path)[position] for path, position in places
    ]
    table.catalog.commit_table(table, guards, (AddSnapshotUpdate(snapshot=snapshot), move))


def _summary(table: Any, file: DataFile, head: Snapshot) -> Summary:
    collector = SnapshotSummaryCollector()
    collector.add_file(file, table.schema(), table.specs()[file.spec_id])
    before = head.summary.additional_properties if head.summary is not None else None
    counted = update_snapshot_summaries(Summary(operation=Operation.OVERWRITE, **collector.build()), before)
    return Summary(operation=Operation.DELETE, **counted.additional_properties)
