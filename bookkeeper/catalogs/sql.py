"""
SQL catalogs whose commit costs the same however many snapshots are kept.

The same tables and the same `UPDATE ... WHERE metadata_location = old` as pyiceberg's SqlCatalog, so both, and
Spark's JdbcCatalog, work side by side. Stock `commit_table` loads, validates and deep-copies all snapshots: 105 ms
at 1,000 of them, 2.1 s at 17,280. Here the caller's metadata is the base (the UPDATE refuses it when it is stale),
a metadata file that this process wrote is not read and validated again, and every snapshot is serialized once
(metadata_json.py). What remains is writing the bytes of metadata.json.
"""

from collections import OrderedDict
from functools import partial
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import IcebergTables, SqlCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.io import load_file_io
from pyiceberg.serializers import Compressor
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.locations import load_location_provider
from pyiceberg.table.metadata import TableMetadata
from sqlalchemy import bindparam, update

from bookkeeper.catalogs.metadata_json import MetadataJson, named, parse, remember
from bookkeeper.catalogs.prepared import CommitsInTwoParts, PreparedCommit
from bookkeeper.stores.local_roots import of_table
from bookkeeper.stores.open import open_store
from bookkeeper.stores.store import create_once

_ROWS: Any = IcebergTables.__table__
#: made once, without the ORM: 1 ms instead of 3
_SWAP = (
    update(_ROWS)
    .where(
        _ROWS.c.catalog_name == bindparam("catalog"),
        _ROWS.c.table_namespace == bindparam("namespace"),
        _ROWS.c.table_name == bindparam("name"),
        _ROWS.c.metadata_location == bindparam("before"),
    )
    .values(metadata_location=bindparam("after"), previous_metadata_location=bindparam("before"))
)


class FlatSqlCatalog(CommitsInTwoParts, SqlCatalog):
    """SqlCatalog with a commit that does not grow with history, and metadata files that are durable on local disk."""

    def __init__(self, name: str, **properties: str) -> None:
        super().__init__(name, **properties)
        self._json = MetadataJson()
        #: by location; a metadata file never changes
        self._metadata: OrderedDict[str, TableMetadata] = OrderedDict()

    def _prepared(self, table: Table, metadata: TableMetadata) -> PreparedCommit:
        """The metadata file has a name of its own (a random UUID): it can be written before the UPDATE, or in vain."""
        version = self._parse_metadata_version(table.metadata_location) + 1
        provider = load_location_provider(metadata.location, metadata.properties)
        location = named(provider.new_table_metadata_file_location(version), metadata)
        folder, _, name = location.rpartition("/")
        store = of_table(open_store(folder, self.properties), metadata.location)
        data = self._json.encode(metadata, location)

        def swap() -> CommitTableResponse:
            self._swap(table, location)
            remember(self._metadata, location, metadata)
            return CommitTableResponse(metadata=metadata, metadata_location=location)

        return PreparedCommit((partial(create_once, store, name, data),), swap)

    def repoint(self, table: Table, location: str) -> None:
        """Makes the entry of `table` name the metadata file at `location`; raises CommitFailedException."""
        self._swap(table, location)

    def _convert_orm_to_iceberg(self, orm_table: IcebergTables) -> Table:
        """The table of a row of the catalog; its metadata is read only when this process has not read or written it."""
        location = orm_table.metadata_location or ""
        known = self._metadata.get(location)
        if known is None:
            known = remember(self._metadata, location, self._read(location))
        name = (*Catalog.identifier_to_tuple(orm_table.table_namespace), orm_table.table_name)
        return Table(name, known, location, self._load_file_io(known.properties, location), self)

    def _read(self, location: str) -> TableMetadata:
        """The metadata file, which is gzip where its name says so."""
        packed = Compressor.get_compressor(location)
        file = load_file_io(self.properties, location).new_input(location)
        with file.open() as source, packed.stream_decompressor(source) as text:
            return parse(text.read(), reversed(self._metadata.values()))

    def _swap(self, table: Table, location: str) -> None:
        identifier = table.name()
        namespace = Catalog.namespace_to_string(Catalog.namespace_from(identifier))
        name = Catalog.table_name_from(identifier)
        given = {"catalog": self.name, "namespace": namespace, "name": name}
        with self.engine.connect() as connection:
            changed = connection.execute(_SWAP, given | {"before": table.metadata_location, "after": location})
            if changed.rowcount < 1:
                raise CommitFailedException(f"Table has been updated by another process: {namespace}.{name}")
            try:
                connection.commit()
            except BaseException:
                # The transaction may be open: the next user of this connection would read what was never committed.
                connection.invalidate()
                raise
