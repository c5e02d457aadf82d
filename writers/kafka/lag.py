"""
The lag of a slot's partitions: messages that are not read, and how long those wait that are not committed. Pure.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

from bookkeeper.config.units import epoch_ms
from writers.kafka.messages import Message
from writers.kafka.partitions import Partition

#: times kept for a partition; of more every second one goes, and ages are those of somewhat older messages
_MOST = 64
_NO_TIME = 0


def offset_lags(read: Mapping[Partition, int], end: Callable[[Partition], int | None]) -> dict[Partition, int]:
    """
    Messages from the next offset that is `read` to the end of each partition, where Kafka has said it.
    """
    ends = {partition: end(partition) for partition in read}
    return {partition: max(0, last - read[partition]) for partition, last in ends.items() if last is not None}


class Ages:
    """
    The age of the oldest message of each partition that is not committed, by the time that the message itself says.

    Messages that give no rows are not waited for: their offsets are committed with later rows, or after an hour.
    Of what an earlier run has read, and of messages without a time, it is the time since this run met them: less than
    the true age. To be used by one thread.
    """

    def __init__(self, earlier: Mapping[Partition, int], now: datetime) -> None:
        """`earlier`: up to which offset partitions were read by earlier runs; what of it is committed is not known."""
        millis = epoch_ms(now)
        #: up to which offset each partition is read
        self._read = dict(earlier)
        #: offsets and times of messages, the oldest that is not committed first
        self._waiting = {partition: [(0, millis)] for partition in earlier}
        #: since when a partition has messages of which none was read
        self._unread = dict[Partition, datetime]()

    @property
    def waiting(self) -> bool:
        """Whether there are messages that were read and are not known to be committed."""
        return bool(self._waiting)

    def read(self, messages: Sequence[Message], last: Mapping[tuple[str, int], Message], now: datetime) -> None:
        """These messages were read and gave rows, each partition in its order; `last`: the last one of each."""
        first = {(message.topic(), message.partition()): message for message in reversed(messages)}
        for key, message in last.items():
            partition, (kind, millis) = Partition(*key), first[key].timestamp()
            self._read[partition] = message.offset() + 1
            times = self._waiting.setdefault(partition, [])
            times.append((first[key].offset(), epoch_ms(now) if kind == _NO_TIME else millis))
            if len(times) > _MOST:
                del times[1::2]

    def committed(self, reached: Mapping[Partition, int]) -> None:
        """Messages before these offsets are committed."""
        for partition, offset in reached.items():
            if offset >= self._read.get(partition, 0):
                self._waiting.pop(partition, None)
            elif (times := self._waiting.get(partition)) is not None:
                while len(times) > 1 and times[1][0] <= offset:
                    del times[0]

    def drop(self, partition: Partition) -> None:
        """It is read no further, or from elsewhere."""
        self._waiting.pop(partition, None)

    def seconds(self, partition: Partition, lag: int | None, now: datetime) -> float | None:
        """
        How long the oldest message has waited that is not committed; 0 where none waits, and `lag` is 0; None: unknown.
        """
        if (times := self._waiting.get(partition)) is not None:
            self._unread.pop(partition, None)
            return max(0.0, (epoch_ms(now) - times[0][1]) / 1000)
        if not lag:
            self._unread.pop(partition, None)
            return None if lag is None else 0.0
        return max(0.0, (now - self._unread.setdefault(partition, now)).total_seconds())
