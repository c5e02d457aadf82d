"""
Iceberg's own planner, readers and writers of its compaction, through py4j and without its commit.

A group is what becomes one rewrite (docs/maintain/rewrite-format.md): files of one partition of one spec. Its new files
are written in that spec. Nothing here deletes a file: what no rewrite names becomes an orphan, and goes by age.
"""

from __future__ import annotations

import os
import re
import uuid
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any

from bookkeeper.errors import NotPossible
from bookkeeper.stores.locations import inside, local_path, normal

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from bookkeeper.contract.rewrite import Base

#: options of Iceberg's planner
LEAST_FILES, MOST_FILES, TARGET_SIZE = "min-input-files", "max-file-group-input-files", "target-file-size-bytes"
DELETE_FILES, EVERYTHING = "delete-file-threshold", "rewrite-all"
#: format 3 has deletion vectors and row ids, which a rewrite does not carry
_FORMAT_VERSION = 2
#: how Spark's writer ends a name: partition-task-OPERATION-epoch-count.format
_OPERATION = re.compile(r"-([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})-\d+-\d+\.[a-z.]+")
_EQUALITY = "EQUALITY_DELETES"
_EPOCH = datetime.fromisoformat("1970-01-01T00:00:00Z")


@dataclass(frozen=True, slots=True)
class Group:
    """Files to become few. `tasks` are Iceberg's scan tasks, `table` the table as if their spec was its own."""

    table: Any = field(repr=False)
    tasks: Any = field(repr=False)
    spec_id: int
    partition: str
    files: int
    bytes: int
    #: as Iceberg's planner finds it, in bytes
    split_size: int
    most_file_bytes: int
    new_files: int

    def data_files(self) -> Iterator[Any]:
        """Iceberg's DataFile of each, with both its sequence numbers."""
        for task in self.tasks:
            yield task.file()

    def __str__(self) -> str:
        return f"{self.files} files of spec {self.spec_id} {self.partition or 'without partition'}"


@dataclass(frozen=True)
class Source:
    """The table as one load showed it: everything that is planned, read and written is of this snapshot of main."""

    spark: SparkSession
    name: str
    table: Any

    @classmethod
    def load(cls, spark: SparkSession, name: str) -> Source:
        """
        The table `name` (catalog.namespace.table); raises NotPossible for a format version that rewrites have not.
        """
        jvm: Any = spark.sparkContext._jvm
        table = jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, name)
        version = table.operations().current().formatVersion()
        if version != _FORMAT_VERSION:
            raise NotPossible(f"{name} has format version {version}, a rewrite is of version {_FORMAT_VERSION}")
        return cls(spark, name, table)

    @property
    def _jvm(self) -> Any:
        return self.spark.sparkContext._jvm

    @property
    def _iceberg(self) -> Any:
        return self._jvm.org.apache.iceberg

    @cached_property
    def snapshot(self) -> Any:
        """The head of main, or None."""
        return self.table.currentSnapshot()

    def is_sorted(self) -> bool:
        """Whether the table has a sort order."""
        return bool(self.table.sortOrder().isSorted())

    def base(self, applied: Iterable[str] = ()) -> Base:
        """What a rewrite says that it was made from."""
        from bookkeeper.contract.rewrite import Base

        snapshot = self.snapshot
        return Base(str(self.table.uuid()), snapshot.snapshotId(), snapshot.sequenceNumber(), sorted(applied))

    def older(self, column: str, before: datetime) -> Any:
        """Iceberg's expression for rows older than a moment in a timestamp column."""
        micros = (before - _EPOCH) // timedelta(microseconds=1)
        return self._iceberg.expressions.Expressions.lessThan(column, micros)

    def where(self, condition: str) -> Any:
        """
        Iceberg's expression of an SQL condition on the table; raises NotPossible for one that it cannot have.
        """
        converter = self._jvm.org.apache.spark.sql.execution.datasources.SparkExpressionConverter
        try:
            resolved = converter.collectResolvedSparkExpression(self.spark._jsparkSession, self.name, condition)
            return converter.convertToIcebergExpression(resolved)
        except Exception as exc:
            raise NotPossible(f"{condition}: Iceberg cannot choose files by this: {cause(exc)}") from exc

    def plan(self, conditions: Iterable[Any], options: Mapping[str, str]) -> list[Group]:
        """
        What Iceberg's planner finds of the files that may hold rows of all `conditions`, group by group.

        The planner takes files of other specs than the table's for one partition, so it is asked once for each spec.
        From here on no manifest is read: the snapshot may expire. `options` are the planner's, min-input-files too.
        """
        if self.snapshot is None:
            return []
        expressions = self._iceberg.expressions.Expressions
        chosen = expressions.alwaysTrue()
        for condition in conditions:
            chosen = getattr(expressions, "and")(chosen, condition)
        manifests = self.snapshot.dataManifests(self.table.io())
        specs = sorted({manifest.partitionSpecId() for manifest in manifests})
        _ = self._equality_deletes, self.listed_twice
        return [group for spec in specs for group in self._planned(spec, specs, chosen, options)]

    def _planned(self, spec_id: int, specs: list[int], chosen: Any, options: Mapping[str, str]) -> Iterator[Group]:
        table, wanted = self._of_spec(spec_id), self._jvm.java.util.HashMap()
        for key, value in options.items():
            wanted.put(key, value)
        planner = self._iceberg.actions.BinPackRewriteFilePlanner(table, chosen, self.snapshot.snapshotId(), True)
        planner.init(wanted)
        for found in planner.plan().groups().iterator():
            tasks, size = found.fileScanTasks(), found.inputFilesSizeInBytes()
            some = len(specs) > 1 or self.listed_twice
            if some and len(own := self._own(tasks, spec_id)) != len(tasks):
                if len(own) < (1 if {DELETE_FILES, EVERYTHING} & options.keys() else int(options[LEAST_FILES])):
                    continue
                tasks, size = own, sum(task.length() for task in own)
            yield Group(
                table, tasks, spec_id, table.spec().partitionToPath(tasks[0].file().partition()), len(tasks),
                size, found.inputSplitSize(), found.maxOutputFileSize(), found.expectedOutputFiles(),
            )  # fmt: skip

    def _of_spec(self, spec_id: int) -> Any:
        """The table, with this one of its specs as if new files were written in it."""
        if spec_id == self.table.spec().specId():
            return self.table
        metadata = self._iceberg.TableMetadata.buildFrom(self.table.operations().current())
        changed = metadata.setDefaultPartitionSpec(spec_id).build()
        operations = self._iceberg.StaticTableOperations(changed, self.table.io(), self.table.locationProvider())
        return self._iceberg.BaseTable(operations, self.table.name())

    def _own(self, tasks: Any, spec_id: int) -> Any:
        """
        Without those of other specs, which the planner puts beside files whose partition is null, and without files
        that are listed twice.
        """
        own = self._jvm.java.util.ArrayList()
        for task in tasks:
            if task.file().specId() == spec_id and task.file().location() not in self.listed_twice:
                own.add(task)
        return own

    @cached_property
    def listed_twice(self) -> frozenset[str]:
        """
        The locations of files that the snapshot lists more than once, in whichever spelling.

        A rewrite takes one entry out, and expiry deletes the file that the other still needs.
        """
        from pyspark.sql.functions import col, collect_list, size, substring_index

        from bookkeeper.contract.rewrite import file_key

        if self.snapshot is None:
            return frozenset()
        files = self.spark.read.option("versionAsOf", self.snapshot.snapshotId()).table(f"{self.name}.data_files")
        # By the last part first, on Spark: a location is normalized here, and in a queue there is none of these.
        alike = files.groupBy(substring_index("file_path", "/", -1)).agg(collect_list("file_path").alias("paths"))
        found = [path for row in alike.where(size(col("paths")) > 1).collect() for path in row.paths]
        times = Counter(map(file_key, found))
        return frozenset(path for path in found if times[file_key(path)] > 1)

    def write(self, group: Group, *, sort: bool) -> list[Any]:
        """
        Writes the rows of a group, without those that are deleted, as new files; returns Iceberg's DataFile of each.

        Sorted by the table's order, which Iceberg marks them with, or as they come. Raises what Spark and Java raise.
        """
        spark = self._iceberg.spark
        tables, tasks = spark.SparkTableCache.get(), spark.ScanTaskSetManager.get()
        results, set_id = spark.FileRewriteCoordinator.get(), str(uuid.uuid4())
        try:
            tables.add(set_id, group.table)
            tasks.stageTasks(group.table, set_id, group.tasks)
            self._copy_rows(group, set_id, sort)
            return list(results.fetchNewFiles(group.table, set_id).toArray())
        finally:
            tables.remove(set_id)
            tasks.removeTasks(group.table, set_id)
            results.clearRewrite(group.table, set_id)

    def _copy_rows(self, group: Group, set_id: str, sort: bool) -> None:
        session = self.spark
        reads = {"split-size": str(group.split_size), "file-open-cost": "0"}
        writes = {TARGET_SIZE: str(group.most_file_bytes)}
        if sort:
            # Iceberg itself asks for ranges of its sort order; Spark makes as many of them as the session says.
            session, reads = self.spark.newSession(), {}
            session.conf.set("spark.sql.shuffle.partitions", str(group.new_files))
            session.conf.set("spark.sql.adaptive.enabled", "false")
            writes["distribution-mode"] = "range"
        else:
            writes["use-table-distribution-and-ordering"] = "false"
        # Iceberg looks for the group in the session that is active in this thread; a thread of ours has none.
        self._jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(session._jsparkSession)
        rows = session.read.format("iceberg").options(**reads).load(set_id)
        rows.write.format("iceberg").options(**writes).mode("append").save(set_id)

    def encode(self, group: Group, new: list[Any], most_bytes: int) -> tuple[str, bytes]:
        """
        Id and bytes of the rewrite of a group into its new files: a manifest of Iceberg's with our header keys.

        It is decoded once, as the bookkeeper does: raises RewriteCorrupt where that would reject it.
        """
        from bookkeeper.contract.rewrite import decode, header_keys
        from bookkeeper.format import avro

        rewrite_id = operation_id([file.location() for file in new])
        manifest = avro.decode(self._manifest(group, new), most_bytes)
        own = header_keys(rewrite_id, self.base(self.applied_deletes(group)), len(new) + group.files)
        data = avro.encode({**manifest.meta, **own}, manifest.blocks)
        decode(rewrite_id, data, most_bytes)
        return rewrite_id, data

    def _manifest(self, group: Group, new: list[Any]) -> bytes:
        spec, out = group.table.spec(), self._iceberg.inmemory.InMemoryOutputFile()
        # No snapshot id and no sequence number of new files: the commit gives them.
        writer = self._iceberg.ManifestFiles.write(_FORMAT_VERSION, spec, out, None)
        for file in new:
            described = self._iceberg.DataFiles.builder(spec).copy(file)
            writer.add(described.withPath(spelled(file.location())).build())
        for file in group.data_files():
            writer.delete(file.copyWithoutStats(), file.dataSequenceNumber(), file.fileSequenceNumber())
        writer.close()
        return bytes(out.toByteArray())

    def applied_deletes(self, group: Group) -> set[str]:
        """
        The delete files that apply to files of a group, also those whose statistics let Iceberg leave them out.
        """
        if not self.snapshot.deleteManifests(self.table.io()):
            return set()
        applied = {deletes.location() for task in group.tasks for deletes in task.deletes()}
        files = list(group.data_files())
        oldest = min(file.dataSequenceNumber() for file in files)
        scopes = {None, self._scope(files[0])}
        in_scope = [item for scope in scopes for item in self._equality_deletes.get(scope, ())]
        return applied | {location for number, location in in_scope if number > oldest}

    @cached_property
    def _equality_deletes(self) -> Mapping[Any, list[tuple[int, str]]]:
        """Sequence number and location of each equality delete file, by what it applies to."""
        found: defaultdict[Any, list[tuple[int, str]]] = defaultdict(list)
        for manifest in self.snapshot.deleteManifests(self.table.io()):
            files = self._iceberg.ManifestFiles.readDeleteManifest(manifest, self.table.io(), self.table.specs())
            for file in files.iterator():
                if file.content().name() == _EQUALITY:
                    found[self._scope(file)].append((file.dataSequenceNumber(), file.location()))
            files.close()
        return found

    def _scope(self, file: Any) -> Any:
        """Spec and partition of a file, comparable; None for a spec without partitions."""
        spec = self.table.specs().get(file.specId())
        if spec.isUnpartitioned():
            return None
        return file.specId(), self._iceberg.util.StructLikeWrapper.forType(spec.partitionType()).set(file.partition())


def operation_id(locations: list[str]) -> str:
    """
    The id of the write that made these files, which is in all their names; a new one where there is no file.

    Spark makes it for each write and lets none be given. Raises NotPossible where the names have not one id.
    """
    found = {match[1] if (match := _OPERATION.search(name.rpartition("/")[2])) else "" for name in locations}
    if not found:
        return str(uuid.uuid4())
    if len(found) != 1 or "" in found:
        raise NotPossible(f"the new files have not one id in their names: {', '.join(sorted(locations))[:500]}")
    return found.pop()


def spelled(location: str) -> str:
    """
    Hadoop's `file:/x` as `file:///x`, which every reader understands; any other location as it is.
    """
    return normal(location) if location.startswith("file:") else location


def make_durable(locations: Iterable[str], root: str) -> None:
    """
    Syncs files on this machine's disk, and the folders that name them up to `root`; Hadoop does not.

    Without it a rewrite could outlive its new files in a power cut. Raises OSError.
    """
    paths = set[str]()
    for location in locations:
        path = local_path(location)
        while path is not None:
            paths.add(path)
            path = os.path.dirname(path) if inside(path, root) else None
    for path in sorted(paths, key=len, reverse=True):
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def cause(error: Exception) -> str:
    """
    What began it, for people: the innermost of Java's exceptions, or the error itself.
    """
    java = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    while java is not None and java.getCause() is not None:
        java = java.getCause()
    text = str(error) if java is None else str(java.toString())
    return (text.strip() or repr(error)).splitlines()[0][:500]
