"""
A fleet: many tables in one catalog, and a thousand writers that are simulated, for benchmarks of one daemon.

A simulated writer publishes real txlogs at its rhythm; the data files they name are links to one small Parquet file.
When a txlog became visible is read from what the catalog pointed to when.
"""

import json
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import schema_to_pyarrow

from benchmarks.support import lake
from benchmarks.support.lake import Watch
from benchmarks.support.synthetic import BASE_US, data_file, file_name, moment
from bookkeeper.catalogs.open import open_catalog
from bookkeeper.commands.init import initialise, schema_for
from bookkeeper.config.settings import Catalog, Table
from bookkeeper.contract import txlog
from bookkeeper.contract.card import Card
from bookkeeper.contract.names import TxlogName, new_incarnation
from bookkeeper.contract.txlog import Envelope
from bookkeeper.contract.txlog_folder import Folder
from bookkeeper.format import avro
from bookkeeper.format.avro import Block
from bookkeeper.ledger.view import TXLOGS
from bookkeeper.stores.open import open_store

ROWS, NAMESPACE = 300, "fleet"
_TOKEN = b"@"
_DAY_US = 86_400_000_000
_SEQUENCE = re.compile(rb'"last-sequence-number":\s*(\d+)')


def numbered(count: int) -> list[str]:
    """
    The names of so many tables.
    """
    return [f"t{number:03d}" for number in range(count)]


@dataclass
class Member:
    """One table of the fleet, its writers, and how a txlog of theirs is made."""

    name: str
    card: Card
    pending: Path
    source: Path
    runs: list[TxlogName]
    before: bytes = b""
    after: bytes = b""
    meta: Mapping[str, bytes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        size = self.source.stat().st_size
        token = _TOKEN * len(file_name(self.runs[0], 0))
        file = data_file(self.card.schema, f"{self.card.data_path}/{token.decode()}", 0, ROWS, size)
        file = replace(file, partition=(BASE_US // _DAY_US,))
        encoded = txlog.encode(
            Envelope(self.runs[0].at(1), self.card.table_uuid, 0), self.card.schema, self.card.spec, [file]
        )
        found = avro.decode(encoded, 2**20)
        self.meta = found.meta
        self.before, _, self.after = found.blocks[0].payload.partition(token)

    def publish(self, writer: int) -> TxlogName:
        """The next txlog of one of its writers; its data file is a link."""
        run = self.runs[writer] = self.runs[writer].at(self.runs[writer].sequence + 1)
        name = file_name(run, 1)
        os.link(self.source, f"{self.card.data_path.removeprefix('file://')}/{name}")
        self.put(str(run), self._encoded(run, name.encode()))
        return run

    def put(self, name: str, data: bytes) -> None:
        """A file in pending/, whole at once."""
        temporary = self.pending / f"{name}.tmp"
        temporary.write_bytes(data)
        temporary.rename(self.pending / name)

    def _encoded(self, run: TxlogName, token: bytes) -> bytes:
        own = {
            "writer": run.writer,
            "incarnation": run.incarnation,
            "sequence": str(run.sequence),
            "created-ms": str(int(time.time() * 1000)),
        }
        meta = {**self.meta, **{f"bookkeeper.{key}": value.encode() for key, value in own.items()}}
        return avro.encode(meta, [Block(1, self.before + token + self.after)])


@dataclass
class Fleet:
    """The tables, by name, and where they lie."""

    root: Path
    catalog: Catalog
    members: dict[str, Member]
    #: keys of each table's section
    table: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def at(cls, root: Path, names: Sequence[str], writers: int) -> "Fleet":
        """New tables below `root`, each with so many writers."""
        settings = Catalog("lake", {"type": "sql", "uri": f"sqlite:///{root}/cat.db", "warehouse": f"file://{root}/wh"})
        catalog, members = open_catalog(settings, create=True), {}
        for name in names:
            table = Table(name=name, identifier=f"{NAMESPACE}.{name}")
            done = initialise(catalog, table, schema_for(table))
            members[table.name] = _member(root, table.name, Folder(open_store(done.folder)), writers)
        return cls(root, settings, members)

    def config(self, names: Sequence[str], reaper: Mapping[str, Any] | None = None, **bookkeeper: Any) -> Path:
        """A configuration with these tables."""
        sections: dict[str, Mapping[str, Any]] = {
            "catalog": {"name": self.catalog.name, **self.catalog.properties},
            "bookkeeper": {"listen": "", **bookkeeper},
            "reaper": reaper or {},
            **{f"tables.{name}": {"identifier": f"{NAMESPACE}.{name}", **self.table} for name in names},
        }
        return lake.written(self.root / "bookkeeper.toml", sections)

    def pending(self, names: Sequence[str]) -> int:
        """How many txlogs wait."""
        return sum(name.endswith(".avro") for table in names for name in os.listdir(self.members[table].pending))


def _member(root: Path, name: str, folder: Folder, writers: int) -> Member:
    card = folder.card()
    pending = Path(folder.store.url.removeprefix("file://")) / "pending"
    pending.mkdir(parents=True, exist_ok=True)
    Path(card.data_path.removeprefix("file://")).mkdir(parents=True, exist_ok=True)
    rnd = Random(name)
    runs = [
        TxlogName(f"w{number:03d}", new_incarnation(int(time.time() * 1000), rnd.randbytes(10)), 0)
        for number in range(writers)
    ]
    return Member(name, card, pending, _source(root, card, name), runs)


def _source(root: Path, card: Card, name: str) -> Path:
    """A small file of rows; one for each table, for a file has only so many links."""
    arrow = schema_to_pyarrow(card.schema)
    columns = {
        "timestamp": pa.repeat(pa.scalar(moment(0), arrow.field("timestamp").type), ROWS),
        "key": pa.array([f"k{number:08d}" for number in range(ROWS)], arrow.field("key").type),
        "value": pa.array([b"v" * 20] * ROWS, arrow.field("value").type),
    }
    path = root / f"{name}.parquet"
    pq.write_table(pa.table([columns[field.name] for field in arrow], schema=arrow), path)
    return path


def visible(watch: Watch, names: Sequence[str]) -> dict[str, float]:
    """
    When each txlog of these tables could be seen, by `table/txlog`.
    """
    found = dict[str, float]()
    for name in names:
        times = [(_number(location), at) for at, location in watch.seen[name]]
        for sequence, txlogs in _snapshots(watch.seen[name][-1][1]):
            at = next((at for number, at in times if number >= sequence), None)
            found |= {f"{name}/{txlog}": at for txlog in txlogs if at is not None}
    return found


def _number(location: str) -> int:
    """The sequence number a metadata file ends with."""
    found = _SEQUENCE.search(Path(location.removeprefix("file://")).read_bytes())
    assert found is not None, location
    return int(found[1])


def _snapshots(location: str) -> Iterator[tuple[int, list[str]]]:
    """Sequence number and txlogs of each snapshot; read without Iceberg, for there are thousands."""
    for snapshot in json.loads(Path(location.removeprefix("file://")).read_bytes())["snapshots"]:
        yield (
            snapshot["sequence-number"],
            [
                f"{run}.{number:010d}.txlog.avro"
                for run, _, span in (part.rpartition(":") for part in snapshot["summary"].get(TXLOGS, "").split())
                for number in range(int(span.partition("-")[0]), int(span.rpartition("-")[2]) + 1)
            ],
        )


def written(fleet: Fleet, names: Sequence[str], per_second: float, seconds: float) -> dict[str, float]:
    """
    Lets all writers of these tables publish in turns, so many txlogs a second in all; when each was published.
    """
    writers = [(fleet.members[name], writer) for name in names for writer in range(len(fleet.members[name].runs))]
    Random(7).shuffle(writers)
    began, published = time.time(), dict[str, float]()
    for number in range(int(per_second * seconds)):
        if (ahead := began + number / per_second - time.time()) > 0:
            time.sleep(ahead)
        member, writer = writers[number % len(writers)]
        run = member.publish(writer)
        published[f"{member.name}/{run}"] = time.time()
    return published


def drained(fleet: Fleet, names: Sequence[str], seconds: float = 60) -> Iterator[int]:
    """
    Waits until nothing is pending; how much still is, each tenth of a second.
    """
    deadline = time.monotonic() + seconds
    while (waiting := fleet.pending(names)) and time.monotonic() < deadline:
        yield waiting
        time.sleep(0.1)
