"""
Reads damaged Parquet files as the compactor does, in a process of its own: a defect of pyarrow would end it.

    python -m tests.reaper.compactor.hostile SEED COUNT

Ends with 0 when each was refused, or had all its rows.
"""

import io
import random
import sys
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import schema_to_pyarrow

from bookkeeper.format.entries import DataFile
from bookkeeper.format.projection import Projection
from reaper.compactor.group import CannotRewrite
from reaper.compactor.pacing import Pacing
from reaper.compactor.read_files import Files
from tests.support import wide

ROWS = 50
#: the footer is most of a small file
FOOTER = 6000


def whole() -> bytes:
    """A file of all kinds of columns."""
    rows = [
        {"text": f"k{number % 3}", "large": number, "double": number / 3, "truth": True, "tags": ["a", None]}
        | {"box": {"inner": number, "note": "n"}, "counts": [("a", 1)]}
        for number in range(ROWS)
    ]
    out = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows, wide.ARROW), out, compression="zstd", row_group_size=20)
    return out.getvalue()


def damaged(good: bytes, noise: random.Random) -> bytes:
    """With a few bytes changed, most of them in the footer."""
    data = bytearray(good)
    for _ in range(noise.choice([1, 1, 2, 5, 20])):
        begin = 0 if noise.random() < 0.3 else len(data) - FOOTER
        data[noise.randrange(begin, len(data))] = noise.randrange(256)
    return bytes(data)


def main(seed: int, count: int) -> None:
    """Reads so many of them."""
    files, good, noise, refused = Files.__new__(Files), whole(), random.Random(seed), 0
    pacing = Pacing(None, lambda: False, print, lambda: 0.0)
    target = schema_to_pyarrow(wide.SCHEMA)
    project: Any = SimpleNamespace(projection=lambda source: Projection(source, wide.SCHEMA, target, None, {}))
    files.projection = project.projection  # type: ignore[method-assign]
    for _ in range(count):
        data = damaged(good, noise)
        file = DataFile("x", "PARQUET", (), ROWS, len(data))
        try:
            assert sum(part.num_rows for part in files._rows(file, data, pacing)) == ROWS
        except CannotRewrite:
            refused += 1
    assert count / 2 < refused < count
    print(f"{refused} of {count} refused")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
