"""
Txlogs as a benchmark needs them: many, of a given shape, made quickly; the data files they name do not exist.

Each of 256 kinds of data file has statistics of its own, so that manifests compress as real ones do; copies differ
in path and in the range of their timestamps: file number i covers the second i after BASE_US.
"""

import bisect
import os
import random
import shutil
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.types import BinaryType, DoubleType, LongType, NestedField, StringType, TimestamptzType

from bookkeeper.catalogs.open import open_catalog
from bookkeeper.commands.init import initialise
from bookkeeper.config.settings import Catalog, Table
from bookkeeper.console import garbage
from bookkeeper.contract import txlog
from bookkeeper.contract.card import Card
from bookkeeper.contract.names import TxlogName, new_incarnation
from bookkeeper.contract.txlog import Envelope
from bookkeeper.contract.txlog_folder import Folder
from bookkeeper.format import avro
from bookkeeper.format.avro import Block
from bookkeeper.format.entries import DataFile
from bookkeeper.ledger.commit_clock import CommitClock
from bookkeeper.ledger.ledger import Ledger
from bookkeeper.stores.open import open_store
from bookkeeper.tick.tick import Bookkeeper

BASE_US = 1_760_000_000_000_000
ROWS, FILE_BYTES = 20_000, 20_000_000
TABLE = "ns.t"
_TOKEN, _LOW, _HIGH = b"@", b"<<<<<<<<", b">>>>>>>>"
_KINDS = (LongType(), DoubleType(), StringType())
_VARIETY, _BLOCK, _FEW = 256, 1000, 10
_MOST_LINKS = 50_000


def schema(columns: int) -> Schema:
    """
    The peer's schema: timestamp, key, value, then longs, doubles and strings in turn.
    """
    named = [("timestamp", TimestamptzType()), ("key", LongType()), ("value", BinaryType())]
    named += [(f"col_{number:02d}", _KINDS[number % 3]) for number in range(4, columns + 1)]
    return Schema(*(NestedField(number, name, kind, required=False) for number, (name, kind) in enumerate(named, 1)))


def data_file(table: Schema, path: str, number: int, rows: int = ROWS, size: int = FILE_BYTES) -> DataFile:
    """
    Data file `number`: `rows` rows with sizes, counts and bounds for every column, like the peer's.
    """
    rnd, ids = random.Random(number), [field.field_id for field in table.fields]
    nans = {field.field_id: 0 for field in table.fields if isinstance(field.field_type, DoubleType)}
    lower, upper = ({field.field_id: _bound(field, rnd, high) for field in table.fields} for high in (False, True))
    lower[1], upper[1] = _span(number)
    sizes = {number: 4000 + rnd.randrange(60000) for number in ids}
    counts, none = dict.fromkeys(ids, rows), dict.fromkeys(ids, 0)
    return DataFile(path, "PARQUET", (), rows, size, sizes, counts, none, nans, lower, upper, (4,), 0)


def _span(number: int) -> tuple[bytes, bytes]:
    start = BASE_US + number * 1_000_000
    return struct.pack("<q", start), struct.pack("<q", start + 999_999)


def moment(number: int) -> datetime:
    """When the rows of data file `number` begin."""
    return datetime.fromtimestamp(BASE_US / 1_000_000, UTC) + timedelta(seconds=number)


def _bound(field: NestedField, rnd: random.Random, high: bool) -> bytes:
    if isinstance(field.field_type, DoubleType):
        return struct.pack("<d", rnd.random() + high * 1000)
    if isinstance(field.field_type, StringType):
        return (b"zzz%013x" if high else b"aaa%013x") % rnd.getrandbits(52)
    if isinstance(field.field_type, BinaryType):
        return rnd.randbytes(16)
    return struct.pack("<q", rnd.getrandbits(30) + high)


def file_name(txlog_name: TxlogName, number: int) -> str:
    """What data file `number` is called in this txlog."""
    return f"{txlog_name.writer}-{txlog_name.incarnation}-{txlog_name.sequence:010d}-{number:010d}.parquet"


class Records:
    """Manifest records of data files of one table, encoded once per kind of file; all writers' names are as long."""

    def __init__(self, card: Card, rows: int = ROWS, size: int = FILE_BYTES, writer: str = "w") -> None:
        name, rnd = TxlogName(writer, new_incarnation(1, b"0123456789"), 1), range(_VARIETY)
        self._token = _TOKEN * len(file_name(name, 0))
        path = f"{card.data_path}/{self._token.decode()}"
        self.meta: Mapping[str, bytes] = {}
        self._parts: list[list[bytes]] = []
        for kind in rnd:
            file = data_file(card.schema, path, kind, rows, size)
            file.lower_bounds[1], file.upper_bounds[1] = _LOW, _HIGH  # type: ignore[index]
            encoded = txlog.encode(Envelope(name, card.table_uuid, 0), card.schema, card.spec, [file])
            found = avro.decode(encoded, 2**24)
            self.meta = found.meta
            self._parts.append(_split(found.blocks[0].payload, self._token))

    def record(self, name: TxlogName, number: int) -> bytes:
        """Data file `number` of a txlog, ADDED."""
        a, b, c, d = self._parts[number % _VARIETY]
        low, high = _span(number)
        return b"".join((a, file_name(name, number).encode(), b, low, c, high, d))

    def blocks(self, name: TxlogName, first: int, count: int) -> list[Block]:
        """`count` data files of a txlog, from number `first` on."""
        starts = range(first, first + count, _BLOCK)
        parts = [[self.record(name, n) for n in range(start, min(start + _BLOCK, first + count))] for start in starts]
        return [Block(len(part), b"".join(part)) for part in parts]


def _split(record: bytes, name: bytes) -> list[bytes]:
    parts = []
    for token in (name, _LOW, _HIGH):
        before, _, record = record.partition(token)
        parts.append(before)
    return [*parts, record]


@dataclass
class Queue:
    """A queue made for a benchmark, and how txlogs get into it."""

    root: Path
    settings: Table
    catalog: Catalog
    folder: Folder
    #: what every data file is a link to, where there have to be data files at all
    source: Path | None = None
    run: TxlogName = field(default_factory=lambda: TxlogName("w", new_incarnation(1, b"0123456789"), 0))
    files: int = 0
    #: the number of the first data file of each txlog
    _firsts: list[int] = field(default_factory=list)

    @classmethod
    def at(cls, root: Path, columns: int = 3, **settings: Any) -> "Queue":
        """An empty one below `root`, unpartitioned like the peer's; also adopts a table that the peer made there."""
        chosen = replace(
            Table(name="t", identifier=TABLE, partition_by=(), check_files=False),
            **{"max_txlogs": 10**6, "max_files": 10**7, "max_txlog_bytes": 2**28, **settings},
        )
        catalog = Catalog("lake", {"type": "sql", "uri": f"sqlite:///{root}/cat.db", "warehouse": f"file://{root}/wh"})
        done = initialise(open_catalog(catalog, create=True), chosen, schema(columns))
        return cls(root, chosen, catalog, Folder(open_store(done.folder)))

    def book(self, **parts: Any) -> Bookkeeper:
        """A bookkeeper of it, as after a start."""
        clock = CommitClock(parts.pop("clock", lambda: datetime.now(UTC)), self.settings.name, self.folder)
        book = Bookkeeper(self.settings, self.folder, Ledger(open_catalog(self.catalog), TABLE, clock), **parts)
        garbage.freeze()  # as the daemon does after its first tick
        return book

    @cached_property
    def card(self) -> Card:
        """The table's card."""
        return self.folder.card()

    @cached_property
    def records(self) -> Records:
        """Records of its data files."""
        if self.source is None:
            return Records(self.card)
        rows = pq.read_metadata(self.source).num_rows
        return Records(self.card, rows, self.source.stat().st_size)

    @property
    def metadata(self) -> Path:
        """Where the table's metadata files lie."""
        return Path(self.card.location.removeprefix("file://")) / "metadata"

    def publish(self, count: int, files: int, now: datetime) -> list[TxlogName]:
        """
        Puts `count` txlogs of `files` data files each into pending/; all of them are durable when it returns.
        """
        pending = Path(self.folder.store.url.removeprefix("file://")) / "pending"
        pending.mkdir(parents=True, exist_ok=True)
        names = []
        for name, data in self.txlogs(count, files, now):
            if count < _FEW:
                self.folder.publish(name, data)
            else:
                (pending / str(name)).write_bytes(data)
            names.append(name)
        if count >= _FEW:
            # What is still on its way to the disk would be on the bill of the first fsync that is measured.
            os.sync()
        return names

    def txlogs(self, count: int, files: int, now: datetime) -> Iterator[tuple[TxlogName, bytes]]:
        """The next txlogs of one run of a writer."""
        meta = {**self.records.meta, "bookkeeper.created-ms": str(int(now.timestamp() * 1000)).encode()}
        meta |= {"bookkeeper.entries": str(files).encode(), "bookkeeper.incarnation": self.run.incarnation.encode()}
        for _ in range(count):
            self.run = self.run.at(self.run.sequence + 1)
            meta["bookkeeper.sequence"] = str(self.run.sequence).encode()
            self._link(files)
            self._firsts.append(self.files)
            yield self.run, avro.encode(meta, self.records.blocks(self.run, self.files, files))
            self.files += files

    def location(self, number: int) -> str:
        """Where data file `number` lies."""
        txlog_name = self.run.at(bisect.bisect_right(self._firsts, number))
        return f"{self.card.data_path}/{file_name(txlog_name, number)}"

    def with_data(self, rows: int, value_bytes: int) -> "Queue":
        """From now on there are data files: links to one that is written now, so that Spark can read them."""
        arrow = schema_to_pyarrow(self.card.schema)
        values = pa.array([os.urandom(value_bytes) for _ in range(rows)], arrow.field("value").type)
        columns = {"timestamp": pa.repeat(pa.scalar(moment(0), arrow.field("timestamp").type), rows), "value": values}
        columns["key"] = pa.array(range(rows), arrow.field("key").type)
        self.source = self.root / "source.parquet"
        pq.write_table(pa.table([columns[field.name] for field in arrow], schema=arrow), self.source)
        return self

    def _link(self, files: int) -> None:
        if self.source is None:
            return
        folder = self.card.data_path.removeprefix("file://")
        os.makedirs(folder, exist_ok=True)
        for number in range(self.files, self.files + files):
            if self.source.stat().st_nlink > _MOST_LINKS:
                fresh = self.source.with_name(f"source-{number}.parquet")
                shutil.copyfile(self.source, fresh)
                self.source = fresh
            os.link(self.source, f"{folder}/{file_name(self.run, number)}")

    def config(self, bookkeeper: Mapping[str, Any], retention: Mapping[str, Any] | None = None, **own: Any) -> Path:
        """A configuration file for it, for programs that run as processes of their own."""
        catalog = {"name": self.catalog.name, **self.catalog.properties}
        table = {"identifier": TABLE, "check-files": False, "max-txlogs": 10**6, "max-files": 10**7}
        table |= {"max-txlog-bytes": 2**28, **own}
        sections = {"catalog": catalog, "bookkeeper": bookkeeper, "tables.t": table}
        sections |= {"tables.t.retention": retention} if retention else {}
        path = self.root / "bookkeeper.toml"
        path.write_text("".join(f"[{name}]\n{_toml(values)}\n" for name, values in sections.items()))
        return path


def _toml(values: Mapping[str, Any]) -> str:
    shown = {key: f'"{value}"' if isinstance(value, str) else str(value).lower() for key, value in values.items()}
    return "".join(f"{key} = {text}\n" for key, text in shown.items())
