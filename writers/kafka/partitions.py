"""
Which channel a partition is, which slot reads it, and how far it was read: the texts in the txlogs of slots.

A channel is named by the topic's id, so a topic that was made anew has others. Its offset therefore also tags the name
of its topic, by which the next run finds what it has read of an earlier topic of that name; and it says how many
partitions the topic had when it was begun, for a partition that was added later is read from its beginning.
"""

import base64
import hashlib
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from bookkeeper.contract.offsets import Offsets
from bookkeeper.errors import NotPossible

_CHANNEL = re.compile(r"(.+)/([A-Za-z0-9_-]+)/([0-9]{1,10})")
_PLACE = re.compile(
    r"([0-9]{1,19})\.([0-9]{0,10})\.([0-9]{1,10})\.([A-Za-z0-9_-]{8})(?:\.([0-9]{1,19})\.([A-Za-z0-9_-]{8}))?"
)
_NAMED = "name-"
_OTHER_NAME = "Give another --name: this one belongs to another kind of source."


class Partition(NamedTuple):
    """A partition by the name of its topic and its number."""

    topic: str
    number: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.number}"


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic as the cluster has it now: its id, and how many partitions it has."""

    cluster: str
    name: str
    id: str
    count: int

    def channel(self, number: int) -> str:
        """The channel of a partition."""
        return f"{self.cluster}/{self.id}/{number}"

    @property
    def is_named(self) -> bool:
        """Whether the brokers give topics no ids: then its messages alone show whether it was made anew."""
        return self.id.startswith(_NAMED)


class Seen(NamedTuple):
    """A message that was read: its offset, and eight characters that stand for its time, key and value."""

    offset: int
    digest: str


@dataclass(frozen=True, slots=True)
class Place:
    """
    How far a partition was read: the offset of its next message, and the leader epoch of the last one (None: unknown).

    `begun` is the number of partitions that the topic had when it was begun; `seen` the last message that was read of
    a topic without an id.
    """

    next: int
    epoch: int | None
    begun: int
    seen: Seen | None = None

    def text(self, topic: str) -> str:
        """The offset as a txlog says it, for a topic of this name."""
        text = f"{self.next}.{'' if self.epoch is None else self.epoch}.{self.begun}.{tag(topic)}"
        return text if self.seen is None else f"{text}.{self.next - self.seen.offset}.{self.seen.digest}"


def next_of(text: str) -> int:
    """
    The offset of the next message that a place says as text.
    """
    return int(text.partition(".")[0])


def end_of(text: str) -> int:
    """
    As `next_of`, and 0 for what is no place.
    """
    return next_of(text) if _PLACE.fullmatch(text) else 0


def tag(topic: str) -> str:
    """
    Eight characters that stand for the name of a topic: 48 bits of its SHA-256.
    """
    return digest(topic.encode())


def digest(data: bytes) -> str:
    """
    Eight characters: 48 bits of the SHA-256.
    """
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()[:6]).decode()


def named_id(topic: str) -> str:
    """
    What stands for the id of a topic whose brokers give it none.
    """
    return f"{_NAMED}{tag(topic)}"


class _Known(NamedTuple):
    slot: str
    cluster: str
    topic_id: str
    number: int
    place: Place
    tag: str


class Elsewhere(NamedTuple):
    """A partition that was read of a topic that is not there, by the ids of cluster and topic; `tag`: of its name."""

    cluster: str
    topic_id: str
    number: int
    tag: str


class Chains:
    """
    What all slots of a source have reached, by the name of the slot; raises NotPossible for offsets of other sources.
    """

    def __init__(self, slots: Mapping[str, Offsets]) -> None:
        self._known = [known for slot, offsets in slots.items() for known in _parsed(slot, offsets)]

    def place(self, topic: Topic, number: int, slot: str) -> Place | None:
        """
        Where a partition goes on; None where it has to begin. Raises NotPossible where another slot has read it.
        """
        for known in self._known:
            if (known.cluster, known.topic_id, known.number) == (topic.cluster, topic.id, number):
                if known.slot != slot:
                    raise NotPossible(
                        f"{known.slot} has read {topic.name}/{number}, and it would be {slot} now: the number of slots "
                        "has changed",
                        hint="Give the same --slots as before, or change it by `bookkeeper rehash`.",
                    )
                return known.place
        return None

    def begun(self, topic: Topic) -> int | None:
        """How many partitions the topic had when it was begun; None while nothing of it is known."""
        found = [known.place.begun for known in self._known if self._is_of(known, topic)]
        return min(found, default=None)

    @property
    def tags(self) -> set[str]:
        """What stands for the names of the topics."""
        return {known.tag for known in self._known}

    def of(self, topic: Topic) -> dict[int, Place]:
        """How far each partition of a topic was read."""
        return {known.number: known.place for known in self._known if self._is_of(known, topic)}

    def of_others(self, topics: Collection[Topic]) -> Iterator[Elsewhere]:
        """What was read of topics that are none of these, each partition as often as it was made anew."""
        for known in self._known:
            if not any(self._is_of(known, topic) for topic in topics):
                yield Elsewhere(known.cluster, known.topic_id, known.number, known.tag)

    def earlier(self, topic: Topic, number: int) -> str | None:
        """What was read of this partition of an earlier topic of this name, in words; None where nothing was."""
        for known in self._known:
            if known.tag == tag(topic.name) and known.number == number and not self._is_of(known, topic):
                other = f"id {known.topic_id}" if known.cluster == topic.cluster else f"cluster {known.cluster}"
                return f"up to offset {known.place.next} of the one with {other}"
        if any(known.tag == tag(topic.name) and not self._is_of(known, topic) for known in self._known):
            return "nothing of this partition, and others of an earlier topic of this name"
        return None

    @staticmethod
    def _is_of(known: _Known, topic: Topic) -> bool:
        return (known.cluster, known.topic_id) == (topic.cluster, topic.id)


def _parsed(slot: str, offsets: Offsets) -> Iterator[_Known]:
    for channel, text in offsets.items():
        found, place = _CHANNEL.fullmatch(channel), _PLACE.fullmatch(text)
        if found is None or place is None:
            raise NotPossible(f"{slot} has read the channel {channel} up to {text}: no partition", hint=_OTHER_NAME)
        epoch = int(place[2]) if place[2] else None
        offset = int(place[1])
        seen = Seen(offset - int(place[5]), place[6]) if place[5] else None
        at = Place(offset, epoch, int(place[3]), seen)
        yield _Known(slot, found[1], found[2], int(found[3]), at, place[4])
