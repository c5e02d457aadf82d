"""
`init`: namespace, table, folder, card and marks, made or adopted; every step is safe to repeat.

A crash leaves a prefix of the steps done; running it again does the rest. Of an existing table only our own
properties are touched, and where keys are asked for its identifier fields; a spec for deletes may be added.
"""

import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import (
    NamespaceAlreadyExistsError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.update import AssertRefSnapshotId, AssertTableUUID, SetPropertiesUpdate
from pyiceberg.types import DateType, TimestampType, TimestamptzType

from bookkeeper.catalogs import commit as catalogs
from bookkeeper.catalogs.handed_out import stores_of
from bookkeeper.commands.columns import DEFAULT_SCHEMA, schema_for, schema_of
from bookkeeper.commands.init_keys import asks_for_keys, make_keyed, with_keys
from bookkeeper.commands.partitions import partition_spec, partition_text
from bookkeeper.config import compaction
from bookkeeper.config.expiry import rules
from bookkeeper.config.maintained import is_by_catalog, refuse_keys
from bookkeeper.config.settings import Table
from bookkeeper.config.units import format_duration, from_epoch_ms
from bookkeeper.contract import card as cards
from bookkeeper.contract import marks as marks_format
from bookkeeper.contract import marks_json
from bookkeeper.contract.card import Card
from bookkeeper.contract.file_names import LOOSE, STRICT
from bookkeeper.contract.keyed import PROPERTY as KEYED
from bookkeeper.contract.known_table import check_unknown
from bookkeeper.contract.marks import Marks
from bookkeeper.contract.txlog_folder import Folder, folder_url, usual_url
from bookkeeper.errors import (
    AlreadyExists,
    CommitConflict,
    CommitUnknown,
    ConfigInvalid,
    Missing,
    NotPossible,
    StorageUnavailable,
    TableUnusable,
    WrongFolder,
)
from bookkeeper.history.main_history import MAIN, is_ours
from bookkeeper.ledger.view import View
from bookkeeper.stores.store import Store
from bookkeeper.tick.card import card_of

__all__ = ["DEFAULT_SCHEMA", "Initialised", "initialise", "partition_spec", "partition_text", "schema_for", "schema_of"]


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
    fitting: tuple[str, str] | None = None,
) -> Initialised:
    """
    Makes the table a queue; a new one is partitioned by `partition`, None: as the settings say or what fits.

    `fitting` is what fits, as `Inferred` has it: a partition and why, both empty for none.

    Raises CatalogUnavailable, StorageUnavailable, TableUnusable (v1, v3), WrongFolder, ConfigInvalid, and NotPossible
    when the table is there with other partitions than `partition`, or the catalog has no such table but a txlog folder
    has.
    """
    made: list[str] = []
    notes: list[str] = []
    table = _table(catalog, settings, schema, partition, fitting, made, notes, store)
    if asks_for_keys(settings) or KEYED in table.metadata.properties:
        refuse_keys(settings)
    if asks_for_keys(settings) and make_keyed(table, settings):
        made.append("keys")
        table = catalogs.load_table(catalog, settings.identifier)
    url, stores = folder_url(settings, table.metadata.location), store or stores_of(catalog, settings.identifier)
    folder, view = Folder(stores(url), makes=True), View(table, Marks(""))
    had_folder = marks_format.PROPERTY in table.metadata.properties
    if had_folder and settings.folder is not None:
        _check_only(folder, Folder(stores(usual_url(table.metadata.location))), view)
    card = _card(folder, view, settings, made)
    if had_folder and "folder" in made:
        notes.append(
            f"the table had a txlog folder before, and {url} was made anew. Is that one elsewhere? Remove this one, "
            "and let `folder` say where: nothing commits what is pending there, and the reaper deletes its data files."
        )
    if not had_folder and _set_marks(table, card.folder):
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
    fitting: tuple[str, str] | None,
    made: list[str],
    notes: list[str],
    store: Callable[[str], Store] | None,
) -> IcebergTable:
    with catalogs.asked(f"look for table {settings.identifier}"):
        there = _exists(catalog, settings.identifier)
    if not there:
        check_unknown(catalog.properties, settings, store)
        schema = with_keys(schema, settings)
        spec = spec_of_new(settings, schema, partition, notes, fitting)
        with catalogs.asked(f"create table {settings.identifier}"):
            _create(catalog, settings, schema, spec, made)
    table = catalogs.load_table(catalog, settings.identifier)
    if "table" not in made:
        _compare_partitions(table, settings, partition, notes)
    return table


def spec_of_new(
    settings: Table,
    schema: Schema,
    partition: Sequence[str] | None,
    notes: list[str],
    fitting: tuple[str, str] | None = None,
) -> PartitionSpec:
    """
    How a new table is partitioned: usually by the day of `timestamp`, else of the first column with a time.

    Adds to `notes` what was chosen and why. Raises ConfigInvalid.
    """
    wanted = settings.partition_by if partition is None else partition
    usual = partition is None and tuple(wanted) == Table().partition_by
    if not usual or (fitting is None and "timestamp" in _with_a_day(schema)):
        return partition_spec(wanted, schema)
    if fitting is None:
        fitting = next(((f"day({name})", "the first column with a time") for name in _with_a_day(schema)), ("", ""))
    by, why = fitting
    if by:
        notes.append(f"partitioned by {by}, {why}; --partition says otherwise.")
        return partition_spec((by,), schema)
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
    """What the reaper will expire, said before it does: its defaults keep less than Iceberg's."""
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
        compaction.PROPERTY: compaction.OFF if is_by_catalog(settings) else compaction.OWN,
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


def _check_only(folder: Folder, usual: Folder, view: View) -> None:
    """
    Raises NotPossible where the folder would be made beside the `usual` one of this table: nothing would commit what is
    pending there, and its data files would be swept.
    """
    with suppress(WrongFolder):
        if _card_in(folder) is None and (card := _card_in(usual)) is not None and card.table_uuid == view.uuid:
            raise NotPossible(
                f"{usual.store.url} is the txlog folder of {card.table}, and `folder` says another place",
                hint="End the writers, and move the folder there with all that is in it; or leave `folder` out.",
            )


def _card_in(folder: Folder) -> Card | None:
    """None where there is none, or no folder."""
    try:
        return folder.card()
    except (Missing, StorageUnavailable):
        return None


def _card(folder: Folder, view: View, settings: Table, made: list[str]) -> Card:
    """The folder's card; of several that create it at once, one decides the folder's id for all."""
    text = view.metadata.properties.get(marks_format.PROPERTY)
    known = marks_json.loads(text).folder if text is not None else None
    # Writers of a folder that was lost may still use the names of before.
    card = card_of(view, settings, known or str(uuid.uuid4()), LOOSE if known else STRICT)
    try:
        folder.store.create("card.json", cards.dumps(card))
        made.append("folder")
    except AlreadyExists:
        card = folder.card()
    if card.table_uuid != view.uuid or known not in (None, card.folder):
        raise WrongFolder(f"{folder.store.url} belongs to table {card.table_uuid}, folder id {card.folder}")
    folder.write_card(card_of(view, settings, card.folder, card.file_names))
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
    empty = marks_json.dumps(Marks(folder))
    try:
        catalogs.commit(table, guards, (SetPropertiesUpdate(updates={marks_format.PROPERTY: empty}),))
    except (CommitConflict, CommitUnknown):
        now = catalogs.load_table(table.catalog, ".".join(table.name()))
        if marks_format.PROPERTY not in now.metadata.properties:
            raise
        return False
    return True
