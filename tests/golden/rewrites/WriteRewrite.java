import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.iceberg.DataFile;
import org.apache.iceberg.DataFiles;
import org.apache.iceberg.ManifestFiles;
import org.apache.iceberg.ManifestWriter;
import org.apache.iceberg.PartitionSpec;
import org.apache.iceberg.Schema;
import org.apache.iceberg.inmemory.InMemoryOutputFile;
import org.apache.iceberg.shaded.org.apache.avro.file.CodecFactory;
import org.apache.iceberg.shaded.org.apache.avro.file.DataFileStream;
import org.apache.iceberg.shaded.org.apache.avro.file.DataFileWriter;
import org.apache.iceberg.shaded.org.apache.avro.generic.GenericDatumReader;
import org.apache.iceberg.shaded.org.apache.avro.generic.GenericDatumWriter;
import org.apache.iceberg.shaded.org.apache.avro.generic.GenericRecord;
import org.apache.iceberg.types.Types;

/** Writes java.avro: java -cp iceberg-spark-runtime.jar:... WriteRewrite.java TARGET. */
public class WriteRewrite {

  // [docs] docs/maintain/rewrite-format.md shows what is between these two lines
  /** A replaced file, with the sequence numbers that the table's entry of it has. */
  record Replaced(DataFile file, long dataSequenceNumber, long fileSequenceNumber) {}

  /** A rewrite of these files; the keys are those of the header, "bookkeeper." and all. */
  static byte[] rewrite(PartitionSpec spec, List<DataFile> added, List<Replaced> replaced, Map<String, String> keys)
      throws IOException {
    InMemoryOutputFile manifest = new InMemoryOutputFile();
    // No snapshot id and no sequence number of new files: the commit gives them.
    try (ManifestWriter<DataFile> writer = ManifestFiles.write(2, spec, manifest, (Long) null)) {
      added.forEach(writer::add);
      replaced.forEach(old -> writer.delete(old.file(), old.dataSequenceNumber(), old.fileSequenceNumber()));
    }
    ByteArrayOutputStream out = new ByteArrayOutputStream();
    try (DataFileStream<GenericRecord> entries =
            new DataFileStream<>(new ByteArrayInputStream(manifest.toByteArray()), new GenericDatumReader<>());
        DataFileWriter<GenericRecord> writer = new DataFileWriter<>(new GenericDatumWriter<>())) {
      for (String key : entries.getMetaKeys()) {
        if (!DataFileWriter.isReservedMeta(key)) {
          writer.setMeta(key, entries.getMeta(key));
        }
      }
      keys.forEach(writer::setMeta);
      writer.setMeta("bookkeeper.entries", added.size() + replaced.size());
      writer.setCodec(CodecFactory.deflateCodec(1));
      writer.create(entries.getSchema(), out);
      writer.appendAllFrom(entries, true);
    }
    return out.toByteArray();
  }
  // [end]

  static final String ID = "01a1fdf4-2b80-7001-8203-0405060708aa";

  public static void main(String[] arguments) throws IOException {
    Schema schema =
        new Schema(
            7,
            List.of(
                Types.NestedField.required(1, "timestamp", Types.TimestampType.withZone()),
                Types.NestedField.optional(2, "key", Types.StringType.get())));
    PartitionSpec spec = PartitionSpec.builderFor(schema).withSpecId(3).day("timestamp").build();
    List<DataFile> added = List.of(file(spec, "00000-7-" + ID + "-00001", 300, 2500));
    List<Replaced> replaced =
        List.of(new Replaced(file(spec, "a", 100, 1000), 4, 4), new Replaced(file(spec, "b", 210, 2000), 5, 9));

    Map<String, String> keys = new LinkedHashMap<>();
    keys.put("bookkeeper.version", "1");
    keys.put("bookkeeper.table-uuid", "6c1f0f1e-9a3b-4c52-8e0e-000000000001");
    keys.put("bookkeeper.rewrite-id", ID);
    keys.put("bookkeeper.base-snapshot-id", "9223372036854775807");
    keys.put("bookkeeper.base-sequence-number", "12");
    keys.put("bookkeeper.applied-deletes", "[\"file:/lake/events/data/positions-1.parquet\"]");
    Files.write(Path.of(arguments[0]), rewrite(spec, added, replaced, keys));
  }

  static DataFile file(PartitionSpec spec, String name, long rows, long bytes) {
    return DataFiles.builder(spec)
        .withPath("file:/lake/events/data/timestamp_day=2026-11-21/" + name + ".parquet")
        .withFormat("PARQUET")
        .withPartitionPath("timestamp_day=2026-11-21")
        .withRecordCount(rows)
        .withFileSizeInBytes(bytes)
        .withSplitOffsets(List.of(4L))
        .build();
  }
}
