"""Topics of a real broker, copied into a table: each message once, and a loud stop where that cannot be."""

import logging
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType

from bookkeeper.contract.offsets import slot_name
from bookkeeper.errors import NotPossible, SchemaRefused
from bookkeeper.leases.lease import NoLease
from tests.kafka.poisoned import files_lost
from tests.kafka.topics import Copy, Topics, queue, running, until
from tests.support.keyed_rows import state
from writers import Writer
from writers.kafka import source
from writers.kafka.client import Cluster
from writers.kafka.partitions import Partition, Place
from writers.kafka.slot_loop import read_slot
from writers.loader.formats import Format
from writers.timing import pause


def numbers(topic: str, *partitions: range | list[int]) -> list[tuple[str, int, int, int]]:
    """Rows of messages whose number is their offset."""
    return [(topic, partition, n, n) for partition, found in enumerate(partitions) for n in found]


def test_messages_of_all_partitions_are_in_the_table_once_over_two_runs(topics: Topics, tmp_path: Path) -> None:
    topics.make("many", 6)
    copy = Copy(topics, queue(tmp_path), "many")
    for partition in range(6):
        topics.numbers("many", 0, 40, partition)
    copy.run()
    topics.numbers("many", 40, 50, partition=3)

    copy.run()

    assert copy.rows() == numbers("many", *(range(50 if number == 3 else 40) for number in range(6)))


def test_a_run_goes_on_behind_what_is_pending_and_not_yet_committed(topics: Topics, tmp_path: Path) -> None:
    topics.make("pending", 2)
    copy = Copy(topics, queue(tmp_path), "pending")
    for last in (10, 20, 30):
        topics.numbers("pending", last - 10, last, 1)
        copy.run(slots=2)

    assert copy.rows() == numbers("pending", [], range(30))


@pytest.mark.parametrize("length", [5, 25])
def test_a_topic_that_was_made_anew_stops_its_partitions_until_it_is_said_to_go_on(
    topics: Topics, tmp_path: Path, length: int
) -> None:
    name = f"anew-{length}"
    topics.make(name)
    topics.numbers(name, 0, 15)
    copy = Copy(topics, queue(tmp_path), name)
    copy.run()
    topics.delete(name)
    topics.make(name)
    topics.numbers(name, 100, 100 + length)

    with pytest.raises(NotPossible, match=rf"another one than before.*up to offset 15.*--go-on {name}=earliest"):
        copy.run()
    before = copy.rows()
    copy.run(go_on=[f"{name}=earliest"])
    copy.run()

    assert before == numbers(name, range(15))
    assert copy.rows() == sorted(before + [(name, 0, n, 100 + n) for n in range(length)])


def test_what_was_read_of_a_topic_that_is_made_anew_meanwhile_is_not_published(topics: Topics, tmp_path: Path) -> None:
    topics.make("swap")
    topics.numbers("swap", 0, 10)
    copy = Copy(topics, queue(tmp_path), "swap")

    with running(copy):
        until(lambda: copy.shared is not None and any(it.unpublished for it in copy.shared.figures.values()))
        topics.delete("swap")
        topics.make("swap")
        topics.numbers("swap", 100, 130)
    published = copy.rows()
    copy.run()

    assert published == []
    assert copy.rows() == [("swap", 0, n, 100 + n) for n in range(30)]


def test_retention_that_passes_a_stopped_copy_is_told_with_what_is_lost(topics: Topics, tmp_path: Path) -> None:
    topics.make("kept")
    topics.numbers("kept", 0, 10)
    copy = Copy(topics, queue(tmp_path), "kept")
    copy.run()
    topics.numbers("kept", 10, 30)
    topics.drop_before("kept", 0, 17)

    lost = r"7 offsets, 10 to 16, are expired and were not read.*--go-on kept:0=earliest"
    with pytest.raises(NotPossible, match=lost):
        copy.run()
    copy.run(go_on=["kept:0=earliest"])

    assert copy.rows() == numbers("kept", [*range(10), *range(17, 30)])


@pytest.mark.parametrize("length", [12, 40])
def test_a_log_that_was_cut_stops_its_partition_also_where_it_has_grown_again(
    topics: Topics, tmp_path: Path, length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("writers.publish.channel_offsets.ALONE", timedelta(0))
    name = f"cut-{length}"
    topics.make(name)
    topics.numbers(name, 0, 10)
    copy = Copy(topics, queue(tmp_path), name)
    copy.run(slots=1)
    before = copy.rows()
    _reads_up_to(copy, name, offset=20, epoch=7)
    topics.numbers(name, 10, length)

    with pytest.raises(NotPossible, match=rf"(cut below 20|offsets went back).*--go-on {name}:0=latest"):
        copy.run(slots=1)
    assert copy.rows() == before
    copy.run(slots=1, go_on=[f"{name}:0=10"])

    assert copy.rows() == numbers(name, range(length))


def _reads_up_to(copy: Copy, name: str, offset: int, epoch: int) -> None:
    """What a run leaves that has read up to here, by the word of a leader that the log knows nothing of any more."""
    (topic,) = Cluster(copy.topics.brokers, {}, "look").topics([name]).values()
    with Writer.open(copy.folder, slot_name(copy.name, 0)) as writer:
        writer.publish(offsets={topic.channel(0): Place(offset, epoch, 1).text(name)})


def test_a_partition_that_stopped_leaves_the_others_of_its_slot_going(topics: Topics, tmp_path: Path) -> None:
    topics.make("half", 2)
    copy = Copy(topics, queue(tmp_path), "half")
    topics.numbers("half", 0, 5, 0)
    copy.run(slots=1)
    topics.numbers("half", 5, 9, 0)
    topics.drop_before("half", 0, 7)
    topics.numbers("half", 0, 5, 1)

    with pytest.raises(NotPossible, match="1 partitions have stopped; half/0"):
        copy.run(slots=1)

    assert copy.rows() == numbers("half", range(5), range(5))


def test_aborted_transactions_are_passed_over_also_at_the_end(topics: Topics, tmp_path: Path) -> None:
    topics.make("sure")
    producer = Producer({"bootstrap.servers": topics.brokers, "transactional.id": "t", "log_level": 0})
    producer.init_transactions(30)
    for first, commit in ((0, True), (10, False), (20, True), (30, False)):
        producer.begin_transaction()
        for number in range(first, first + 10):
            producer.produce("sure", b'{"n": %d}' % number, partition=0)
        (producer.commit_transaction if commit else producer.abort_transaction)(30)
    copy = Copy(topics, queue(tmp_path), "sure")

    copy.run()
    copy.run()

    rows = copy.rows()
    assert [row[3] for row in rows] == [*range(10), *range(20, 30)]
    assert len({row[2] for row in rows}) == 20


def test_a_compacted_topic_gives_each_message_that_is_left_once(topics: Topics, tmp_path: Path) -> None:
    keep = {"cleanup_policy": "compact", "segment_bytes": "1048576", "min_cleanable_dirty_ratio": "0.01"}
    topics.make("compact", **keep, segment_ms="100", max_compaction_lag_ms="100")
    copy = Copy(topics, queue(tmp_path), "compact")
    keys = [b"%d" % (number if number % 5 == 0 else 1) for number in range(30)]
    topics.send("compact", [{"n": number} for number in range(30)], keys=keys)
    until(lambda: len(_offsets(topics, "compact")) < 20 or topics.send("compact", [{"n": 99}], keys=[b"x"]))

    copy.run()
    topics.send("compact", [{"n": 100}], keys=[b"y"])
    copy.run()

    found = [row[2] for row in copy.rows()]
    assert len(found) == len(set(found)) < found[-1]
    assert {0, 5, 10, 15, 20, 25} | set(_offsets(topics, "compact")) <= set(found)


def _offsets(topics: Topics, name: str) -> list[int]:
    """Those of the messages that are left."""
    settings = {"bootstrap.servers": topics.brokers, "group.id": "look", "enable.partition.eof": True, "log_level": 0}
    consumer = Consumer(settings)
    consumer.assign([TopicPartition(name, 0, 0)])
    found = list[int]()
    while (message := consumer.poll(10)) is not None and message.error() is None:
        found.append(message.offset())
    consumer.close()
    return found


def test_a_partition_that_is_added_is_read_from_its_beginning_also_where_the_copy_began_at_the_end(
    topics: Topics, tmp_path: Path
) -> None:
    topics.make("wide", 2)
    topics.numbers("wide", 0, 5, 0)
    copy = Copy(topics, queue(tmp_path), "wide")
    with running(copy, begin="latest"):
        until(lambda: copy.shared is not None and sum(len(it.lag) for it in copy.shared.figures.values()) == 2)
        topics.numbers("wide", 5, 9, 0)
        until(lambda: any(it.unpublished for it in copy.shared.figures.values()))
    topics.widen("wide", 3)
    topics.numbers("wide", 0, 7, 2)

    copy.run("latest")

    assert copy.rows() == numbers("wide", range(5, 9), [], range(7))


def test_partitions_that_are_added_while_it_runs_are_read(
    topics: Topics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "TOPICS_EVERY", source.TOPICS_EVERY / 300)
    topics.make("grows", 1)
    copy = Copy(topics, queue(tmp_path, roll_after=timedelta(seconds=1)), "grows")
    with running(copy, begin="latest", slots=1):
        until(lambda: copy.shared is not None and any(it.lag for it in copy.shared.figures.values()))
        topics.widen("grows", 3)
        topics.numbers("grows", 0, 7, 2)
        until(lambda: any(it.unpublished == 7 for it in copy.shared.figures.values()))

    assert copy.rows() == numbers("grows", [], [], range(7))


def test_a_copy_begins_at_a_time_or_where_a_group_stands(topics: Topics, tmp_path: Path) -> None:
    topics.make("begins", 1, retention_ms="-1")
    for number in range(10):
        topics.send("begins", [{"n": number}], timestamp=1_700_000_000_000 + number * 1000)
    group = Consumer({"bootstrap.servers": topics.brokers, "group.id": "old", "log_level": 0})
    group.commit(offsets=[TopicPartition("begins", 0, 8)], asynchronous=False)
    group.close()
    at_a_time = Copy(topics, queue(tmp_path / "time"), "begins")
    at_the_group = Copy(topics, queue(tmp_path / "group"), "begins")

    at_a_time.run("2023-11-14T22:13:23.500Z")
    at_the_group.run("group:old")
    with pytest.raises(NotPossible, match=r"the group other has no offset of it.*--go-on begins:0=earliest"):
        Copy(topics, queue(tmp_path / "other"), "begins").run("group:other")

    assert at_a_time.rows() == numbers("begins", range(4, 10))
    assert at_the_group.rows() == numbers("begins", range(8, 10))


def test_kafka_is_told_only_what_is_committed(topics: Topics, tmp_path: Path) -> None:
    topics.make("told")
    topics.numbers("told", 0, 5)
    copy = Copy(topics, queue(tmp_path), "told", name="told")

    def told() -> int:
        group = Consumer({"bootstrap.servers": topics.brokers, "group.id": "told", "log_level": 0})
        (found,) = group.committed([TopicPartition("told", 0)], 10)
        group.close()
        return int(found.offset)

    copy.run()
    before = told()
    copy.rows()
    topics.numbers("told", 5, 6)
    copy.run()

    assert (before, told()) == (-1001, 5)


def test_another_number_of_slots_is_refused(topics: Topics, tmp_path: Path) -> None:
    topics.make("slots", 5)
    for number in range(5):
        topics.numbers("slots", 0, 3, number)
    copy = Copy(topics, queue(tmp_path), "slots")
    copy.run(slots=4)

    with pytest.raises(NotPossible, match="the number of slots has changed"):
        copy.run(slots=5)


def test_a_topic_that_is_not_there_is_named(topics: Topics, tmp_path: Path) -> None:
    with pytest.raises(NotPossible, match="there is no topic nowhere"):
        Copy(topics, queue(tmp_path), "nowhere").run()


def test_a_bad_message_stops_its_partition_unless_it_may_be_passed_over(
    topics: Topics, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    topics.make("bad", 2)
    topics.numbers("bad", 0, 3, 0)
    topics.send("bad", [b"{", {"n": 4}], 0)
    topics.numbers("bad", 0, 5, 1)
    copy = Copy(topics, queue(tmp_path), "bad")

    with pytest.raises(NotPossible, match="1 partitions have stopped; bad/0: the message at offset 3 is no row"):
        copy.run()
    stopped = copy.rows()
    copy.run(most_bad=1)

    assert stopped == numbers("bad", range(3), range(5))
    assert copy.rows() == numbers("bad", [0, 1, 2, 4], range(5))
    (skipped,) = [record for record in caplog.records if record.message == "bad message skipped"]
    assert (skipped.partition, skipped.offset, skipped.levelno) == ("bad/0", 3, logging.WARNING)


def test_two_instances_that_both_think_they_hold_all_slots_copy_each_message_once(
    topics: Topics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source.Shared, "lease", lambda self, folder, slot: NoLease())
    topics.make("twice", 4)
    table = queue(tmp_path, roll_after=timedelta(seconds=1))
    copy, other = Copy(topics, table, "twice"), Copy(topics, table, "twice")
    with running(copy), running(other):
        for first in range(0, 60, 20):
            for number in range(4):
                topics.numbers("twice", first, first + 20, number)
            until(lambda last=first + 20: table.tick() and len(table.table().scan().to_arrow()) >= 4 * last)

    copy.run()

    assert copy.rows() == numbers("twice", *[range(60)] * 4)


def test_a_partition_whose_rows_are_rejected_is_left_alone_and_the_others_go_on(
    topics: Topics, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    topics.make("poison", 3)
    table = queue(tmp_path, roll_after=timedelta(seconds=1))
    copy = Copy(topics, table, "poison")
    for number in range(3):
        topics.numbers("poison", 0, 5, number)

    def commits(wanted: int) -> bool:
        table.tick()
        return len(table.table().scan().to_arrow()) >= wanted

    with files_lost(1), running(copy, slots=1):
        until(lambda: commits(10))
        for number in range(3):
            topics.numbers("poison", 5, 9, number)
        until(lambda: commits(18))
        until(lambda: table.tick() and "partition rests: its rows are rejected" in caplog.text)

    assert copy.rows() == numbers("poison", range(9), [], range(9))
    copy.run(slots=1)
    assert copy.rows() == numbers("poison", range(9), range(9), range(9))


def test_rows_that_the_writer_refuses_stop_their_partition_alone(
    topics: Topics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = Writer.write

    def refuse(self: Writer, rows: pa.Table, **more: Any) -> None:
        if 1 in rows["partition"].to_pylist():
            raise SchemaRefused("no such rows")
        write(self, rows, **more)

    monkeypatch.setattr(Writer, "write", refuse)
    topics.make("refused", 3)
    for number in range(3):
        topics.numbers("refused", 0, 5, number)
    table = queue(tmp_path, roll_after=timedelta(seconds=1))
    copy = Copy(topics, table, "refused")

    with running(copy, slots=1):
        until(lambda: table.tick() and len(table.table().scan().to_arrow()) == 10)

    assert copy.shared is not None
    why = "its rows are refused: no such rows. Mend the table."
    assert copy.shared.stopped == {Partition("refused", 1): ("copy-00", why)}
    assert copy.rows() == numbers("refused", range(5), [], range(5))


def test_the_broker_stands_still_and_goes_on(
    topics: Topics, broker: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "TOPICS_EVERY", source.TOPICS_EVERY / 300)
    monkeypatch.setattr("writers.kafka.client._SECONDS", 1.0)
    topics.make("still", 2)
    topics.numbers("still", 0, 5, 1)
    table = queue(tmp_path, roll_after=timedelta(seconds=1))
    copy = Copy(topics, table, "still")
    with running(copy):
        until(lambda: copy.shared is not None and any(it.unpublished for it in copy.shared.figures.values()))
        with broker.frozen():  # type: ignore[attr-defined]
            pause(2.5)
        topics.numbers("still", 5, 9, 1)
        until(lambda: table.tick() and len(table.table().scan().to_arrow()) == 9)

    assert copy.rows() == numbers("still", [], range(9))


def test_where_all_partitions_of_a_slot_begin_is_in_its_first_txlog(topics: Topics, tmp_path: Path) -> None:
    topics.make("late", 2)
    topics.numbers("late", 0, 3, 1)
    copy = Copy(topics, queue(tmp_path), "late")
    with running(copy, begin="latest", slots=1):
        until(lambda: copy.shared is not None and sum(len(it.lag) for it in copy.shared.figures.values()) == 2)
        topics.numbers("late", 0, 3, 0)
        until(lambda: any(it.unpublished for it in copy.shared.figures.values()))
    topics.numbers("late", 3, 6, 1)

    copy.run("latest", slots=1)

    assert copy.rows() == numbers("late", range(3), range(3, 6))


def test_behind_the_bookkeeper_it_reads_no_further(topics: Topics, tmp_path: Path) -> None:
    topics.make("slow")
    table = queue(tmp_path, roll_after=timedelta(milliseconds=100), pending_limit=1)
    copy = Copy(topics, table, "slow")
    copy.patience = timedelta(0)
    with running(copy):
        topics.numbers("slow", 0, 5)
        until(lambda: copy.shared is not None and any(it.rows == 5 for it in copy.shared.figures.values()))
        topics.numbers("slow", 5, 10)
        until(lambda: any(it.waiting for it in copy.shared.figures.values()))
        topics.numbers("slow", 10, 15)
        topics.numbers("slow", 15, 20)
        held = max(it.unpublished for it in copy.shared.figures.values())
        until(lambda: table.tick() and len(table.table().scan().to_arrow()) == 20)

    assert held == 5
    assert copy.rows() == numbers("slow", range(20))


def test_changes_of_a_database_make_a_keyed_table_what_the_database_is(topics: Topics, tmp_path: Path) -> None:
    topics.make("changes")
    columns = (NestedField(1, "id", LongType(), required=True), NestedField(2, "value", StringType()))
    table = queue(tmp_path, Schema(*columns), key=("id",))
    rows = [
        *({"op": "c", "before": None, "after": {"id": n, "value": "a"}} for n in range(6)),
        {"op": "u", "before": None, "after": {"id": 1, "value": "b"}},
        {"op": "u", "before": {"id": 2, "value": "a"}, "after": {"id": 20, "value": "b"}},
        {"op": "d", "before": {"id": 3, "value": "a"}, "after": None},
        None,
    ]
    topics.send("changes", rows)

    Copy(topics, table, "changes").run(form=Format("ndjson", debezium=True), filled={})
    table.tick()

    assert state(table) == {0: "a", 1: "b", 4: "a", 5: "a", 20: "b"}


def test_messages_of_json_are_upserts_of_a_keyed_table(topics: Topics, tmp_path: Path) -> None:
    topics.make("newest")
    columns = (NestedField(1, "id", LongType(), required=True), NestedField(2, "value", StringType()))
    table = queue(tmp_path, Schema(*columns), key=("id",))
    topics.send("newest", [{"id": n % 3, "value": f"{n}"} for n in range(40)])

    Copy(topics, table, "newest").run(filled={})
    table.tick()

    assert state(table) == {0: "39", 1: "37", 2: "38"}


def test_metrics_say_how_far_behind_each_partition_is(topics: Topics, tmp_path: Path) -> None:
    from writers.kafka.command import metrics

    topics.make("lag", 2)
    topics.numbers("lag", 0, 5, 1)
    topics.send("lag", [b"["], 0)
    copy = Copy(topics, queue(tmp_path), "lag")
    with pytest.raises(NotPossible):
        copy.run(slots=1)

    assert copy.shared is not None
    text = metrics([copy.shared])

    assert 'writer_kafka_lag_messages{partition="1",table="demo.events",topic="lag",writer="copy-00"} 0.0' in text
    assert 'writer_kafka_stopped{partition="0",table="demo.events",topic="lag",writer="copy-00"} 1.0' in text
    assert 'writer_kafka_bad_messages_total{table="demo.events",writer="copy-00"} 0.0' in text
    assert Partition("lag", 0) in copy.shared.stopped


def test_a_partition_is_behind_until_what_was_read_is_in_the_table(topics: Topics, tmp_path: Path) -> None:
    topics.make("behind")
    table = queue(tmp_path, roll_after=timedelta(milliseconds=100))
    copy = Copy(topics, table, "behind")
    sent = round(table.clock.now.timestamp() * 1000) - 90_000

    def behind() -> list[float]:
        figures = [] if copy.shared is None else [*copy.shared.figures.values()]
        return [age for it in figures for age in it.behind.values() if age is not None]

    with running(copy, most_bad=1):
        until(lambda: behind() == [0])
        topics.send("behind", [{"n": 0}], timestamp=sent)
        until(lambda: any(it.rows for it in copy.shared.figures.values()) and 90 <= behind()[0] < 150)
        table.tick()
        until(lambda: behind() == [0])
        topics.send("behind", [None], timestamp=sent)
        until(lambda: copy.shared is not None and sum(copy.shared.skipped.values()) == 1)
        assert behind() == [0]  # it gives no row


def test_only_the_instance_that_reads_a_slot_says_how_far_behind_it_is(
    topics: Topics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Others(NoLease):
        def hold(self, now: object) -> bool:
            return False

    topics.make("away")
    topics.numbers("away", 0, 3)
    copy = Copy(topics, queue(tmp_path), "away")
    shared = copy.run(slots=1)
    before = [len(it.lag) for it in shared.figures.values()]
    monkeypatch.setattr(source.Shared, "lease", lambda self, folder, slot: Others())
    stops = iter((False, True, False, True))
    shared.stopping = lambda: next(stops)

    Others.offering = True
    read_slot(shared, 0)
    offered = [len(it.lag) for it in shared.figures.values()]
    Others.offering = False
    read_slot(shared, 0)

    assert before == offered == [1]
    assert [(it.lag, it.behind, it.stopped) for it in shared.figures.values()] == [({}, {}, {})]
