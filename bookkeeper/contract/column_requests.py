"""
Requests for columns: what a writer that meets an unknown field publishes in columns/, for tables whose schema may grow.

A request is named by a hash of its content, so writers that ask for the same thing write one object. The bookkeeper
deletes it once the card has the column, or moves it to rejected/ with its reason, which is the answer to its writers.
"""

import hashlib
import json
import re
import unicodedata
from collections.abc import Iterable
from contextlib import suppress
from typing import NamedTuple

from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    PrimitiveType,
    StringType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from bookkeeper.contract.look_alikes import shape
from bookkeeper.contract.tray import Tray
from bookkeeper.contract.txlog_folder import REASON, REASON_BYTES, REJECTED, Folder
from bookkeeper.errors import ColumnRefused, Missing, NewerVersion, StorageUnavailable, Unfit

COLUMNS = "columns/"
ADD, WIDEN = "add", "widen"
VERSION = 1
#: bytes up to which a request is read: several times what an honest one has
MOST_BYTES = 4096
MOST_NAME_CHARACTERS, MOST_NAME_BYTES = 128, 255
_NAME = re.compile(r"[\w@$](?:[\w @$-]*[\w@$])?")
#: columns that Iceberg and Spark add to what they read
_RESERVED = frozenset(
    {"_file", "_pos", "_deleted", "_spec_id", "_partition", "_row_id", "_last_updated_sequence_number", "_metadata"}
    | {"_change_type", "_change_ordinal", "_commit_snapshot_id", "_commit_version", "_commit_timestamp"}
)
_KINDS = (
    *(BooleanType(), IntegerType(), LongType(), FloatType(), DoubleType(), DateType(), TimeType()),
    *(TimestampType(), TimestamptzType(), StringType(), UUIDType(), BinaryType()),
)
_TYPES: dict[str, PrimitiveType] = {str(kind): kind for kind in _KINDS}
_DECIMAL = re.compile(r"decimal\(([0-9]{1,2}), ?([0-9]{1,2})\)")
_KEY = re.compile(r"[0-9a-f]{64}\.json")


class ColumnRequest(NamedTuple):
    """Asks to add the column `name` of this Iceberg type (`change` is ADD), or to widen it to that (WIDEN)."""

    change: str
    name: str
    type: str


def encode(request: ColumnRequest) -> tuple[str, bytes]:
    """
    The object's name below columns/, and its bytes; equal requests give equal bytes.
    """
    data = json.dumps({"version": VERSION, **request._asdict()}, sort_keys=True, separators=(",", ":")).encode()
    return _named(data), data


def _named(data: bytes) -> str:
    return f"{hashlib.sha256(data).hexdigest()}.json"


def decode(name: str, data: bytes) -> ColumnRequest:
    """
    The request in an object of this name, all of it checked; raises ColumnRefused, NewerVersion (hold it).
    """
    request = _formed(name, data)
    if request.change not in (ADD, WIDEN):
        raise ColumnRefused(f"change is {request.change[:60]!r}: add or widen is allowed")
    check_name(request.name)
    type_of(request.type)
    return request


def _formed(name: str, data: bytes) -> ColumnRequest:
    """The request, whatever it asks for; raises ColumnRefused, NewerVersion."""
    if name != _named(data):
        raise ColumnRefused(f"{name[:200]!r} is not named by the SHA-256 of its content")
    try:
        raw = json.loads(data)
    except (ValueError, RecursionError) as exc:
        raise ColumnRefused(f"not JSON: {exc}") from exc
    if not isinstance(raw, dict):
        raise ColumnRefused("not a JSON object")
    if type(raw.get("version")) is int and raw["version"] > VERSION:
        hint = "Upgrade the bookkeeper first, then the writers; the request waits until then."
        raise NewerVersion(f"a request for a column has version {str(raw['version'])[:20]}, known is 1", hint=hint)
    given = {key: raw.get(key) for key in ColumnRequest._fields}
    if (
        type(raw.get("version")) is not int
        or raw != {"version": VERSION, **given}
        or not all(isinstance(value, str) for value in given.values())
    ):
        raise ColumnRefused("version (1), change, name and type are needed, all but the version texts, and no more")
    return ColumnRequest(raw["change"], raw["name"], raw["type"])


def check_name(name: str) -> None:
    """
    Raises ColumnRefused for a name that no column gets on request.
    """
    hint = "Rename the field, or have the column added by hand (ALTER TABLE)."
    size = len(name.encode("utf-8", "surrogatepass"))
    if len(name) > MOST_NAME_CHARACTERS or size > MOST_NAME_BYTES:
        most = f"{MOST_NAME_CHARACTERS} and {MOST_NAME_BYTES}"
        raise ColumnRefused(f"a name of {len(name)} characters, {size} bytes: at most {most} are allowed", hint=hint)
    if not _NAME.fullmatch(name) or not unicodedata.is_normalized("NFC", name):
        allowed = "letters, digits, _ @ $, and between them - and blanks, are allowed"
        raise ColumnRefused(f"the name {name!r}: {allowed}, in Unicode's form NFC", hint=hint)
    if shape(name) in _RESERVED:
        raise ColumnRefused(f"the name {name!r} is reserved by Iceberg or Spark", hint=hint)


def type_of(text: str) -> PrimitiveType:
    """
    The Iceberg type of this name; raises ColumnRefused for one that no column gets on request.
    """
    if text in _TYPES:
        return _TYPES[text]
    if found := _DECIMAL.fullmatch(text):
        precision, scale = map(int, found.groups())
        if 1 <= precision <= 38 and scale <= precision:
            return DecimalType(precision, scale)
    raise ColumnRefused(
        f"the type {text[:60]!r}: {', '.join(_TYPES)} or decimal(P, S) is allowed",
        hint="Nested columns are added by hand (ALTER TABLE); writers see them at their next roll.",
    )


def promotes(before: PrimitiveType, after: PrimitiveType) -> bool:
    """
    Whether Iceberg lets a column of the one type become one of the other, or both are the same.
    """
    if isinstance(before, DecimalType) and isinstance(after, DecimalType):
        return before.scale == after.scale and before.precision <= after.precision
    return before == after or (str(before), str(after)) in (("int", "long"), ("float", "double"))


def _is_request(name: str) -> bool:
    return _KEY.fullmatch(name) is not None


TRAY = Tray(COLUMNS, ".json", MOST_BYTES, _is_request)


def publish(folder: Folder, request: ColumnRequest) -> str:
    """
    Makes a request visible; returns its name. One that is there already, or was answered meanwhile, is success.

    Raises StorageUnavailable, and AlreadyExists when something else lies under that name.
    """
    name, data = encode(request)
    TRAY.publish(folder, name, data)
    return name


def refusals(folder: Folder, names: Iterable[str]) -> dict[str, ColumnRefused]:
    """
    Why requests were refused, by name; those of the names that were not are left out. Raises StorageUnavailable.
    """
    keys = {f"{REJECTED}{name}{REASON}": name for name in names}
    found = {}
    for key, answer in folder.store.read_many([*keys], REASON_BYTES).items():
        if isinstance(answer, StorageUnavailable):
            raise answer
        if not isinstance(answer, Missing):
            found[keys[key]] = _refused(answer)
    return found


def _refused(answer: bytes | Unfit) -> ColumnRefused:
    try:
        said = {} if isinstance(answer, Unfit) else json.loads(answer)
        return ColumnRefused(str(said["reason"]), hint=str(said["hint"]))
    except (ValueError, LookupError, TypeError, RecursionError):
        return ColumnRefused("the reason in rejected/ cannot be read")


def read_refused(folder: Folder, names: Iterable[str]) -> dict[str, ColumnRequest]:
    """
    What refused requests ask for, by name, of those that can be read. Raises StorageUnavailable.
    """
    requests = {}
    for key, answer in folder.store.read_many([f"{REJECTED}{name}" for name in names], MOST_BYTES).items():
        if isinstance(answer, StorageUnavailable):
            raise answer
        if isinstance(answer, bytes):
            name = key.removeprefix(REJECTED)
            with suppress(ColumnRefused, NewerVersion):
                requests[name] = _formed(name, answer)
    return requests
