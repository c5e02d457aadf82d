"""
The txlog folder of one table: pending/, rejected/, card.json, marks.json.

Owns the order of writes that keeps a crash harmless; what may be done to the table is not decided here.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from bookkeeper.config.maintained import is_by_catalog
from bookkeeper.config.settings import MOST_TXLOG_BYTES, Table
from bookkeeper.contract import card as cards
from bookkeeper.contract.card import Card
from bookkeeper.contract.marks_json import MarksCopy, copy_bytes, copy_from
from bookkeeper.contract.names import TxlogName
from bookkeeper.errors import (
    AlreadyExists,
    BookkeeperError,
    Changed,
    ConfigInvalid,
    Missing,
    NameMismatch,
    NotAFile,
    NotMoved,
    StorageUnavailable,
    TooLarge,
    Unfit,
    WrongFolder,
)
from bookkeeper.stores.disk import TEMPORARY
from bookkeeper.stores.local_roots import kept
from bookkeeper.stores.locations import inside, join, normal
from bookkeeper.stores.store import ObjectVersion, Store, content_tag, create_once

PENDING = "pending/"
REJECTED = "rejected/"
CLOCK = "clock/"
CARD, MARKS = "card.json", "marks.json"
SUFFIX = ".txlog.avro"
REASON = ".reason.json"
#: bytes up to which a record of the folder is read: many times what an honest one has
CARD_BYTES, MARKS_BYTES, REASON_BYTES = 2**24, 2**26, 2**16
_MOST = {CARD: CARD_BYTES, MARKS: MARKS_BYTES}
NO_CARD = (
    "Was the txlog folder moved away? Put it back, with what is pending in it. Only if it is lost: `bookkeeper init` "
    "makes it again for its table."
)
#: for programs beside the bookkeeper
CONFIGURED = "Is `folder` the same here as in the bookkeeper's configuration, and is its disk mounted?"


def usual_url(location: str) -> str:
    """
    Where the txlog folder of a table at `location` is unless the configuration says another place.
    """
    return join(location, "_bookkeeper")


def folder_url(settings: Table, location: str) -> str:
    """
    Where the txlog folder of a table at `location` is; raises ConfigInvalid where Iceberg would sweep it away, or the
    catalog's service.
    """
    if settings.folder is None and not is_by_catalog(settings):
        return usual_url(location)
    place = settings.folder or usual_url(location)
    folder, table = normal(place), normal(location)
    if folder == table or inside(folder, table):
        if is_by_catalog(settings):
            raise ConfigInvalid(
                f"folder = {place!r} lies in the table's location, where the catalog's service deletes what no "
                "snapshot names, txlogs included",
                hint="Give the table a folder outside of its location, best in a bucket of its own.",
            )
        first = folder.removeprefix(table).lstrip("/").split("/")[0]
        if not first.startswith("_"):
            # remove_orphan_files deletes whatever else it does not know below the table's location.
            raise ConfigInvalid(
                f"folder = {settings.folder!r} lies in the table's location; outside of it, or below a directory "
                "there that starts with _, is allowed"
            )
    return place


class Found(NamedTuple):
    """A txlog as a listing shows it: size in bytes, time of its creation (the store's clock, UTC)."""

    name: TxlogName
    size: int
    modified: datetime


class _KnownCard(NamedTuple):
    tag: str
    data: bytes
    card: Card


class Folder:
    """
    The txlog folder on a store; only where it `makes` the folder, a directory that is not there is made.

    Otherwise a process that goes on after the folder was moved away would create a new one in its place.
    """

    def __init__(self, store: Store, makes: bool = False) -> None:
        self.store = store if makes else kept(store)
        #: card.json and marks.json as they were when last read or written here, with their tags
        self._known_card: _KnownCard | None = None
        self._known_marks: tuple[MarksCopy | None, str] | None = None
        #: the card that was compared last, and its bytes
        self._compared: tuple[Card, bytes] | None = None

    def look(self) -> tuple[list[Found], list[str]]:
        """
        One listing of pending/: published txlogs, ordered by writer, incarnation, sequence; and misnamed keys, which
        end like a txlog but are not named like one.
        """
        return self._listed(PENDING)

    def pending(self) -> list[Found]:
        """Published txlogs that a listing shows, in order."""
        return self.look()[0]

    def rejected(self) -> list[Found]:
        """Rejected txlogs, in order."""
        return self._listed(REJECTED)[0]

    def _listed(self, place: str) -> tuple[list[Found], list[str]]:
        found, misnamed = list[Found](), list[str]()
        for item in self.store.list(place):
            key = item.key.removeprefix(place)
            try:
                found.append(Found(TxlogName.parse(key), item.size, item.modified))
            except NameMismatch:
                if key.endswith(SUFFIX):
                    misnamed.append(key)
        return sorted(found), misnamed

    def read(
        self,
        names: Sequence[TxlogName],
        sizes: Mapping[TxlogName, int] | None = None,
        most: int = MOST_TXLOG_BYTES,
        place: str = PENDING,
    ) -> dict[TxlogName, bytes | Missing | Unfit | StorageUnavailable]:
        """The bytes of each txlog, at most `most` and no more than `sizes` say, or what went wrong with it."""
        most, sizes = min(most, MOST_TXLOG_BYTES), sizes or {}
        keys = {name: f"{place}{name}" for name in names}
        read = self.store.read_many(
            [*keys.values()], {key: min(sizes.get(name, most), most) for name, key in keys.items()}
        )
        return {name: read[key] for name, key in keys.items()}

    def exists(self, name: TxlogName, place: str = PENDING) -> bool:
        """Whether it is there; False only for a definite "not there", raises StorageUnavailable otherwise."""
        try:
            self.store.size(f"{place}{name}")
        except (Missing, Unfit):  # a link is no txlog, and can never be one
            return False
        return True

    def read_unlisted(
        self, names: Sequence[TxlogName], most: int
    ) -> Mapping[TxlogName, tuple[Found, bytes] | Missing | Unfit | StorageUnavailable]:
        """
        Those of the names that are pending, with their bytes (at most `most` of each), without a listing.

        Missing means only that one is not there now, Unfit that only a listing can tell about it.
        """
        read = self.store.read_versions({f"{PENDING}{name}": "" for name in names}, min(most, MOST_TXLOG_BYTES))
        return {name: _dated(name, read[f"{PENDING}{name}"]) for name in names}

    def publish(self, name: TxlogName, data: bytes) -> None:
        """
        Makes `data` visible under `name`, once: the writer's last step, after every data file is durable.

        A put whose reply was lost and that is sent again finds its own bytes: that is success. Raises
        AlreadyExists when other bytes are there.
        """
        create_once(self.store, f"{PENDING}{name}", data, consumed=True)

    def reject(
        self,
        name: TxlogName | str,
        why: BookkeeperError,
        now: datetime,
        most: int = MOST_TXLOG_BYTES,
        place: str = PENDING,
    ) -> None:
        """
        Moves a pending txlog, or what lies in another `place`, to rejected/ with its reason; one of more than `most`
        bytes without reading it.

        Durable in rejected/ before it leaves pending/: a crash in between leaves it in both places, and the next
        tick rejects it again or, if it has become good, commits it; the copy is then recognised by its mark. Of what
        is no regular file only the reason is kept. Raises NotMoved when the storage cannot move one so large.
        """
        key, kept = f"{place}{name}", f"{REJECTED}{_short(str(name))}"
        data: bytes | None = None
        try:
            data = self.store.read(key, most)
        except NotAFile:
            self._write_reason(kept, why, now)
        except TooLarge:
            self._write_reason(kept, why, now)
            self._set_aside(key, kept)
        else:
            self._write_reason(kept, why, now)
            self._keep(kept, data)
        self.store.delete_many([key])

    def _write_reason(self, kept: str, why: BookkeeperError, now: datetime) -> None:
        reason = {
            "error": type(why).__name__,
            "reason": str(why),
            "hint": why.hint,
            "rejected-at": now.isoformat(),
        }
        self.store.replace(f"{kept}{REASON}", json.dumps(reason, indent=1).encode() + b"\n")

    def _keep(self, kept: str, data: bytes) -> None:
        try:
            create_once(self.store, kept, data)
        except AlreadyExists:
            # Another txlog was rejected under this name before: neither may be lost.
            create_once(self.store, f"{kept}.{content_tag(data)[:12]}", data)

    def _set_aside(self, key: str, kept: str) -> None:
        try:
            self.store.move(key, kept)
        except TooLarge as exc:
            raise NotMoved(f"{key} is refused, and too large to be moved to rejected/") from exc
        except AlreadyExists:
            # Another txlog, or this one, by a move that ended half way: neither is read to find out.
            version = f"{self.store.size(key)} {self.store.modified(key)}".encode()
            with suppress(AlreadyExists):
                self.store.move(key, f"{kept}.{content_tag(version)[:12]}")

    def reason(self, name: TxlogName | str) -> Mapping[str, Any]:
        """Why it was rejected; empty when that was not recorded."""
        try:
            data = json.loads(self.store.read(f"{REJECTED}{name}{REASON}", REASON_BYTES))
        except (Missing, Unfit, ValueError, RecursionError):
            return {}
        return data if isinstance(data, dict) else {}

    def replay(self, name: TxlogName, most: int = MOST_TXLOG_BYTES) -> None:
        """
        Copies a rejected txlog back to pending/ under its own name; the bookkeeper removes the copy once it is in.

        Raises Missing, and TooLarge for one of more than `most` bytes.
        """
        create_once(self.store, f"{PENDING}{name}", self.store.read(f"{REJECTED}{name}", most))

    def delete(self, names: Iterable[TxlogName]) -> int:
        """Deletes consumed txlogs from pending/; what a crash leaves is recognised by its mark."""
        return self.store.delete_many([f"{PENDING}{name}" for name in names])

    def discard_rejected(self, names: Iterable[TxlogName | str]) -> int:
        """Deletes what is rejected, and the reasons; returns how many were given."""
        listed = list(names)
        self.store.delete_many([f"{REJECTED}{name}" for name in listed])
        return self.store.delete_many([f"{REJECTED}{name}{REASON}" for name in listed])

    def unfinished(self, before: datetime) -> list[str]:
        """The keys that a crash left of local writes before that time, by the storage's clock."""
        return [item.key for item in self.store.list("") if item.key.endswith(TEMPORARY) and item.modified < before]

    def clock_skew(self, now: datetime) -> timedelta:
        """How far the storage's clock is ahead of `now`, from an object written for that; raises StorageUnavailable."""
        probe = f"{CLOCK}probe"
        self.store.replace(probe, now.isoformat().encode())
        # Not others that lie there: on a disk they may have any time, such as the rest of a write that was cut off.
        seen = next((item.modified for item in self.store.list(CLOCK) if item.key == probe), None)
        if seen is None:
            raise StorageUnavailable("the storage does not list what was just written")
        return seen - now

    def records(self) -> tuple[Card, MarksCopy | None]:
        """
        The card, and the copy of the marks (see `marks`), both requested at once.

        What has not changed since it was read last is not transferred again. Raises like `card`.
        """
        card, marks = self._known_card, self._known_marks
        answers = self.store.read_versions({CARD: card.tag if card else "", MARKS: marks[1] if marks else ""}, _MOST)
        return self._card(card, answers[CARD]), self._marks_in(marks, answers[MARKS])[0]

    def forget(self) -> None:
        """The next reads ask for whole objects: what is remembered may be what an error left behind."""
        self._known_card = self._known_marks = None

    def card(self) -> Card:
        """The table's card; raises Missing, or WrongFolder when it is not readable."""
        known = self._known_card
        return self._card(known, self.store.read_versions({CARD: known.tag if known else ""}, _MOST)[CARD])

    def _card(self, known: "_KnownCard | None", answer: Any) -> Card:
        """The known card, or the one in the answer to a read, which is then known."""
        if known is None or answer is not None:
            known = self._known_card = None
            try:
                if not isinstance(answer, ObjectVersion):
                    raise answer
                known = self._known_card = _KnownCard(answer.tag, answer.data, cards.loads(answer.data))
            except WrongFolder as exc:
                raise WrongFolder(f"{self.store.url}: {exc}", hint=exc.hint) from exc
            except Unfit as exc:
                raise WrongFolder(f"card.json is not read: {exc}", hint=cards.AGAIN) from exc
        return known.card

    def check(self, table_uuid: str | None = None, hint: str = "") -> None:
        """
        Raises WrongFolder where the folder is not of the table with this uuid, or of any: its card is of another one,
        cannot be read, or is not there, as where a disk is not mounted. `hint` replaces the advice for the bookkeeper.
        """
        try:
            card = self.card()
        except Missing as exc:
            raise WrongFolder(f"{self.store.url} has no card.json", hint=hint or NO_CARD) from exc
        if table_uuid is not None and card.table_uuid != table_uuid:
            cause = f"{self.store.url} belongs to table {card.table_uuid} ({card.table}), not to {table_uuid}"
            raise WrongFolder(cause, hint=hint)

    def write_card(self, card: Card) -> bool:
        """Replaces the card when something in it has changed since it was read last; returns whether it did."""
        if self._compared is None or self._compared[0] != card:
            self._compared = card, cards.dumps(card)
        data = self._compared[1]
        if self._known_card is None:
            with suppress(Missing, WrongFolder):
                self.card()
        known, self._known_card = self._known_card, None
        if known is not None and known.data == data:
            self._known_card = known
            return False
        self.store.replace(CARD, data)
        return True

    def marks(self) -> MarksCopy | None:
        """The copy of the marks, or None before the first commit or when it cannot be used."""
        return self._marks()[0]

    def _marks(self) -> tuple[MarksCopy | None, str]:
        known = self._known_marks
        return self._marks_in(known, self.store.read_versions({MARKS: known[1] if known else ""}, _MOST)[MARKS])

    def _marks_in(self, known: tuple[MarksCopy | None, str] | None, answer: Any) -> tuple[MarksCopy | None, str]:
        """The known copy and its tag, or those in the answer to a read, which are then known."""
        if known is None or answer is not None:
            self._known_marks = None
            if isinstance(answer, StorageUnavailable):
                raise answer
            if isinstance(answer, ObjectVersion):
                known = copy_from(answer.data), answer.tag
            else:
                known = None, answer.tag if isinstance(answer, Unfit) else ""
            self._known_marks = known
        return known

    def publish_marks(self, copy: MarksCopy, even_older: bool = False) -> bool:
        """
        Makes marks.json say `copy`, unless a newer one is there; returns whether it wrote.

        One conditional put, where it is still what was read or written here last. Where it is not (another
        bookkeeper, a person, or our own put whose reply was lost), it is read: the same is done, a newer one stays, a
        missing one is created. `even_older` is for a table that was taken back on purpose.
        Raises StorageUnavailable; after a lost race against another bookkeeper it tries again.
        """
        known = self._known_marks
        if known is None or known[0] == copy:
            known = self._marks()  # only reading it shows whether it still says so
        for _ in range(5):
            there, tag = known
            same_table = there is not None and there.table_uuid == copy.table_uuid
            newer = there is not None and same_table and there.sequence_number > copy.sequence_number
            if there == copy or (newer and not even_older):
                return False
            self._known_marks = None  # until the put is answered
            try:
                self._known_marks = copy, self.store.replace(MARKS, copy_bytes(copy), if_match=tag)
            except Changed:
                known = self._marks()
                continue
            return True
        raise StorageUnavailable(
            "marks.json is replaced by others all the time", hint="Is a second bookkeeper running?"
        )


def _short(name: str) -> str:
    """A misnamed key, cut where a disk would refuse it with what reject() adds; a txlog's name always fits."""
    coded = name.encode("utf-8", "surrogateescape")
    if len(coded) <= 200:
        return name
    head = coded[:100].decode("utf-8", "ignore").replace("/", "_")
    return f"{head}.{content_tag(coded)[:12]}{SUFFIX}"


def _dated(name: TxlogName, answer: Any) -> Any:
    if not isinstance(answer, ObjectVersion):
        return answer
    if answer.modified is None:
        return Unfit(f"the storage does not say when {name} was written")  # a listing does
    return Found(name, len(answer.data), answer.modified), answer.data
