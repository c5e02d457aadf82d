"""
Back to the topics: the offsets of a consumer group become what is committed in the table.

All of them are set by one request, and only while no instance reads a slot and none of its txlogs is pending: what is
in the table stands still. What a crash leaves: a group that is set or is not, and leases that end by themselves; the
command may be given again.
"""

import logging
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from bookkeeper.contract.marks import Marks
from bookkeeper.contract.names import check_writer
from bookkeeper.contract.offsets import is_slot, slot_name
from bookkeeper.contract.txlog_folder import Folder
from bookkeeper.errors import Missing, NotPossible
from bookkeeper.leases.lease import lease_on
from bookkeeper.leases.slot_lease import ENDING, FOLDER, lease_name
from writers.kafka.client import STOP_MEMBERS, Cluster, SlotConsumer
from writers.kafka.partitions import Chains, Elsewhere, Partition, Topic, tag
from writers.timing import Clock

log = logging.getLogger(__name__)

_CONSUMER_BYTES = 2**20
_DRAIN = "Let the bookkeeper commit them (`bookkeeper pending`), then give the command again."


@dataclass(frozen=True, slots=True)
class Step:
    """
    A partition by its name. The group stands `before` there (None: nowhere) and is set to `offset`, or not, as
    `refused` says.
    """

    partition: str
    offset: int | None = None
    before: int | None = None
    refused: str = ""


def set_group(folder: Folder, cluster: Cluster, source: str, group: str, clock: Clock, dry_run: bool) -> list[Step]:
    """
    Sets the group to what the source has committed; with `dry_run` only says what it would set.

    Partitions whose offset cannot be continued are refused, the others are set. Raises NotPossible while an instance
    runs, a txlog is pending or the group has members, SourceUnavailable, StorageUnavailable.
    """
    check_writer(slot_name(source, 0))
    with _alone(folder, source, clock):
        chains = _committed(folder, source)
        if members := cluster.members(group):
            shown = f"{', '.join(members[:3])}{' ...' if len(members) > 3 else ''}"
            raise NotPossible(f"the group {group} has {len(members)} active members: {shown}", hint=STOP_MEMBERS)
        topics = cluster.topics([name for name in cluster.names() if tag(name) in chains.tags])
        offsets, refused = _planned(cluster, chains, [*topics.values()])
        before = cluster.offsets_of(group, [*offsets]) if offsets else {}
        if offsets and not dry_run:
            cluster.set_offsets(group, offsets)
    steps = [Step(str(item), offset, before.get(item)) for item, offset in sorted(offsets.items())]
    return steps + refused


@contextmanager
def _alone(folder: Folder, source: str, clock: Clock) -> Iterator[None]:
    """While no instance of the source reads a slot; raises NotPossible where one does."""
    names = [item.key.removeprefix(FOLDER).removesuffix(ENDING) for item in folder.store.list(FOLDER)]
    with ExitStack() as stack:
        for name in sorted({name for name in names if is_slot(source, name)}):
            lease = lease_on(folder.store, lease_name(name), "writer kafka-group")
            if not lease.hold(clock()):
                hint = "Stop all its instances; one that was killed counts for 15 seconds more."
                raise NotPossible(f"an instance of {source} reads {name}", hint=hint)
            stack.callback(lease.release)
        yield


def _committed(folder: Folder, source: str) -> Chains:
    """What the slots have committed; the folder is listed first, so that what is in neither is nowhere."""
    pending = [item.name for item in folder.pending() if is_slot(source, item.name.writer)]
    try:
        card, copy = folder.records()
    except Missing as exc:
        hint = "Give the folder that `bookkeeper init` printed."
        raise NotPossible(f"there is no card.json in {folder.store.url}", hint=hint) from exc
    marks = copy.marks if copy is not None and copy.table_uuid == card.table_uuid else Marks("")
    for name in [item.name for item in folder.rejected() if is_slot(source, item.name.writer)]:
        if not marks.is_in(name) and folder.reason(name).get("error") != "PositionTaken":
            hint = "The group reads its rows: do not replay it."
            log.warning("rejected txlog", extra={"action": "group", "txlog": str(name), "hint": hint})
    if waiting := [name for name in pending if not marks.is_in(name)]:
        slots = ", ".join(sorted({name.writer for name in waiting}))
        raise NotPossible(f"{len(waiting)} txlogs of {slots} are pending", hint=_DRAIN)
    slots_of = {name: marks.writer(name).offsets for name in marks.writers if is_slot(source, name)}
    if not any(slots_of.values()):
        hint = "`bookkeeper writers` lists all writers: those of orders are orders-00, orders-01 ..."
        raise NotPossible(f"nothing that {source} has read is committed in the table", hint=hint)
    return Chains(slots_of)


def _planned(cluster: Cluster, chains: Chains, topics: Sequence[Topic]) -> tuple[dict[Partition, int], list[Step]]:
    """The offset of each partition, and those that cannot go on."""
    offsets, refused = dict[Partition, int](), list[Step]()
    consumer = cluster.consumer(_CONSUMER_BYTES)
    try:
        for topic in topics:
            begun = chains.begun(topic)
            for number in range(topic.count if begun is not None else 0):
                found = _offset(consumer, chains, topic, number, begun or 0)
                if isinstance(found, int):
                    offsets[Partition(topic.name, number)] = found
                else:
                    refused.append(Step(f"{topic.name}/{number}", refused=found))
    finally:
        consumer.close()
    return offsets, [*refused, *_elsewhere(cluster.id(), chains, topics)]


def _offset(consumer: SlotConsumer, chains: Chains, topic: Topic, number: int, begun: int) -> int | str:
    """Where a partition goes on, or why it cannot."""
    low, high = consumer.range(Partition(topic.name, number))
    place = chains.of(topic).get(number)
    if place is None:  # the copy reads what was added from its beginning, too
        return low if number >= begun or low == high else "nothing of it is committed in the table"
    if place.next < low:
        return f"{low - place.next} offsets, {place.next} to {low - 1}, are expired and are not in the table"
    if place.next > high:
        return f"it was read up to {place.next} and ends at {high}"
    return place.next


def _elsewhere(cluster: str, chains: Chains, topics: Sequence[Topic]) -> Iterator[Step]:
    """What was read of other topics, unless the one that is there now was read since."""
    for item in sorted(chains.of_others(topics)):
        topic = next((topic for topic in topics if tag(topic.name) == item.tag), None)
        if topic is None or item.number not in chains.of(topic):
            name = f"a topic with id {item.topic_id}" if topic is None else topic.name
            yield Step(f"{name}/{item.number}", refused=_reason(cluster, item, topic))


def _reason(cluster: str, item: Elsewhere, topic: Topic | None) -> str:
    if item.cluster != cluster:
        return f"it was read of cluster {item.cluster}, and this is cluster {cluster}"
    if topic is None:
        return "the topic is not there, or these credentials do not show it"
    return f"the topic was made anew: id {item.topic_id} was read, and this is id {topic.id}"
