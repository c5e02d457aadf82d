"""
Schemas of Avro, checked before anything is decoded with them: a schema comes from a registry, a message from anywhere.

Named types are written out where they are used, so a recursive schema is refused. fastavro is given a schema without
logical types, maps as arrays of pairs, and unions and symbols by number: then it takes no negative index as one from
the end, passes over no key that is given twice, and takes no minutes for a decimal of a megabyte.
"""

import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from fastavro import parse_schema, schemaless_reader
from fastavro.schema import SchemaParseException

SCHEMA_BYTES = 2**20
#: of types in types, and of types in all; named types count wherever they are used
MOST_DEPTH, MOST_TYPES = 32, 20_000
#: bytes that the value of one message may take, unless a byte of it takes no more than usual, as of JSON
MOST_MEMORY, _USUAL_DENSITY = 2**28, 64
#: about, of an empty dictionary, and of a number, a text or an empty list
_RECORD_MEMORY, _SMALL_MEMORY = 160, 56
_MOST_PRECISION = 1000
_PRIMITIVE = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
_NAMED = frozenset({"record", "error", "enum", "fixed"})
_LONGS = [f"{local}timestamp-{part}" for local in ("", "local-") for part in ("millis", "micros", "nanos")]
#: the logical types of each type; decimal, and the uuid of 16 bytes, are checked with their sizes
_LOGICAL = {"int": ("date", "time-millis"), "long": ("time-micros", *_LONGS), "string": ("uuid",)}
#: what Debezium writes in place of logical types
_DEBEZIUM = {
    "io.debezium.time.Date": "date",
    "io.debezium.time.Time": "time-millis",
    "io.debezium.time.MicroTime": "time-micros",
    "io.debezium.time.Timestamp": "local-timestamp-millis",
    "io.debezium.time.MicroTimestamp": "local-timestamp-micros",
    "io.debezium.time.NanoTimestamp": "local-timestamp-nanos",
}


class AvroRefused(ValueError):
    """A schema that is none, or is beyond the bounds."""


class NoAvro(ValueError):
    """Bytes that are no value of the schema."""


@dataclass(frozen=True, slots=True)
class Avro:
    """
    A type. `kind` is its name in Avro; `logical` what its values mean, "" for nothing known; `parts` are the fields of
    a record by name, the branches of a union by number, and the items of an array or values of a map by "items".
    """

    kind: str
    logical: str = ""
    parts: Mapping[Any, "Avro"] = field(default_factory=dict)
    symbols: Sequence[str] = ()
    size: int = 0
    scale: int = 0

    @property
    def value(self) -> "Avro | None":
        """The type of its values that are not null; None where a union has several, or none."""
        if self.kind != "union":
            return self
        some = [branch for branch in self.parts.values() if branch.kind != "null"]
        return some[0] if len(some) == 1 else None

    def __str__(self) -> str:
        if self.kind == "union":
            return f"union of {', '.join(map(str, self.parts.values()))}"[:200]
        return self.logical or self.kind


class AvroSchema:
    """
    A checked schema, from the text of an .avsc file; `references` are texts of schemas whose types it uses.

    Raises AvroRefused.
    """

    def __init__(self, text: bytes | str, references: Sequence[bytes | str] = ()) -> None:
        types = _Types()
        for other in references:
            types.read(other)
        self.top = types.read(text)
        top = {"type": "record", "name": "top", "fields": [{"name": "", "type": _plain(self.top, count())}]}
        try:
            self._plain: Any = _by_number(parse_schema(top))
        except SchemaParseException as exc:
            raise AvroRefused(f"fastavro refuses the schema: {exc}"[:300]) from exc
        self._density = max(_densities(self.top), default=0.0)
        self._plain["__named_schemas"] = {}  # all types are written out; it would be copied for each message

    def read(self, data: bytes, at: int) -> Any:
        """
        The value that begins there and ends with the data: records as dictionaries, maps as lists of {key, value},
        logical types as their plain values. Raises NoAvro.
        """
        if self._density > _USUAL_DENSITY and self._density * len(data) > MOST_MEMORY:
            raise NoAvro(f"{len(data)} bytes are too many for its schema: its arrays could take more than 256 MiB")
        stream = io.BytesIO(data)
        stream.seek(at)
        try:
            found: Any = schemaless_reader(stream, self._plain, None)
        except EOFError as exc:
            raise NoAvro("it ends within a value of the schema") from exc
        except UnicodeDecodeError as exc:
            raise NoAvro(f"a string is not UTF-8: {exc.reason}") from exc
        except LookupError as exc:
            # "string index out of range" is fastavro's end of a number
            raise NoAvro("it ends within a number, or names a branch or symbol that there is not") from exc
        except (ValueError, TypeError, OverflowError, MemoryError, RecursionError) as exc:
            raise NoAvro(f"it does not decode: {exc}") from exc
        if stream.tell() != len(data):
            raise NoAvro(f"{len(data) - stream.tell()} bytes are left behind the value")
        return found[""]


class _Types:
    """Reads schemas; what one names, the next may use."""

    def __init__(self) -> None:
        #: by full name: what was written, and the namespace around it
        self._named: dict[str, tuple[Any, str]] = {}
        self._count = 0

    def read(self, text: bytes | str) -> Avro:
        if len(text) > SCHEMA_BYTES:
            raise AvroRefused(f"the schema is larger than {SCHEMA_BYTES} bytes")
        try:
            written = json.loads(text)
        except (ValueError, RecursionError) as exc:
            raise AvroRefused(f"the schema is not JSON: {exc}") from exc
        return self._type(written, "", (), False)

    def _type(self, written: Any, space: str, inside: tuple[str, ...], is_item: bool, depth: int = 0) -> Avro:
        """`inside`: the names of the types around it; `is_item`: it is under an array or a map."""
        self._count += 1
        if depth > MOST_DEPTH or self._count > MOST_TYPES:
            raise AvroRefused(f"the schema has more than {MOST_TYPES} types, or more than {MOST_DEPTH} in one another")
        if isinstance(written, str) and written not in _PRIMITIVE:
            return self._use(written, space, inside, is_item, depth)
        if isinstance(written, list):
            return self._union(written, space, inside, is_item, depth)
        about = {"type": written} if isinstance(written, str) else written
        kind = about.get("type") if isinstance(about, dict) else None
        if isinstance(kind, (dict, list)) or (isinstance(kind, str) and kind not in _KINDS):
            return self._type(kind, space, inside, is_item, depth + 1)  # {"type": {"type": ...}}
        if not isinstance(kind, str):
            raise AvroRefused(f"{_shown(written)} is no type of Avro")
        found = self._known(kind, about, space, inside, is_item, depth)
        if is_item and (
            found.kind == "null" or (found.kind in ("record", "fixed") and not (found.parts or found.size))
        ):
            raise AvroRefused("an array or map of values without bytes: a short message could hold any number of them")
        return found

    def _known(
        self, kind: str, about: dict[str, Any], space: str, inside: tuple[str, ...], is_item: bool, depth: int
    ) -> Avro:
        if kind in ("array", "map"):
            key = "items" if kind == "array" else "values"
            return Avro(kind, parts={"items": self._type(about.get(key), space, inside, True, depth + 1)})
        if kind in _PRIMITIVE:
            logical, scale = _meaning(kind, about, None)
            return Avro(kind, logical, scale=scale)
        name, space = self._define(about, space)
        if kind == "enum":
            return Avro("enum", symbols=_symbols(about))
        if kind == "fixed":
            size = about.get("size")
            if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size < 2**31:
                raise AvroRefused(f"{name}: {_shown(size)} is no size")
            logical, scale = _meaning(kind, about, size)
            return Avro("fixed", logical, size=size, scale=scale)
        parts = dict[Any, Avro]()
        for label, of in _fields(about, name):
            if label in parts:
                raise AvroRefused(f"{name} has two fields {label!r}")
            parts[label] = self._type(of, space, (*inside, name), is_item, depth + 1)
        return Avro("record", parts=parts)

    def _define(self, about: dict[str, Any], space: str) -> tuple[str, str]:
        """The full name of a named type, and the namespace within it."""
        name = about.get("name")
        if not isinstance(name, str) or not name:
            raise AvroRefused(f"a {about['type']} without a name")
        if "." in name:
            inner = name.rpartition(".")[0]
        else:
            given = about.get("namespace", space)
            inner = given if isinstance(given, str) else ""
            name = f"{inner}.{name}" if inner else name
        if self._named.setdefault(name, (about, space))[0] != about:
            raise AvroRefused(f"the type {name} is defined twice")
        return name, inner

    def _use(self, name: str, space: str, inside: tuple[str, ...], is_item: bool, depth: int) -> Avro:
        full = name if "." in name or f"{space}.{name}" not in self._named else f"{space}.{name}"
        if full in inside:
            raise AvroRefused(f"the type {full} holds itself; a table has no column of such a type")
        if full not in self._named:
            raise AvroRefused(f"{name!r:.80} is no type of Avro, and none that the schema defines before it is used")
        written, around = self._named[full]
        return self._type(written, around, inside, is_item, depth + 1)

    def _union(self, written: list[Any], space: str, inside: tuple[str, ...], is_item: bool, depth: int) -> Avro:
        if not written or any(isinstance(branch, list) for branch in written):
            raise AvroRefused("a union has branches that are no unions")
        branches = (
            Avro("null") if branch == "null" else self._type(branch, space, inside, is_item, depth + 1)
            for branch in written
        )
        return Avro("union", parts=dict(enumerate(branches)))


_KINDS = _PRIMITIVE | _NAMED | {"array", "map"}


def _fields(about: dict[str, Any], name: str) -> Iterator[tuple[str, Any]]:
    fields = about.get("fields")
    if not isinstance(fields, list):
        raise AvroRefused(f"the record {name} has no list of fields")
    for item in fields:
        if not isinstance(item, dict) or not isinstance(item.get("name"), str) or "type" not in item:
            raise AvroRefused(f"{name}: {_shown(item)} is no field with name and type")
        yield item["name"], item["type"]


def _symbols(about: dict[str, Any]) -> Sequence[str]:
    found = about.get("symbols")
    if not isinstance(found, list) or not found or not all(isinstance(item, str) for item in found):
        raise AvroRefused("the symbols of an enum are a list of names")
    return found


def _meaning(kind: str, about: dict[str, Any], size: int | None) -> tuple[str, int]:
    """The logical type and its scale; as Avro says, one that is not valid, or not known, means nothing."""
    logical = about.get("logicalType", _DEBEZIUM.get(str(about.get("connect.name")), ""))
    if kind in ("bytes", "fixed") and logical == "decimal":
        precision, scale = about.get("precision"), about.get("scale", 0)
        fits = isinstance(precision, int) and isinstance(scale, int) and 0 <= scale <= precision <= _MOST_PRECISION
        return ("decimal", scale) if fits else ("", 0)
    known = logical in _LOGICAL.get(kind, ()) or (logical == "uuid" and size == 16)
    return (logical, 0) if isinstance(logical, str) and known else ("", 0)


def _shown(value: Any) -> str:
    return f"{value!r:.80}"


def _densities(avro: Avro) -> Iterator[float]:
    """For each array and map: bytes of memory for a byte of its items, where they take the most."""
    if avro.kind in ("array", "map"):
        of_key, pair = (1, _RECORD_MEMORY + _SMALL_MEMORY) if avro.kind == "map" else (0, 8)
        most = 0.0
        for _ in range(5):  # the choice of branches depends on what it gives: Dinkelbach's iteration
            size, memory = _densest(avro.parts["items"], most)
            most = (memory + pair) / (size + of_key)
        yield most
    for part in avro.parts.values():
        yield from _densities(part)


def _densest(avro: Avro, most: float) -> tuple[int, int]:
    """A small value: its bytes, and about its memory; of a union the branch that is most beyond `most` a byte."""
    if avro.kind == "union":
        branches = ((size + 1, memory) for size, memory in (_densest(part, most) for part in avro.parts.values()))
        return max(branches, key=lambda branch: branch[1] - most * branch[0])
    if avro.kind == "record":
        parts = [_densest(part, most) for part in avro.parts.values()]
        return sum(size for size, _ in parts), sum(memory + 32 for _, memory in parts) + _RECORD_MEMORY
    if avro.kind == "null":
        return 0, 0
    size = {"fixed": avro.size, "float": 4, "double": 8}.get(avro.kind, 1)
    return size, _SMALL_MEMORY + (size if avro.kind == "fixed" else 0)


def _plain(avro: Avro, numbers: Iterator[int]) -> Any:
    """The type as fastavro reads it; `numbers` make names."""
    if avro.kind == "union":
        return [_plain(branch, numbers) for branch in avro.parts.values()]
    if avro.kind == "array":
        return {"type": "array", "items": _plain(avro.parts["items"], numbers)}
    if avro.kind == "map":
        pair = Avro("record", parts={"key": Avro("string"), "value": avro.parts["items"]})
        return {"type": "array", "items": _plain(pair, numbers)}
    if avro.kind in _PRIMITIVE:
        return avro.kind
    named: dict[str, Any] = {"type": avro.kind, "name": f"t{next(numbers)}"}
    if avro.kind == "record":
        named["fields"] = [{"name": name, "type": _plain(part, numbers)} for name, part in avro.parts.items()]
    elif avro.kind == "enum":
        named["symbols"] = [f"s{number}" for number in range(len(avro.symbols))]
        named["texts"] = [*avro.symbols]
    else:
        named["size"] = avro.size
    return named


def _by_number(parsed: Any) -> Any:
    """
    With the branches of unions, and the symbols of enums, in dictionaries by number: fastavro looks them up by number,
    and in a list finds a negative one, too.
    """
    if isinstance(parsed, list):
        return {"type": "union", **{number: _by_number(branch) for number, branch in enumerate(parsed)}}
    if not isinstance(parsed, dict):
        return parsed
    if parsed["type"] == "enum":
        parsed["symbols"] = dict(enumerate(parsed["texts"]))
    elif parsed["type"] == "array":
        parsed["items"] = _by_number(parsed["items"])
    for item in parsed.get("fields", ()):
        item["type"] = _by_number(item["type"])
    return parsed
