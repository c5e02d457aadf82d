"""
The consumers of a table: one small object each in `consumers/` of the txlog folder, and those in the configuration.

A record that cannot be read is a consumer too: it was registered, and what it needs is unknown.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from bookkeeper.config.units import moment
from bookkeeper.contract.names import WRITER
from bookkeeper.errors import ConfigInvalid, Missing, NotPossible, Unfit
from bookkeeper.format import json_text
from bookkeeper.stores.store import Store, is_key

FOLDER = "consumers/"
SUFFIX = ".json"
VERSION = 1
RECORD_BYTES = 2**16
CONFIG, COMMAND, JOB = "config", "command", "job"
#: registered by itself: a Consumer of this package, whose record moves with its place
ITSELF = "consumer"
#: the snapshot in the record of a Consumer that found no snapshot yet
BEFORE_ALL = -1
#: the position in the record of a Consumer that has read all files of its snapshot
ALL_FILES = 2**31 - 1
#: times from here on are no deadline of a reader
_LAST_YEAR = 9000
#: of a record that was written: a disk's clock is not that far ahead
_LATEST = datetime(3000, 1, 1, tzinfo=UTC)
_KEYS = ("name", "checkpoint", "source", "available-now")
#: of the record of a Consumer, with the type of each
_OWN_KEYS = {"position": int, "whole": bool, "place": str, "start": str, "epoch": int}
#: of a query that reads a snapshot in a batch first; a reader of records that does not know them keeps everything
_BEGINS, _RENEWED = "begins-with", "renewed"


@dataclass(frozen=True, slots=True)
class Consumer:
    """
    A reader of the table: a Spark query by its checkpoint, any reader by a snapshot that it needs until `until`, or a
    Consumer of this package by the snapshot of its place, of which it has read `position` files.

    An `available_now` query goes back to its first offset at every start. `broken` is why its record is unreadable.
    `place` and `start` are the texts of a Consumer's place and its first one, `epoch` is a number of its run.
    Before its first offset a query may read the snapshot `begins_with` in a batch: it said so at `renewed` last.
    """

    name: str
    checkpoint: str | None = None
    source: int | None = None
    available_now: bool = False
    snapshot: int | None = None
    until: datetime | None = None
    registered: datetime | None = None
    by: str = COMMAND
    broken: str = ""
    position: int = 0
    whole: bool = False
    place: str = ""
    start: str = ""
    epoch: int = 0
    begins_with: int | None = None
    renewed: datetime | None = None

    def lapsed(self, now: datetime) -> bool:
        """Whether its time to live is over."""
        return self.until is not None and self.until <= now

    def written(self, at: datetime) -> "Consumer":
        """This one with its whole time to live from `at`, the storage's time of its record, where that is later."""
        if self.until is None or self.registered is None or not self.registered < at < _LATEST:
            return self
        return replace(self, until=self.until + (at - self.registered))

    @property
    def ancestors(self) -> tuple[int, ...]:
        """Snapshots of main before that of a Consumer's place, as far as the place tells."""
        try:
            found = json_text.loads(self.place.encode()).get("ancestors", ())
            return tuple(item for item in found if type(item) is int)
        except (ValueError, TypeError, AttributeError):
            return ()


def spark(
    name: str, checkpoint: str, now: datetime, *, source: int | None = None, available_now: bool = False, by: str
) -> Consumer:
    """
    A Spark query; raises ConfigInvalid for a name that cannot be one.
    """
    return Consumer(checked(name), checkpoint, source, available_now, registered=now, by=by)


def reader(name: str, snapshot: int, now: datetime, ttl: timedelta) -> Consumer:
    """
    A reader other than Spark, which needs `snapshot` and all after it for `ttl`; it renews by registering again.
    """
    return Consumer(checked(name), snapshot=snapshot, until=now + ttl, registered=now)


def checked(name: str) -> str:
    """
    `name` itself; raises ConfigInvalid when it cannot name a consumer.
    """
    if not WRITER.fullmatch(name):
        raise ConfigInvalid(f"consumer name {name!r} is not valid: 1 to 63 of a-z, 0-9, _ and -, no _ or - first")
    return name


def name_for(checkpoint: str) -> str:
    """
    A name for a checkpoint that was given none: its last folder and a hash of the whole location.
    """
    plain = checkpoint.rstrip("/")
    last = re.sub(r"[^a-z0-9]+", "-", plain.rpartition("/")[2].lower()).strip("-")[:40]
    return f"{last or 'query'}-{hashlib.sha256(plain.encode()).hexdigest()[:8]}"


def configured(items: Iterable[Mapping[str, Any]]) -> list[Consumer]:
    """
    The consumers of `[[tables.NAME.consumers]]`; raises ConfigInvalid.
    """
    found = []
    for item in items:
        unknown = sorted(item.keys() - set(_KEYS))
        if unknown:
            raise ConfigInvalid(f"consumers: {unknown[0]} is not a known key; allowed here: {', '.join(_KEYS)}")
        checkpoint, source, available_now = item.get("checkpoint"), item.get("source"), item.get("available-now", False)
        typed = type(available_now) is bool and (source is None or type(source) is int)
        if not isinstance(checkpoint, str) or not typed:
            raise ConfigInvalid(f"consumers: {dict(item)!r}: checkpoint = URL is needed, source is a number")
        name = checked(str(item.get("name") or name_for(checkpoint)))
        found.append(Consumer(name, checkpoint, source, available_now, by=CONFIG))
    return found


class Registry:
    """The consumers of one table: those in its txlog folder, and those its configuration names."""

    def __init__(self, folder: Store, items: Iterable[Mapping[str, Any]] = ()) -> None:
        self._folder = folder
        self._configured = {consumer.name: consumer for consumer in configured(items)}

    def all(self) -> list[Consumer]:
        """
        Every consumer, sorted by name; the configuration overrides the folder. Raises StorageUnavailable.

        One with a time to live has it from when the storage says that its record was written: the clock of the job
        that wrote it may be behind.
        """
        listed = {item.key: item.modified for item in self._folder.list(FOLDER)}
        # Of a name that is no text neither tables nor metrics could be shown.
        keys = [key for key in listed if key.endswith(SUFFIX) and is_key(key) and _is_text(key)]
        found: dict[str, Consumer] = {}
        for key, data in self._folder.read_many(keys, RECORD_BYTES).items():
            name = key.removeprefix(FOLDER).removesuffix(SUFFIX)
            if isinstance(data, bytes):
                found[name] = loads(name, data).written(listed[key])
            elif isinstance(data, Unfit):
                found[name] = Consumer(name, broken=f"its record is not read: {data}")
            elif not isinstance(data, Missing):
                raise data
        return [consumer for _, consumer in sorted({**found, **self._configured}.items())]

    def find(self, name: str) -> Consumer | None:
        """
        The consumer of this name in the folder, None where there is none; raises StorageUnavailable.
        """
        try:
            return loads(name, self._folder.read(key_of(name), RECORD_BYTES))
        except Missing:
            return None
        except Unfit as exc:
            return Consumer(name, broken=f"its record is not read: {exc}")

    def add(self, consumer: Consumer) -> None:
        """
        Registers a consumer, or replaces the one of its name; raises NotPossible when the configuration names it, or
        it is a Consumer of this package: its record may be all that knows its place.
        """
        if consumer.name in self._configured:
            raise NotPossible(f"consumer {consumer.name} is in the configuration", hint="Change it there.")
        earlier = self.find(consumer.name)
        if earlier is not None and earlier.by == ITSELF:
            raise NotPossible(
                f"consumer {consumer.name} is a program in Python, whose place is in its record",
                hint=f"Take another name. If it is not needed any more: `bookkeeper consumers remove {consumer.name}`.",
            )
        self._folder.replace(key_of(consumer.name), dumps(consumer))

    def remove(self, name: str) -> None:
        """
        Removes a consumer: nothing is kept for it any more; raises NotPossible when it is not in the folder.
        """
        if name in self._configured:
            raise NotPossible(f"consumer {name} is in the configuration", hint="Remove it there.")
        key = key_of(name)  # also of a record that others have put there under another name than we give
        try:
            with suppress(Unfit):  # a link is removed like a record
                self._folder.size(key if is_key(key) else key_of(checked(name)))
        except Missing as exc:
            raise NotPossible(f"no consumer {name} is registered", hint="`bookkeeper consumers` lists them.") from exc
        self._folder.delete_many([key])


def _is_text(key: str) -> bool:
    try:
        key.encode()
    except UnicodeEncodeError:
        return False
    return True


def key_of(name: str) -> str:
    """
    The key of a consumer's record in the txlog folder.
    """
    return f"{FOLDER}{name}{SUFFIX}"


def dumps(consumer: Consumer) -> bytes:
    """
    The bytes of a consumer's record.
    """
    data: dict[str, Any] = {
        "version": VERSION,
        "checkpoint": consumer.checkpoint,
        "source": consumer.source,
        "available-now": consumer.available_now,
        "snapshot": consumer.snapshot,
        "until": consumer.until.isoformat() if consumer.until else None,
        "registered": consumer.registered.isoformat() if consumer.registered else None,
        "by": consumer.by,
    }
    if consumer.by == ITSELF:
        data |= {key: getattr(consumer, key) for key in _OWN_KEYS}
    if consumer.checkpoint is not None:
        data |= {_BEGINS: consumer.begins_with, _RENEWED: consumer.renewed and consumer.renewed.isoformat()}
    return json.dumps({key: value for key, value in data.items() if value is not None}, indent=1).encode() + b"\n"


def loads(name: str, data: bytes) -> Consumer:
    """
    The consumer in a record; a `broken` one when it cannot be read.
    """
    try:
        raw = json_text.loads(data)
        json.dumps(raw, ensure_ascii=False).encode()  # a lone surrogate is a ValueError: no output can show it
        if raw["version"] != VERSION:
            return Consumer(name, broken=f"its record has version {raw['version']}, this one knows {VERSION}")
        found = Consumer(name, raw.get("checkpoint"), raw.get("source"), raw.get("available-now") is True)
        until, registered = (_moment(raw.get(key)) for key in ("until", "registered"))
        found = replace(found, snapshot=raw.get("snapshot"), until=until, registered=registered, by=raw.get("by", ""))
        if found.by == ITSELF:
            own = {key: raw[key] for key in _OWN_KEYS}
            if any(type(own[key]) is not kind for key, kind in _OWN_KEYS.items()):
                raise TypeError("a value of another type")
            found = replace(found, **own)
        if found.checkpoint is not None:
            found = replace(found, begins_with=raw.get(_BEGINS), renewed=_moment(raw.get(_RENEWED)))
    except (ValueError, KeyError, TypeError, AttributeError):
        return Consumer(name, broken="its record is not readable")
    if not (found.source is None or type(found.source) is int):
        return Consumer(name, broken="its record names no number as its source")
    if not (found.begins_with is None or type(found.begins_with) is int):
        return Consumer(name, broken=f"its record names no snapshot in {_BEGINS}")
    typed = isinstance(found.checkpoint, str) or (
        type(found.snapshot) is int and (found.until is not None or found.by == ITSELF)
    )
    return found if typed else Consumer(name, broken="its record names no checkpoint and no snapshot")


def _moment(text: str | None) -> datetime | None:
    found = None if text is None else moment(text)
    if found is not None and not 1970 < found.year < _LAST_YEAR:
        raise ValueError("a time that no clock shows")  # one at the edge of the calendar has no UTC time
    return found
