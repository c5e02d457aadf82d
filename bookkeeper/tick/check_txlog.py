"""
What a txlog may hold (docs/maintain/txlog-format.md, "What is rejected"): pure, and the same for every writer.

Raises a Reject with a reason a person can act on; whether the data files exist is checked in intake.py.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import VoidTransform
from pyiceberg.types import FixedType, IcebergType, NestedField

from bookkeeper.config.units import from_epoch_ms
from bookkeeper.contract.file_names import check_names
from bookkeeper.contract.keyed import Keyed, is_within_keys, keyed_of
from bookkeeper.contract.marks import FUTURE_MS, Marks
from bookkeeper.contract.names import TxlogName, started_ms, year_of
from bookkeeper.contract.rewrite import Rewrite
from bookkeeper.contract.txlog import MOST_BYTES, DeleteEntries, Txlog
from bookkeeper.errors import EntryInvalid, FromTheFuture, PathRefused, UnknownSpec, WrongTable
from bookkeeper.format.entries import ADDED, DATA, EQUALITY_DELETES, DataFile, Entry
from bookkeeper.format.layout import Physical, physical
from bookkeeper.format.partition_tuples import avro_type
from bookkeeper.format.records import Prefix, write_prefix
from bookkeeper.format.skim import EntrySummary, StatsShape
from bookkeeper.format.skim.expressions import COUNTS, MOST_COUNT
from bookkeeper.ledger.view import View, columns_of
from bookkeeper.stores.locations import normal

#: the last second that has a date: the end of the year 9999
LAST_S = 253_402_300_799
#: the prefix of a record that inherits everything: ADDED, and three nulls
FRESH = b"\x02\0\0\0"
#: how files of the formats that are allowed begin; PARE: a Parquet file with an encrypted footer
MAGIC = {"PARQUET": (b"PAR1", b"PARE"), "AVRO": (b"Obj\x01",)}
FORMATS = tuple(MAGIC)
#: of delete files: only these can be folded
DELETE_FORMAT = "PARQUET"
NOT_KEYED = "`bookkeeper init --key` makes it a keyed table; then replay the txlog."
#: No file has more rows a byte. A page of Parquet holds at most 2^31 - 1 rows, whatever they are (run-length encoded
#: nulls take no room), and takes more than 16 bytes with its header; the largest pages that pyarrow makes of nulls come
#: to 290,000 rows a byte. A record of Avro is a byte or more, which no codec of Avro compresses to 2^-27 of a byte.
MOST_ROWS_A_BYTE = 2**27
#: bytes of a single-value serialized bound (Iceberg spec, Appendix D)
_WIDTHS = {"boolean": 1, "int": 4, "date": 4, "float": 4, "long": 8, "double": 8, "time": 8, "uuid": 16}
_WIDTHS |= {"timestamp": 8, "timestamptz": 8}


@dataclass(frozen=True)
class Rules:
    """What this table allows, taken from one load of it."""

    table_uuid: str
    data_path: str
    schemas: dict[int, Schema]
    specs: dict[int, PartitionSpec]
    sort_orders: frozenset[int]
    #: None: the table is append-only, and takes no deletes
    keyed: Keyed | None = None
    #: None: no writer is known
    marks: Marks | None = None
    #: whether every data file must be called after its txlog
    strict_names: bool = False
    #: the keys, as the table has them now
    key_columns: tuple[NestedField, ...] = ()

    @cached_property
    def columns(self) -> frozenset[int]:
        """Every field id any schema of the table has or had."""
        return frozenset(number for schema in self.schemas.values() for number in columns_of(schema))

    @cached_property
    def widths(self) -> dict[int, set[int]]:
        """Bytes of a bound of each column of fixed width, in any schema: a widened column has two."""
        found: dict[int, set[int]] = {}
        for schema in self.schemas.values():
            for number, field in columns_of(schema).items():
                width = _width(field.field_type)
                if width is not None:
                    found.setdefault(number, set()).add(width)
        return found

    @cached_property
    def data_root(self) -> str:
        """What the normal location of every data file starts with."""
        return normal(self.data_path).rstrip("/") + "/"

    @cached_property
    def _fitting(self) -> dict[int, tuple[StatsShape, bool]]:
        return {}

    def fits(self, shape: StatsShape) -> bool:
        """Whether statistics of this shape are certainly what the table's columns allow."""
        known = self._fitting.get(id(shape))
        if known is None:
            sound = all(width in self.widths.get(number, {width}) for number, width in shape.widths.items())
            known = self._fitting[id(shape)] = (shape, sound and shape.columns <= self.columns)
        return known[1]

    @cached_property
    def bindings(self) -> dict[tuple[int, int], "Binding"]:
        """The binding of each pair of schema and spec seen so far."""
        return {}

    def binding(self, schema_id: int, spec_id: int) -> "Binding":
        """The binding of a schema and a spec of the table; raises UnknownSpec."""
        pair = (schema_id, spec_id)
        if pair not in self.bindings:
            self.bindings[pair] = bind(self.specs[spec_id], self.schemas[schema_id])
        return self.bindings[pair]

    def knows(self, txlog: Txlog | Rewrite) -> bool:
        """Whether the table has the schema and spec the txlog names; reload it once before believing a no."""
        return txlog.schema_id in self.schemas and txlog.spec_id in self.specs


def _width(kind: IcebergType) -> int | None:
    return len(kind) if isinstance(kind, FixedType) else _WIDTHS.get(str(kind))


def rules_of(view: View, strict_names: bool = False) -> Rules:
    """
    What a txlog must fit for this table. Raises TableUnusable where its property for keys does not fit it.
    """
    orders = frozenset({0, *(order.order_id for order in view.metadata.sort_orders)})
    keyed, schema = keyed_of(view.metadata), view.metadata.schema()
    keys = tuple(schema.find_field(number) for number in keyed.key_ids) if keyed is not None else ()
    known = view.uuid, view.data_path, view.schemas, view.specs, orders
    return Rules(*known, keyed, view.marks, strict_names, keys)


def _when_replayed(created_ms: int) -> str:
    """From when on a replay is not rejected for the same reason; the time is the writer's, so it may be any number."""
    allowed_s = -((FUTURE_MS - created_ms) // 1000)  # rounded up
    if allowed_s > LAST_S:
        return "Synchronise the writer's clock (NTP). A replay would be rejected again: write these rows again."
    at = from_epoch_ms(allowed_s * 1000).strftime("%Y-%m-%d %H:%M:%S UTC")
    return f"Synchronise the writer's clock (NTP). A replay works from {at} on; before, it is rejected again."


def check(txlog: Txlog, rules: Rules, now_ms: int) -> str | None:
    """
    Raises the first Reject that applies: WrongTable, FromTheFuture, UnknownSpec, EntryInvalid, PathRefused,
    DuplicatePath or FileNameRefused. Returns a data file that is not called after the txlog, where one is allowed.
    """
    if txlog.table_uuid != rules.table_uuid:
        raise WrongTable(f"it was written for table {txlog.table_uuid[:60]}, this one is {rules.table_uuid}")
    if txlog.created_ms > now_ms + FUTURE_MS:
        ahead = f"it says it was created {(txlog.created_ms - now_ms) / 3.6e6:.1f} h from now"
        raise FromTheFuture(ahead, hint=_when_replayed(txlog.created_ms))
    check_started(txlog.name, rules.marks or Marks(""), now_ms)
    if not rules.knows(txlog):
        raise UnknownSpec(
            f"schema {txlog.schema_id} or partition spec {txlog.spec_id} is unknown; the table has schemas "
            f"{sorted(rules.schemas)} and specs {sorted(rules.specs)}"
        )
    if txlog.position is None and txlog.previous_position is not None:
        raise EntryInvalid("previous-position without position")
    if not txlog.rows and txlog.deletes is None and not txlog.offsets:
        raise EntryInvalid("it names no data file")
    check_added(txlog, enumerate(txlog.paths), rules)
    if txlog.deletes is not None:
        _check_deletes(txlog.schema_id, txlog.deletes, rules)
    return check_names(txlog.name, txlog.every_path, rules.strict_names)


def check_started(name: TxlogName, marks: Marks, now_ms: int) -> None:
    """
    Raises FromTheFuture where its run began more than an hour from now, by the time in its incarnation.

    On a keyed table such a run would come after every other one of its writer, for ever. Marks of such a run, which
    earlier versions let in, do not stop its writer: the run goes on, and later ones begin behind it.
    """
    started, most = started_ms(name.incarnation), now_ms + FUTURE_MS
    if started <= most:
        return
    known = marks.newest_start(name.writer)
    if known <= most or started > known + FUTURE_MS:
        raise FromTheFuture(
            f"its incarnation says that its run began in the year {year_of(started)}, more than an hour from now",
            hint="An incarnation is a UUID of version 7, of the time at which its run began. Synchronise the writer's "
            "clock (NTP), start the writer again and write these rows again. This txlog holds no other one up.",
        )


def check_added(given: Txlog | Rewrite, added: Iterable[tuple[int, str]], rules: Rules) -> None:
    """
    Checks the records of data files that are added, given by index and normal location.

    Raises UnknownSpec, EntryInvalid or PathRefused.
    """
    binding = rules.binding(given.schema_id, given.spec_id)
    if given.partition != binding.partition:
        raise UnknownSpec(f"its partition tuples are {given.partition}, spec {given.spec_id} has {binding.partition}")
    numbers = given.numbers if isinstance(given, Txlog) else ()
    prefixes = {number: write_prefix(Prefix(ADDED, None, number)) for number in set(numbers)}
    for index, path in added:
        row = given.body.rows[index]
        number = numbers[index] if numbers else None
        prefix = FRESH if number is None else prefixes[number]
        if row.entry is not None or row.prefix != prefix or not rules.fits(row.shape):
            _check_entry(row.entry or given.body.entries[index], rules, DATA, number)
        _check_row(row, path, rules, binding.required)


def _check_deletes(schema_id: int, deletes: DeleteEntries, rules: Rules) -> None:
    """Checks the records of equality-delete files; raises as `check_added` does."""
    if rules.keyed is None:
        raise EntryInvalid("it deletes rows by key, but the table is not keyed", hint=NOT_KEYED)
    spec = rules.specs.get(deletes.spec_id)
    # A delete in one partition would miss the rows of its key in another. Whether the live data files have its spec is
    # decided in the commit, against the head.
    if spec is None or not is_within_keys(spec, rules.keyed):
        known = rules.keyed.delete_spec_id
        raise UnknownSpec(f"its deletes have partition spec {deletes.spec_id}, those of the table have {known}")
    binding = rules.binding(schema_id, deletes.spec_id)
    if deletes.partition != binding.partition:
        raise UnknownSpec(f"partition tuples of its deletes are {deletes.partition}, not {binding.partition}")
    for row, entry, number, path in zip(deletes.rows, deletes.entries, deletes.numbers, deletes.paths, strict=True):
        shown = row.path[:300]
        if tuple(sorted(entry.equality_ids or ())) != rules.keyed.key_ids:
            ids = _brief(entry.equality_ids)
            raise EntryInvalid(f"{shown}: equality ids {ids}, the keys of the table are {rules.keyed.key_ids}")
        if row.file_format.upper() != DELETE_FORMAT:
            raise EntryInvalid(f"{shown}: file format {row.file_format[:40]}; delete files are {DELETE_FORMAT}")
        _check_entry(entry, rules, EQUALITY_DELETES, number)
        _check_row(row, path, rules, binding.required)


@dataclass(frozen=True, slots=True)
class Binding:
    """A partition tuple's fields: (field id, physical Avro type) of each, and whether its column is required."""

    partition: tuple[tuple[int, Physical | None], ...]
    required: tuple[bool, ...]


def bind(spec: PartitionSpec, schema: Schema) -> Binding:
    """
    The binding of a spec to a schema; raises UnknownSpec when the schema lacks a column of the spec.
    """
    try:
        fields = spec.partition_type(schema).fields
        required = tuple(_is_required(schema, field) for field in spec.fields)
    except ValueError as exc:
        raise UnknownSpec(f"schema {schema.schema_id} has not the columns of partition spec {spec.spec_id}") from exc
    kinds = (physical(avro_type(field.field_type, field.field_id)) for field in fields)
    return Binding(tuple(zip((field.field_id for field in fields), kinds, strict=True)), required)


def _is_required(schema: Schema, field: PartitionField) -> bool:
    # A column inside a struct is null where the struct is.
    column = schema.find_field(field.source_id)
    return column.required and column in schema.fields and not isinstance(field.transform, VoidTransform)


def is_format(name: str, start: bytes | None) -> bool:
    """
    Whether a data file of this format begins like that; None where its beginning is not known, and "" of any format.
    """
    return start is None or start.startswith(MAGIC.get(name.upper(), b""))


def _check_entry(entry: Entry, rules: Rules, content: int, number: int | None) -> None:
    """Checks what skimming does not prove of a record; `number` is its relative sequence number in version 2."""
    path = entry.data_file.path[:300]
    if entry.status != ADDED:
        raise EntryInvalid(f"{path}: status {entry.status}, only ADDED (1) is allowed")
    if (entry.snapshot_id, entry.sequence_number, entry.file_sequence_number) != (None, number, None):
        raise EntryInvalid(f"{path}: snapshot id and sequence numbers must be null, so that they are inherited")
    has_ids = entry.equality_ids is not None
    if (entry.content, has_ids, entry.referenced_data_file) != (content, content == EQUALITY_DELETES, None):
        raise EntryInvalid(
            f"{path}: content {entry.content}, equality ids {_brief(entry.equality_ids)}, referenced data file "
            f"{_brief(entry.referenced_data_file)}; only data files are allowed here (0, null, null), and equality "
            "deletes in bookkeeper.deletes (2, the keys, null)"
        )
    _check_statistics(entry.data_file, rules.columns)
    _check_bounds(entry.data_file, rules.widths)


_MOVED_DATA = (
    "If the table's write.data.path was changed while this was pending: set it back, `bookkeeper replay`, and change "
    "it when nothing is pending and no writer runs. Else correct the writer."
)


def _brief(value: object) -> str:
    return "null" if value is None else str(value)[:100]


def _check_row(row: EntrySummary, path: str, rules: Rules, required: tuple[bool, ...]) -> None:
    if not path.startswith(rules.data_root):
        raise PathRefused(f"{row.path[:300]} is outside of the table's data path {rules.data_path}", hint=_MOVED_DATA)
    wrong = _wrong_in(row, rules, required)
    if wrong:
        raise EntryInvalid(f"{row.path[:300]}: {wrong}")


def _wrong_in(row: EntrySummary, rules: Rules, required: tuple[bool, ...]) -> str:
    if row.file_format not in FORMATS and row.file_format.upper() not in FORMATS:
        return f"file format {row.file_format[:40]}; {' and '.join(FORMATS)} are allowed"
    if impossible := impossible_counts(row.record_count, row.size_bytes):
        return impossible
    if None in row.partition and any(
        value is None and needed for value, needed in zip(row.partition, required, strict=True)
    ):
        return "a partition value is null though its column is required"
    if row.sort_order_id is not None and row.sort_order_id not in rules.sort_orders:
        return f"sort order {row.sort_order_id} is unknown"
    return ""


def impossible_counts(records: int, size: int) -> str:
    """
    What is wrong with a data file of so many records and bytes, or "".

    Sums of what passes fit in a long for all files of a txlog, and for 4 million files of a table.
    """
    if records <= 0 or size <= 0:
        return f"{records} records in {size} bytes"
    if size > MOST_BYTES:
        return f"{size} bytes, no storage has objects of more than {MOST_BYTES}"
    if records > MOST_COUNT or records > size * MOST_ROWS_A_BYTE:
        return f"{records} records in {size} bytes, which no file can hold"
    return ""


def _check_bounds(file: DataFile, widths: dict[int, set[int]]) -> None:
    for named in (file.lower_bounds, file.upper_bounds):
        for number, bound in named.items():
            # Readers fail on such a bound when they plan; retention would read it as another time.
            if number in widths and len(bound) not in widths[number]:
                raise EntryInvalid(f"{file.path[:300]}: a bound of {len(bound)} bytes for column {number}")


def _check_statistics(file: DataFile, columns: frozenset[int]) -> None:
    counts = (file.column_sizes, file.value_counts, file.null_value_counts, file.nan_value_counts)
    for named in (*counts, file.lower_bounds, file.upper_bounds):
        if not named.keys() <= columns:
            unknown = min(named.keys() - columns)
            raise EntryInvalid(f"{file.path[:300]}: statistics for column {unknown}, which the table does not have")
    for name, named in zip(COUNTS, counts, strict=True):
        for number, value in named.items():
            if not 0 <= value <= MOST_COUNT:
                raise EntryInvalid(f"{file.path[:300]}: {name} of {value} for column {number}, which no file can have")
