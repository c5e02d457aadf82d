"""
The columns of CSV and NDJSON files, from a bounded sample of their first lines.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from bookkeeper.commands.infer.sample import NULL_TEXTS, Column, Sample
from bookkeeper.errors import ConfigInvalid, NotPossible
from bookkeeper.format.csv_json_types import LIST, OBJECT, shown, type_of_json, type_of_text
from bookkeeper.format.input_files import BYTE_ORDER_MARK, csv_cells, csv_header, csv_table, opened
from bookkeeper.format.json_decoder import RepeatedKeys, line_decoder

_CHUNK_BYTES = 2**20
_MOST_LINE_BYTES = 2**24
#: a CSV file is read by Arrow, some 100 MB/s; NDJSON by Python, some 50,000 lines/s
_MOST_CSV_BYTES, _MOST_JSON_BYTES, _MOST_JSON_LINES = 2**28, 2**26, 100_000
_MOST_COLUMNS, _MOST_DEPTH = 1000, 30
_TEXT = pa.large_string()
_SCHEMA_HINT = "Say the columns yourself: --schema FILE; --write-schema FILE of a part of the data is a begin."


def blocks(path: str, most_bytes: int) -> Iterator[bytes]:
    """
    Whole lines in blocks of about 1 MiB, without a byte order mark, until `most_bytes` are read; raises ConfigInvalid.
    """
    rest, read = b"", 0
    with opened(path) as (file, _):
        while data := file.read(_CHUNK_BYTES):
            if not read:
                data = data.removeprefix(BYTE_ORDER_MARK)
            read += len(data)
            cut = data.rfind(b"\n") + 1
            if cut:
                yield rest + data[:cut]
                rest = data[cut:]
                if read >= most_bytes:
                    return
            else:
                rest += data
            if len(rest) > _MOST_LINE_BYTES:
                raise ConfigInvalid(f"{path}: a line of more than 16 MiB", hint="Is it CSV or NDJSON?")
    if rest:
        yield rest


def read_csv(path: str, delimiter: str, nulls: Sequence[str]) -> Sample:
    """
    The columns of a CSV file with a header; raises ConfigInvalid, with the line, where there are none.
    """
    names: list[str] = []
    sample, line, bad, seen = Sample({}), 1, 0, 0
    first_bad = ""
    for read in blocks(path, _MOST_CSV_BYTES):
        seen, block = seen + len(read), read
        if not names:
            head, _, block = read.partition(b"\n")
            names = _header(path, head, delimiter)
            sample.columns = {name: Column() for name in names if name}
        count = block.count(b"\n") + (not block.endswith(b"\n")) if block else 0
        texts = {str(index): _TEXT for index in range(len(names))}
        table = csv_table(block, len(names), texts, delimiter, nulls) if count else None
        if table is not None and table.num_rows == count:
            lines: Sequence[int] = range(line + 1, line + 1 + count)
        else:
            table, lines, wrong = _python_table(block, line, len(names), delimiter, nulls)
            bad += len(wrong)
            first_bad = first_bad or next(iter(wrong), "")
        for name, column in zip(names, table.columns, strict=True):
            if name:
                _see_texts(sample.columns[name], column, lines)
        line, sample.lines = line + count, sample.lines + table.num_rows
    if not sample.lines:
        raise ConfigInvalid(f"{path}: {first_bad or 'a header and no rows'}", hint=_SCHEMA_HINT)
    sample.whole = seen < _MOST_CSV_BYTES
    if "" in names:
        sample.notes.append(
            f"column {names.index('') + 1} of {path} has no name and is left out: load it with --ignore-unknown."
        )
    if bad:
        sample.notes.append(
            f"lines of {path} that are no records: {bad}, first {first_bad}; `writer lines` puts them with the bad "
            "lines."
        )
    return sample


def _header(path: str, head: bytes, delimiter: str) -> list[str]:
    try:
        names = csv_header(head, delimiter)
    except NotPossible as exc:
        raise ConfigInvalid(f"{path}: {exc}", hint=exc.hint) from exc
    twice = sorted({name for name in names if name and names.count(name) > 1})
    if twice:
        places = [str(index + 1) for index, name in enumerate(names) if name == twice[0]]
        raise ConfigInvalid(
            f"{path}: line 1 names {twice[0]!r} in columns {' and '.join(places)}", hint="Rename one of them."
        )
    others = [sign for sign in ";\t|," if sign in (names[0] if len(names) == 1 else "")]
    if others:
        sign = "tab" if others[0] == "\t" else others[0]
        raise ConfigInvalid(f"{path}: one column, {names[0][:60]!r}", hint=f"Give --delimiter '{sign}'.")
    if not any(names):
        raise ConfigInvalid(f"{path}: line 1 names no column", hint="A CSV file needs a header.")
    if len(names) > _MOST_COLUMNS:
        raise ConfigInvalid(f"{path}: {len(names)} columns, {_MOST_COLUMNS} may be", hint=_SCHEMA_HINT)
    return names


def _python_table(
    data: bytes, line: int, count: int, delimiter: str, nulls: Sequence[str]
) -> tuple[pa.Table, list[int], list[str]]:
    """The records that are one a line, the numbers of their lines, and what is wrong with the others."""
    rows, lines, wrong = [], [], []
    for number, text in enumerate(data.split(b"\n"), start=line + 1):
        if not text.strip():
            continue
        try:
            cells = csv_cells(text, delimiter)
        except ValueError as exc:
            wrong.append(f"line {number}: {exc}")
            continue
        if len(cells) != count:
            wrong.append(f"line {number}: {len(cells)} fields, the header has {count}")
            continue
        rows.append([None if not cell or cell in nulls else cell for cell in cells])
        lines.append(number)
    columns = [pa.array([row[index] for row in rows], _TEXT) for index in range(count)]
    return pa.Table.from_arrays(columns, names=[str(index) for index in range(count)]), lines, wrong


def _see_texts(column: Column, texts: pa.ChunkedArray, lines: Sequence[int]) -> None:
    column.values += len(texts) - texts.null_count
    if "string" in column.kinds:
        return
    for text in pc.unique(texts).to_pylist():
        if text is None:
            continue
        if text in NULL_TEXTS:
            if text not in column.null_texts:
                column.null_texts[text] = lines[pc.index(texts, pa.scalar(text, _TEXT)).as_py()]
            continue
        kind = type_of_text(text)
        number = 0 if kind in column.kinds else lines[pc.index(texts, pa.scalar(text, _TEXT)).as_py()]
        column.see(kind, number, text)


def read_ndjson(path: str) -> Sample:
    """
    The keys of JSON objects, one a line; raises ConfigInvalid, with the line.
    """
    root, objects = Column(), _Objects(path)
    return objects.read(root, lambda value, line: objects.see(root, value, line))


def read_changes(path: str) -> tuple[Sample, list[str]]:
    """
    The columns of the rows in Debezium's envelope, one a line, and those that are null in no row and no delete.

    Raises ConfigInvalid, with the line.
    """
    rows, deleted, objects = Column(), Column(), _Objects(path)

    def see(value: dict[str, Any], line: int) -> None:
        message = value["payload"] if value.keys() == {"schema", "payload"} else value
        if message is None:
            return  # a tombstone
        op = message.get("op") if isinstance(message, dict) else None
        if not isinstance(op, str):
            hint = "Is it Debezium's envelope (before, after, op)? Flat rows need no --preset."
            raise ConfigInvalid(f"{path}, line {line}: it is no change, for it has no op", hint=hint)
        row = message.get("before" if op == "d" else "after")
        if isinstance(row, dict):
            objects.see(deleted if op == "d" else rows, row, line)

    sample = objects.read(rows, see)
    able = [name for name, column in rows.fields.items() if column.values == rows.values]
    if deleted.values:
        gone = deleted.fields
        able = [name for name in able if name in gone and gone[name].values == deleted.values]
    return sample, able


def looks_like_changes(sample: Sample) -> bool:
    """
    Whether lines of JSON are in Debezium's envelope, with or without the schema around it.
    """
    columns = sample.columns
    if columns.keys() == {"schema", "payload"}:
        columns = columns["payload"].fields
    return {"before", "after", "op"} <= columns.keys()


class _Objects:
    """The JSON objects of a file, one a line, and the lines that `writer lines` takes for bad, with what is wrong."""

    def __init__(self, path: str) -> None:
        self._path, self._decode = path, line_decoder(decimals=False)
        self._bad: dict[int, str] = {}

    def read(self, root: Column, see: Callable[[dict[str, Any], int], None]) -> Sample:
        number, seen = 0, 0
        for block in blocks(self._path, _MOST_JSON_BYTES):
            for text in block.removesuffix(b"\n").split(b"\n"):
                number, seen = number + 1, seen + len(text) + 1
                value = self._object(number, text) if text.strip() else None
                if value is not None:
                    see(value, number)
                if number >= _MOST_JSON_LINES:
                    break
            if number >= _MOST_JSON_LINES:
                break
        line, what = next(iter(self._bad.items()), (0, ""))
        first = f"line {line}: {what}"
        if not root.fields:
            hint = "It needs one JSON object a line; " + _ONE_A_LINE
            raise ConfigInvalid(f"{self._path}: {first if line else 'no JSON object with a row'}", hint=hint)
        sample = Sample(root.fields, root.values, number < _MOST_JSON_LINES and seen < _MOST_JSON_BYTES)
        if line:
            sample.notes.append(
                f"lines of {self._path} that are no rows: {len(self._bad)}, first {first}; `writer lines` puts them "
                "with the bad lines."
            )
        return sample

    def _object(self, number: int, text: bytes) -> dict[str, Any] | None:
        try:
            value = self._decode(text)
        except ValueError as exc:
            self._bad[number] = str(exc)
            return None
        if isinstance(value, dict):
            return value
        self._bad[number] = f"{type(value).__name__}, not an object"
        return None

    def see(self, column: Column, value: dict[str, Any], line: int, where: str = "", depth: int = 0) -> None:
        """Note the values of one object, but those that no type takes; raises ConfigInvalid."""
        if isinstance(value, RepeatedKeys):
            self._bad.setdefault(line, f"{min(value.repeated)!r} is given twice")
        column.values += 1
        for name, item in value.items():
            if name not in column.fields:
                if len(column.fields) >= _MOST_COLUMNS:
                    raise ConfigInvalid(
                        f"{self._path}, line {line}: {where or 'the lines'} have more than {_MOST_COLUMNS} keys",
                        hint="Are the keys values? Then a map holds them. " + _SCHEMA_HINT,
                    )
                column.fields[name] = Column()
            if item is not None:
                self._see_value(column.fields[name], item, line, f"{where}.{name}".lstrip("."), depth)

    def _see_value(self, column: Column, value: Any, line: int, where: str, depth: int) -> None:
        if depth > _MOST_DEPTH:
            raise ConfigInvalid(f"{self._path}, line {line}: {where[:80]} is nested too deeply", hint=_SCHEMA_HINT)
        kind = type_of_json(value)
        if kind is None:
            self._bad.setdefault(line, f"no type takes {shown(value)} of {where[:80]}")
            return
        if kind == OBJECT:
            column.see(kind, line, "{...}")
            self.see(column, value, line, where, depth + 1)
            return
        column.values += 1
        column.see(kind, line, str(value) if kind != LIST else "[...]")
        if kind == LIST:
            column.element = column.element or Column()
            for item in value:
                if item is not None:
                    self._see_value(column.element, item, line, f"{where}[]", depth + 1)


_ONE_A_LINE = "`jq -c '.[]' file.json` makes lines of an array, `jq -c .` of objects on several lines."
