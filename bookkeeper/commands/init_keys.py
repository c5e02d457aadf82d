"""
Keys of `init`: the identifier fields of a new table, or of one that is there.
"""

from pyiceberg.schema import Schema
from pyiceberg.table import Table as IcebergTable
from pyiceberg.types import LongType, NestedField, StringType

from bookkeeper.catalogs import commit as catalogs
from bookkeeper.config.settings import Table
from bookkeeper.contract.keyed import Keyed, keyed_of
from bookkeeper.contract.keyed import check as check_keyed
from bookkeeper.errors import CommitConflict, ConfigInvalid, NotPossible, TableUnusable
from bookkeeper.ledger.make_keyed import set_keys

#: to make a table keyed, beside a bookkeeper that commits every second
_ATTEMPTS = 5
_KEY_HINT = (
    "Keys are required columns of any primitive type but float and double; an op-column is a string, an order-column a "
    "long."
)


def with_keys(schema: Schema, settings: Table) -> Schema:
    """The schema of a new table, its keys as identifier fields."""
    if not asks_for_keys(settings):
        return schema
    keys = _asked_keys(schema, settings, None).key_ids
    return Schema(*schema.fields, schema_id=schema.schema_id, identifier_field_ids=list(keys))


def with_missing(schema: Schema, settings: Table) -> tuple[Schema, list[str]]:
    """
    The schema of a new table with the op- and order-column that it lacks, which writers fill, and what to say of it.

    Raises ConfigInvalid where a column has that name but for its case.
    """
    fields = list(schema.fields)
    notes: list[str] = []
    wanted = (
        ("op-column", settings.op_column, StringType(), "it tells streams of deletes"),
        ("order-column", settings.order_column, LongType(), "it orders the versions of a key"),
    )
    for option, name, kind, why in wanted if settings.key else ():
        if name is None or any(field.name == name for field in fields):
            continue
        alike = [field.name for field in fields if field.name.casefold() == name.casefold()]
        if alike:
            raise ConfigInvalid(f"{settings.identifier} has no column {name!r}", hint=f"Did you mean {alike[0]}?")
        fields.append(NestedField(max(schema.field_ids) + 1 + len(notes), name, kind, required=False))
        notes.append(f"column {name!r} ({kind}) is added as the {option}: {why}, and writers fill it.")
    return Schema(*fields, schema_id=schema.schema_id, identifier_field_ids=schema.identifier_field_ids), notes


def asks_for_keys(settings: Table) -> bool:
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
        hint = _KEY_HINT
        if name in (settings.op_column, settings.order_column):
            kind = "STRING" if name == settings.op_column else "BIGINT"
            hint = f"Add it first, in Spark: ALTER TABLE {settings.identifier} ADD COLUMN {name} {kind}. {_KEY_HINT}"
        raise ConfigInvalid(f"{settings.identifier} has no column {name!r}", hint=hint) from exc


def make_keyed(table: IcebergTable, settings: Table) -> bool:
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
