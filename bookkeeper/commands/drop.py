"""
Drops a table: its entry in the catalog, then its txlog folder. Data and metadata files stay where they are.

In this order: the entry; what is in the folder; marks.json; card.json. A crash behind the entry leaves a folder that
knows a table which the catalog does not: `init` refuses to make another one there, `recover-catalog` registers it
again while marks.json is there, and dropping again deletes what is left, card.json last. A txlog that turned up while
the entry was dropped stops it there.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError
from pyiceberg.table import Table as IcebergTable

from bookkeeper.catalogs.commit import asked
from bookkeeper.catalogs.handed_out import stores_of
from bookkeeper.commands.recover_catalog import check_not_renamed
from bookkeeper.config.settings import Table
from bookkeeper.contract.known_table import known_table
from bookkeeper.contract.txlog_folder import CARD, MARKS, PENDING, REJECTED, SUFFIX, Folder, folder_url
from bookkeeper.errors import Missing, NotPossible, WrongFolder
from bookkeeper.history.main_history import stated
from bookkeeper.stores.store import Store

_LAST = (MARKS, CARD)


@dataclass(frozen=True)
class Droppable:
    """A table before it is dropped; `entry` is None where only its folder is left, `folder` where there is none."""

    table: Table
    entry: IcebergTable | None
    folder: Folder | None
    #: the keys in the folder
    keys: tuple[str, ...]

    @property
    def rows(self) -> int:
        """How many rows are live, as the current snapshot says."""
        head = self.entry.current_snapshot() if self.entry else None
        if head is None or head.summary is None:
            return 0
        rows = stated(head, "total-records")
        return 1 if rows is None else rows  # not every engine keeps the total: then there may be rows

    def count(self, place: str) -> int:
        """How many txlogs, or records of consumers, are in a part of the folder."""
        suffix = SUFFIX if place in (PENDING, REJECTED) else ".json"
        return sum(key.startswith(place) and key.endswith(suffix) for key in self.keys)

    @property
    def against(self) -> list[str]:
        """The rows, txlogs and consumers that would be lost with the table."""
        txlogs = {"pending txlogs": self.count(PENDING), "rejected txlogs": self.count(REJECTED)}
        counts = {"live rows": self.rows, **txlogs, "registered consumers": self.count("consumers/")}
        found = [f"{count} {what}" for what, count in counts.items() if count]
        if self.entry is not None and self.folder is None:
            found.append("no txlog folder, so another program may have made it")
        return found


def droppable(catalog: Catalog, table: Table, open_store: Callable[[str], Store] | None = None) -> Droppable:
    """
    The table's entry and folder, as far as they exist.

    Raises NotPossible where there is nothing, or the table was renamed; WrongFolder where the folder is another
    table's; CatalogUnavailable and StorageUnavailable.
    """
    store = open_store or stores_of(catalog, table.identifier)
    with asked(f"look for table {table.identifier}"):
        try:
            entry = catalog.load_table(table.identifier)
        except (NoSuchTableError, NoSuchNamespaceError):
            entry = None
    if entry is None:
        known = known_table(catalog.properties, table, open_store)
        if known is None:
            raise NotPossible(
                f"there is no table {table.identifier}, and no txlog folder knows it",
                hint="If its txlog folder is elsewhere, say `location` or `folder` in its section.",
            )
        if known.card.table != table.identifier:
            raise WrongFolder(f"{known.folder.store.url} belongs to {known.card.table}")
        check_not_renamed(catalog, table.identifier, known.card.table_uuid)
        return Droppable(table, None, known.folder, _keys(known.folder))
    folder = Folder(store(folder_url(table, entry.metadata.location)))
    try:
        card = folder.card()
    except Missing:
        return Droppable(table, entry, None, ())
    if card.table_uuid != str(entry.metadata.table_uuid):
        raise WrongFolder(f"{folder.store.url} belongs to {card.table} with uuid {card.table_uuid}")
    return Droppable(table, entry, folder, _keys(folder))


def _keys(folder: Folder) -> tuple[str, ...]:
    return tuple(item.key for item in folder.store.list(""))


def drop(catalog: Catalog, found: Droppable, force: bool = False) -> None:
    """
    Drops the table as it was found; with `force` rows, txlogs and consumers do not keep it.

    Raises NotPossible, CatalogUnavailable and StorageUnavailable; dropping it again does the rest.
    """
    if found.against and not force:
        raise NotPossible(
            f"{found.table.identifier} is kept: {', '.join(found.against)}",
            hint="`bookkeeper pending` and `bookkeeper rejected` show txlogs, `bookkeeper consumers` readers. To drop "
            "it with all of that: --force.",
        )
    if found.entry is not None:
        _check_unchanged(catalog, found)
        # No such table: an earlier answer was lost, or another drop was first.
        with asked(f"drop table {found.table.identifier}"), suppress(NoSuchTableError):
            catalog.drop_table(found.table.identifier)
    if found.folder is None:
        return
    keys = _keys(found.folder)
    new = [key for key in keys if key.startswith(PENDING) and key.endswith(SUFFIX) and key not in found.keys]
    if new and not force:
        raise NotPossible(
            f"{len(new)} txlogs were published while {found.table.identifier} was dropped, the first is "
            f"{new[0].removeprefix(PENDING)}; its entry in the catalog is gone, its txlog folder is kept",
            hint=f"End its writers. `bookkeeper recover-catalog --table {found.table.name}` registers it again, "
            "--force deletes the folder.",
        )
    found.folder.store.delete_many([key for key in keys if key not in _LAST])
    for last in _LAST:
        found.folder.store.delete_many([last])


def _check_unchanged(catalog: Catalog, found: Droppable) -> None:
    assert found.entry is not None
    with asked(f"look for table {found.table.identifier}"):
        now = catalog.load_table(found.table.identifier).metadata
    before = found.entry.metadata
    if (now.table_uuid, now.current_snapshot_id) != (before.table_uuid, before.current_snapshot_id):
        raise NotPossible(f"{found.table.identifier} has changed meanwhile", hint="Look again, then run it again.")
