"""
Many writers as one publisher: their txlogs come in a steady rhythm, each names a data file that is there.

The data files lie there before; what is timed is from the txlog's put on.
"""

import io
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import schema_to_pyarrow

from benchmarks.support.synthetic import Records, file_name, moment
from bookkeeper.contract.card import Card
from bookkeeper.contract.names import TxlogName, new_incarnation
from bookkeeper.contract.txlog_folder import Folder
from bookkeeper.format import avro
from bookkeeper.stores.store import Store

_AT_ONCE = 8
Told = Callable[[TxlogName], None]


def rows(card: Card, count: int = 1) -> pa.Table:
    """
    So many rows of the benchmarks' table.
    """
    arrow = schema_to_pyarrow(card.schema)
    values = {"timestamp": [moment(n) for n in range(count)], "key": range(count), "value": [b"x"] * count}
    return pa.table([pa.array(values[field.name], field.type) for field in arrow], schema=arrow)


@dataclass
class Crowd:
    """`writers` runs, each with a sequence of its own; `begun` says when a txlog's put began, ms."""

    folder: Folder
    card: Card
    data: Store
    writers: int
    told: Told
    begun: dict[str, float] = field(default_factory=dict)
    names: list[TxlogName] = field(init=False)

    def __post_init__(self) -> None:
        now = int(time.time() * 1000)
        runs = (new_incarnation(now, os.urandom(10)) for _ in range(self.writers))
        self.names = [TxlogName(f"w{number:05d}", run, 0) for number, run in enumerate(runs)]
        out = io.BytesIO()
        pq.write_table(rows(self.card), out)
        self.file = out.getvalue()
        self.records = Records(self.card, 1, len(self.file), self.names[0].writer)

    def lay(self, each: int) -> None:
        """Puts `each` data files of every writer where their txlogs will say they are."""
        numbers = range(self.writers * each)
        with ThreadPoolExecutor(2 * _AT_ONCE) as pool:
            list(pool.map(lambda number: self.data.upload(self._file_name(number), self.file), numbers))

    def _file_name(self, number: int) -> str:
        sequence, writer = divmod(number, self.writers)
        return file_name(self.names[writer].at(sequence + 1), number)

    def greet(self, some: int) -> None:
        """The first `some` writers publish one txlog each, at once."""
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            list(pool.map(self.publish, range(some)))

    def publish(self, writer: int) -> None:
        """The next txlog of one writer."""
        name = self.names[writer].at(self.names[writer].sequence + 1)
        data = self._encoded(name, writer)
        self.begun[str(name)] = time.time() * 1000
        self.folder.publish(name, data)
        self.names[writer] = name
        self.told(name)

    def _encoded(self, name: TxlogName, writer: int) -> bytes:
        number = (name.sequence - 1) * self.writers + writer
        meta: dict[str, Any] = {**self.records.meta, "bookkeeper.created-ms": str(int(time.time() * 1000)).encode()}
        meta |= {"bookkeeper.writer": name.writer.encode(), "bookkeeper.incarnation": name.incarnation.encode()}
        meta |= {"bookkeeper.sequence": str(name.sequence).encode(), "bookkeeper.entries": b"1"}
        return avro.encode(meta, self.records.blocks(name, number, 1))
