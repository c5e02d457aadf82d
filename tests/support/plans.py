"""Txlogs and marks made up for pure tests."""

from typing import Any

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema

from bookkeeper.contract.marks import Mark, Marks, WriterMarks
from bookkeeper.contract.names import TxlogName
from bookkeeper.contract.txlog import Txlog
from bookkeeper.format import manifest
from bookkeeper.format.entries import DataFile, added
from bookkeeper.tick.plan_batch import Batch, CheckedTxlogs, plan
from bookkeeper.tick.select import Limits

ONE = "01910000-0000-7000-8000-000000000001"
TWO = "01920000-0000-7000-8000-000000000002"
NO_LIMITS = Limits(10**9, 10**18, 10**9)
HEADER = manifest.header(Schema(), PartitionSpec())
CREATED = 2_000_000_000_000


def name(sequence: int, run: str = ONE, writer: str = "w") -> TxlogName:
    return TxlogName(writer, run, sequence)


def names(*sequences: int, run: str = ONE, writer: str = "w") -> list[TxlogName]:
    return [name(number, run, writer) for number in sequences]


def txlog(
    about: TxlogName, *paths: str, size: int = 1, position: bytes | None = None, after: bytes | None = None
) -> Txlog:
    """A txlog of files of one row each; by default one file that no other txlog names."""
    named = paths or (f"file:///t/data/{about}.parquet",)
    entries = [added(DataFile(path, "PARQUET", (), 1, size)) for path in named]
    body = manifest.decode(manifest.encode(HEADER, entries), 2**24)
    return Txlog(about, "uuid", CREATED, 0, 0, (), position, after, body)


def good(*items: Txlog | TxlogName) -> dict[TxlogName, Txlog]:
    """Txlogs by name; names get a plain txlog."""
    made = [item if isinstance(item, Txlog) else txlog(item) for item in items]
    return {item.name: item for item in made}


def marks(**incarnations: Mark) -> Marks:
    """Marks of writer `w`: `one` and `two` are its incarnations."""
    runs = {"one": ONE, "two": TWO}
    return Marks("folder", writers={"w": WriterMarks(None, {runs[key]: mark for key, mark in incarnations.items()})})


def planned(order: list[TxlogName], known: CheckedTxlogs, before: Marks | None = None, **more: Any) -> Batch:
    """The plan, without limits unless told."""
    return plan(order, known, before or Marks("folder"), more.get("limits", NO_LIMITS))


def sequences(batch: Batch) -> list[int]:
    """The sequences of a batch, in its order."""
    return [item.sequence for item in batch.names]
