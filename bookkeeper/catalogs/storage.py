"""
A catalog on storage alone: no server, no database, no lock.

    [catalog]
    py-catalog-impl = "bookkeeper.catalogs.storage.StorageCatalog"
    warehouse = "s3://bucket/warehouse"

A commit is one exclusive create (versions.py). `<warehouse>/_catalog/` has one object for each table; a table that is
created again gets a new directory. Only this catalog may commit to its tables: Java's Hadoop catalog reads them, but
its commit renames over an existing version, and loses commits.

`write.metadata.compression-codec` changes nothing here. Two commits race for the name of a version, and readers know a
gzip file by another name: both could succeed.
"""

import json
import logging
import uuid
from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pyiceberg.catalog import MetastoreCatalog, PropertiesUpdateSummary
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NamespaceNotEmptyError,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.metadata import TableMetadata, new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortOrder
from pyiceberg.typedef import EMPTY_DICT, Identifier, Properties

from bookkeeper.catalogs.metadata_json import CODEC, MetadataJson, remember, wants_gzip
from bookkeeper.catalogs.prepared import CommitsInTwoParts, PreparedCommit
from bookkeeper.catalogs.versions import Version, Versions, name, number
from bookkeeper.errors import AlreadyExists, Changed, Missing
from bookkeeper.format import json_text
from bookkeeper.stores.local_roots import of_table
from bookkeeper.stores.locations import inside, join
from bookkeeper.stores.open import stores_with
from bookkeeper.stores.store import Store, key_in

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]

log = logging.getLogger(__name__)

#: of so many looks at an unchanged table one asks where the table's directory is; of the bookkeeper, one a minute
ENTRY_EVERY = 6
_INDEX = "_catalog"
_NAMESPACE = "_namespace.json"
_TABLE = ".table.json"


class StorageCatalog(CommitsInTwoParts, MetastoreCatalog):
    """Tables below `warehouse`; `open_store` overrides how it is reached (tests)."""

    def __init__(self, name: str, open_store: Callable[[str], Store] | None = None, **properties: str) -> None:
        super().__init__(name, **properties)
        self.warehouse = properties["warehouse"].rstrip("/")
        self.open_store = open_store or stores_with(properties)
        self._json = MetadataJson()
        self._hints: dict[str, tuple[int, str]] = {}
        #: by identifier: the table's directory and its newest version, as last read or written; a version never changes
        self._newest: OrderedDict[Identifier, tuple[str, Version]] = OrderedDict()
        #: by identifier: how often `load_for_commit` has looked
        self._loads = Counter[Identifier]()
        #: tables that ask for gzip, as far as that was logged
        self._plain: set[uuid.UUID] = set()

    def create_namespace(self, namespace: str | Identifier, properties: Properties = EMPTY_DICT) -> None:
        """Raises NamespaceAlreadyExistsError."""
        try:
            self._index.create(_key(namespace, _NAMESPACE), json.dumps(dict(properties)).encode())
        except AlreadyExists as exc:
            raise NamespaceAlreadyExistsError(f"namespace {_dotted(namespace)} is there already") from exc

    def drop_namespace(self, namespace: str | Identifier) -> None:
        """Raises NoSuchNamespaceError, NamespaceNotEmptyError."""
        self.load_namespace_properties(namespace)
        if self.list_tables(namespace) or self.list_namespaces(namespace):
            raise NamespaceNotEmptyError(f"namespace {_dotted(namespace)} is not empty")
        self._index.delete_many([_key(namespace, _NAMESPACE)])

    def list_namespaces(self, namespace: str | Identifier = ()) -> list[Identifier]:
        """Those right below."""
        above = self.identifier_to_tuple(namespace)
        found = [tuple(item.key.split("/")[1:-1]) for item in self._index.list(_INDEX) if item.key.endswith(_NAMESPACE)]
        return sorted(key for key in found if key[:-1] == above)

    def load_namespace_properties(self, namespace: str | Identifier) -> Properties:
        """Raises NoSuchNamespaceError."""
        try:
            found: Properties = json_text.loads(self._index.read(_key(namespace, _NAMESPACE)))
        except Missing as exc:
            raise NoSuchNamespaceError(f"there is no namespace {_dotted(namespace)}") from exc
        return found

    def update_namespace_properties(
        self, namespace: str | Identifier, removals: set[str] | None = None, updates: Properties = EMPTY_DICT
    ) -> PropertiesUpdateSummary:
        """Raises NoSuchNamespaceError; CommitFailedException when another process changes them too."""
        current = dict(self.load_namespace_properties(namespace))
        _, tag = self._index.read_tagged(_key(namespace, _NAMESPACE))
        summary, changed = self._get_updated_props_and_update_summary(current, removals, updates)
        try:
            self._index.replace(_key(namespace, _NAMESPACE), json.dumps(changed).encode(), if_match=tag)
        except Changed as exc:
            raise CommitFailedException(f"namespace {_dotted(namespace)} was changed meanwhile") from exc
        return summary

    def list_tables(self, namespace: str | Identifier) -> list[Identifier]:
        """Raises NoSuchNamespaceError."""
        self.load_namespace_properties(namespace)
        above = self.identifier_to_tuple(namespace)
        keys = [item.key for item in self._index.list("/".join((_INDEX, *above))) if item.key.endswith(_TABLE)]
        found = [tuple(key.removesuffix(_TABLE).split("/")[1:]) for key in keys]
        return sorted(table for table in found if table[:-1] == above and self.table_exists(table))

    def create_table(
        self,
        identifier: str | Identifier,
        schema: "Schema | pa.Schema",
        location: str | None = None,
        partition_spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC,
        sort_order: SortOrder = UNSORTED_SORT_ORDER,
        properties: Properties = EMPTY_DICT,
    ) -> Table:
        """
        Raises TableAlreadyExistsError, NoSuchNamespaceError.

        A crash leaves a directory with a first version that no name leads to; another try uses another directory.
        """
        namespace, table = self.namespace_from(identifier), self.table_name_from(identifier)
        version = int(properties.get("format-version", "2"))
        plain: Any = self._convert_schema_if_needed(schema, version)  # type: ignore[arg-type]
        known = self.load_namespace_properties(namespace)
        tag = self._free(identifier)
        wanted = location or join(known.get("location") or join(self.warehouse, *namespace), table)
        for place in (wanted, f"{wanted}-{uuid.uuid4().hex[:8]}"):
            metadata = new_table_metadata(plain, partition_spec, sort_order, place, properties)
            if self._versions(place).create(self._json.dump(metadata)):
                break
        else:
            raise CommitFailedException(f"{wanted} is used by others")
        self._enter(identifier, {"location": place, "uuid": str(metadata.table_uuid)}, tag)
        return self.load_table(identifier)

    def load_table(self, identifier: str | Identifier) -> Table:
        """
        The newest version, also for a reader that cannot move the hint to it.

        Raises NoSuchTableError.
        """
        return self._load(self.identifier_to_tuple(identifier), self._is_newest, named=False)

    def load_for_commit(self, identifier: str | Identifier) -> Table:
        """
        The table for a caller that changes it by commits alone: one small read while nothing has changed.

        1. A commit is over when the hint names it, and a load raises the hint to what it found; only `load_table` goes
           on where it cannot. So whatever another process that commits knows to be in the table is in what this
           returns. The hint of a dropped table says so.
        2. It may miss a version whose committer is about to raise the hint, or died before: nothing was published of it
           and no txlog deleted. A commit on top of what this returns is then refused, and the next load finds it.
        3. A name leads to another directory only after a drop, unless its entry was lost: it is looked at now and then.

        Raises NoSuchTableError.
        """
        return self._load(self.identifier_to_tuple(identifier), self._is_named, named=True)

    def _load(self, table: Identifier, is_current: Callable[[Identifier, str, int], bool], named: bool) -> Table:
        known = self._newest.get(table)
        if known is None or not is_current(table, known[0], known[1].number):
            stale = self._newest.pop(table, None)
            found = self._entry(table)[0].get("location")
            if found is None:
                raise NoSuchTableError(f"table {_dotted(table)} was dropped")
            newest = self._versions(str(found)).newest([stale[1].metadata] if stale else (), named)
            known = remember(self._newest, table, (str(found), newest))
        place, newest = known
        location = join(place, "metadata", name(newest.number))
        return Table(table, newest.metadata, location, self._load_file_io(newest.metadata.properties, location), self)

    def _is_named(self, table: Identifier, place: str, version: int) -> bool:
        """Whether the hint names this version; every ENTRY_EVERY-th time whether it is the newest."""
        self._loads[table] += 1
        if self._loads[table] % ENTRY_EVERY == 0:
            return self._is_newest(table, place, version)
        versions = self._versions(place)
        return versions.store.read_many([versions.hint_key])[versions.hint_key] == b"%d" % version

    def _is_newest(self, table: Identifier, place: str, version: int) -> bool:
        """
        Whether this is still the table's directory, and this its newest version; in one round trip.

        At the moment when the next version is not there this one is the newest: the hint names it, so no later one was
        deleted, and each version is created on top of the one before. Any other answer says nothing.
        """
        versions, entry = self._versions(place), _key(table, _TABLE)
        if versions.store.url != self._index.url:
            return False
        asked = (entry, versions.hint_key, versions.key(version + 1))
        there, hint, after = map(self._index.read_many(asked).get, asked)
        if not isinstance(there, bytes) or hint != b"%d" % version or not isinstance(after, Missing):
            return False
        return bool(json_text.loads(there).get("location") == place)

    def register_table(self, identifier: str | Identifier, metadata_location: str, overwrite: bool = False) -> Table:
        """Registers again a table that this catalog made and that lost its name, at its newest version."""
        if overwrite:
            raise NotImplementedError("a table that is there is not overwritten")
        number(metadata_location)
        self.load_namespace_properties(self.namespace_from(identifier))
        place = metadata_location.rpartition("/")[0].removesuffix("/metadata")
        found = self._versions(place).newest().metadata
        self._enter(identifier, {"location": place, "uuid": str(found.table_uuid)}, self._free(identifier))
        return self.load_table(identifier)

    def drop_table(self, identifier: str | Identifier) -> None:
        """Raises NoSuchTableError. Its files stay; nothing is ever committed there again."""
        entry, tag = self._entry(identifier)
        if "location" not in entry:
            raise NoSuchTableError(f"table {_dotted(identifier)} was dropped")
        self._versions(entry["location"]).drop()
        try:
            self._index.replace(_key(identifier, _TABLE), json.dumps({"was": entry}).encode(), if_match=tag)
        except Changed:
            return  # it was created anew already

    def _prepared(self, table: Table, metadata: TableMetadata) -> PreparedCommit:
        """There is nothing to write beforehand: the metadata file is the commit."""
        version = number(table.metadata_location) + 1
        place, _, _ = table.metadata_location.rpartition("/metadata/")
        self._warn_of_gzip(table, metadata)
        data = self._json.dump(metadata)

        def swap() -> CommitTableResponse:
            self._newest.pop(table.name(), None)
            self._versions(place).commit(version, data)
            remember(self._newest, table.name(), (place, Version(version, metadata)))
            return CommitTableResponse(metadata=metadata, metadata_location=join(place, "metadata", name(version)))

        return PreparedCommit((), swap)

    def _warn_of_gzip(self, table: Table, metadata: TableMetadata) -> None:
        if wants_gzip(metadata) and metadata.table_uuid not in self._plain:
            self._plain.add(metadata.table_uuid)
            facts = {"action": "codec", "table": _dotted(table.name()), "property": CODEC}
            log.warning("metadata files of this catalog are never gzip", extra=facts)

    def rename_table(self, from_identifier: str | Identifier, to_identifier: str | Identifier) -> Table:
        """Not possible: two objects cannot change at once."""
        raise NotImplementedError("a table of this catalog keeps its name")

    @property
    def _index(self) -> Store:
        return self.open_store(self.warehouse)

    def _versions(self, place: str) -> Versions:
        # Through the warehouse's store if possible: a directory that does not exist yet is then no missing disk.
        root = self.warehouse if inside(place, self.warehouse) else place.rpartition("/")[0]
        folder = join(place, "metadata")
        store = of_table(self.open_store(root), place, folder)
        return Versions(store, key_in(store, folder), self._hints)

    def _entry(self, identifier: str | Identifier) -> tuple[dict[str, Any], str]:
        try:
            data, tag = self._index.read_tagged(_key(identifier, _TABLE))
        except Missing as exc:
            raise NoSuchTableError(f"there is no table {_dotted(identifier)}") from exc
        return json_text.loads(data), tag

    def _free(self, identifier: str | Identifier) -> str:
        """The tag under which the name can be taken; raises TableAlreadyExistsError."""
        try:
            entry, tag = self._entry(identifier)
        except NoSuchTableError:
            return ""
        if "location" in entry and not self._versions(entry["location"]).is_dropped():
            raise TableAlreadyExistsError(f"table {_dotted(identifier)} is there already")
        return tag

    def _enter(self, identifier: str | Identifier, entry: dict[str, str], tag: str) -> None:
        data = json.dumps(entry).encode()
        try:
            self._index.replace(_key(identifier, _TABLE), data, if_match=tag)
        except Changed as exc:
            if self._index.read(_key(identifier, _TABLE)) != data:
                raise TableAlreadyExistsError(f"table {_dotted(identifier)} is there already") from exc

    def list_views(self, namespace: str | Identifier) -> list[Identifier]:
        """Views are not supported: there are none."""
        return []

    def view_exists(self, identifier: str | Identifier) -> bool:
        """Views are not supported: there are none."""
        return False

    def load_view(self, identifier: str | Identifier) -> Any:
        """Views are not supported: there are none."""
        raise NotImplementedError

    def register_view(self, identifier: str | Identifier, metadata_location: str) -> Any:
        """Views are not supported: there are none."""
        raise NotImplementedError

    def drop_view(self, identifier: str | Identifier) -> None:
        """Views are not supported: there are none."""
        raise NotImplementedError


def _dotted(identifier: str | Identifier) -> str:
    return identifier if isinstance(identifier, str) else ".".join(identifier)


def _key(identifier: str | Identifier, end: str) -> str:
    parts = tuple(identifier.split(".")) if isinstance(identifier, str) else identifier
    return "/".join((_INDEX, *parts, end)) if end == _NAMESPACE else "/".join((_INDEX, *parts)) + end
