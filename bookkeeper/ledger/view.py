"""
One load of the table: everything a tick plans against, marks and head from the same metadata.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import takewhile
from typing import cast

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema, index_by_id
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadataV2
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.types import NestedField

from bookkeeper.contract import marks as marks_format
from bookkeeper.contract import marks_json
from bookkeeper.contract.keyed import keyed_of
from bookkeeper.contract.marks import Marks
from bookkeeper.contract.marks_json import MarksCopy
from bookkeeper.contract.names import TxlogName
from bookkeeper.errors import HistoryChanged, MarksLost, TableUnusable, WrongFolder
from bookkeeper.format.manifest_list import ListedManifest
from bookkeeper.format.remembered import remembered
from bookkeeper.history.main_history import ancestors, counted, descends, is_ancestor, is_ours
from bookkeeper.manifests.fetch import Fetch
from bookkeeper.manifests.header import Header, ManifestWriter
from bookkeeper.manifests.reader import Manifests
from bookkeeper.stores.local_roots import of_table
from bookkeeper.stores.locations import inside, join
from bookkeeper.stores.store import Store
from bookkeeper.stores.unsent import Unsent

TXLOGS = "bookkeeper.txlogs"


@dataclass(frozen=True)
class View:
    """The table, its marks, and the snapshot both belong to."""

    table: Table
    marks: Marks
    #: the manifests of the head, when this process committed it; None: read them from its manifest list
    manifests: tuple[ListedManifest, ...] | None = None

    @property
    def metadata(self) -> TableMetadataV2:
        """Iceberg's table metadata; `load_table` lets only format v2 pass."""
        return cast(TableMetadataV2, self.table.metadata)

    @property
    def name(self) -> str:
        """The table's name, with its namespace."""
        return _name(self.table)

    @cached_property
    def uuid(self) -> str:
        """The table's uuid."""
        return str(self.metadata.table_uuid)

    @cached_property
    def head(self) -> Snapshot | None:
        """The snapshot of `main`; None for an empty table."""
        current = self.metadata.current_snapshot_id
        # From the end, where it mostly is: pyiceberg's own search takes a millisecond at 10,000 snapshots.
        return next((item for item in reversed(self.metadata.snapshots) if item.snapshot_id == current), None)

    @cached_property
    def schemas(self) -> dict[int, Schema]:
        """Every schema the table has, by id."""
        return {schema.schema_id: schema for schema in self.metadata.schemas}

    @cached_property
    def specs(self) -> dict[int, PartitionSpec]:
        """Every partition spec the table has, by id."""
        return {spec.spec_id: spec for spec in self.metadata.partition_specs}

    @cached_property
    def is_keyed(self) -> bool:
        """Whether the table has a key, so that its writers may update and delete rows."""
        return keyed_of(self.metadata) is not None

    def total(self, key: str) -> int:
        """A count of the head's summary, like `total-records`; 0 where it has none."""
        return counted(self.head, key)

    def schema_for(self, spec_id: int) -> Schema | None:
        """A schema with every column of the spec, the current one if possible; None when the table has none."""
        sources = {field.source_id for field in self.specs[spec_id].fields}
        known = (self.metadata.schema(), *reversed(self.metadata.schemas))
        return next((schema for schema in known if sources <= columns_of(schema).keys()), None)

    def header_of(self, manifest: ListedManifest, writer: ManifestWriter) -> Header | None:
        """The header for a new version of this manifest; None when the table has no schema with all of its spec."""
        schema, spec = self.schema_for(manifest.partition_spec_id), self.specs[manifest.partition_spec_id]
        return writer.header(schema, spec, manifest.content) if schema else None

    def reader(self, store: Store | Unsent) -> Manifests:
        """Reads the table's manifests in `store`; one of a layout that no commit could write anew is refused."""
        return Manifests(Fetch.of(store, self.table.io), foreign=False)

    def with_manifests_of(self, known: "View | None") -> "View":
        """This view, with the manifests of `known` if both have the same head: a snapshot's manifests never change."""
        if known is None or known.head is None or known.head != self.head or known.uuid != self.uuid:
            return self
        return replace(self, manifests=known.manifests)

    @property
    def marks_copy(self) -> MarksCopy:
        """The content that marks.json should have."""
        return MarksCopy(self.uuid, self.metadata.last_sequence_number, self.marks)

    @property
    def data_path(self) -> str:
        """The URL of the folder of data files."""
        return self.metadata.properties.get("write.data.path") or join(self.metadata.location, "data")

    @property
    def data_root(self) -> str:
        """
        The root for looking up data files: the table's location where that holds them.

        Iceberg's metadata lies there, so a missing root means a disk that is not mounted. A missing data path may
        only mean that no row was written yet.
        """
        location = self.metadata.location
        return location if inside(self.data_path, location) else self.data_path

    def data_store(self, open_store: Callable[[str], Store]) -> Store:
        """The store of data files, at `data_root`."""
        return of_table(open_store(self.data_root), self.metadata.location, self.data_path)

    def metadata_store(self, open_store: Callable[[str], Store]) -> Store:
        """The store of manifests and manifest lists, at `metadata_path`."""
        return of_table(open_store(self.metadata_path), self.metadata.location)

    @property
    def metadata_path(self) -> str:
        """The URL of the folder of manifests and manifest lists."""
        return self.metadata.properties.get("write.metadata.path") or join(self.metadata.location, "metadata")


def view(table: Table, folder: str, accept_rollback: bool = False) -> View:
    """
    The view of a freshly loaded table for the txlog folder with the id `folder`.

    Raises Halt (TableUnusable, MarksLost, HistoryChanged, WrongFolder) when the marks cannot be trusted.
    """
    marks = _marks(table)
    if marks.folder != folder:
        raise WrongFolder(f"{_name(table)} has its txlogs in the folder {marks.folder}, this one is {folder}")
    if marks.snapshot is not None and not accept_rollback and not descends(table, marks.snapshot):
        there = any(snapshot.snapshot_id == marks.snapshot for snapshot in table.metadata.snapshots)
        why = "no ancestor of main" if there else "not kept any more: expired, and perhaps rolled back before"
        raise HistoryChanged(f"{_name(table)}: the marks came with snapshot {marks.snapshot}, which is {why}")
    return View(table, marks)


@remembered
def columns_of(schema: Schema) -> Mapping[int, NestedField]:
    """
    Every field of a schema by its id: pyiceberg visits all of it to tell them.
    """
    return index_by_id(schema)


def _name(table: Table) -> str:
    return ".".join(table.name())


def _marks(table: Table) -> Marks:
    text = table.metadata.properties.get(marks_format.PROPERTY)
    if text is not None:
        try:
            return marks_json.loads(text)
        except MarksLost as exc:
            raise MarksLost(f"{_name(table)}: {exc}", hint=exc.hint) from exc
    if any(map(is_ours, table.metadata.snapshots)):
        raise MarksLost(f"{_name(table)} has no property {marks_format.PROPERTY}, but its snapshots hold txlogs")
    raise TableUnusable(f"{_name(table)} is not set up as a queue", hint="Run `bookkeeper init` for it.")


def txlogs_of(snapshot: Snapshot) -> Iterator[tuple[TxlogName, TxlogName]]:
    """
    The first and the last txlog of each incarnation that the snapshot's summary names.
    """
    for part in _txlogs_text(snapshot).split():
        run, colon, span = part.rpartition(":")
        writer, dot, incarnation = run.partition(".")
        if colon and dot:
            first, _, last = span.partition("-")
            yield TxlogName(writer, incarnation, int(first)), TxlogName(writer, incarnation, int(last))


def _txlogs_text(snapshot: Snapshot) -> str:
    return str(snapshot.summary.additional_properties.get(TXLOGS, "")) if snapshot.summary else ""


def abandoned(view: View) -> list[tuple[int, str]]:
    """
    The snapshots that a rollback took off `main`, newest first, each with the txlogs in its summary.

    They are the snapshot that the marks came with and its ancestors, up to the first one that is on `main`. Example:
    after 1 <- 2 <- 3 the table was rolled back to 1. The marks came with 3, so 3 and 2 are abandoned. Snapshots that
    are expired are not in the result.
    """
    if view.marks.snapshot is None:
        return []
    marked = ancestors(view.metadata, view.marks.snapshot)
    off_main = takewhile(lambda item: not is_ancestor(view.metadata, item.snapshot_id), marked)
    return [(item.snapshot_id, _txlogs_text(item)) for item in off_main]
