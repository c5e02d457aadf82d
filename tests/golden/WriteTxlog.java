import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.math.BigDecimal;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import java.util.zip.CRC32;
import org.apache.iceberg.DataFile;
import org.apache.iceberg.DataFiles;
import org.apache.iceberg.ManifestFiles;
import org.apache.iceberg.ManifestWriter;
import org.apache.iceberg.Metrics;
import org.apache.iceberg.PartitionSpec;
import org.apache.iceberg.Schema;
import org.apache.iceberg.StructLike;
import org.apache.iceberg.inmemory.InMemoryOutputFile;
import org.apache.iceberg.shaded.org.apache.avro.file.CodecFactory;
import org.apache.iceberg.shaded.org.apache.avro.file.DataFileStream;
import org.apache.iceberg.shaded.org.apache.avro.file.DataFileWriter;
import org.apache.iceberg.shaded.org.apache.avro.generic.GenericDatumReader;
import org.apache.iceberg.shaded.org.apache.avro.generic.GenericDatumWriter;
import org.apache.iceberg.shaded.org.apache.avro.generic.GenericRecord;
import org.apache.iceberg.types.Types;

/** Writes java.txlog.avro and java-offsets.txlog.avro: java -cp ... WriteTxlog.java JAVA OFFSETS. */
public class WriteTxlog {

  // [docs] docs/maintain/txlog-format.md shows what is between these two lines
  /** A txlog of these data files; the keys are those of the header, "bookkeeper." and all. */
  static byte[] txlog(PartitionSpec spec, List<DataFile> files, Map<String, String> keys) throws IOException {
    InMemoryOutputFile manifest = new InMemoryOutputFile();
    // No snapshot id: it is inherited, like the sequence numbers, from the snapshot that commits the files.
    try (ManifestWriter<DataFile> writer = ManifestFiles.write(2, spec, manifest, (Long) null)) {
      files.forEach(writer::add);
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
      writer.setMeta("bookkeeper.entries", files.size());
      writer.setCodec(CodecFactory.deflateCodec(1));
      writer.create(entries.getSchema(), out);
      writer.appendAllFrom(entries, true);
    }
    return out.toByteArray();
  }
  // [end]

  // [docs of offsets] docs/maintain/txlog-format.md shows what is between these two lines
  /** The keys of a slot's txlog beside those of every txlog: where it goes on from, what its channels reach. */
  static Map<String, String> offsets(
      String incarnation, long sequence, String previousPosition, Map<String, String> offsets) {
    Map<String, String> keys = new LinkedHashMap<>();
    keys.put("bookkeeper.version", "3");
    // The txlog's own name: a position that no txlog of any run has had.
    keys.put("bookkeeper.position", String.format("%s.%010d", incarnation, sequence));
    if (previousPosition != null) {
      keys.put("bookkeeper.previous-position", previousPosition);
    }
    // No channel and no offset has a character that JSON escapes.
    keys.put(
        "bookkeeper.offsets",
        offsets.entrySet().stream()
            .map(reached -> "\"" + reached.getKey() + "\":\"" + reached.getValue() + "\"")
            .collect(Collectors.joining(",", "{", "}")));
    return keys;
  }

  /** The slot that reads a channel, of a source with so many slots. */
  static String slotOf(String source, String channel, int slots) {
    Matcher numbered = Pattern.compile("(.*)/([0-9]{1,18})").matcher(channel);
    boolean isNumbered = numbered.matches();
    CRC32 crc = new CRC32();
    crc.update((isNumbered ? numbered.group(1) : channel).getBytes(StandardCharsets.US_ASCII));
    long number = isNumbered ? Long.parseLong(numbered.group(2)) : 0;
    return String.format("%s-%02d", source, (crc.getValue() + number) % slots);
  }
  // [end]

  public static void main(String[] arguments) throws IOException {
    Schema schema =
        new Schema(
            7,
            List.of(
                Types.NestedField.required(1, "timestamp", Types.TimestampType.withZone()),
                Types.NestedField.optional(2, "key", Types.UUIDType.get()),
                Types.NestedField.optional(3, "parent", Types.UUIDType.get()),
                Types.NestedField.optional(4, "price", Types.DecimalType.of(10, 2)),
                Types.NestedField.optional(5, "cost", Types.DecimalType.of(10, 2))));
    PartitionSpec spec =
        PartitionSpec.builderFor(schema)
            .withSpecId(3)
            .day("timestamp")
            .identity("key")
            .identity("parent")
            .identity("price")
            .identity("cost")
            .build();
    UUID key = UUID.fromString("00010203-0405-0607-0809-0a0b0c0d0e0f");
    BigDecimal price = new BigDecimal("-1.23");
    List<DataFile> files =
        List.of(
            file(spec, 1, new Object[] {20778, key, null, price, null}),
            file(spec, 2, new Object[] {20778, null, key, null, price}));

    Map<String, String> keys = new LinkedHashMap<>();
    keys.put("bookkeeper.version", "1");
    keys.put("bookkeeper.table-uuid", "6c1f0f1e-9a3b-4c52-8e0e-000000000001");
    keys.put("bookkeeper.writer", "java-1");
    keys.put("bookkeeper.incarnation", "01a1fdf4-2b80-7001-8203-040506070809");
    keys.put("bookkeeper.sequence", "7");
    keys.put("bookkeeper.created-ms", "1795262400123");
    keys.put("bookkeeper.position", "topic-0:2000");
    keys.put("bookkeeper.previous-position", "topic-0:1000");
    Files.write(Path.of(arguments[0]), txlog(spec, files, keys));

    String run = keys.get("bookkeeper.incarnation");
    keys.put("bookkeeper.writer", slotOf("orders", "orders/0", 16));
    keys.put("bookkeeper.sequence", "9");
    keys.putAll(offsets(run, 9, run + ".0000000008", Map.of("orders/0", "4711/3")));
    Files.write(Path.of(arguments[1]), txlog(spec, files, keys));
  }

  static DataFile file(PartitionSpec spec, int number, Object[] partition) {
    ByteBuffer low = ByteBuffer.allocate(8).order(java.nio.ByteOrder.LITTLE_ENDIAN).putLong(0, 1795262400000000L);
    ByteBuffer high = ByteBuffer.allocate(8).order(java.nio.ByteOrder.LITTLE_ENDIAN).putLong(0, 1795262409999999L);
    Metrics metrics =
        new Metrics(
            100L * number, Map.of(1, 120L), Map.of(1, 100L), Map.of(1, 0L), Map.of(), Map.of(1, low), Map.of(1, high));
    return DataFiles.builder(spec)
        .withPath("file:/lake/events/data/01a1fdf4-2b80-7001-8203-040506070809-0000" + number + ".parquet")
        .withFormat("PARQUET")
        .withPartition(new Row(partition))
        .withFileSizeInBytes(1000L * number)
        .withMetrics(metrics)
        .withSplitOffsets(List.of(4L))
        .build();
  }

  record Row(Object[] values) implements StructLike {
    public int size() {
      return values.length;
    }

    public <T> T get(int position, Class<T> type) {
      return type.cast(values[position]);
    }

    public <T> void set(int position, T value) {
      throw new UnsupportedOperationException();
    }
  }
}
