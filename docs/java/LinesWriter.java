import java.io.BufferedInputStream;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.net.URI;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.FileAlreadyExistsException;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.security.SecureRandom;
import java.time.OffsetDateTime;
import java.time.ZoneOffset;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.TreeSet;
import java.util.stream.Stream;
import org.apache.iceberg.DataFile;
import org.apache.iceberg.ManifestFiles;
import org.apache.iceberg.ManifestWriter;
import org.apache.iceberg.PartitionKey;
import org.apache.iceberg.PartitionSpec;
import org.apache.iceberg.PartitionSpecParser;
import org.apache.iceberg.Schema;
import org.apache.iceberg.SchemaParser;
import org.apache.iceberg.data.GenericRecord;
import org.apache.iceberg.data.InternalRecordWrapper;
import org.apache.iceberg.data.Record;
import org.apache.iceberg.data.parquet.GenericParquetWriter;
import org.apache.iceberg.inmemory.InMemoryOutputFile;
import org.apache.iceberg.io.DataWriter;
import org.apache.iceberg.parquet.Parquet;
import org.apache.iceberg.shaded.com.fasterxml.jackson.databind.JsonNode;
import org.apache.iceberg.shaded.com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.iceberg.shaded.org.apache.avro.file.CodecFactory;
import org.apache.iceberg.shaded.org.apache.avro.file.DataFileStream;
import org.apache.iceberg.shaded.org.apache.avro.file.DataFileWriter;
import org.apache.iceberg.shaded.org.apache.avro.generic.GenericDatumReader;
import org.apache.iceberg.shaded.org.apache.avro.generic.GenericDatumWriter;
import org.apache.iceberg.types.Types;

/**
 * Copies a file of NDJSON lines into a table, each line once, however often it is killed and started again.
 *
 * <p>java -cp JARS LinesWriter.java FOLDER NAME SOURCE [LINES] -- FOLDER is the txlog folder, on a local disk. The rules
 * it keeps are those of docs/maintain/txlog-format.md. Exit codes: 0 all lines are published; 1 it failed; 5 this run
 * is over, for another one took over, or a txlog of it was rejected. After 1 and 5, start it again.
 */
public class LinesWriter {
  static final ObjectMapper JSON = new ObjectMapper();
  static final String SUFFIX = ".txlog.avro";

  public static void main(String[] arguments) throws Exception {
    Path folder = Path.of(arguments[0]);
    int lines = arguments.length > 3 ? Integer.parseInt(arguments[3]) : 10_000;
    LinesWriter writer = new LinesWriter(folder, arguments[1]);
    long done = writer.position == null ? 0 : Long.parseLong(text(writer.position));
    try (Source source = new Source(Path.of(arguments[2]), done)) {
      writer.copy(source, lines);
    } catch (Fenced fenced) {
      System.err.println(fenced.getMessage());
      System.exit(5);
    }
  }

  final Path folder;
  final String name;
  /** A new one at every start, never used again. */
  final String incarnation = uuid7(System.currentTimeMillis());

  long sequence = 0;
  Card card;
  byte[] position;

  LinesWriter(Path folder, String name) throws IOException {
    this.folder = folder;
    this.name = name;
    this.card = Card.read(folder);
    this.position = endOfChain();
  }

  void copy(Source source, int lines) throws IOException, InterruptedException {
    List<JsonNode> rows = source.take(lines);
    while (!rows.isEmpty()) {
      waitForBookkeeper();
      // Read again for each txlog: a column may have been added, or the table made anew.
      Card now = Card.read(folder);
      if (!now.tableUuid.equals(card.tableUuid)) {
        throw new Fenced("the table was made anew; look at it before you go on");
      }
      card = now;
      publish(rows, bytes(source.position));
      rows = source.take(lines);
    }
    System.out.println(name + " has published everything up to byte " + source.position);
  }

  // ---- publishing: data files, then one txlog that names them

  void publish(List<JsonNode> rows, byte[] reached) throws IOException, InterruptedException {
    long began = System.currentTimeMillis();
    sequence += 1;
    List<DataFile> files = dataFiles(rows);
    String txlog = String.format("%s.%s.%010d%s", name, incarnation, sequence, SUFFIX);
    long now = System.currentTimeMillis();
    // Encoded once: every retry sends the same bytes.
    byte[] bytes = txlog(card.spec, files, header(reached, now));
    if (now - began > card.orphanAgeMs / 2) {
      throw new IOException("this machine slept for days: what it wrote may be swept, so begin again");
    }
    if (isFenced()) {
      throw new Fenced("a txlog of this run was rejected; see `bookkeeper rejected`, then start again");
    }
    create(txlog, bytes);
    position = reached;
  }

  Map<String, byte[]> header(byte[] reached, long now) {
    Map<String, byte[]> keys = new LinkedHashMap<>();
    keys.put("bookkeeper.version", bytes(1));
    keys.put("bookkeeper.table-uuid", bytes(card.tableUuid));
    keys.put("bookkeeper.writer", bytes(name));
    keys.put("bookkeeper.incarnation", bytes(incarnation));
    keys.put("bookkeeper.sequence", bytes(sequence));
    keys.put("bookkeeper.created-ms", bytes(now));
    keys.put("bookkeeper.position", reached);
    if (position != null) { // left out at the start of the source
      keys.put("bookkeeper.previous-position", position);
    }
    return keys;
  }

  /** One data file for each partition, complete and durable when it returns. */
  List<DataFile> dataFiles(List<JsonNode> rows) throws IOException {
    Map<PartitionKey, List<Record>> parts = new LinkedHashMap<>();
    InternalRecordWrapper wrapper = new InternalRecordWrapper(card.schema.asStruct());
    PartitionKey key = new PartitionKey(card.spec, card.schema);
    for (JsonNode row : rows) {
      Record record = record(row);
      key.partition(wrapper.wrap(record));
      parts.computeIfAbsent(key.copy(), ignored -> new ArrayList<>()).add(record);
    }
    Path place = path(card.dataPath);
    Files.createDirectories(place);
    List<DataFile> files = new ArrayList<>();
    for (Map.Entry<PartitionKey, List<Record>> part : parts.entrySet()) {
      // The incarnation in the name: a name is used once for ever.
      String file = String.format("%s-%s-%010d-%05d.parquet", name, incarnation, sequence, files.size() + 1);
      files.add(dataFile(place.resolve(file), part.getKey(), part.getValue()));
    }
    sync(place);
    return files;
  }

  DataFile dataFile(Path path, PartitionKey partition, List<Record> records) throws IOException {
    DataWriter<Record> writer =
        Parquet.writeData(org.apache.iceberg.Files.localOutput(path.toFile()))
            .schema(card.schema)
            .withSpec(card.spec)
            .withPartition(partition)
            .set("write.parquet.compression-codec", card.compression)
            .createWriterFunc(type -> GenericParquetWriter.create(card.schema, type))
            .build();
    try (writer) {
      records.forEach(writer::write);
    }
    sync(path);
    return writer.toDataFile();
  }

  /** A txlog is an Iceberg manifest with our keys in its header. */
  static byte[] txlog(PartitionSpec spec, List<DataFile> files, Map<String, byte[]> keys) throws IOException {
    InMemoryOutputFile manifest = new InMemoryOutputFile();
    // No snapshot id: it is inherited, like the sequence numbers, from the snapshot that commits the files.
    try (ManifestWriter<DataFile> writer = ManifestFiles.write(2, spec, manifest, (Long) null)) {
      files.forEach(writer::add);
    }
    ByteArrayOutputStream out = new ByteArrayOutputStream();
    try (var entries = avro(manifest.toByteArray());
        var writer = new DataFileWriter<>(new GenericDatumWriter<Object>())) {
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

  /** An exclusive create that shows the whole txlog or nothing of it; repeated with the same bytes. */
  void create(String txlog, byte[] bytes) throws IOException, InterruptedException {
    for (int attempt = 1; ; attempt++) {
      try {
        createOnce(folder.resolve("pending"), txlog, bytes);
        return;
      } catch (FileAlreadyExistsException taken) {
        byte[] there = read(folder.resolve("pending").resolve(txlog));
        if (there != null && !Arrays.equals(there, bytes)) {
          throw new Fenced("another process publishes under " + txlog);
        }
        return; // our own bytes, or consumed by now: it was published
      } catch (IOException trouble) {
        if (attempt == 5) {
          // Published or not? Nothing more in this incarnation; the next one finds out.
          throw trouble;
        }
        Thread.sleep(200L << attempt);
      }
    }
  }

  static void createOnce(Path place, String txlog, byte[] bytes) throws IOException {
    Files.createDirectories(place);
    Path unfinished = place.resolve(txlog + "." + Long.toHexString(new SecureRandom().nextLong()) + ".tmp");
    Files.write(unfinished, bytes, StandardOpenOption.CREATE_NEW);
    try {
      sync(unfinished);
      Files.createLink(place.resolve(txlog), unfinished); // a rename would not be exclusive
      sync(place);
    } finally {
      Files.deleteIfExists(unfinished);
    }
  }

  // ---- where to go on, when to wait, when to stop

  /** Where the last run of this name ended, counting what is published and not committed yet. */
  byte[] endOfChain() throws IOException {
    // Pending FIRST, marks SECOND: what is committed and deleted in between is then in the marks, never in neither.
    List<Pending> pending = new ArrayList<>();
    for (String txlog : names("pending")) {
      byte[] bytes = txlog.startsWith(name + ".") ? read(folder.resolve("pending").resolve(txlog)) : null;
      if (bytes != null) {
        pending.add(Pending.decode(txlog, bytes));
      }
    }
    byte[] marks = read(folder.resolve("marks.json"));
    JsonNode copy = marks == null ? JSON.createObjectNode() : JSON.readTree(marks);
    boolean ours = copy.path("table-uuid").asText().equals(card.tableUuid);
    JsonNode known = ours ? copy.at("/marks/writers").path(name) : JSON.createObjectNode();
    byte[] end = known.hasNonNull("position") ? Base64.getDecoder().decode(known.get("position").asText()) : null;
    pending.removeIf(it -> !it.tableUuid.equals(card.tableUuid) || it.position == null || it.isIn(known));
    for (Pending next = after(end, pending); next != null; next = after(end, pending)) {
      pending.remove(next);
      end = next.position;
    }
    return end;
  }

  static Pending after(byte[] end, List<Pending> pending) {
    return pending.stream().filter(it -> Arrays.equals(it.previous, end)).findFirst().orElse(null);
  }

  void waitForBookkeeper() throws IOException, InterruptedException {
    while (names("pending").size() >= card.pendingLimit) {
      Thread.sleep(200);
    }
  }

  boolean isFenced() throws IOException {
    return names("rejected").stream().anyMatch(it -> it.startsWith(name + "." + incarnation + "."));
  }

  TreeSet<String> names(String place) throws IOException {
    TreeSet<String> found = new TreeSet<>();
    try (Stream<Path> listed = Files.list(folder.resolve(place))) {
      listed.map(it -> it.getFileName().toString()).filter(it -> it.contains(SUFFIX)).forEach(found::add);
    } catch (NoSuchFileException nobodyYet) {
      return found;
    }
    found.removeIf(it -> it.endsWith(".tmp"));
    return found;
  }

  /** A pending txlog of this name, as far as the chain of positions needs it. */
  record Pending(String incarnation, long sequence, String tableUuid, byte[] position, byte[] previous) {
    static Pending decode(String txlog, byte[] bytes) throws IOException {
      String[] parts = txlog.split("\\.");
      try (var entries = avro(bytes)) {
        byte[] position = entries.getMeta("bookkeeper.position");
        byte[] previous = entries.getMeta("bookkeeper.previous-position");
        return new Pending(
            parts[1], Long.parseLong(parts[2]), entries.getMetaString("bookkeeper.table-uuid"), position, previous);
      }
    }

    /** In the table: up to the mark of its incarnation, and no hole. */
    boolean isIn(JsonNode known) {
      JsonNode mark = known.path("incarnations").path(incarnation);
      boolean hole = false;
      for (JsonNode missing : mark.path("holes")) {
        hole |= missing.asLong() == sequence;
      }
      return sequence <= mark.path("last").asLong(0) && !hole;
    }
  }

  // ---- the card, the rows, the source

  record Card(
      String tableUuid, String dataPath, Schema schema, PartitionSpec spec, String compression, long pendingLimit,
      long orphanAgeMs) {
    static Card read(Path folder) throws IOException {
      JsonNode card = JSON.readTree(Files.readAllBytes(folder.resolve("card.json")));
      if (card.get("version").asInt() != 1 || !card.get("file-format").asText().equals("parquet")) {
        throw new IOException("this program writes Parquet files, and knows version 1 of card.json");
      }
      Schema schema = SchemaParser.fromJson(card.get("schema").toString());
      PartitionSpec spec = null;
      for (JsonNode one : card.get("specs")) {
        if (one.get("spec-id").asInt() == card.get("spec-id").asInt()) {
          spec = PartitionSpecParser.fromJson(schema, one.toString());
        }
      }
      String codec = card.get("compression").asText();
      return new Card(
          card.get("table-uuid").asText(), card.get("data-path").asText(), schema, Objects.requireNonNull(spec),
          codec.equals("none") ? "uncompressed" : codec, card.get("pending-limit").asLong(),
          card.get("orphan-age-ms").asLong());
    }
  }

  Record record(JsonNode row) {
    row.fieldNames().forEachRemaining(it -> need(card.schema.findField(it) != null, it + ": no such column"));
    Record record = GenericRecord.create(card.schema);
    for (Types.NestedField field : card.schema.columns()) {
      JsonNode value = row.path(field.name());
      boolean none = value.isMissingNode() || value.isNull();
      need(!none || field.isOptional(), field.name() + " is required");
      record.setField(field.name(), none ? null : value(field, value));
    }
    return record;
  }

  static Object value(Types.NestedField field, JsonNode value) {
    boolean fits =
        switch (field.type().typeId()) {
          case STRING, BINARY, TIMESTAMP -> value.isTextual();
          case LONG -> value.isIntegralNumber() && value.canConvertToLong();
          case INTEGER -> value.isIntegralNumber() && value.canConvertToInt();
          case DOUBLE -> value.isNumber();
          case BOOLEAN -> value.isBoolean();
          default -> false;
        };
    need(fits, field.name() + ": " + value + " is no " + field.type() + ", or this program writes none");
    return switch (field.type().typeId()) {
      case BINARY -> ByteBuffer.wrap(bytes(value.textValue()));
      case LONG -> value.longValue();
      case INTEGER -> value.intValue();
      case DOUBLE -> value.doubleValue();
      case BOOLEAN -> value.booleanValue();
      case TIMESTAMP -> OffsetDateTime.parse(value.textValue()).withOffsetSameInstant(ZoneOffset.UTC);
      default -> value.textValue();
    };
  }

  static void need(boolean fits, String otherwise) {
    if (!fits) {
      throw new IllegalArgumentException(otherwise);
    }
  }

  /** Lines that end in a newline; the position is the byte behind the last one that was taken. */
  static final class Source implements AutoCloseable {
    final BufferedInputStream in;
    long position;

    Source(Path path, long position) throws IOException {
      this.in = new BufferedInputStream(Files.newInputStream(path));
      this.position = position;
      in.skipNBytes(position);
    }

    List<JsonNode> take(int most) throws IOException {
      List<JsonNode> rows = new ArrayList<>();
      ByteArrayOutputStream line = new ByteArrayOutputStream();
      for (int next; rows.size() < most && (next = in.read()) >= 0; ) {
        line.write(next);
        if (next == '\n') {
          position += line.size();
          rows.add(JSON.readTree(line.toByteArray()));
          line.reset();
        }
      }
      return rows;
    }

    @Override
    public void close() throws IOException {
      in.close();
    }
  }

  // ---- small things

  static DataFileStream<Object> avro(byte[] bytes) throws IOException {
    return new DataFileStream<>(new ByteArrayInputStream(bytes), new GenericDatumReader<>());
  }

  static byte[] bytes(Object value) {
    return value.toString().getBytes(StandardCharsets.UTF_8);
  }

  static String text(byte[] bytes) {
    return new String(bytes, StandardCharsets.UTF_8);
  }

  /** Null when there is no such file. */
  static byte[] read(Path path) throws IOException {
    try {
      return Files.readAllBytes(path);
    } catch (NoSuchFileException gone) {
      return null;
    }
  }

  static void sync(Path path) throws IOException {
    try (FileChannel channel = FileChannel.open(path, StandardOpenOption.READ)) {
      channel.force(true);
    }
  }

  static Path path(String location) {
    return location.startsWith("file:") ? Path.of(URI.create(location).getPath()) : Path.of(location);
  }

  /** RFC 9562, version 7: 48 bits of milliseconds, then random ones. */
  static String uuid7(long now) {
    byte[] random = new byte[16];
    new SecureRandom().nextBytes(random);
    ByteBuffer bits = ByteBuffer.wrap(random);
    long high = now << 16 | 0x7000 | bits.getLong() & 0x0fff;
    long low = bits.getLong() & 0x3fff_ffff_ffff_ffffL | 0x8000_0000_0000_0000L;
    return new java.util.UUID(high, low).toString();
  }

  static final class Fenced extends RuntimeException {
    static final long serialVersionUID = 1;

    Fenced(String message) {
      super(message);
    }
  }
}
