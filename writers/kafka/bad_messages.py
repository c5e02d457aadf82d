"""
What becomes of messages that are no rows: put aside as dead letters, passed over, or the end of their partition.

Which of these a message is `messages.py` says, by how many may be passed over; how it is a letter, `letters.py`.
"""

import logging
from collections.abc import Callable, Mapping, Sequence

from writers.kafka.cursor import Cursor
from writers.kafka.dead_letters import Letters
from writers.kafka.messages import Bad, Message, MessageReader, converted, partition_of
from writers.kafka.partitions import Partition

log = logging.getLogger(__name__)


class BadMessages:
    """Those of one run; to be used by one thread. `stop` ends a partition, with the reason and what to do."""

    def __init__(
        self,
        letters: Letters | None,
        cursors: Mapping[Partition, Cursor],
        stop: Callable[[Partition, str, str], None],
        skipped: Callable[[int], None],
    ) -> None:
        self._letters, self._cursors, self._stop, self._skipped = letters, cursors, stop, skipped

    def judged(self, messages: list[Message], reader: MessageReader) -> tuple[list[Bad], list[Message]]:
        """Those that an earlier run, or this one, has put aside, and the others."""
        if self._letters is None:
            return [], messages
        judged, rest = list[Bad](), list[Message]()
        for message in messages:
            cursor = self._cursors[partition_of(message)]
            if self._letters.judged(cursor.channel, message.offset()):
                judged.append(Bad(message, _reason(message, reader), skipped=True))
            else:
                rest.append(message)
        return judged, rest

    def put_aside(self, bad: Sequence[Bad], stopped: Mapping[Partition, int]) -> int:
        """Makes letters of those that are passed over, up to where a partition has stopped; their bytes in memory."""
        if self._letters is None:
            return 0
        return sum(
            self._letters.add(self._cursors[item.partition].channel, item.message, item.reason)
            for item in bad
            if item.skipped and item.offset < stopped.get(item.partition, item.offset + 1)
        )

    def report(self, bad: Sequence[Bad]) -> None:
        """Logs and counts what is passed over, and stops the partitions of the others."""
        for item in bad:
            if item.skipped:
                facts = {"partition": str(item.partition), "offset": item.offset, "cause": item.reason}
                log.warning("bad message skipped", extra={"action": "skip", **facts})
            else:
                hint = "Mend the table, or let the message be passed over: a greater --max-bad."
                self._stop(item.partition, f"the message at offset {item.offset} is no row: {item.reason}", hint)
        self._skipped(sum(item.skipped for item in bad))


def _reason(message: Message, reader: MessageReader) -> str:
    found = converted(reader, [message], skips=1, is_newest=True).bad
    return found[0].reason if found else "it was no row for an earlier run, which has put it aside"
