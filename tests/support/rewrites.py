"""Rewrites for tests: of the default table, with any header."""

from typing import Any

from bookkeeper.contract.rewrite import Base, ReplacedFile, encode
from bookkeeper.format.entries import DataFile
from tests.support.txlogs import SCHEMA, SPEC

ID = "01a1fdf4-2b80-7001-8203-0405060708aa"
TABLE = "6c1f0f1e-9a3b-4c52-8e0e-000000000001"
BASE = Base(TABLE, 9_223_372_036_854_775_807, 12, ("s3://lake/demo/events/data/positions-1.parquet",))


def event_file(name: str, rows: int = 100, day: int = 20_778) -> DataFile:
    """
    A data file as a compactor describes it.
    """
    low, high = (moment.to_bytes(8, "little") for moment in (1_795_262_400_000_000, 1_795_262_409_999_999))
    return DataFile(
        path=f"s3://lake/demo/events/data/timestamp_day=2026-11-21/{name}.parquet",
        file_format="PARQUET",
        partition=(day,),
        record_count=rows,
        size_bytes=1700 * rows,
        value_counts={1: rows, 2: rows},
        null_value_counts={1: 0, 2: 0},
        lower_bounds={1: low, 2: b"aardvark"},
        upper_bounds={1: high, 2: b"zebra"},
        split_offsets=(4,),
        sort_order_id=0,
    )


NEW = [event_file(f"{ID}-00001", 200), event_file(f"{ID}-00002", 90)]
REPLACED = [ReplacedFile(event_file("a"), 4, 4), ReplacedFile(event_file("b", 200), 5, 9)]


def rewrite(new: Any = NEW, replaced: Any = REPLACED, base: Base = BASE, rewrite_id: str = ID) -> bytes:
    """
    A good rewrite.
    """
    return encode(rewrite_id, base, SCHEMA, SPEC, new, replaced)
