"""
What docs/maintain/txlog-format.md shows of real bytes: `python -m tests.golden.annotate` writes it there.

The Avro schema, a golden txlog byte by byte, and of WriteTxlog.java and WriteSteps.java what is between their marks.
"""

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from bookkeeper.format import avro, manifest
from bookkeeper.format.avro import Cursor
from bookkeeper.format.layout import parse_layout
from tests.golden.contents import BY_DAY, EVENTS, FOLDER, MOST

DOC = FOLDER.parents[1] / "docs" / "maintain" / "txlog-format.md"
BEGIN = "<!-- {name}: made by `python -m tests.golden.annotate` -->\n"
END = "<!-- end -->\n"
SHOWN = 20  # bytes of a line; longer ones are cut

Line = tuple[int, bytes, str]


def schema() -> str:
    """
    The Avro schema of the default table's manifests, a field a line.
    """
    parsed = json.loads(manifest.header(EVENTS, BY_DAY)["avro.schema"])
    return "```json\n" + _record(parsed, "") + "\n```\n"


def _record(record: dict[str, Any], indent: str) -> str:
    head = f'{{"type": "record", "name": "{record["name"]}", "fields": ['
    lines = [f"{indent}  {_field(item, indent + '  ')}" for item in record["fields"]]
    return head + "\n" + ",\n".join(lines) + f"\n{indent}]}}"


def _field(item: dict[str, Any], indent: str) -> str:
    kind = item["type"]
    if isinstance(kind, dict) and kind["type"] == "record":
        rest = json.dumps({key: value for key, value in item.items() if key not in ("name", "type")})[1:]
        return f'{{"name": "{item["name"]}", "type": {_record(kind, indent)}, {rest}'
    return json.dumps(item)


def dump() -> str:
    """
    The golden txlog `positions`, annotated.
    """
    data = (FOLDER / "positions.txlog.avro").read_bytes()
    payload = avro.decode(data, MOST).blocks[0].payload
    record = ["", "the deflated bytes hold one record:", "", *map(_shown, _of_record(payload))]
    return "```text\n" + "\n".join([*map(_shown, _of_container(data)), *record]) + "\n```\n"


def _shown(line: Line) -> str:
    at, raw, note = line
    text = raw.hex(" ") if len(raw) <= SHOWN else raw[: SHOWN - 1].hex(" ") + " …"
    return f"{at:5d}  {text:<{3 * SHOWN}} {note}".rstrip()


def _of_container(data: bytes) -> Iterator[Line]:
    cursor = Cursor(data)

    def line(note: str, start: int) -> Line:
        return start, data[start : cursor.at], note

    yield (line("magic: Obj, 1", (cursor.at, cursor.take(4))[0]))
    start, count = cursor.at, cursor.long()
    yield line(f"{count} header keys, each a length, a key, a length, a value", start)
    for _ in range(count):
        start, key, value = cursor.at, cursor.take(cursor.long()).decode(), cursor.take(cursor.long())
        yield line(f"{key}: {_said(value)}", start)
    yield line("no more header keys", (cursor.at, cursor.long())[0])
    yield line("sync marker: any 16 bytes", (cursor.at, cursor.take(16))[0])
    start, count = cursor.at, cursor.long()
    yield line(f"a block of {count} record", start)
    start, size = cursor.at, cursor.long()
    yield line(f"in {size} bytes", start)
    yield line("deflated (raw, no zlib header)", (cursor.at, cursor.take(size))[0])
    yield line("sync marker again: the end", (cursor.at, cursor.take(16))[0])
    assert cursor.done()


def _said(value: bytes) -> str:
    text = repr(value)[2:-1] if value else "(empty)"
    return text if len(text) <= 40 else f"{len(value)} bytes"


def _of_record(payload: bytes) -> Iterator[Line]:
    cursor = Cursor(payload)
    outer = parse_layout(manifest.header(EVENTS, BY_DAY)["avro.schema"]).schema
    yield from _fields(outer, cursor)
    assert cursor.done()


def _fields(record: dict[str, Any], cursor: Cursor) -> Iterator[Line]:
    for item in record["fields"]:
        kind = item["type"]
        if isinstance(kind, dict) and kind["type"] == "record":
            yield from _fields(kind, cursor)
            continue
        start = cursor.at
        value = _value(kind, cursor)
        name = f"partition, field {item['name'][1:]}" if record["name"].endswith("partition") else item["name"]
        yield start, cursor.data[start : cursor.at], f"{name} = {value}"


def _value(kind: Any, cursor: Cursor) -> Any:
    if isinstance(kind, list):
        return "null" if cursor.long() == 0 else _value(kind[1], cursor)
    if isinstance(kind, dict) and kind["type"] == "array":
        return _items(kind["items"], cursor)
    if isinstance(kind, dict):
        return "{" + ": ".join(str(_value(item["type"], cursor)) for item in kind["fields"]) + "}"
    if kind in ("string", "bytes"):
        raw = cursor.take(cursor.long())
        return raw.decode() if kind == "string" and len(raw) < 40 else "…" if kind == "string" else f"0x{raw.hex()}"
    return cursor.long()


def _items(kind: Any, cursor: Cursor) -> str:
    parts = []
    while (count := cursor.long()) != 0:
        parts += [str(_value(kind, cursor)) for _ in range(count)]
    return ", ".join(parts)


def java(file: str, mark: str = "docs") -> str:
    """
    The part of a Java file that makes a txlog, behind this mark.
    """
    source = (FOLDER / file).read_text("utf-8")
    part = source.partition(f"// [{mark}]")[2].partition("\n")[2].partition("  // [end]")[0]
    lines = [line.removeprefix("  ") for line in part.splitlines()]
    return "```java\n" + "\n".join(lines) + "\n```\n"


SECTIONS: dict[str, Callable[[], str]] = {
    "schema": schema,
    "dump": dump,
    "java": partial(java, "WriteTxlog.java"),
    "java-offsets": partial(java, "WriteTxlog.java", "docs of offsets"),
    "java-steps": partial(java, "WriteSteps.java"),
}


def renewed(text: str) -> str:
    """
    `text` with every generated part as it is now.
    """
    for name, maker in SECTIONS.items():
        begin = BEGIN.format(name=name)
        before, found, rest = text.partition(begin)
        assert found, f"{name} is not in {DOC.name}"
        text = before + begin + "\n" + maker() + "\n" + END + rest.partition(END)[2]
    return text


def main(path: Path = DOC) -> None:
    path.write_text(renewed(path.read_text("utf-8")), "utf-8")


if __name__ == "__main__":
    main()
