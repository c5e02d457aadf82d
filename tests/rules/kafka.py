"""
Topics of Kafka, copied: each message once, of the topic that its channel names, and a stop where a place is lost.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tests.rules.rule import Chapter, Patch, breaks, put
from tests.rules.systems import Fails
from writers.kafka.client import PARTITION_EOF
from writers.kafka.partitions import Partition, Topic
from writers.kafka.start_option import EARLIEST, Start

rule = Chapter()
COPY = "tests/kafka/test_scripted.py::"


@rule(
    "The topics are looked at once more before each publish: what was read may be of a topic that was made anew.",
    Fails(f"{COPY}test_what_was_read_of_a_topic_that_is_made_anew_meanwhile_is_not_published"),
)
@breaks("writers.kafka.run.Run._check_topics")
def topics_are_not_looked_at_again(rightly: Any, run: Any) -> None:
    """What was read is published as of the topic that was there when the run began."""


@rule(
    "A channel is named by the topic's id, so a topic that was made anew does not go on where the old one was.",
    Fails(f"{COPY}test_a_topic_that_was_made_anew_stops_its_partitions_until_it_is_said_to_go_on[25]"),
)
def channels_are_named_by_topics(patch: Patch) -> None:
    """The name of the topic stands in the place of its id."""

    def named(topic: Topic) -> Topic:
        return replace(topic, id=topic.name)

    def channel(rightly: Any, topic: Topic, number: int) -> str:
        return str(rightly(named(topic), number))

    def place(rightly: Any, chains: Any, topic: Topic, number: int, slot: str) -> Any:
        return rightly(chains, named(topic), number, slot)

    def is_of(rightly: Any, known: Any, topic: Topic) -> bool:
        return bool(rightly(known, named(topic)))

    put(patch, "writers.kafka.partitions.Topic.channel", channel)
    put(patch, "writers.kafka.partitions.Chains.place", place)
    put(patch, "writers.kafka.partitions.Chains._is_of", is_of)


@rule(
    "A topic that was made anew is not read unless it is said to: what was not read of the old one is lost.",
    Fails(f"{COPY}test_a_topic_that_was_made_anew_stops_its_partitions_until_it_is_said_to_go_on"),
)
@breaks("writers.kafka.partitions.Chains.earlier")
def earlier_topics_are_forgotten(rightly: Any, chains: Any, topic: Topic, number: int) -> str | None:
    """A topic of a new id is one that nothing was read of."""
    return None


@rule(
    "With rows the offsets behind them are published: what is committed is never read again.",
    Fails(f"{COPY}test_each_message_is_in_the_table_once_over_runs"),
)
@breaks("writers.kafka.cursor.Cursor.text")
def offsets_stay_where_a_run_began(rightly: Any, cursor: Any) -> str:
    """Each txlog of a run says the offsets of the first one."""
    return str(vars(cursor).setdefault("first", rightly(cursor)))


@rule(
    "Kafka is told only offsets that are committed: a txlog that is published may still be rejected.",
    Fails(f"{COPY}test_kafka_is_told_only_what_is_committed"),
)
@breaks("writers.writer.Writer.committed_offsets")
def kafka_is_told_what_is_published(rightly: Any, writer: Any) -> Mapping[str, str]:
    """What is published counts as committed."""
    return dict(writer.offsets)


@rule(
    "The end of a partition moves its place over aborted messages, else retention takes what seems not to be read.",
    Fails(f"{COPY}test_aborted_messages_that_expire_are_no_loss"),
)
@breaks("writers.kafka.run.Run._note")
def aborted_messages_are_not_passed_over(rightly: Any, run: Any, event: Any) -> None:
    """An end moves no place."""
    if event.error().code() == PARTITION_EOF:
        run.cursors[Partition(event.topic(), event.partition())].ended = True
    else:
        rightly(run, event)


@rule(
    "A bad message stops its partition before it, so that each later run meets it again.",
    Fails(f"{COPY}test_a_bad_message_stops_its_partition_before_it_in_each_run"),
)
@breaks("writers.kafka.run.converted")
def places_are_behind_bad_messages(rightly: Any, reader: Any, messages: Any, skips: int, is_newest: bool) -> Any:
    """The place of a partition that stops is the one behind the bad message."""
    found = rightly(reader, messages, skips, is_newest)
    return replace(found, stopped={partition: offset + 1 for partition, offset in found.stopped.items()})


@rule(
    "What follows a bad message in its partition is not written.",
    Fails(f"{COPY}test_a_bad_message_stops_its_partition_before_it_in_each_run"),
)
@breaks("writers.kafka.run.converted")
def partitions_go_on_behind_bad_messages(rightly: Any, reader: Any, messages: Any, skips: int, is_newest: bool) -> Any:
    """All bad messages of a batch are passed over."""
    return rightly(reader, messages, len(messages), is_newest)


@rule(
    "A place that is lost stops its partition: where to go on is not guessed.",
    Fails(f"{COPY}test_retention_that_passes_a_stopped_copy_stops_the_partition"),
    Fails(f"{COPY}test_a_log_that_was_cut_stops_the_partition_also_where_it_is_longer_now"),
)
@breaks("writers.kafka.run.Run._go_on")
def lost_places_are_guessed(rightly: Any, run: Any, cursor: Any, cause: str) -> None:
    """It goes on with the first message that is there."""
    run._handling = replace(run._handling, go_on=lambda partition: Start(EARLIEST))
    rightly(run, cursor, cause)


@rule(
    "The leader epoch of the last message comes with a place: by it the client sees that a log was cut.",
    Fails(f"{COPY}test_a_log_that_was_cut_stops_the_partition_also_where_it_is_longer_now"),
)
@breaks("writers.kafka.partitions.Place.text")
def epochs_are_forgotten(rightly: Any, place: Any, topic: str) -> str:
    """No txlog says an epoch."""
    return str(rightly(replace(place, epoch=None), topic))


@rule(
    "A partition that was added is read from its beginning, wherever the copy began.",
    Fails(f"{COPY}test_a_partition_that_is_added_is_read_from_its_beginning_also_where_the_copy_began_at_the_end"),
)
@breaks("writers.kafka.partitions.Chains.begun")
def added_partitions_begin_like_others(rightly: Any, chains: Any, topic: Topic) -> int | None:
    """How many partitions there were when the topic was begun is forgotten."""
    return None


@rule(
    "A partition that another slot has read is refused: with another number of slots it would be read twice.",
    Fails(f"{COPY}test_another_number_of_slots_is_refused"),
)
@breaks("writers.kafka.partitions.Chains.place")
def any_slot_reads_a_partition(rightly: Any, chains: Any, topic: Topic, number: int, slot: str) -> Any:
    """Of what other slots have read nothing is known."""
    known = next((item for item in chains._known if (item.topic_id, item.number) == (topic.id, number)), None)
    return rightly(chains, topic, number, slot) if known is None or known.slot == slot else None


@rule(
    "Partitions whose txlog was rejected for what is in it are tried one by one, and the others go on.",
    Fails(f"{COPY}test_a_partition_whose_rows_are_rejected_is_left_alone_and_the_others_go_on", timed=True),
)
@breaks("writers.publish.suspects.Suspects.fenced")
def rejects_say_nothing_about_partitions(rightly: Any, suspects: Any, error: Any) -> None:
    """All partitions of a slot are published together again."""


@rule(
    "A place that a later run would not find again, such as the end of a topic, is published before it is read from.",
    Fails(f"{COPY}test_what_comes_behind_the_end_where_a_copy_began_is_read_also_by_the_next_run"),
    Fails(f"{COPY}test_what_comes_behind_the_place_that_go_on_has_given_is_read_also_by_the_next_run[latest]"),
)
@breaks("writers.kafka.run.Run._has_unpublished_place")
def places_are_said_with_the_first_rows(rightly: Any, run: Any) -> bool:
    """Where a run began stands in its first txlog with rows."""
    return False
