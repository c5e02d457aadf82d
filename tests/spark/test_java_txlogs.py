"""The contract with Iceberg Java: it reads our txlogs as manifests, and what it writes as a manifest is committed."""

from pathlib import Path

import pytest

from bookkeeper.format import avro
from tests.support.lake import Lake as Queue
from tests.support.lake import Writes


@pytest.fixture
def queue(lake, request):
    """A queue in the lake of the Spark session."""
    name = "".join(char for char in request.node.name if char.isalnum())[:40]
    return Queue(lake.config.parent, identifier=f"queue.{name}")


class Java:
    """Iceberg Java's own classes, in the JVM of the Spark session."""

    def __init__(self, spark, queue):
        self.jvm, self.gateway = spark._jvm, spark.sparkContext._gateway
        self.iceberg = self.jvm.org.apache.iceberg
        name = f"lake.{queue.settings.identifier}"
        self.table = self.iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, name)

    def manifest(self, path):
        """A ManifestFile for a file that no list names; Java inherits snapshot id and sequence number from it."""
        loader = self.jvm.Thread.currentThread().getContextClassLoader()
        kind = self.jvm.java.lang.Class.forName("org.apache.iceberg.GenericManifestFile", True, loader)
        opened = self.table.io().newInputFile(path)
        for made in kind.getDeclaredConstructors():
            if made.getParameterCount() == 3:
                made.setAccessible(True)
                arguments = self.gateway.new_array(self.jvm.java.lang.Object, 3)
                arguments[0], arguments[1] = opened, self.jvm.java.lang.Integer.valueOf(0)
                arguments[2] = self.jvm.java.lang.Long.valueOf(7)
                return made.newInstance(arguments)
        raise AssertionError("GenericManifestFile has no such constructor any more")

    def files(self, path):
        """(path, rows, bytes, partition) of each data file in a manifest, as Java reads it."""
        reader = self.iceberg.ManifestFiles.read(self.manifest(path), self.table.io(), self.table.specs())
        entries, integer = reader.iterator(), self.jvm.java.lang.Class.forName("java.lang.Integer")
        found = []
        while entries.hasNext():
            file = entries.next()
            day = file.partition().get(0, integer)
            found.append((file.location(), file.recordCount(), file.fileSizeInBytes(), day))
        reader.close()
        return found

    def write_manifest(self, path, files):
        """What Java writes as the manifest of these data files, given as (path, rows, bytes, day)."""
        spec = self.table.spec()
        writer = self.iceberg.ManifestFiles.write(2, spec, self.table.io().newOutputFile(path), None)
        for location, rows, size, day in files:
            made = self.iceberg.DataFiles.builder(spec).withPath(location).withFileSizeInBytes(size)
            made = made.withFormat("parquet").withRecordCount(rows).withPartitionPath(f"timestamp_day={day}")
            writer.add(made.build())
        writer.close()


def test_iceberg_java_reads_a_txlog_of_ours(spark, queue):
    writer = Writes(queue)
    files = [writer.file(["a", "b"]), writer.file(["c"])]
    name, data = writer.encoded(files)
    queue.folder.publish(name, data)
    path = f"{queue.made.folder}/pending/{name}"
    read = Java(spark, queue).files(path)
    assert read == [(file.path, file.record_count, file.size_bytes, file.partition[0]) for file in files]


def test_a_manifest_that_iceberg_java_wrote_is_committed_as_a_txlog(spark, queue, tmp_path):
    writer = Writes(queue)
    file = writer.file(["from-java"])
    day = f"{queue.clock.now:%Y-%m-%d}"
    made = tmp_path / "java.avro"
    Java(spark, queue).write_manifest(f"file://{made}", [(file.path, file.record_count, file.size_bytes, day)])
    name, ours = writer.encoded([file])
    queue.folder.publish(name, with_our_keys(made, ours))
    turn = queue.tick()
    assert (turn.commit.rows, queue.rejected()) == (1, {})
    assert [row.key for row in spark.table(f"lake.{queue.settings.identifier}").collect()] == ["from-java"]


def with_our_keys(path: Path, ours: bytes) -> bytes:
    """Java's records and header, with the `bookkeeper.` keys that a writer puts beside Iceberg's."""
    java = avro.decode(path.read_bytes(), 2**20)
    keys = {key: value for key, value in avro.decode(ours, 2**20).meta.items() if key.startswith("bookkeeper.")}
    return avro.encode({**java.meta, **keys}, java.blocks)
