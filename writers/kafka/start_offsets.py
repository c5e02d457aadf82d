"""
The offset at which each partition of a slot begins or goes on: of the slot's chain, of a group, or as the options say.
"""

import logging
from collections.abc import Mapping, Sequence

from bookkeeper.contract.txlog_folder import Folder
from writers.kafka.client import SlotConsumer
from writers.kafka.cursor import Cursor
from writers.kafka.named_topics import not_there
from writers.kafka.partitions import Chains, Partition, Place, Seen, Topic
from writers.kafka.source import Shared
from writers.kafka.start_option import EARLIEST, GROUP, OFFSET, Start, chosen
from writers.writer import Writer

log = logging.getLogger(__name__)


class StartOffsets:
    """
    Of one slot; partitions that can neither begin nor go on are stopped.
    """

    def __init__(self, shared: Shared, name: str) -> None:
        self._shared, self._name = shared, name

    def cursors(
        self,
        consumer: SlotConsumer,
        folder: Folder,
        writer: Writer,
        topics: Mapping[str, Topic],
        wanted: set[Partition],
    ) -> tuple[list[Cursor], list[Cursor]]:
        """All that can be read, and those among them that begin now."""
        own = {self._name: writer.offsets}
        chains = Chains(own)
        unknown = [item for item in sorted(wanted) if chains.place(topics[item.topic], item.number, self._name) is None]
        if unknown:
            chains = Chains({**self._shared.chains(folder), **own})
        starts = self._starts(chains, topics, unknown)
        wanted = wanted - self._other_topics(consumer, chains, topics, wanted)
        groups = self._groups(starts)
        cursors, fresh = list[Cursor](), list[Cursor]()
        for item in sorted(wanted):
            topic, start = topics[item.topic], starts.get(item)
            place = chains.place(topic, item.number, self._name)
            if place is None and start is None:
                continue
            if place is None and start is not None:
                begun = chains.begun(topic) or self._shared.begun.setdefault(topic.id, topic.count)
                offset = groups[item] if start.kind == GROUP else consumer.begin(item, start)
                moves = start.kind not in (EARLIEST, OFFSET)  # by the next run it may be another one
                cursor = Cursor(topic, item, Place(offset, None, begun), unpublished=moves)
                fresh.append(cursor)
            elif place is not None:
                cursor = Cursor(topic, item, place)
            cursor.high = consumer.range(item)[1] if self._shared.wanted.until_end else None
            cursors.append(cursor)
        return cursors, fresh

    def _other_topics(
        self, consumer: SlotConsumer, chains: Chains, topics: Mapping[str, Topic], wanted: set[Partition]
    ) -> set[Partition]:
        """Partitions of topics without ids that lack the message that was read last; they are stopped."""
        seen = dict[Partition, Seen]()
        for item in wanted:
            topic = topics[item.topic]
            place = chains.place(topic, item.number, self._name) if topic.is_named else None
            if place is None or place.seen is None or consumer.range(item) == (place.next, place.next):
                continue  # the last case: all has expired that was read, and nothing came
            seen[item] = place.seen
        found = not_there(self._shared.cluster, seen)
        for item, why in found.items():
            what = f"{why}: it may be another topic now, and its brokers give topics no ids"
            forget = f"`bookkeeper forget {self._name} --channel {topics[item.topic].channel(item.number)}`"
            hint = f"To read it from its beginning: {forget}, and start it under another --name."
            self._shared.stop(self._name, item, what, hint)
        return found.keys() & wanted

    def _starts(
        self, chains: Chains, topics: Mapping[str, Topic], unknown: Sequence[Partition]
    ) -> dict[Partition, Start]:
        """Where partitions begin that are not in the chain; those that cannot are stopped."""
        found = dict[Partition, Start]()
        for item in unknown:
            topic = topics[item.topic]
            chains.place(topic, item.number, self._name)  # raises where another slot has read it
            begun = chains.begun(topic) or self._shared.begun.get(topic.id)
            earlier = chains.earlier(topic, item.number)
            if begun is not None and item.number >= begun:
                found[item] = Start(EARLIEST)  # it was added
            elif earlier is None:
                found[item] = self._shared.wanted.start
            elif (start := chosen(self._shared.wanted.go_on, *item)) is not None:
                log.warning("begun anew", extra={"action": "go on", "partition": str(item), "cause": earlier})
                found[item] = start
            else:
                what = f"the topic {item.topic} is another one than before: this source has read {earlier}"
                hint = (
                    f"What was not read of the old one is lost. To read the new one: --go-on {item.topic}=earliest. "
                    "For another cluster with the same messages use another --name and --from."
                )
                self._shared.stop(self._name, item, what, hint)
        return found

    def _groups(self, starts: dict[Partition, Start]) -> dict[Partition, int]:
        """Where the group stands in partitions that begin there; those without an offset of it are stopped."""
        wanted = [item for item, start in starts.items() if start.kind == GROUP]
        if not wanted:
            return {}
        group = starts[wanted[0]].group
        found = self._shared.cluster.offsets_of(group, wanted)
        for item in wanted:
            if item in found:
                continue
            instead = chosen(self._shared.wanted.go_on, *item)
            if instead is not None:
                starts[item] = instead
            else:
                del starts[item]
                hint = f"Say where it begins: --go-on {item.topic}:{item.number}=earliest"
                self._shared.stop(self._name, item, f"the group {group} has no offset of it", hint)
        return found
