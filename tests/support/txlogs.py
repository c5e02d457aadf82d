"""Txlogs for tests: of the default table, with any header and any number of entries."""

from collections.abc import Iterable, Mapping

from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import DayTransform
from pyiceberg.types import BinaryType, NestedField, StringType, TimestamptzType

from bookkeeper.contract.names import TxlogName, new_incarnation
from bookkeeper.contract.txlog import Envelope, encode
from bookkeeper.format import avro
from bookkeeper.format.entries import DataFile

SCHEMA = Schema(
    NestedField(1, "timestamp", TimestamptzType(), required=True),
    NestedField(2, "key", StringType(), required=True),
    NestedField(3, "value", BinaryType(), required=False),
    schema_id=0,
)
SPEC = PartitionSpec(PartitionField(1, 1000, DayTransform(), "timestamp_day"), spec_id=0)
NAME = TxlogName("ingest-7", new_incarnation(1_795_262_400_000, bytes(range(10))), 42)
ENVELOPE = Envelope(NAME, "6c1f0f1e-9a3b-4c52-8e0e-000000000001", 1_795_262_400_123)
MOST = 2**24


def data_file(number: int) -> DataFile:
    """
    A data file as a writer would describe it.
    """
    path = f"file:///lake/events/data/timestamp_day=2026-11-21/{NAME.incarnation}-{number:05d}.parquet"
    counts, nulls = {1: 100, 2: 100, 3: 100}, {1: 0, 2: 0, 3: number % 7}
    low, high = (moment.to_bytes(8, "little") for moment in (1_795_262_400_000_000, 1_795_262_409_999_999))
    lower, upper = {1: low, 2: b"aardvark", 3: b"\x00"}, {1: high, 2: b"zebra"}
    sizes = {1: 120, 2: 340 + number, 3: 170_000}
    return DataFile(path, "PARQUET", (20_778,), 100, 171_000 + number, sizes, counts, nulls, {}, lower, upper, (4,), 0)


def txlog(entries: int = 1) -> bytes:
    """
    A good txlog of NAME.
    """
    return encode(ENVELOPE, SCHEMA, SPEC, [data_file(number) for number in range(entries)])


def with_header(data: bytes, changes: Mapping[str, bytes | None]) -> bytes:
    """
    The same entries under another header; None takes a key away.
    """
    found = avro.decode(data, MOST)
    header = {**found.meta, **changes}
    return avro.encode({key: value for key, value in header.items() if value is not None}, found.blocks)


def own(**changes: bytes | None) -> dict[str, bytes | None]:
    """
    Changes to our own header keys, `_` for `-`.
    """
    return {f"bookkeeper.{key.replace('_', '-')}": value for key, value in changes.items()}


def block_ends(data: bytes) -> Iterable[int]:
    """
    Where the header and each block but the last end: cut there, it is still a whole Avro file.
    """
    blocks = avro.decode(data, MOST).blocks
    meta = avro.read_header(data).meta
    for count in range(len(blocks)):
        yield len(avro.encode({key: meta[key] for key in meta}, blocks[:count]))
