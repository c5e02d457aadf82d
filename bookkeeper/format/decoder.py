"""
Decodes manifest records in full, strictly and within bounds.

Every byte must belong to a record; whatever the bytes are, nothing but TxlogCorrupt is raised.
"""

import io
from typing import Any

from fastavro import schemaless_reader

from bookkeeper.errors import TxlogCorrupt
from bookkeeper.format.avro import Block
from bookkeeper.format.entries import Entry, from_record
from bookkeeper.format.layout import Layout

#: of one record: decoding takes about 100 times its bytes for a moment; 10,000 columns with all metrics fit
RECORD_BYTES = 2**22


def decode_block(block: Block, layout: Layout) -> list[Entry]:
    """
    Every record of a block; raises TxlogCorrupt.
    """
    if block.count > len(block.payload):
        raise TxlogCorrupt(f"{block.count} records in {len(block.payload)} bytes")
    entries: list[Entry] = []
    at = 0
    while len(entries) < block.count:
        window = block.payload[at : at + RECORD_BYTES]
        at += _decode_window(window, block.count - len(entries), layout, entries)
    if at != len(block.payload):
        raise TxlogCorrupt(f"{len(block.payload) - at} bytes behind the last record of a block")
    return entries


def _decode_window(window: bytes, most: int, layout: Layout, entries: list[Entry]) -> int:
    """Appends the records that lie whole in `window`, at least one; returns the bytes they fill."""
    stream, used = io.BytesIO(window), 0
    for number in range(most):
        try:
            record: Any = schemaless_reader(stream, layout.schema, None)
            entry = from_record(record)
        except (EOFError, ValueError, TypeError, LookupError, OverflowError, MemoryError) as exc:
            if number == 0:
                raise TxlogCorrupt(f"a record does not decode: {str(exc) or type(exc).__name__}") from exc
            break  # cut by the window, or broken: the next window starts with it and decides
        _check_ints(entry, layout)
        entries.append(entry)
        used = stream.tell()
    return used


def decode_one(payload: bytes, at: int, layout: Layout) -> tuple[Entry, int]:
    """
    The record that starts at `at`, and where it ends; raises TxlogCorrupt.
    """
    entries: list[Entry] = []
    used = _decode_window(payload[at : at + RECORD_BYTES], 1, layout, entries)
    return entries[0], at + used


def _check_ints(entry: Entry, layout: Layout) -> None:
    for value, (_, kind) in zip(entry.data_file.partition, layout.partition, strict=True):
        # An Avro int has 32 bits, but the reader takes 64: Java would fail on what we then write.
        if kind == "int" and value is not None and not -(2**31) <= value < 2**31:
            raise TxlogCorrupt(f"partition value {value} is no int")
