"""
What a run of a slot works on: how far each partition is read, a batch of messages, and what is done with what they say.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bookkeeper.errors import BookkeeperError
from writers.kafka.messages import Message, MessageReader
from writers.kafka.partitions import Partition, Place, Seen, Topic
from writers.kafka.start_option import Start
from writers.writer import Writer


@dataclass(frozen=True)
class Batch:
    """Messages in their order, the last one of each partition, and events in place of messages."""

    messages: list[Message]
    last: dict[tuple[str, int], Message]
    events: list[Message]


def sorted_batch(batch: Sequence[Message]) -> Batch:
    """
    What a consumer gave at once.
    """
    messages, events, last = [], [], dict[tuple[str, int], Message]()
    for message in batch:
        if message.error() is None:
            messages.append(message)
            last[message.topic(), message.partition()] = message
        else:
            events.append(message)
    return Batch(messages, last, events)


class TopicChanged(BookkeeperError):
    """A topic was deleted, or made anew, while it was read: what was read since the last txlog is read again."""


@dataclass
class Cursor:
    """
    How far a partition is read; `high`: the end that it had when this run began; `ended`: its end was seen;
    `unpublished`: it begins where a later run would not; `cut`: other messages may have its offsets now.
    """

    topic: Topic
    partition: Partition
    place: Place
    high: int | None = None
    ended: bool = False
    unpublished: bool = False
    cut: bool = False

    @property
    def channel(self) -> str:
        """Its channel."""
        return self.topic.channel(self.partition.number)

    @property
    def text(self) -> str:
        """Its offset, as a txlog says it."""
        return self.place.text(self.topic.name)

    def move(self, offset: int, epoch: int | None, seen: Seen | None = None) -> None:
        """The next message is the one at this offset."""
        epoch = self.place.epoch if epoch is None else epoch
        self.place = Place(offset, epoch, self.place.begun, seen or self.place.seen)

    def begin(self, offset: int, cut: bool) -> None:
        """It is read on from this offset, whatever was read before."""
        self.place, self.unpublished, self.cut = Place(offset, self.place.epoch, self.place.begun), True, cut

    def published(self) -> None:
        """A txlog has its place."""
        self.unpublished = self.cut = False


@dataclass(frozen=True)
class Handling:
    """
    What a run does with what it meets. `stop` is told of a partition that cannot go on, with the reason and what to do;
    `go_on` says where one begins again whose place is lost; `skips` how many bad messages may still be passed over.
    `full` is told how many bytes of rows wait to be published, and says whether that is too much.
    """

    reader: Callable[[Writer], MessageReader]
    changes: bool
    stop: Callable[[Partition, str, str], None]
    go_on: Callable[[Partition], Start | None]
    skips: Callable[[], int]
    skipped: Callable[[int], None]
    full: Callable[[int], bool]
    batch_bytes: int
