"""
Txlogs as a benchmark needs them: many, of a given shape, made quickly; the data files they name do not exist.
"""

import random
import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from pyiceberg.schema import Schema
from pyiceberg.types import BinaryType, DoubleType, LongType, NestedField, StringType, TimestamptzType

from bookkeeper.core import txlog
from bookkeeper.core.catalog import open_catalog
from bookkeeper.core.folder import Folder
from bookkeeper.core.names import TxlogName, new_incarnation
from bookkeeper.core.settings import Catalog, Table
from bookkeeper.core.store import open_store
from bookkeeper.core.txlog import Envelope
from bookkeeper.format import avro
from bookkeeper.format.avro import Block
from bookkeeper.format.entries import DataFile
from bookkeeper.initialise import initialise

_TOKEN = "@@@@@@@@@@"
_KINDS = (LongType(), DoubleType(), StringType())


def schema(columns: int) -> Schema:
    """
    The peer's schema: timestamp, key, value, then longs, doubles and strings in turn.
    """
    named = [("timestamp", TimestamptzType()), ("key", LongType()), ("value", BinaryType())]
    named += [(f"col_{number:02d}", _KINDS[number % 3]) for number in range(4, columns + 1)]
    return Schema(*(NestedField(number, name, kind, required=False) for number, (name, kind) in enumerate(named, 1)))


def data_file(table: Schema, path: str, seed: int) -> DataFile:
    """
    One data file of 20,000 rows with sizes, counts and bounds for every column, like the peer's.
    """
    rnd, ids = random.Random(seed), [field.field_id for field in table.fields]
    nans = {field.field_id: 0 for field in table.fields if isinstance(field.field_type, DoubleType)}
    lower, upper = ({field.field_id: _bound(field, rnd, high) for field in table.fields} for high in (False, True))
    sizes = {number: 4000 + rnd.randrange(60000) for number in ids}
    rows = dict.fromkeys(ids, 20000)
    return DataFile(
        path, "PARQUET", (), 20000, 20_000_000, sizes, rows, dict.fromkeys(ids, 0), nans, lower, upper, (4,), 0
    )


def _bound(field: NestedField, rnd: random.Random, high: bool) -> bytes:
    if isinstance(field.field_type, DoubleType):
        return struct.pack("<d", rnd.random() + high * 1000)
    if isinstance(field.field_type, StringType):
        return (b"zzz%013x" if high else b"aaa%013x") % rnd.getrandbits(52)
    if isinstance(field.field_type, BinaryType):
        return rnd.randbytes(16)
    return struct.pack("<q", 1_760_000_000_000_000 + rnd.getrandbits(30) + high)


@dataclass
class Queue:
    """A queue made for a benchmark, and how txlogs get into it."""

    settings: Table
    catalog: Catalog
    folder: Folder
    made: int = 0

    @classmethod
    def at(cls, root: Path, columns: int, **settings: object) -> "Queue":
        """An empty one below `root`, unpartitioned like the peer's."""
        chosen = replace(
            Table(name="t", identifier="ns.t", partition_by=(), check_files=False),
            max_txlogs=10**6,
            max_files=10**7,
            **settings,  # type: ignore[arg-type]
        )
        properties = {"type": "sql", "uri": f"sqlite:///{root}/cat.db", "warehouse": f"file://{root}/wh"}
        catalog = Catalog("lake", properties)
        done = initialise(open_catalog(catalog, create=True), chosen, schema(columns))
        return cls(chosen, catalog, Folder(open_store(done.folder)))

    def publish(self, count: int, files: int, now: datetime) -> None:
        """Publishes `count` txlogs of `files` data files each."""
        for name, data in self._txlogs(count, files, now):
            self.folder.publish(name, data)

    def _txlogs(self, count: int, files: int, now: datetime) -> Iterator[tuple[TxlogName, bytes]]:
        card, run = self.folder.card(), TxlogName("w", new_incarnation(self.made + 1, b"0123456789"), 1)
        now_ms = int(now.timestamp() * 1000)
        named = [
            data_file(card.schema, f"{card.data_path}/{_TOKEN}-{index:04d}.parquet", index) for index in range(files)
        ]
        model = avro.decode(txlog.encode(Envelope(run, card.table_uuid, now_ms), card.schema, card.spec, named), 2**30)
        for number in range(1, count + 1):
            self.made += 1
            own = {**model.meta, "bookkeeper.sequence": str(number).encode()}
            token = f"{self.made:010d}".encode()
            blocks = [Block(block.count, block.payload.replace(_TOKEN.encode(), token)) for block in model.blocks]
            yield run.at(number), avro.encode(own, blocks)
