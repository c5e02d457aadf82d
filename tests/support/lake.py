"""
The lake of tests in one process: queues on SQLite and local disk, or in any catalog and on any store, and a writer that
is nothing but the contract.

Its clock is moved by the test, and its disk stamps files with that clock.
"""

import io
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.conversions import to_bytes
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema

from bookkeeper.catalogs.open import open_catalog
from bookkeeper.commands.init import initialise, schema_for
from bookkeeper.commands.verify import ERROR, Audit, verify
from bookkeeper.config.settings import Catalog, Table
from bookkeeper.contract.names import TxlogName, new_incarnation
from bookkeeper.contract.txlog import Envelope, encode
from bookkeeper.contract.txlog_folder import Folder
from bookkeeper.format.entries import DataFile
from bookkeeper.ledger.commit_clock import CommitClock
from bookkeeper.ledger.ledger import Ledger
from bookkeeper.ledger.view import View
from bookkeeper.stores.local import LocalStore
from bookkeeper.stores.locations import local_path
from bookkeeper.stores.open import open_store, stores_with
from bookkeeper.stores.store import Store
from bookkeeper.tick.tick import Bookkeeper
from tests.support.faults import Faults, FaultyCatalog, FaultyStore
from tests.support.pyiceberg_files import parquet_file, sqlite_catalog

STOCK = "pyiceberg.catalog.sql.SqlCatalog"


@dataclass
class Clock:
    """A clock that a test moves."""

    now: datetime = field(default_factory=lambda: datetime.now(UTC))

    def __call__(self) -> datetime:
        return self.now

    def move(self, **span: float) -> datetime:
        self.now += timedelta(**span)
        return self.now


class WallClock(Clock):
    """The machine's clock, which the test does not move."""

    def __init__(self) -> None: ...

    def __getattribute__(self, name: str) -> Any:
        return datetime.now(UTC) if name == "now" else super().__getattribute__(name)

    def __call__(self) -> datetime:
        return datetime.now(UTC)

    def move(self, **span: float) -> datetime:
        return datetime.now(UTC)


def noon() -> datetime:
    """
    Noon of tomorrow: no earlier than the stamps of others, and minutes later it is the same day, whenever a test runs.
    """
    return datetime.now(UTC).replace(hour=12, minute=0, second=0, microsecond=0) + timedelta(days=1)


class TimedStore(LocalStore):
    """A disk whose clock is the test's."""

    def __init__(self, root: str, clock: Clock) -> None:
        super().__init__(root)
        self.clock = clock

    def create(self, key: str, data: bytes) -> None:
        super().create(key, data)
        with suppress(FileNotFoundError):  # a daemon beside the test has taken it already
            self._stamp(key)

    def replace(self, key: str, data: bytes, if_match: str | None = None) -> str:
        tag = super().replace(key, data, if_match)
        self._stamp(key)
        return tag

    def _stamp(self, key: str) -> None:
        seconds = self.clock.now.timestamp()
        os.utime(self._path(key), (seconds, seconds))


class Lake:
    """
    A queue made by `init`, with what a test needs to look at it; several may share a root, and so a catalog.

    `stock` takes pyiceberg's own SQL catalog, which holds a commit against the table as it is then, as REST does,
    instead of ours, which holds it against the table as it was loaded.
    """

    def __init__(
        self,
        root: Path,
        clock: Clock | None = None,
        columns: Any = (),
        stock: bool = False,
        catalog: str | Catalog = "lake",
        schema: Schema | None = None,
        **settings: Any,
    ) -> None:
        self.root = root
        self.clock = clock or Clock()
        #: how far the disk's clock is ahead
        self.disk_clock = self.clock
        self.settings = replace(
            Table(name="events", identifier="demo.events", schema=columns, file_names="loose"), **settings
        )
        kind = {"py-catalog-impl": STOCK} if stock else {}
        self.catalog_settings = catalog if isinstance(catalog, Catalog) else sqlite_catalog(root, catalog, **kind)
        self.catalog = self.opened(create=True)
        self.make(schema)

    def make(self, schema: Schema | None = None) -> None:
        """The table and its folder, by `init`."""
        self.made = initialise(self.catalog, self.settings, schema or schema_for(self.settings))
        self.folder = Folder(self.store(self.made.folder))

    def opened(self, create: bool = False, **far: str) -> Any:
        """The catalog anew; the properties `far` may lead through a proxy."""
        properties = {**self.catalog_settings.properties, **far}
        return open_catalog(replace(self.catalog_settings, properties=properties), create=create)

    def store(self, url: str) -> Store:
        """The store at `url`; on this disk with the test's clock."""
        path = local_path(url)
        return self.far_store()(url) if path is None else TimedStore(path, self.disk_clock)

    def far_store(self, **far: str) -> Callable[[str], Store]:
        """Opens stores with the catalog's properties, but for `far`."""
        return stores_with({**self.catalog_settings.properties, **far})

    def faulty(self, faults: Faults) -> Callable[[str], Store]:
        """Like `store`, through `faults`, which sees it as `folder`, `data` or `metadata`."""

        def opened(url: str) -> Store:
            label = "folder" if url == self.made.folder else url.rsplit("/", 1)[-1]
            return FaultyStore(self.store(url), faults, label)

        return opened

    def book(
        self,
        faults: Faults | None = None,
        clock: Clock | None = None,
        store: Callable[[str], Store] | None = None,
        far: Mapping[str, str] | None = None,
        **settings: Any,
    ) -> Bookkeeper:
        """A bookkeeper that remembers nothing, as after a restart; `faults` see all it does."""
        catalog: Any = self.opened(**(far or {}))
        store = store or (self.far_store(**far) if far else self.store)
        if faults is not None:
            catalog, store = FaultyCatalog(catalog, faults), self.faulty(faults)
        folder = Folder(store(self.made.folder))
        stamped = CommitClock(clock or self.clock, self.settings.name, folder)
        ledger = Ledger(catalog, self.settings.identifier, stamped, store)
        return Bookkeeper(replace(self.settings, **settings), folder, ledger, store=store)

    def tick(self, book: Bookkeeper | None = None, **move: float) -> Any:
        """One tick, a second later."""
        self.clock.move(**(move or {"seconds": 1}))
        return (book or self.book()).tick(self.clock.now)

    def drain(self, ticks: int = 3) -> None:
        """What a restarted bookkeeper does of what it finds; every leftover is recognised."""
        book = self.book()
        for _ in range(ticks):
            self.tick(book, seconds=11)

    def table(self) -> Any:
        return self.catalog.load_table(self.settings.identifier)

    def view(self) -> View:
        ledger = Ledger(self.catalog, self.settings.identifier, self.clock, self.store)
        return ledger.load(self.folder.card().folder)

    def audit(self) -> Audit:
        """What `verify` looks at."""
        return Audit(self.view(), self.folder, self.book().ledger, self.settings, self.store)

    def wrong(self) -> list[str]:
        """What `verify` calls an error."""
        return [f"{item.what}: {item.where}" for item in verify(self.audit()) if item.severity == ERROR]

    def keys(self) -> list[str]:
        """The keys of all rows a reader sees, sorted."""
        return sorted(self.table().scan(selected_fields=("key",)).to_arrow()["key"].to_pylist())

    def operations(self) -> list[str]:
        """The operation of each snapshot, oldest first."""
        return [snapshot.summary.operation.value for snapshot in self.table().metadata.snapshots]

    def pending(self) -> list[str]:
        return [str(item.name) for item in self.folder.pending()]

    def rejected(self) -> dict[str, str]:
        """Rejected txlogs and the error each was rejected for."""
        return {str(item.name): self.folder.reason(item.name)["error"] for item in self.folder.rejected()}

    def put(self, key: str, data: bytes) -> None:
        """A file in the folder that no writer wrote."""
        self.store(self.made.folder).replace(key, data)

    def saved(self) -> "Saved":
        """The lake as it is now, to come back to."""
        return Saved(self)


class Saved:
    """A copy of a lake's disk; `restore` puts it back under the same paths."""

    def __init__(self, lake: Lake) -> None:
        self.lake, self.now = lake, lake.clock.now
        self.copy = lake.root.with_name(lake.root.name + ".saved")
        lake.catalog.engine.dispose()
        shutil.copytree(lake.root, self.copy)

    def restore(self) -> None:
        self.lake.catalog.engine.dispose()
        shutil.rmtree(self.lake.root)
        shutil.copytree(self.copy, self.lake.root)
        self.lake.clock.now = self.now


class Writes:
    """One run of a writer: publishes data files of a few rows, by the contract and nothing else."""

    _runs: Iterator[int] = iter(range(1, 1_000_000))

    def __init__(self, lake: Lake, name: str = "w1", started: datetime | None = None) -> None:
        self.lake = lake
        run = next(self._runs)
        started_ms = int((started or lake.clock.now).timestamp() * 1000) + run
        self.name = TxlogName(name, new_incarnation(started_ms, run.to_bytes(10, "big")), 0)
        self.keys: list[str] = []
        self.position: bytes | None = None

    def file(self, keys: list[str], *at: datetime | None, sequence: int | None = None, **changes: Any) -> DataFile:
        """
        One Parquet file with these keys, at the times `at` (the last for all further ones) or now; called after the
        txlog of this sequence, or by the run alone.
        """
        card = self.lake.folder.card()
        times = [*(at or [self.lake.clock.now]), *[at[-1] if at else self.lake.clock.now] * len(keys)]
        columns = [field.name for field in card.schema.fields]
        rows = [
            {name: {"timestamp": time, "key": key, "value": b"v"}.get(name) for name in columns}
            for key, time in zip(keys, times, strict=False)
        ]
        out = io.BytesIO()
        pq.write_table(pa.Table.from_pylist(rows, schema=schema_to_pyarrow(card.schema).remove_metadata()), out)
        stem = self.name.incarnation
        if sequence is not None:
            stem = f"{self.name.writer}-{stem}-{sequence:010d}"
        path = f"{card.data_path}/{stem}-{keys[0]}.parquet"
        open_store(card.data_path).upload(path.removeprefix(card.data_path + "/"), out.getvalue())
        return replace(described(path, card.schema, card.spec, rows, out.tell()), **changes)

    def encoded(self, files: list[DataFile], **envelope: Any) -> tuple[TxlogName, bytes]:
        """The next txlog's name and bytes."""
        self.name = self.name.at(envelope.pop("sequence", self.name.sequence + 1))
        card = self.lake.folder.card()
        schema, spec = envelope.pop("schema", card.schema), envelope.pop("spec", card.spec)
        created = int(self.lake.clock.now.timestamp() * 1000)
        about = Envelope(self.name, card.table_uuid, created)
        return self.name, encode(replace(about, **envelope), schema, spec, files)

    def publish(self, *keys: str, at: datetime | None = None, **envelope: Any) -> TxlogName:
        """Publishes one file with these keys."""
        sequence = envelope.get("sequence", self.name.sequence + 1)
        name, data = self.encoded([self.file(list(keys), *([at] if at else []), sequence=sequence)], **envelope)
        self.lake.folder.publish(name, data)
        self.keys += keys
        return name

    def goes_on(self, position: bytes, *keys: str) -> TxlogName:
        """Publishes one file that continues the chain of positions up to `position`."""
        name = self.publish(*keys, previous_position=self.position, position=position)
        self.position = position
        return name


def described(path: str, schema: Schema, spec: PartitionSpec, rows: list[dict[str, Any]], size: int) -> DataFile:
    """
    A Parquet file of `rows` as a manifest describes it: partition of its first row, bounds of its timestamps.
    """
    column = schema.find_field("timestamp")
    times = [int(row["timestamp"].timestamp() * 1_000_000) for row in rows if row["timestamp"] is not None]
    bounds = [to_bytes(column.field_type, bound) for bound in (min(times), max(times))] if times else []
    first = {**rows[0], "timestamp": times[0] if times else None}
    return DataFile(
        path=path,
        file_format="PARQUET",
        partition=tuple(
            field.transform.transform(source.field_type)(first[source.name])
            for field in spec.fields
            for source in [schema.find_field(field.source_id)]
        ),
        record_count=len(rows),
        size_bytes=size,
        value_counts={field.field_id: len(rows) for field in schema.fields},
        null_value_counts={field.field_id: sum(row.get(field.name) is None for row in rows) for field in schema.fields},
        lower_bounds={column.field_id: bounds[0]} if bounds else {},
        upper_bounds={column.field_id: bounds[1]} if bounds else {},
        split_offsets=(4,),
    )


def append_by_others(lake: Lake, *files: DataFile) -> None:
    """
    Append data files to the table with pyiceberg, as another program does.
    """
    table = lake.table()
    with table.transaction() as transaction, transaction.update_snapshot().fast_append() as append:
        for file in files:
            theirs = parquet_file(
                file.path,
                table.spec().spec_id,
                file.partition,
                record_count=file.record_count,
                file_size_in_bytes=file.size_bytes,
                value_counts=dict(file.value_counts),
                null_value_counts=dict(file.null_value_counts),
                lower_bounds=dict(file.lower_bounds),
                upper_bounds=dict(file.upper_bounds),
            )
            append.append_data_file(theirs)


def live_files(lake: Lake) -> list[Any]:
    """
    Every live data file as pyiceberg reads it.
    """
    table = lake.table()
    head = table.metadata.current_snapshot()
    manifests = head.manifests(table.io) if head else []
    entries = [entry for manifest in manifests for entry in manifest.fetch_manifest_entry(table.io, True)]
    return [entry.data_file for entry in entries]
