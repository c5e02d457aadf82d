"""
Topics of brokers that give them no ids (Azure Event Hubs, Kafka before 2.8): one that was made anew has the same name.

So the place of a partition also says which message was read last. It is read again, and compared by time, key and
value, when a run begins and before each publish: what was read between two looks at one message is of its topic.
"""

from collections.abc import Mapping

from writers.kafka.client import Cluster
from writers.kafka.messages import Message
from writers.kafka.partitions import Partition, Seen, digest


def seen_of(message: Message) -> Seen:
    """
    What a place keeps of a message.
    """
    _, millis = message.timestamp()
    key, value = message.key() or b"", message.value() or b""
    return Seen(message.offset(), digest(b"%d %d %b%b" % (millis, len(key), key, value)))


def not_there(cluster: Cluster, seen: Mapping[Partition, Seen]) -> dict[Partition, str]:
    """
    Those of these partitions that do not have the message any more, and what they have instead; raises
    SourceUnavailable.
    """
    if not seen:
        return {}
    found, answer = cluster.messages_at({item: of.offset for item, of in seen.items()}), dict[Partition, str]()
    for item, of in seen.items():
        message = found.get(item)
        if message is None:
            answer[item] = f"the message at offset {of.offset}, which was read last, is not there any more"
        elif seen_of(message) != of:
            answer[item] = f"there is another message at offset {of.offset} than the one that was read"
    return answer
