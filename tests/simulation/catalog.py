"""
A catalog in memory that commits as REST servers do: the requirements are held against the table as it is when the
commit arrives, and the updates are applied to that. So only the guards of a commit keep it from a wrong head.
"""

import uuid
from collections.abc import Callable
from typing import Any

from pyiceberg.exceptions import CommitFailedException, NamespaceAlreadyExistsError, NoSuchTableError
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.metadata import TableMetadata, new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER

from bookkeeper.catalogs.metadata_json import MetadataJson, apply_updates
from tests.simulation.memory import Disk, MemoryFiles
from tests.simulation.schedule import COMMITS, READS, REFUSED, Call, Scheduler


class MemoryCatalog:
    """One table; `committed` is told of each change with the metadata before and after it."""

    name, properties = "simulated", dict[str, str]()

    def __init__(self, warehouse: str, disk: Disk, scheduler: Scheduler) -> None:
        self.warehouse, self.disk, self.scheduler = warehouse, disk, scheduler
        self.tables: dict[tuple[str, ...], tuple[TableMetadata, str]] = {}
        self.committed: Callable[[TableMetadata, TableMetadata], None] = lambda before, after: None
        self.io = MemoryFiles(disk, self._read)
        self.versions, self._json = 0, MetadataJson()

    def _read(self, verb: str, location: str, act: Callable[[], Any]) -> Any:
        return self.scheduler.call(Call(verb, location, READS), act, lambda why: OSError(f"{location}: {why}"))

    def create_namespace(self, namespace: Any, properties: Any = None) -> None:
        if self.tables:
            raise NamespaceAlreadyExistsError(namespace)

    def create_table(
        self,
        identifier: Any,
        schema: Any,
        location: str | None = None,
        partition_spec: Any = UNPARTITIONED_PARTITION_SPEC,
        sort_order: Any = UNSORTED_SORT_ORDER,
        properties: Any = None,
    ) -> Table:
        name = _tuple(identifier)
        place = location or "/".join((self.warehouse, *name))
        self._set(name, new_table_metadata(schema, partition_spec, sort_order, place, dict(properties or {})))
        return self.load_table(identifier)

    def table_exists(self, identifier: Any) -> bool:
        return _tuple(identifier) in self.tables

    def load_table(self, identifier: Any) -> Table:
        name = _tuple(identifier)

        def act() -> Table:
            if name not in self.tables:
                raise NoSuchTableError(f"there is no table {'.'.join(name)}")
            metadata, location = self.tables[name]
            return Table(name, metadata, location, self.io, self)  # type: ignore[arg-type]

        return self.scheduler.call(Call("load", "table", READS), act, OSError)

    def commit_table(self, table: Table, requirements: Any, updates: Any) -> CommitTableResponse:
        name = table.name()

        def act() -> CommitTableResponse:
            before, location = self.tables[name]
            for requirement in requirements:
                requirement.validate(before)
            after = apply_updates(before, updates, location)
            self.scheduler.counts["commits"] += 1
            made = self._set(name, after)
            self.committed(before, after)
            return CommitTableResponse(metadata=after, metadata_location=made)

        def error(why: str) -> Exception:
            return CommitFailedException("refused") if why == REFUSED else TimeoutError(why)

        return self.scheduler.call(Call("commit", "table", COMMITS), act, error)

    def _delete_old_metadata(self, *given: Any) -> None:
        """What pyiceberg calls after a commit; the reaper deletes them here."""

    def _set(self, name: tuple[str, ...], metadata: TableMetadata) -> str:
        self.versions += 1
        location = f"{metadata.location}/metadata/{self.versions:05d}-{uuid.uuid4()}.metadata.json"
        self.disk.put(location, self._json.dump(metadata))
        self.tables[name] = metadata, location
        return location


def _tuple(identifier: Any) -> tuple[str, ...]:
    return tuple(identifier.split(".")) if isinstance(identifier, str) else tuple(identifier)
