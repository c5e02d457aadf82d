"""
Files of rows and lines that users give, as `writer lines` loads them and `bookkeeper init --like` looks at them.
"""

import csv
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
from pyarrow import csv as arrow_csv

from bookkeeper.errors import NotPossible

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_COMPRESSIONS = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd", b"BZh": "bz2", b"PK\x03\x04": "zip"}
_KINDS = {b"PAR1": "Parquet", b"ARROW1": "Arrow"}
# The length of lines is bounded where they are read; the module's own bound on a field is 128 KiB.
csv.field_size_limit(2**31 - 1)


def compression(name: str) -> str | None:
    """
    How a file is compressed, by its first bytes: gzip, zstd, bz2, zip or not at all.
    """
    with open(name, "rb") as file:
        first = file.read(4)
    return next((kind for magic, kind in _COMPRESSIONS.items() if first.startswith(magic)), None)


def row_kind(name: str) -> str | None:
    """
    Whether a file is Parquet or Arrow, by its first bytes; None for lines.
    """
    with open(name, "rb") as file:
        first = file.read(6)
    return next((kind for magic, kind in _KINDS.items() if first.startswith(magic)), None)


@contextmanager
def opened(name: str) -> Iterator[tuple[Any, Callable[[], int]]]:
    """
    A file, decompressed as it is read, and how much of it was read from the disk.

    Raises NotPossible for a zip archive, and where what is compressed is damaged or cut.
    """
    kind = compression(name)
    if kind == "zip":
        hint = "Unpack it, and give the file that is in it; of a spreadsheet make a CSV file."
        raise NotPossible(f"{name} is a zip archive or a spreadsheet", hint=hint)
    if kind is None:
        with open(name, "rb") as file:
            yield file, file.tell
        return
    try:
        with pa.OSFile(name) as raw, pa.CompressedInputStream(raw, kind) as file:
            yield file, raw.tell
    except OSError as exc:
        hint = "Make the file anew; what was published of it stays, and is not loaded again."
        raise NotPossible(f"{name} cannot be decompressed as {kind}: {exc}", hint=hint) from exc


def delimiter_of(files: Sequence[str]) -> str:
    """
    The delimiter that the files' names end in.
    """
    return "\t" if all_end(files, ".tsv") else ","


def all_end(files: Sequence[str], *endings: str) -> bool:
    """
    Whether all names, of which there is one, end so, compressed or not.
    """
    names = [re.sub(r"\.(gz|zst|zstd|bz2)$", "", name.lower()) for name in files]
    return bool(names) and all(name.endswith(endings) for name in names)


def csv_cells(line: bytes, delimiter: str) -> list[str]:
    """
    The fields of one CSV record; raises ValueError where the line is none.
    """
    try:
        return next(csv.reader([line.decode("utf-8").rstrip("\r\n")], delimiter=delimiter, strict=True), [])
    except csv.Error as exc:
        raise ValueError(str(exc)) from exc


def csv_header(line: bytes, delimiter: str) -> list[str]:
    """
    The names in the first line of a CSV file; raises NotPossible, with what to do, where it is no CSV record.
    """
    try:
        return csv_cells(line, delimiter)
    except ValueError as exc:
        hint = "Is it CSV with a header, in UTF-8? `iconv -f latin1 -t utf-8` makes it so."
        if line.startswith((b"\xff\xfe", b"\xfe\xff")):
            hint = "It is UTF-16: `iconv -f utf-16 -t utf-8` makes UTF-8 of it."
        elif b"\r" in line.rstrip(b"\r\n"):
            hint = "Its lines end in a carriage return alone: `tr '\\r' '\\n'` makes line breaks of them."
        raise NotPossible(f"line 1 is no CSV header: {exc}", hint=hint) from exc


def csv_table(
    data: bytes, count: int, types: Mapping[str, pa.DataType], delimiter: str, nulls: Sequence[str]
) -> pa.Table | None:
    """
    Those of the `count` columns of CSV lines without a header that have a type, named "0", "1"...

    None where Arrow refuses the lines, or the delimiter.
    """
    names = [str(index) for index in range(count)]
    try:
        return arrow_csv.read_csv(
            pa.BufferReader(data),
            read_options=arrow_csv.ReadOptions(use_threads=False, block_size=len(data) + 1, column_names=names),
            parse_options=arrow_csv.ParseOptions(delimiter=delimiter),
            convert_options=arrow_csv.ConvertOptions(
                include_columns=list(types),
                column_types=dict(types),
                null_values=["", *nulls],
                strings_can_be_null=True,
                true_values=["true", "TRUE", "True"],
                false_values=["false", "FALSE", "False"],
            ),
        )
    except (pa.ArrowInvalid, ValueError):
        return None
