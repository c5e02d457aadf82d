"""
What the txlog folder knows of a table that the catalog does not have: it is lost, and must not be created again.

The folder is looked for where the configuration says, without the catalog. A new table of that name would hide rows
that still exist. So a hint advises `init` only where no folder knows the table.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from bookkeeper.catalogs.open import STORAGE
from bookkeeper.config.settings import Catalog, Table
from bookkeeper.contract.card import Card
from bookkeeper.contract.txlog_folder import Folder, Found, folder_url
from bookkeeper.errors import (
    BookkeeperError,
    CatalogMissing,
    ConfigInvalid,
    Missing,
    NotPossible,
    StorageUnavailable,
    TableMissing,
    WrongFolder,
)
from bookkeeper.stores.locations import join, local_path
from bookkeeper.stores.open import names_keys, stores_with
from bookkeeper.stores.store import Store

_NO_KEYS = (
    "A catalog hands out keys of a table only once it is there. For `init` name keys of the bucket in [catalog], such "
    'as "s3.bucket.NAME.access-key-id"; or give the table a `folder` whose bucket has keys. Where the catalog knows '
    "the warehouse by a name, that name in `warehouse` does, too: then nothing is looked for before the table is made."
)


@dataclass(frozen=True, slots=True)
class KnownTable:
    """A table as its txlog folder knows it."""

    folder: Folder
    card: Card


def known_table(
    properties: Mapping[str, str], table: Table, open_store: Callable[[str], Store] | None = None
) -> KnownTable | None:
    """
    What the card in the table's folder says; None when there is no folder, or no card in it.

    `properties` are the catalog's. Raises StorageUnavailable, and WrongFolder for a card that is not readable.
    """
    folder = _folder(properties, table, open_store)
    try:
        return None if folder is None else KnownTable(folder, folder.card())
    except Missing:
        return None


def _folder(
    properties: Mapping[str, str], table: Table, open_store: Callable[[str], Store] | None = None
) -> Folder | None:
    """The folder; None where its place is not known, or on a local disk no directory is there."""
    url = _folder_url(properties, table)
    path = local_path(url) if url and not url.startswith("memory:") else None
    if url is None or (path is not None and not os.path.isdir(path)):
        return None
    return Folder((open_store or stores_with(properties))(url))


def _folder_url(properties: Mapping[str, str], table: Table) -> str | None:
    """Where the configuration says, or below the location that a catalog gives a new table."""
    if table.location is not None:
        return folder_url(table, table.location)
    warehouse = properties.get("warehouse", "")
    if table.folder is not None or not (":" in warehouse or warehouse.startswith("/")):
        return table.folder
    namespace, _, name = table.identifier.rpartition(".")
    split = properties.get("py-catalog-impl") == STORAGE or properties.get("type") == "rest"
    levels = namespace.replace(".", "/") if split else namespace
    return folder_url(table, join(warehouse, levels, name))


@contextmanager
def advising(catalog: Catalog, table: Table) -> Iterator[None]:
    """
    Gives an error about a missing catalog or table the hint that fits what the folder knows.
    """
    try:
        yield
    except (CatalogMissing, TableMissing) as error:
        error.hint = _advice(catalog, table, error)
        raise


def _advice(catalog: Catalog, table: Table, error: BookkeeperError) -> str:
    try:
        known = known_table(catalog.properties, table)
    except WrongFolder as wrong:
        return f"A txlog folder is there, so do not make a new table: {wrong}. {type(error).hint}"
    except (BookkeeperError, ConfigInvalid):
        return type(error).hint  # unknown for now
    if known is not None:
        back = f"{CatalogMissing.hint.partition(' If ')[0]} " if isinstance(error, CatalogMissing) else ""
        return (
            f"{back}{known.folder.store.url} knows this table, its rows are there: "
            f"`bookkeeper recover-catalog --table {table.name}` shows what it would register again."
        )
    if isinstance(error, CatalogMissing):
        return "Is the disk mounted? For a new catalog: `bookkeeper init`."
    return "Was the table dropped? No txlog folder knows it: `bookkeeper init` makes a new one."


def pending_of(properties: Mapping[str, str], table: Table) -> list[Found] | None:
    """
    What is pending in the table's folder, found without the catalog; None when that is not possible.
    """
    try:
        folder = _folder(properties, table)
        return None if folder is None else folder.pending()
    except BookkeeperError:
        return None


def check_unknown(
    properties: Mapping[str, str], table: Table, open_store: Callable[[str], Store] | None = None
) -> None:
    """
    Raises NotPossible when a folder knows the table: then it must not be made anew; WrongFolder when it knows another;
    StorageUnavailable.
    """
    try:
        known = known_table(properties, table, open_store)
    except StorageUnavailable as exc:
        url = _folder_url(properties, table)
        if url is None or names_keys(url, properties):
            raise
        raise StorageUnavailable(
            f"whether {url} knows a lost table {table.identifier} cannot be read, and [catalog] names no keys for it: "
            f"{exc}",
            hint=_NO_KEYS,
        ) from exc
    if known is not None and known.card.table != table.identifier:
        raise WrongFolder(f"{known.folder.store.url} belongs to {known.card.table} with uuid {known.card.table_uuid}")
    if known is not None:
        raise NotPossible(
            f"{known.folder.store.url} knows {known.card.table} with uuid {known.card.table_uuid}, the catalog does "
            "not: a new table would take its place",
            hint=f"`bookkeeper recover-catalog --table {table.name}` registers it again. If that table is to be given "
            "up: move this folder away, then run init again.",
        )
    folder = _folder(properties, table, open_store)
    copy = folder.marks() if folder is not None else None
    if folder is not None and copy is not None:
        raise NotPossible(
            f"{folder.store.url} has marks.json of table {copy.table_uuid}, which the catalog does not know, and no "
            "card.json: a new table would take its place",
            hint="Put card.json back from a copy, then run `bookkeeper recover-catalog`. If that table is to be given "
            "up: move this folder away, then run init again.",
        )
