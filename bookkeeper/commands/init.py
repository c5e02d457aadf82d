"""
`init`: namespace, table, folder, card and marks, made or adopted; every step is safe to repeat.

A crash leaves a prefix of the steps done; running it again does the rest. Of an existing table only our own
properties are touched, and where keys are asked for its identifier fields; a spec for deletes may be added.
"""

import json
import re
import tomllib
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import (
    NamespaceAlreadyExistsError,
    NoSuchTableError,
    TableAlreadyExistsError,
    ValidationError,
)
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema, assign_fresh_schema_ids
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.update import AssertRefSnapshotId, AssertTableUUID, SetPropertiesUpdate
from pyiceberg.transforms import parse_transform
from pyiceberg.types import DateType, NestedField, TimestampType, TimestamptzType

from bookkeeper.catalogs import open as catalogs
from bookkeeper.config import compaction
from bookkeeper.config.expiry import rules
from bookkeeper.config.settings import Table
from bookkeeper.config.units import format_duration, from_epoch_ms
from bookkeeper.core import card as cards
from bookkeeper.core import marks as marks_format
from bookkeeper.core.card import Card
from bookkeeper.core.folder import Folder, folder_url
from bookkeeper.core.history import is_ours
from bookkeeper.core.keyed import Keyed, keyed_of
from bookkeeper.core.keyed import check as check_keyed
from bookkeeper.core.known_table import check_unknown
from bookkeeper.core.marks import Marks
from bookkeeper.errors import (
    AlreadyExists,
    CommitConflict,
    CommitUnknown,
    ConfigInvalid,
    NotPossible,
    TableUnusable,
    WrongFolder,
)
from bookkeeper.ledger.keys import set_keys
from bookkeeper.ledger.view import MAIN, View
from bookkeeper.stores.open import stores_with
from bookkeeper.stores.store import Store
from bookkeeper.tick.card import card_of

DEFAULT_SCHEMA = (
    {"name": "timestamp", "type": "timestamptz", "required": True},
    {"name": "key", "type": "string", "required": True},
    {"name": "value", "type": "binary", "required": False},
)
#: to make a table keyed, beside a bookkeeper that commits every second
_ATTEMPTS = 5
_KEY_HINT = (
    "Keys are required columns of any primitive type but float and double; an op-column is a string, an order-column a "
    "long."
)
_FIELD = re.compile(r"(\w+)\((?:(\d+)\s*,\s*)?([\w.]+)\)|([\w.]+)")


@dataclass(frozen=True, slots=True)
class Initialised:
    """The queue as it is now, and which parts of it this run made."""

    table: str
    uuid: str
    location: str
    folder: str
    made: tuple[str, ...]
    partition: str = ""
    #: what was chosen by default, and what was asked for but is not so
    notes: tuple[str, ...] = ()


def initialise(
    catalog: Catalog,
    settings: Table,
    schema: Schema,
    store: Callable[[str], Store] | None = None,
    partition: Sequence[str] | None = None,
) -> Initialised:
    """
    Makes the table a queue; a new one is partitioned by `partition`, None: as the settings say or what fits.

    Raises CatalogUnavailable, StorageUnavailable, TableUnusable (v1, v3), WrongFolder, ConfigInvalid, and NotPossible
    when the table is there with other partitions than `partition`, or the catalog has no such table but a txlog folder
    has.
    """
    made: list[str] = []
    notes: list[str] = []
    table = _table(catalog, settings, schema, partition, made, notes, store)
    if _asks_for_keys(settings) and _make_keyed(table, settings):
        made.append("keys")
        table = catalogs.load_table(catalog, settings.identifier)
    url = folder_url(settings, table.metadata.location)
    folder = Folder((store or stores_with(catalog.properties))(url), makes=True)
    view = View(table, Marks(""))
    card = _card(folder, view, settings, made)
    if marks_format.PROPERTY not in table.metadata.properties and _set_marks(table, card.folder):
        made.append("marks")
        notes += _history_note(table, settings)
    partitions = partition_text(table.spec(), table.schema())
    return Initialised(
        settings.identifier, view.uuid, table.metadata.location, url, tuple(made), partitions, tuple(notes)
    )


def _table(
    catalog: Catalog,
    settings: Table,
    schema: Schema,
    partition: Sequence[str] | None,
    made: list[str],
    notes: list[str],
    store: Callable[[str], Store] | None,
) -> IcebergTable:
    with catalogs.asked(f"look for table {settings.identifier}"):
        there = _exists(catalog, settings.identifier)
    if not there:
        check_unknown(catalog.properties, settings, store)
        schema = _with_keys(schema, settings)
        spec = _spec_of_new(settings, schema, partition, notes)
        with catalogs.asked(f"create table {settings.identifier}"):
            _create(catalog, settings, schema, spec, made)
    table = catalogs.load_table(catalog, settings.identifier)
    if "table" not in made:
        _compare_partitions(table, settings, partition, notes)
    return table


def _with_keys(schema: Schema, settings: Table) -> Schema:
    """The schema of a new table, its keys as identifier fields."""
    if not _asks_for_keys(settings):
        return schema
    keys = _asked_keys(schema, settings, None).key_ids
    return Schema(*schema.fields, schema_id=schema.schema_id, identifier_field_ids=list(keys))


def _asks_for_keys(settings: Table) -> bool:
    return bool(settings.key or settings.op_column or settings.order_column)


def _asked_keys(schema: Schema, settings: Table, known: Keyed | None) -> Keyed:
    """Keys, op- and order-column as the settings name them, else as they are `known`; raises ConfigInvalid."""

    if not settings.key:
        raise ConfigInvalid(f"{settings.identifier}: op-column and order-column need key", hint=_KEY_HINT)
    if settings.file_format != "parquet":
        raise ConfigInvalid(
            f"{settings.identifier}: data files of a keyed table are Parquet, not {settings.file_format}"
        )
    ids = {
        name: _column_id(schema, name, settings) for name in (*settings.key, settings.op_column, settings.order_column)
    }
    wanted = Keyed(
        tuple(sorted(ids[name] or 0 for name in settings.key)),
        0,
        ids[settings.op_column] or (known.op_field_id if known else None),
        ids[settings.order_column] or (known.order_field_id if known else None),
    )
    try:
        check_keyed(wanted, schema)
    except ValueError as exc:
        raise ConfigInvalid(f"{settings.identifier}: {exc}", hint=_KEY_HINT) from exc
    return wanted


def _column_id(schema: Schema, name: str | None, settings: Table) -> int | None:
    if name is None:
        return None
    try:
        return schema.find_field(name).field_id
    except ValueError as exc:
        raise ConfigInvalid(f"{settings.identifier} has no column {name!r}", hint=_KEY_HINT) from exc


def _make_keyed(table: IcebergTable, settings: Table) -> bool:
    """Makes the table keyed, and returns whether this run did; begins again when another program commits meanwhile."""
    for left in reversed(range(_ATTEMPTS)):
        try:
            known = keyed_of(table.metadata)
        except TableUnusable:
            known = None  # this sets it right
        wanted = _asked_keys(table.schema(), settings, known)
        if known is not None and known.key_ids != wanted.key_ids:
            names = ", ".join(str(table.schema().find_column_name(number)) for number in known.key_ids)
            raise NotPossible(
                f"{settings.identifier} is keyed by {names}, not by {', '.join(settings.key)}",
                hint="The keys of a keyed table stay: its deletes are by these. Correct `key`, or make another table.",
            )
        try:
            return set_keys(table, wanted, known)
        except CommitConflict:
            if not left:
                raise
            table = catalogs.load_table(table.catalog, settings.identifier)
    return False


def _spec_of_new(settings: Table, schema: Schema, partition: Sequence[str] | None, notes: list[str]) -> PartitionSpec:
    """The usual one is the day of `timestamp`; where there is no such column, the day of the first with a time."""
    wanted = settings.partition_by if partition is None else partition
    if partition is not None or tuple(wanted) != Table().partition_by or "timestamp" in _with_a_day(schema):
        return partition_spec(wanted, schema)
    for column in _with_a_day(schema):
        notes.append(f"partitioned by day({column}), the first column with a time; --partition says otherwise.")
        return PartitionSpec(_field("day", None, column, schema, 1000, f"day({column})"))
    notes.append(
        "not partitioned, for no column has a time; --partition says otherwise. Retention can go by max-age only."
    )
    return PartitionSpec()


def _with_a_day(schema: Schema) -> list[str]:
    """The columns with a time, then those with a date."""
    timed = [field.name for field in schema.fields if isinstance(field.field_type, TimestampType | TimestamptzType)]
    return timed + [field.name for field in schema.fields if isinstance(field.field_type, DateType)]


def _compare_partitions(
    table: IcebergTable, settings: Table, partition: Sequence[str] | None, notes: list[str]
) -> None:
    """Nothing of an existing table is changed, so the partitions that were asked for must be its own already."""
    wanted = settings.partition_by if partition is None else partition
    if partition is None and tuple(wanted) == Table().partition_by:
        return  # partitions by default: any partitions of an existing table are fine
    try:
        asked = partition_text(partition_spec(wanted, table.schema()), table.schema())
        why = f"and not by {asked}"
    except ConfigInvalid as exc:
        asked, why = "", str(exc)
    there = partition_text(table.spec(), table.schema())
    if asked == there:
        return
    found = f"the table is there and partitioned by {there}, {why}"
    if partition is not None:
        raise NotPossible(
            f"{settings.identifier}: {found}",
            hint="init does not change an existing table: ALTER TABLE ... ADD PARTITION FIELD in Spark does.",
        )
    notes.append(f"{found}; init changes nothing of that. Correct partition-by in the configuration.")


def _history_note(table: IcebergTable, settings: Table) -> Iterator[str]:
    """What the reaper will expire: its defaults keep less than Iceberg's, so it is said before anything is deleted."""
    try:
        found = rules(settings.reaper, table.metadata.properties)
    except TableUnusable as exc:
        yield f"history: {exc}. {exc.hint}"
        return
    if not found.gc:
        return
    count = len(table.metadata.snapshots)
    oldest = min((snapshot.timestamp_ms for snapshot in table.metadata.snapshots), default=0)
    adopted = f"it has {count} snapshots, the oldest of {from_epoch_ms(oldest):%Y-%m-%d %H:%M} UTC; " if count else ""
    yield (
        f"history: {adopted}`reaper run` expires snapshots older than {format_duration(found.older_than)}, "
        "except the last "
        f"{found.retain_last} and what registered consumers need. older-than and retain-last in [reaper], or in "
        f"[tables.{settings.name}.reaper], keep more."
    )


def _exists(catalog: Catalog, identifier: str) -> bool:
    try:
        catalog.load_table(identifier)
    except NoSuchTableError:
        return False
    return True


def _create(catalog: Catalog, settings: Table, schema: Schema, spec: PartitionSpec, made: list[str]) -> None:
    namespace = settings.identifier.rpartition(".")[0]
    try:
        catalog.create_namespace(namespace)
        made.append("namespace")
    except NamespaceAlreadyExistsError:
        pass
    codec = "uncompressed" if settings.compression == "none" else settings.compression
    properties = {
        "format-version": "2",
        "write.format.default": settings.file_format,
        "write.parquet.compression-codec": codec,
        # Of a table that was there before, others may rewrite the files already.
        compaction.PROPERTY: compaction.OWN,
    }
    try:
        catalog.create_table(
            settings.identifier,
            schema,
            location=settings.location,
            partition_spec=spec,
            properties=properties,
        )
        made.append("table")
    except TableAlreadyExistsError:
        pass  # another init ran at the same time


def _card(folder: Folder, view: View, settings: Table, made: list[str]) -> Card:
    """The folder's card; of several that create it at once, one decides the folder's id for all."""
    text = view.metadata.properties.get(marks_format.PROPERTY)
    known = marks_format.loads(text).folder if text is not None else None
    card = card_of(view, settings, known or str(uuid.uuid4()))
    try:
        folder.store.create("card.json", cards.dumps(card))
        made.append("folder")
    except AlreadyExists:
        card = folder.card()
    if card.table_uuid != view.uuid or known not in (None, card.folder):
        raise WrongFolder(f"{folder.store.url} belongs to table {card.table_uuid}, folder id {card.folder}")
    folder.write_card(card_of(view, settings, card.folder))
    return card


def _set_marks(table: IcebergTable, folder: str) -> bool:
    """Sets the marks; returns whether this run did, not another one at the same time."""
    if any(map(is_ours, table.metadata.snapshots)):
        raise TableUnusable(
            f"{'.'.join(table.name())} has lost its property {marks_format.PROPERTY}",
            hint="bookkeeper restore-marks puts it back from marks.json or from an older metadata file.",
        )
    # Two runs of init write the same value, because the card holds the folder's id; the guard fails both after a first
    # commit.
    guards = (
        AssertTableUUID(uuid=table.metadata.table_uuid),
        AssertRefSnapshotId(ref=MAIN, snapshot_id=table.metadata.current_snapshot_id),
    )
    empty = marks_format.dumps(Marks(folder))
    try:
        catalogs.commit(table, guards, (SetPropertiesUpdate(updates={marks_format.PROPERTY: empty}),))
    except (CommitConflict, CommitUnknown):
        now = catalogs.load_table(table.catalog, ".".join(table.name()))
        if marks_format.PROPERTY not in now.metadata.properties:
            raise
        return False
    return True


def schema_for(settings: Table, file: str | None = None, like: str | None = None) -> Schema:
    """
    The schema for `init`: of a JSON or TOML file, of a Parquet file, of the config, or the article's.

    Raises ConfigInvalid.
    """
    if like is not None:
        return _schema_like(like)
    columns = _columns_in(file) if file is not None else settings.schema or DEFAULT_SCHEMA
    return schema_of(columns)


def schema_of(columns: Sequence[Mapping[str, Any]]) -> Schema:
    """
    The Iceberg schema of `{name, type, required}` rows; raises ConfigInvalid.
    """
    fields = []
    for number, column in enumerate(columns, start=1):
        if not isinstance(column, Mapping):
            raise ConfigInvalid(f"schema column {column!r}: a name and a type are needed")
        unknown = set(column) - {"name", "type", "required", "doc", "id"}
        if unknown or "name" not in column or "type" not in column:
            raise ConfigInvalid(f"schema column {dict(column)}: name and type are needed, required and doc allowed")
        try:
            fields.append(NestedField.model_validate({"required": False, **column, "id": number}))
        except (ValueError, TypeError) as exc:
            raise ConfigInvalid(f"schema column {column['name']!r} has the type {column['type']!r}: {exc}") from exc
    # Nested fields bring ids of their own, which must not be those of other columns.
    return assign_fresh_schema_ids(Schema(*fields))


def _columns_in(path: str) -> Sequence[Mapping[str, Any]]:
    try:
        text = Path(path).read_text("utf-8")
        data = tomllib.loads(text) if path.endswith(".toml") else json.loads(text)
        columns: Sequence[Mapping[str, Any]] = data if isinstance(data, list) else data.get("fields") or data["schema"]
    except OSError as exc:
        raise ConfigInvalid(
            f"{path} cannot be read: {exc.strerror}", hint="--schema FILE, the path of a file."
        ) from exc
    except (ValueError, KeyError, AttributeError) as exc:
        raise ConfigInvalid(
            f"{path}: a JSON list of columns, an Iceberg schema, or TOML [[schema]] is allowed"
        ) from exc
    return columns


def _schema_like(path: str) -> Schema:
    import pyarrow.parquet  # type: ignore[import-untyped]
    from pyiceberg.io.pyarrow import _pyarrow_to_schema_without_ids

    try:
        return assign_fresh_schema_ids(_pyarrow_to_schema_without_ids(pyarrow.parquet.read_schema(path)))
    except (OSError, ValueError, TypeError) as exc:
        raise ConfigInvalid(f"--like {path}: {exc}") from exc


def partition_text(spec: PartitionSpec, schema: Schema) -> str:
    """
    The spec as `partition-by` writes it: `day(ts), bucket(16, key)`; `nothing` of one without fields.
    """
    texts = []
    for field in spec.fields:
        column = schema.find_column_name(field.source_id) or f"a column that was dropped ({field.name})"
        kind, _, width = str(field.transform).removesuffix("]").partition("[")
        inner = f"{width}, {column}" if width else column
        texts.append(column if kind == "identity" else f"{kind}({inner})")
    return ", ".join(texts) or "nothing"


def partition_spec(fields: Sequence[str], schema: Schema) -> PartitionSpec:
    """
    The spec of texts such as `day(ts)`, `bucket(16, key)`, `key`; raises ConfigInvalid.
    """
    return PartitionSpec(*[_partition_field(text, schema, 1000 + index) for index, text in enumerate(fields)])


def _partition_field(text: str, schema: Schema, field_id: int) -> PartitionField:
    match = _FIELD.fullmatch(text.strip())
    if not match:
        raise ConfigInvalid(f"partition-by {text!r}: day(column), bucket(16, column) or a column is allowed")
    kind, width, column = match[1] or "identity", match[2], match[3] or match[4]
    return _field(kind, width, column, schema, field_id, text)


def _field(kind: str, width: str | None, column: str, schema: Schema, field_id: int, text: str) -> PartitionField:
    try:
        source = schema.find_field(column)
        transform = parse_transform(f"{kind}[{width}]" if width else kind)
    except (ValueError, ValidationError) as exc:
        raise ConfigInvalid(f"partition-by {text!r}: {exc}") from exc
    if width == "0" or not transform.can_transform(source.field_type):
        raise ConfigInvalid(f"partition-by {text!r}: {source.field_type} columns cannot be partitioned by {kind}")
    suffix = "" if kind == "identity" else f"_{kind}" + (f"_{width}" if width else "")
    return PartitionField(source.field_id, field_id, transform, column.replace(".", "_") + suffix)
