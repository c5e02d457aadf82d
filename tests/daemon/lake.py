"""
A small lake for tests: one queue on SQLite and local disk, and a writer that is nothing but the contract.
"""

import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.conversions import to_bytes
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.types import TimestamptzType

from bookkeeper.core.catalog import open_catalog
from bookkeeper.core.folder import Folder
from bookkeeper.core.names import TxlogName, new_incarnation
from bookkeeper.core.settings import Catalog, Table
from bookkeeper.core.store import Store, open_store
from bookkeeper.core.txlog import Envelope, encode
from bookkeeper.daemon import Bookkeeper
from bookkeeper.format.entries import DataFile
from bookkeeper.initialise import initialise, schema_for
from bookkeeper.ledger.ledger import Ledger

START = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


@dataclass
class Clock:
    """A clock that a test moves."""

    now: datetime = field(default_factory=lambda: datetime.now(UTC))

    def __call__(self) -> datetime:
        return self.now

    def move(self, **span: float) -> datetime:
        self.now += timedelta(**span)
        return self.now


class Lake:
    """A queue made by `init`, with what a test needs to look at it."""

    def __init__(self, root: Path, **settings: Any) -> None:
        self.root = root
        self.clock = Clock()
        self.settings = replace(Table(name="events", identifier="demo.events"), **settings)
        self.catalog_settings = Catalog(
            "lake", {"type": "sql", "uri": f"sqlite:///{root}/catalog.db", "warehouse": f"file://{root}"}
        )
        self.catalog = open_catalog(self.catalog_settings, create=True)
        self.made = initialise(self.catalog, self.settings, schema_for(self.settings))
        self.folder = Folder(open_store(self.made.folder))

    def book(self, store: Callable[[str], Store] = open_store, catalog: Any = None) -> Bookkeeper:
        """A bookkeeper that remembers nothing, as after a restart."""
        ledger = Ledger(catalog or open_catalog(self.catalog_settings), "demo.events", self.clock, store)
        folder = Folder(store(self.made.folder))
        return Bookkeeper(self.settings, folder, ledger, store=store)

    def tick(self, book: Bookkeeper | None = None, **move: float) -> Any:
        """One tick, a second later."""
        self.clock.move(**(move or {"seconds": 1}))
        return (book or self.book()).tick(self.clock.now)

    def table(self) -> Any:
        return self.catalog.load_table("demo.events")

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


class Writes:
    """One run of a writer: publishes data files of a few rows, by the contract and nothing else."""

    _runs: Iterator[int] = iter(range(1, 1_000_000))

    def __init__(self, lake: Lake, name: str = "w1") -> None:
        self.lake = lake
        run = next(self._runs)
        self.name = TxlogName(name, new_incarnation(1_700_000_000_000 + run, run.to_bytes(10, "big")), 0)
        self.keys: list[str] = []

    def file(self, keys: list[str], at: datetime | None = None) -> DataFile:
        """One Parquet file with these keys, all at the time `at`."""
        card = self.lake.folder.card()
        at = at or self.lake.clock.now
        rows = {"timestamp": [at] * len(keys), "key": keys, "value": [b"v"] * len(keys)}
        out = io.BytesIO()
        pq.write_table(pa.table(rows, schema=schema_to_pyarrow(card.schema).remove_metadata()), out)
        path = f"{card.data_path}/{self.name.incarnation}-{keys[0]}.parquet"
        open_store(card.data_path).upload(path.removeprefix(card.data_path + "/"), out.getvalue())
        bound = to_bytes(TimestamptzType(), int(at.timestamp() * 1_000_000))
        counts = {1: len(keys), 2: len(keys), 3: len(keys)}
        nulls = {1: 0, 2: 0, 3: 0}
        day = int(at.timestamp()) // 86400
        return DataFile(
            path,
            "PARQUET",
            (day,),
            len(keys),
            out.tell(),
            {},
            counts,
            nulls,
            {},
            {1: bound},
            {1: bound},
            (4,),
        )

    def encoded(self, files: list[DataFile], **envelope: Any) -> tuple[TxlogName, bytes]:
        """The next txlog's name and bytes."""
        self.name = self.name.at(envelope.pop("sequence", self.name.sequence + 1))
        card = self.lake.folder.card()
        created = int(self.lake.clock.now.timestamp() * 1000)
        about = Envelope(self.name, card.table_uuid, created)
        return self.name, encode(replace(about, **envelope), card.schema, card.spec, files)

    def publish(self, *keys: str, at: datetime | None = None, **envelope: Any) -> TxlogName:
        """Publishes one file with these keys."""
        name, data = self.encoded([self.file(list(keys), at)], **envelope)
        self.lake.folder.publish(name, data)
        self.keys += keys
        return name
