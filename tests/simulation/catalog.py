"""
A catalog on a server: what it keeps of a table is the bytes of its metadata.json, and what it hands out are those
bytes, which each program parses for itself. So only the guards of a commit keep it from a wrong head, and no program
sees an object of another one.
"""

import uuid
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from pydantic_core import from_json, to_json
from pyiceberg.exceptions import CommitFailedException, NamespaceAlreadyExistsError, NoSuchTableError
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil, new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER

from tests.simulation import table_server
from tests.simulation.disk import Disk
from tests.simulation.memory import MemoryFiles
from tests.simulation.schedule import COMMITS, READS, REFUSED, Call, Scheduler
from tests.simulation.table_server import Doc, Refused


class Kept(NamedTuple):
    """What the server keeps of a table: its metadata, parsed and as bytes, and where these lie."""

    doc: Doc
    data: bytes
    location: str


class MemoryCatalog:
    """One table; `committed` is told of each change: the bytes of the metadata before and after it."""

    name, properties = "simulated", dict[str, str]()

    def __init__(self, warehouse: str, disk: Disk, scheduler: Scheduler, parents: bool = False) -> None:
        self.warehouse, self.disk, self.scheduler = warehouse, disk, scheduler
        #: whether an expiry leaves parents that are gone in their children: Java's servers do, pyiceberg does not
        self.parents = parents
        self.tables: dict[tuple[str, ...], Kept] = {}
        self.committed: Callable[[bytes, bytes], None] = lambda before, after: None
        self.io = MemoryFiles(disk, self._read)
        self.versions = 0

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
        made = new_table_metadata(schema, partition_spec, sort_order, place, dict(properties or {}))
        self._set(name, from_json(made.model_dump_json()))
        return self.load_table(identifier)

    def table_exists(self, identifier: Any) -> bool:
        return _tuple(identifier) in self.tables

    def load_table(self, identifier: Any) -> Table:
        name = _tuple(identifier)

        def act() -> Kept:
            if name not in self.tables:
                raise NoSuchTableError(f"there is no table {'.'.join(name)}")
            return self.tables[name]

        kept = self.scheduler.call(Call("load", "table", READS), act, OSError)
        return Table(name, parsed(kept.data), kept.location, self.io, self)  # type: ignore[arg-type]

    def commit_table(self, table: Table, requirements: Any, updates: Any) -> CommitTableResponse:
        name, asks, sent = table.name(), as_json(requirements), as_json(updates)

        def act() -> Kept:
            before = self.tables[name]
            try:
                table_server.check(before.doc, before.location, from_json(asks))
            except Refused as error:
                raise CommitFailedException(f"Requirement failed: {error}") from None
            now_ms = int(self.scheduler.now.timestamp() * 1000)
            after = table_server.applied(before.doc, before.location, from_json(sent), now_ms, self.parents)
            self.scheduler.counts["commits"] += 1
            made = self._set(name, after)
            self.committed(before.data, made.data)
            return made

        def error(why: str) -> Exception:
            return CommitFailedException("refused") if why == REFUSED else TimeoutError(why)

        made = self.scheduler.call(Call("commit", "table", COMMITS), act, error)
        return CommitTableResponse(metadata=parsed(made.data), metadata_location=made.location)

    def _delete_old_metadata(self, *given: Any) -> None:
        """What pyiceberg calls after a commit; the reaper deletes them here."""

    def _set(self, name: tuple[str, ...], doc: Doc) -> Kept:
        self.versions += 1
        location = f"{doc['location']}/metadata/{self.versions:05d}-{uuid.uuid4()}.metadata.json"
        self.tables[name] = made = Kept(doc, to_json(doc), location)
        self.disk.put(location, made.data)
        return made


def parsed(data: bytes) -> TableMetadata:
    """As a program reads it."""
    return TableMetadataUtil.parse_raw(data.decode())


def as_json(parts: Iterable[Any]) -> str:
    """Requirements or updates as a REST client sends them."""
    return f"[{','.join(part.model_dump_json() for part in parts)}]"


def _tuple(identifier: Any) -> tuple[str, ...]:
    return tuple(identifier.split(".")) if isinstance(identifier, str) else tuple(identifier)
