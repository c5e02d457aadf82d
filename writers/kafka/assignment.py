"""
Which slot reads which partition, and which instance runs which slot.

The group of Kafka assigns nothing: the slot of a partition is that of its channel, and a lease says which instance has
it. A share that no instance runs is borrowed, and given back when its own instance comes.
"""

from collections.abc import Iterator, Mapping
from datetime import timedelta

from bookkeeper.contract.offsets import slot_name, slot_of
from bookkeeper.leases.failover import FailoverLease
from bookkeeper.leases.lease import Lease
from bookkeeper.leases.slot_lease import slot_lease
from bookkeeper.stores.store import Store
from writers.kafka.partitions import Partition, Topic

#: a slot of another share is taken once it has been free for so long, and offered back so often, for a moment
_GRACE, _OFFER, _PAUSE = timedelta(seconds=5), timedelta(minutes=1), timedelta(seconds=3)


def slots_of(source: str, slots: int, topics: Mapping[str, Topic]) -> Iterator[tuple[Partition, str]]:
    """
    Each partition of these topics, with the name of the one of `slots` slots that reads it.
    """
    for topic in topics.values():
        for number in range(topic.count):
            yield Partition(topic.name, number), slot_of(source, topic.channel(number), slots)


def lease_of(store: Store, source: str, slot: int, share: tuple[int, int]) -> Lease:
    """
    The lease of a slot: the own one of instance K of N (`share`), or borrowed while another one is away.
    """
    lease = slot_lease(store, slot_name(source, slot))
    number, shares = share
    return lease if slot % shares == number - 1 else FailoverLease(lease, _GRACE, _OFFER, _PAUSE)
