"""
What the golden files hold: the content ours are made from, and how any of them is described in JSON.
"""

import hashlib
import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import DataFile as IcebergFile
from pyiceberg.manifest import DataFileContent, FileFormat, ManifestEntry, ManifestEntryStatus, write_manifest
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform, DayTransform, IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import (
    BinaryType,
    DecimalType,
    DoubleType,
    LongType,
    NestedField,
    StringType,
    TimestamptzType,
    UUIDType,
)

from bookkeeper.contract.names import TxlogName
from bookkeeper.contract.txlog import Envelope, StepFile, Txlog, encode, encode_steps
from bookkeeper.format import avro
from bookkeeper.format.entries import DataFile

FOLDER = Path(__file__).parent
TABLE = "6c1f0f1e-9a3b-4c52-8e0e-000000000001"
RUN = "01a1fdf4-2b80-7001-8203-040506070809"
CREATED_MS = 1_795_262_400_123
DAY = 20_778  # 2026-11-21
WHOLE = 10  # so many entries are described one by one
MOST = 2**24

EVENTS = Schema(
    NestedField(1, "timestamp", TimestamptzType(), required=True),
    NestedField(2, "key", StringType(), required=True),
    NestedField(3, "value", BinaryType(), required=False),
    schema_id=0,
)
BY_DAY = PartitionSpec(PartitionField(1, 1000, DayTransform(), "timestamp_day"), spec_id=0)
SALES = Schema(
    NestedField(1, "timestamp", TimestamptzType(), required=True),
    NestedField(2, "customer", UUIDType(), required=False),
    NestedField(3, "price", DecimalType(10, 2), required=False),
    NestedField(4, "1st place", StringType(), required=False),
    NestedField(5, "weight", DoubleType(), required=False),
    schema_id=4,
)
BY_MANY = PartitionSpec(
    PartitionField(4, 1003, BucketTransform(16), "1st place_bucket"),
    PartitionField(3, 1001, IdentityTransform(), "price"),
    PartitionField(2, 1002, IdentityTransform(), "customer"),
    spec_id=2,
)


CUSTOMERS = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "name", StringType(), required=False),
    NestedField(3, "op", StringType(), required=False),
    NestedField(4, "seq", LongType(), required=False),
    schema_id=3,
    identifier_field_ids=[1],
)
BY_ID = PartitionSpec(PartitionField(1, 1000, BucketTransform(4), "id_bucket"), spec_id=0)


@dataclass(frozen=True)
class Content:
    """What one of our own golden files is made from."""

    envelope: Envelope
    schema: Schema
    spec: PartitionSpec
    files: tuple[DataFile, ...]

    def encoded(self) -> bytes:
        return encode(self.envelope, self.schema, self.spec, self.files)


@dataclass(frozen=True)
class Steps:
    """What a golden file with deletes is made from."""

    envelope: Envelope
    spec: PartitionSpec
    data: tuple[StepFile, ...]
    delete_spec: PartitionSpec
    deletes: tuple[StepFile, ...]
    span: int

    def encoded(self) -> bytes:
        keys = CUSTOMERS.identifier_field_ids
        return encode_steps(
            self.envelope, CUSTOMERS, self.spec, self.data, self.delete_spec, self.deletes, keys, self.span
        )


def _envelope(sequence: int, **more: Any) -> Envelope:
    return Envelope(TxlogName("ingest-7", RUN, sequence), TABLE, CREATED_MS, **more)


def _micros(seconds: int) -> bytes:
    return (1_795_262_400_000_000 + seconds * 1_000_000).to_bytes(8, "little")


def _event(number: int, *partition: int) -> DataFile:
    folder = "timestamp_day=2026-11-21/" if partition else ""
    return DataFile(
        path=f"s3://lake/demo/events/data/{folder}ingest-7-{RUN}-0000000001-{number:05d}.parquet",
        file_format="PARQUET",
        partition=partition,
        record_count=1000 + number,
        size_bytes=171_000 + number,
        column_sizes={1: 1200, 2: 3400, 3: 160_000},
        value_counts={1: 1000 + number, 2: 1000 + number, 3: 1000 + number},
        null_value_counts={1: 0, 2: 0, 3: number},
        lower_bounds={1: _micros(number), 2: b"aardvark", 3: b"\x00"},
        upper_bounds={1: _micros(number + 9), 2: b"zebra"},
        split_offsets=(4, 65_540),
        sort_order_id=0,
    )


def _sale(number: int, *partition: Any) -> DataFile:
    return DataFile(
        path=f"abfss://lake@account.dfs.core.windows.net/sales/data/{RUN}-0000000003-{number:05d}.avro",
        file_format="AVRO",
        partition=partition,
        record_count=number,
        size_bytes=500,
        value_counts={5: number},
        nan_value_counts={5: 1},
        lower_bounds={5: b"\x00" * 8},
    )


def _customers(number: int, rows: int, *partition: int) -> DataFile:
    """Rows of customers, or tombstones of them."""
    return DataFile(
        path=f"s3://lake/demo/customers/data/ingest-7-{RUN}-0000000008-{number:05d}.parquet",
        file_format="PARQUET",
        partition=partition,
        record_count=rows,
        size_bytes=2000 + number,
        value_counts={1: rows, 2: rows, 3: rows, 4: rows},
        null_value_counts={1: 0, 2: 0, 3: 0, 4: 0},
        lower_bounds={1: _long(number)},
        upper_bounds={1: _long(number + rows)},
        split_offsets=(4,),
    )


def _deleted(number: int, rows: int, *partition: int) -> DataFile:
    """An equality-delete file of keys of customers."""
    return DataFile(
        path=f"s3://lake/demo/customers/data/ingest-7-{RUN}-0000000008-{number:05d}-deletes.parquet",
        file_format="PARQUET",
        partition=partition,
        record_count=rows,
        size_bytes=700 + number,
        value_counts={1: rows},
        null_value_counts={1: 0},
        lower_bounds={1: _long(number)},
        upper_bounds={1: _long(number + rows)},
    )


def _long(value: int) -> bytes:
    return value.to_bytes(8, "little", signed=True)


def _unscaled(cents: int) -> bytes:
    return cents.to_bytes(5, "big", signed=True)


OURS: dict[str, Content | Steps] = {
    "unpartitioned": Content(_envelope(1), EVENTS, UNPARTITIONED_PARTITION_SPEC, (_event(1), _event(2))),
    "by-day": Content(_envelope(2), EVENTS, BY_DAY, (_event(1, DAY), _event(2, DAY + 1))),
    "by-bucket-decimal-uuid": Content(
        _envelope(3),
        SALES,
        BY_MANY,
        (
            _sale(1, 15, _unscaled(12_345), bytes(range(16))),
            _sale(2, 0, _unscaled(-1), b"\xff" * 16),
            _sale(3, None, None, None),
        ),
    ),
    "positions": Content(
        _envelope(4, position=b"\x00offset\xff", previous_position=b""), EVENTS, BY_DAY, (_event(1, DAY),)
    ),
    "many": Content(_envelope(5), EVENTS, BY_DAY, tuple(_event(number, DAY) for number in range(1500))),
    # An upsert, then deletes with their shadow, then rows whose keys are new.
    "steps": Steps(
        _envelope(8, position=b"lsn 9", previous_position=b"lsn 5"),
        PartitionSpec(PartitionField(4, 1000, IdentityTransform(), "seq"), spec_id=0),
        (
            StepFile(_customers(1, 100, 7), 1),
            StepFile(_customers(2, 3, 7), 1),
            StepFile(_customers(3, 50, 8), 3),
        ),
        PartitionSpec(spec_id=1),
        (StepFile(_deleted(4, 100), 1), StepFile(_deleted(5, 3), 2)),
        4,
    ),
    # The first step only deletes: nothing is above it but its shadow, which has number 0.
    "deletes-by-bucket": Steps(
        _envelope(9),
        BY_ID,
        (StepFile(_customers(1, 3, 2), 0),),
        BY_ID,
        (StepFile(_deleted(2, 2, 2), 1), StepFile(_deleted(3, 1, 3), 1)),
        2,
    ),
    "deletes-only": Steps(
        _envelope(10), PartitionSpec(spec_id=0), (), PartitionSpec(spec_id=0), (StepFile(_deleted(1, 9), 1),), 2
    ),
    "offsets": Content(
        _envelope(11, position=b"12", previous_position=b"11", offsets={"orders/1": "4711/3", "orders/0": "42/3"}),
        EVENTS,
        BY_DAY,
        (_event(1, DAY),),
    ),
    # Read on over what left no rows, at the start of the source.
    "offsets-only": Content(_envelope(12, position=b"1", offsets={"orders/0": "43/3"}), EVENTS, BY_DAY, ()),
    "offsets-and-deletes": Steps(
        _envelope(13, position=b"2", previous_position=b"1", offsets={"customers/0": "9"}),
        PartitionSpec(spec_id=0),
        (StepFile(_customers(1, 100), 1),),
        PartitionSpec(spec_id=0),
        (StepFile(_deleted(4, 100), 1),),
        2,
    ),
}


def pyicebergs(folder: Path) -> bytes:
    """
    The content of `by-day` in the layout of pyiceberg's own writer: partition required, no field 143.
    """
    content = OURS["by-day"]
    assert isinstance(content, Content)
    content = replace(content, envelope=_envelope(6))
    output = PyArrowFileIO().new_output(f"file://{folder}/manifest.avro")
    with write_manifest(2, content.spec, content.schema, output, 1, "deflate") as writer:
        for file in content.files:
            entry = ManifestEntry.from_args(
                status=ManifestEntryStatus.ADDED, snapshot_id=None, data_file=_icebergs(file)
            )
            writer.add_entry(entry)
    ours, theirs = (avro.decode(data, MOST) for data in (content.encoded(), (folder / "manifest.avro").read_bytes()))
    keys = {key: value for key, value in ours.meta.items() if key.startswith("bookkeeper.")}
    return avro.encode({**theirs.meta, **keys}, theirs.blocks)


def _icebergs(file: DataFile) -> IcebergFile:
    same = asdict(file)
    path, size, kind = same.pop("path"), same.pop("size_bytes"), FileFormat[same.pop("file_format")]
    made = IcebergFile.from_args(
        content=DataFileContent.DATA,
        file_path=path,
        file_format=kind,
        file_size_in_bytes=size,
        equality_ids=None,
        **same | {"partition": Record(*file.partition), "split_offsets": list(file.split_offsets or ())},
    )
    made.spec_id = 0
    return made


#: made by other libraries: java and java-offsets by WriteTxlog.java, java-steps by WriteSteps.java
OTHERS: dict[str, TxlogName] = {
    "pyiceberg": TxlogName("ingest-7", RUN, 6),
    "java": TxlogName("java-1", RUN, 7),
    "java-steps": TxlogName("java-1", RUN, 8),
    "java-offsets": TxlogName("orders-14", RUN, 9),
}
NAMES = {**{key: content.envelope.name for key, content in OURS.items()}, **OTHERS}


def described(txlog: Txlog, header: dict[str, Any]) -> dict[str, Any]:
    """
    A txlog as JSON data; of many entries the first two, and a digest of all.
    """
    entries = [plain(asdict(entry)) for entry in txlog.entries]
    data = {
        "file name": str(txlog.name),
        "header": plain(header),
        "partition": plain(txlog.partition),
        "entries": len(entries),
        "rows": txlog.row_count,
        "first": entries if len(entries) <= WHOLE else entries[:2],
    }
    if txlog.deletes is not None:
        data |= {
            "span": txlog.span,
            "numbers": list(txlog.numbers),
            "deletes": {
                "spec": txlog.deletes.spec_id,
                "partition": plain(txlog.deletes.partition),
                "numbers": list(txlog.deletes.numbers),
                "entries": [plain(asdict(entry)) for entry in txlog.deletes.entries],
            },
        }
    if txlog.offsets:
        data["offsets"] = dict(txlog.offsets)
    digest = hashlib.sha256(json.dumps(entries, sort_keys=True).encode()).hexdigest()
    return data | {"sha256 of all": digest} if len(entries) > WHOLE else data


def plain(value: Any) -> Any:
    """
    Bytes as hexadecimal text with a leading 0x, mappings with text keys, tuples as lists.
    """
    if isinstance(value, bytes):
        return f"0x{value.hex()}"
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, (tuple, list)) else value


def our_header(data: bytes) -> dict[str, Any]:
    """
    The header of a txlog but for the Avro schema: our keys as bytes, Iceberg's as text.
    """
    meta = avro.read_header(data).meta
    positions = ("bookkeeper.position", "bookkeeper.previous-position")
    return {
        key: value if key in positions else value.decode()
        for key, value in sorted(meta.items())
        if key not in ("avro.schema", "iceberg.schema", "bookkeeper.deletes")
    }
