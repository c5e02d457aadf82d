"""
Recover-catalog: registers the newest metadata file of a table again, after the catalog or its entry was lost.

1. A metadata file must know the last commit in marks.json, because the table must not go back.
2. Every metadata file names those before it, so a file that another one names is not the newest.
3. Two files that do not name each other and have different histories are left to a person: one of them was committed,
   the other is an attempt that was refused.
"""

import re
import zlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import TypeVar

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NamespaceAlreadyExistsError, ValidationError
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil
from pyiceberg.typedef import Identifier

from bookkeeper.catalogs import commit as catalogs
from bookkeeper.catalogs.answers import is_passing
from bookkeeper.catalogs.statistics_kinds import with_any_statistics
from bookkeeper.config.settings import Table as Settings
from bookkeeper.contract import marks as marks_format
from bookkeeper.contract import marks_json
from bookkeeper.contract.card import Card
from bookkeeper.contract.known_table import KnownTable
from bookkeeper.contract.marks import Marks
from bookkeeper.contract.marks_json import MarksCopy
from bookkeeper.errors import BookkeeperError, MarksLost, Missing, NotPossible, TableMissing, WrongFolder
from bookkeeper.history import main_history as history
from bookkeeper.stores.local_roots import of_table
from bookkeeper.stores.locations import join, normal
from bookkeeper.stores.store import Listed, Store

T = TypeVar("T")
OpenStore = Callable[[str], Store]
SUFFIX = ".metadata.json"
#: of a metadata file; catalogs and readers refuse smaller ones
MOST_BYTES = 2**25
_VERSION = re.compile(r"v?(\d{1,18})\D")


@dataclass(frozen=True, slots=True)
class MetadataFile:
    """A metadata file of this table that knows the last commit in marks.json."""

    location: str
    metadata: TableMetadata
    marks: Marks
    version: int
    modified: datetime

    @property
    def name(self) -> str:
        """Its name in the metadata directory."""
        return self.location.rpartition("/")[2]

    @property
    def age(self) -> tuple[int, int, int]:
        """Orders metadata files of a table: by last sequence number, then time, then the number in the name."""
        return _sequence(self.metadata), self.metadata.last_updated_ms, self.version


@dataclass(frozen=True, slots=True)
class Recovery:
    """What would be registered: the newest metadata file, what confirms it, and what the catalog names instead."""

    newest: MetadataFile
    copy: MarksCopy | None
    there: Table | None
    #: files that were passed over, and why
    passed: Mapping[str, str]
    #: False when the catalog names the newest one already
    needed: bool = True


def recoverable(
    known: KnownTable,
    settings: Settings,
    catalog: Catalog | None,
    open_store: OpenStore,
    wanted: str | None = None,
) -> Recovery:
    """
    What can be registered for this table; reads only. `catalog` is None when there is none yet; `wanted` is the
    metadata file to take: its name, or its location.

    Raises NotPossible when no file is as new as marks.json, another table has the name, or this one has another; Retry.
    """
    card = known.card
    if card.table != settings.identifier:
        raise WrongFolder(f"{known.folder.store.url} belongs to {card.table}, not to {settings.identifier}")
    copy = known.folder.marks()
    copy = copy if copy is not None and copy.table_uuid == card.table_uuid else None
    there = _there(catalog, settings.identifier)
    place, wanted = _place(card, there, wanted)
    store = of_table(open_store(place), card.location)
    passed = dict[str, str]()
    fitting = _fitting(store, known, copy, wanted, passed)
    newest = _newest(fitting, place, copy, passed)
    needed = there is None or _is_older(there, newest)
    if needed and catalog is not None:
        check_not_renamed(catalog, settings.identifier, card.table_uuid)
    return Recovery(newest, copy, there, passed, needed)


def _place(card: Card, there: Table | None, wanted: str | None) -> tuple[str, str | None]:
    """The folder of the table's metadata files, and the name of the wanted one."""
    folder, _, name = (wanted or "").rpartition("/")
    if folder:
        return folder, name
    if there is not None and str(there.metadata.table_uuid) == card.table_uuid:  # it may have write.metadata.path
        return there.metadata_location.rpartition("/")[0], wanted
    return join(card.location, "metadata"), wanted


def _fitting(
    store: Store, known: KnownTable, copy: MarksCopy | None, wanted: str | None, passed: dict[str, str]
) -> list[MetadataFile]:
    """
    The files of this table that know the last commit in marks.json, and could be the newest.

    The content decides. A file is left unread only when both its number and its time are before those of a file that
    fits.
    """
    listed = [item for item in store.list("") if item.key.endswith(SUFFIX) and "/" not in item.key]
    if wanted is not None:
        listed = [item for item in listed if item.key == wanted]
    fitting = list[MetadataFile]()
    for item in sorted(listed, key=lambda item: (_version(item.key), item.modified), reverse=True):
        if any(_version(item.key) < other.version and item.modified < other.modified for other in fitting):
            continue
        try:
            fitting.append(_read(store, item, known, copy))
        except (NotPossible, Missing) as error:
            passed[item.key] = str(error)
    return fitting


def _read(store: Store, item: Listed, known: KnownTable, copy: MarksCopy | None) -> MetadataFile:
    """The file, if it fits; raises NotPossible, which says why it does not."""
    if item.size > MOST_BYTES:
        raise NotPossible(f"{item.size} bytes, more than {MOST_BYTES}")
    metadata, card = _parsed(store.read(item.key), item.key), known.card
    if str(metadata.table_uuid) != card.table_uuid:
        raise NotPossible(f"of table {metadata.table_uuid}")
    if normal(metadata.location) != normal(card.location):
        raise NotPossible(f"of a table at {metadata.location}")
    try:
        marks = marks_json.loads(metadata.properties.get(marks_format.PROPERTY, ""))
    except MarksLost as exc:
        raise NotPossible(str(exc)) from exc
    if marks.folder != card.folder:
        raise NotPossible(f"its txlogs are in the folder {marks.folder}")
    if not _knows(metadata, marks, copy):
        raise NotPossible(f"older than marks.json: its sequence number is {_sequence(metadata)}")
    return MetadataFile(f"{store.url}/{item.key}", metadata, marks, _version(item.key), item.modified)


def _parsed(data: bytes, name: str) -> TableMetadata:
    try:
        if name.endswith(f".gz{SUFFIX}"):
            unpacker = zlib.decompressobj(wbits=31)
            data = unpacker.decompress(data, MOST_BYTES)
            if unpacker.unconsumed_tail:
                raise NotPossible(f"more than {MOST_BYTES} bytes when unpacked")
        text = data.decode()
        metadata = with_any_statistics(lambda: TableMetadataUtil.parse_raw(text))
    except (ValueError, ValidationError, RecursionError, zlib.error) as exc:
        raise NotPossible(f"not readable: {type(exc).__name__}") from exc
    if metadata.format_version != 2:
        raise NotPossible(f"format version {metadata.format_version}")
    return metadata


def _knows(metadata: TableMetadata, marks: Marks, copy: MarksCopy | None) -> bool:
    """Whether the last commit in marks.json is in this table."""
    last = copy.marks.snapshot if copy is not None else None
    if last is None or marks.snapshot == last:
        return True
    return not history.is_older(metadata, marks.snapshot, copy) and last in _ancestors(metadata)


def _ancestors(metadata: TableMetadata) -> set[int]:
    return {snapshot.snapshot_id for snapshot in history.ancestors(metadata)}


def _newest(fitting: list[MetadataFile], place: str, copy: MarksCopy | None, passed: Mapping[str, str]) -> MetadataFile:
    """The newest file; raises NotPossible when there is none, or when two could be the newest."""
    if not fitting:
        raise _none_fits(place, copy, passed)
    bases = {entry.metadata_file.rpartition("/")[2] for file in fitting for entry in file.metadata.metadata_log}
    last = [file for file in fitting if file.name not in bases] or fitting
    newest = max(last, key=lambda file: file.age)
    line = _ancestors(newest.metadata)
    others = [file.name for file in last if file.metadata.current_snapshot_id not in (None, *line)]
    if others:
        raise NotPossible(
            f"{newest.name} and {', '.join(others)} follow the last commit in marks.json, and not each "
            "other: one was committed, the rest are attempts that were refused",
            hint="Compare their rows, or find the other program that commits here; then name one: --metadata FILE.",
        )
    return newest


def _none_fits(place: str, copy: MarksCopy | None, passed: Mapping[str, str]) -> NotPossible:
    shown = "".join(f"\n  {name}: {why}" for name, why in list(passed.items())[:5])
    more = f"\n  and {len(passed) - 5} more" if len(passed) > 5 else ""
    wanted = (
        f"the last commit in marks.json is snapshot {copy.marks.snapshot}, sequence number {copy.sequence_number}"
        if copy
        else "there is no marks.json"
    )
    return NotPossible(
        f"no metadata file in {place} will do; {wanted}{shown}{more}",
        hint="If the table has write.metadata.path, name its newest file there: --metadata URL. Else look for later "
        "ones in a backup or in the bucket's versions, put them there, and try again: with an older one rows that were "
        "committed would be lost.",
    )


def _there(catalog: Catalog | None, identifier: str) -> Table | None:
    try:
        return None if catalog is None else catalogs.load_table(catalog, identifier)
    except TableMissing:
        return None


def check_not_renamed(catalog: Catalog, identifier: str, uuid: str) -> None:
    """
    Raises NotPossible where the catalog has the table with this uuid under another name, of those that it lists and
    can load: two names would lead to two histories, each of which deletes files of the other. CatalogUnavailable where
    it was busy or did not answer, for then any table may be that one.
    """
    for name in _names(catalog, identifier):
        there = _unless_broken(partial(catalogs.load_table, catalog, name))
        if there is not None and name != identifier and str(there.metadata.table_uuid) == uuid:
            raise NotPossible(
                f"the catalog has this table, {uuid}, as {name}",
                hint=f'Was it renamed? Write identifier = "{name}" in its section, or rename it back.',
            )


def _names(catalog: Catalog, identifier: str) -> list[str]:
    """The tables in the namespace of this one and in those that the catalog lists."""
    own = tuple(Catalog.namespace_from(identifier))
    namespaces = {own, *map(tuple, _listed(catalog.list_namespaces))}
    tables = (name for space in sorted(namespaces) for name in _listed(partial(catalog.list_tables, space)))
    return [".".join(name) for name in tables]


def _listed(act: Callable[[], list[Identifier]]) -> list[Identifier]:
    def listed() -> list[Identifier]:
        with catalogs.asked("look for the table under another name"):
            return act()

    return _unless_broken(listed) or []


def _unless_broken(act: Callable[[], T]) -> T | None:
    """
    What the catalog answers; None where something is wrong with what was asked for, or it is not allowed: another
    table, or namespace, keeps none from being recovered.
    """
    try:
        return act()
    except BookkeeperError as error:
        if is_passing(error):
            raise
        return None


def _is_older(there: Table, newest: MetadataFile) -> bool:
    """Whether the catalog names a base of `newest` now; raises NotPossible when it names a table with other rows."""
    name, now = there.metadata_location.rpartition("/")[2], there.metadata
    if str(now.table_uuid) != str(newest.metadata.table_uuid):
        if now.snapshots:
            raise NotPossible(
                f"the catalog has another table under this name, {now.table_uuid}, with {len(now.snapshots)} snapshots",
                hint="If it is not needed, drop it without its files (never PURGE: they may lie in one directory), and "
                "run this again.",
            )
        return True
    bases = {entry.metadata_file.rpartition("/")[2] for entry in newest.metadata.metadata_log}
    return name in bases or _sequence(now) < _sequence(newest.metadata)


def recover(catalog: Catalog, settings: Settings, recovery: Recovery) -> Table:
    """
    Registers the newest metadata file, or makes the older entry of the catalog name it.

    A crash leaves the namespace without the table, or the table registered; the same command goes on. Raises
    NotPossible, Retry.
    """
    location, identifier = recovery.newest.location, settings.identifier
    with catalogs.asked(f"register table {identifier}"):
        if recovery.there is None:
            with suppress(NamespaceAlreadyExistsError):
                catalog.create_namespace(identifier.rpartition(".")[0])
            catalog.register_table(identifier, location)
        elif (repoint := getattr(catalog, "repoint", None)) is not None:
            repoint(recovery.there, location)
        else:
            raise NotPossible(
                f"this catalog cannot let {identifier} name another metadata file",
                hint="Drop its entry without its files (never PURGE), then run this again.",
            )
    return catalogs.load_table(catalog, identifier)


def _sequence(metadata: TableMetadata) -> int:
    return int(getattr(metadata, "last_sequence_number", 0))


def _version(name: str) -> int:
    found = _VERSION.match(name)
    return int(found[1]) if found else -1
