import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.iceberg.ContentFile;
import org.apache.iceberg.DataFile;
import org.apache.iceberg.DataFiles;
import org.apache.iceberg.DeleteFile;
import org.apache.iceberg.FileMetadata;
import org.apache.iceberg.ManifestFiles;
import org.apache.iceberg.ManifestWriter;
import org.apache.iceberg.Metrics;
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

/** Writes java-steps.txlog.avro: java -cp iceberg-spark-runtime.jar:... WriteSteps.java TARGET. */
public class WriteSteps {

  // [docs] docs/maintain/txlog-format.md shows what is between these two lines
  /** A file of a step, and its relative sequence number. */
  record StepFile<F>(F file, long number) {}

  /** A txlog of version 2; the keys are those of the header, "bookkeeper." and all. */
  static byte[] txlog(
      PartitionSpec spec,
      List<StepFile<DataFile>> data,
      PartitionSpec deleteSpec,
      List<StepFile<DeleteFile>> deletes,
      Map<String, String> keys)
      throws IOException {
    InMemoryOutputFile dataManifest = new InMemoryOutputFile();
    write(ManifestFiles.write(2, spec, dataManifest, (Long) null), data);
    InMemoryOutputFile deleteManifest = new InMemoryOutputFile();
    write(ManifestFiles.writeDeleteManifest(2, deleteSpec, deleteManifest, (Long) null), deletes);
    long last = deletes.stream().mapToLong(StepFile::number).max().getAsLong();
    last = Math.max(last, data.stream().mapToLong(StepFile::number).max().orElse(0));

    ByteArrayOutputStream out = new ByteArrayOutputStream();
    try (DataFileStream<GenericRecord> entries =
            new DataFileStream<>(new ByteArrayInputStream(dataManifest.toByteArray()), new GenericDatumReader<>());
        DataFileWriter<GenericRecord> writer = new DataFileWriter<>(new GenericDatumWriter<>())) {
      for (String key : entries.getMetaKeys()) {
        if (!DataFileWriter.isReservedMeta(key)) {
          writer.setMeta(key, entries.getMeta(key));
        }
      }
      keys.forEach(writer::setMeta);
      writer.setMeta("bookkeeper.version", "2");
      writer.setMeta("bookkeeper.entries", data.size());
      writer.setMeta("bookkeeper.span", last + 1);
      writer.setMeta("bookkeeper.deletes", deleteManifest.toByteArray());
      writer.setCodec(CodecFactory.deflateCodec(1));
      writer.create(entries.getSchema(), out);
      writer.appendAllFrom(entries, true);
    }
    return out.toByteArray();
  }

  private static <F extends ContentFile<F>> void write(ManifestWriter<F> writer, List<StepFile<F>> files)
      throws IOException {
    try (writer) {
      files.forEach(item -> writer.add(item.file(), item.number()));
    }
  }
  // [end]

  static final String DATA = "file:/lake/customers/data/01a1fdf4-2b80-7001-8203-040506070809-0000";

  public static void main(String[] arguments) throws IOException {
    Schema schema =
        new Schema(
            3,
            List.of(
                Types.NestedField.required(1, "id", Types.LongType.get()),
                Types.NestedField.optional(2, "name", Types.StringType.get()),
                Types.NestedField.optional(3, "op", Types.StringType.get())),
            Set.of(1));
    PartitionSpec spec = PartitionSpec.builderFor(schema).withSpecId(0).identity("name").build();
    PartitionSpec deleteSpec = PartitionSpec.builderFor(schema).withSpecId(1).build();

    // Step 1 puts rows in the place of others; step 2 deletes, and its tombstones have number 1.
    List<StepFile<DataFile>> data = List.of(new StepFile<>(rows(spec, 1, "x"), 1), new StepFile<>(rows(spec, 2, "y"), 1));
    List<StepFile<DeleteFile>> deletes =
        List.of(new StepFile<>(deleted(deleteSpec, 3), 1), new StepFile<>(deleted(deleteSpec, 4), 2));

    Map<String, String> keys = new LinkedHashMap<>();
    keys.put("bookkeeper.table-uuid", "6c1f0f1e-9a3b-4c52-8e0e-000000000001");
    keys.put("bookkeeper.writer", "java-1");
    keys.put("bookkeeper.incarnation", "01a1fdf4-2b80-7001-8203-040506070809");
    keys.put("bookkeeper.sequence", "8");
    keys.put("bookkeeper.created-ms", "1795262400123");
    Files.write(Path.of(arguments[0]), txlog(spec, data, deleteSpec, deletes, keys));
  }

  static DataFile rows(PartitionSpec spec, int number, String name) {
    return DataFiles.builder(spec)
        .withPath(DATA + number + ".parquet")
        .withFormat("PARQUET")
        .withPartitionPath("name=" + name)
        .withFileSizeInBytes(1000L * number)
        .withMetrics(metrics(number))
        .build();
  }

  static DeleteFile deleted(PartitionSpec spec, int number) {
    return FileMetadata.deleteFileBuilder(spec)
        .ofEqualityDeletes(1)
        .withPath(DATA + number + ".parquet")
        .withFormat("PARQUET")
        .withFileSizeInBytes(1000L * number)
        .withMetrics(metrics(number))
        .build();
  }

  static Metrics metrics(int number) {
    Map<Integer, ByteBuffer> low = Map.of(1, bound(number)), high = Map.of(1, bound(number + 9L));
    return new Metrics(10L * number, Map.of(1, 120L), Map.of(1, 10L * number), Map.of(1, 0L), Map.of(), low, high);
  }

  static ByteBuffer bound(long value) {
    return ByteBuffer.allocate(8).order(ByteOrder.LITTLE_ENDIAN).putLong(0, value);
  }
}
