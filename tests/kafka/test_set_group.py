"""Back to the topics: a consumer group of a real broker is set to what is committed in the table, or to nothing."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
from confluent_kafka import Consumer

from bookkeeper.commands.forget import forget_channel
from bookkeeper.contract.txlog_folder import Folder
from bookkeeper.errors import FileMissing, NotPossible
from bookkeeper.leases.lease import lease_on
from bookkeeper.stores.open import open_store
from tests.kafka.topics import Copy, Topics, queue
from tests.servers.process import Server
from writers.kafka.client import Cluster
from writers.kafka.messages import Message
from writers.kafka.partitions import Partition
from writers.kafka.set_group import Step, set_group


def now() -> datetime:
    return datetime.now(UTC)


def folder_of(copy: Copy) -> Folder:
    return Folder(open_store(copy.folder))


def back(copy: Copy, group: str, dry_run: bool = False, cluster: Cluster | None = None) -> list[Step]:
    made = cluster or Cluster(copy.topics.brokers, {}, copy.name)
    return set_group(folder_of(copy), made, copy.name, group, now, dry_run)


def stands(topics: Topics, group: str, *partitions: Partition) -> dict[Partition, int]:
    return Cluster(topics.brokers, {}, group).offsets_of(group, partitions)


@contextmanager
def member(topics: Topics, group: str, topic: str) -> Iterator[tuple[Consumer, list[Message]]]:
    """A consumer that has joined the group and has its partitions, and the messages that it has read by then."""
    early = list[Message]()
    settings = {"group.id": group, "auto.offset.reset": "error", "enable.auto.commit": False, "log_level": 0}
    consumer = Consumer({**settings, "bootstrap.servers": topics.brokers})
    consumer.subscribe([topic])
    try:
        for _ in range(600):
            early += consumer.consume(1, 0.1)
            if consumer.assignment():
                break
        yield consumer, early
    finally:
        consumer.close()


def test_the_consumers_of_the_group_go_on_behind_what_is_in_the_table(topics: Topics, tmp_path: Path) -> None:
    topics.make("back", 4)
    topics.make("back-too", 1)
    topics.numbers("back-too", 0, 1)
    copy = Copy(topics, queue(tmp_path), "back", "back-too")
    for number in range(3):
        topics.numbers("back", 0, 10 + number, number)
    copy.run()
    copy.rows()
    for number in range(3):
        topics.numbers("back", 100, 102, number)

    steps = back(copy, "shop")

    expected = {"back-too/0": 1, **{f"back/{number}": 10 + number for number in range(3)}, "back/3": 0}
    assert {step.partition: step.offset for step in steps} == expected and not any(step.refused for step in steps)
    with member(topics, "shop", "back") as (consumer, early):
        read = [*early]
        while len(read) < 6 and (more := consumer.consume(6 - len(read), 10)):
            read += more
    expected_reads = [(number, 10 + number + n) for number in range(3) for n in range(2)]
    assert sorted((message.partition(), message.offset()) for message in read) == expected_reads


def test_a_dry_run_shows_it_and_sets_nothing(topics: Topics, tmp_path: Path) -> None:
    topics.make("dry")
    topics.numbers("dry", 0, 5)
    copy = Copy(topics, queue(tmp_path), "dry")
    copy.run()
    copy.rows()
    partition = Partition("dry", 0)
    Cluster(topics.brokers, {}, "x").set_offsets("dry-shop", {partition: 2})

    shown = back(copy, "dry-shop", dry_run=True)
    before = stands(topics, "dry-shop", partition)
    done = back(copy, "dry-shop")

    assert shown == done == [Step("dry/0", 5, before=2)]
    assert (before, stands(topics, "dry-shop", partition)) == ({partition: 2}, {partition: 5})


def test_a_group_with_members_is_refused_also_where_one_joins_after_the_look(
    topics: Topics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics.make("busy")
    topics.numbers("busy", 0, 5)
    copy = Copy(topics, queue(tmp_path), "busy")
    copy.run()
    copy.rows()

    with member(topics, "busy-shop", "busy"):
        with pytest.raises(NotPossible, match=r"the group busy-shop has 1 active members: .* at "):
            back(copy, "busy-shop")
        with monkeypatch.context() as patch:
            patch.setattr(Cluster, "members", lambda self, group: [])
            with pytest.raises(NotPossible, match="the group busy-shop got a member meanwhile"):
                back(copy, "busy-shop")
    assert stands(topics, "busy-shop", Partition("busy", 0)) == {}

    assert back(copy, "busy-shop") == [Step("busy/0", 5)]


def test_pending_txlogs_are_waited_for_unless_they_are_in_the_table(topics: Topics, tmp_path: Path) -> None:
    topics.make("drains", 2)
    for number in range(2):
        topics.numbers("drains", 0, 5, number)
    copy = Copy(topics, queue(tmp_path), "drains")
    copy.run(slots=2)
    names = [item.name for item in folder_of(copy).pending()]
    data = folder_of(copy).read(names)

    with pytest.raises(NotPossible, match=f"{len(names)} txlogs of copy-00, copy-01 are pending"):
        back(copy, "drains-shop")
    copy.rows()
    for name, content in data.items():
        assert isinstance(content, bytes)
        folder_of(copy).publish(name, content)  # as a crash of the bookkeeper before it deletes leaves them

    assert [step.offset for step in back(copy, "drains-shop")] == [5, 5]


def test_nothing_is_set_while_an_instance_runs(topics: Topics, tmp_path: Path) -> None:
    topics.make("runs")
    topics.numbers("runs", 0, 5)
    copy = Copy(topics, queue(tmp_path), "runs")
    copy.run(slots=1)
    copy.rows()
    lease = lease_on(folder_of(copy).store, "slots/copy-00.lease", "an instance")
    assert lease.hold(now())

    with pytest.raises(NotPossible, match="an instance of copy reads copy-00"):
        back(copy, "runs-shop")
    lease.release()
    other = Copy(topics, copy.queue, "runs", name="cop")
    with pytest.raises(NotPossible, match="nothing that cop has read is committed"):
        back(other, "runs-shop")

    assert [step.offset for step in back(copy, "runs-shop")] == [5]
    assert lease.hold(now())  # it was given back


def test_a_topic_that_was_made_anew_is_refused_by_name_until_the_copy_reads_it(topics: Topics, tmp_path: Path) -> None:
    for name in ("again", "stays"):
        topics.make(name)
        topics.numbers(name, 0, 15)
    copy = Copy(topics, queue(tmp_path), "again", "stays")
    copy.run()
    copy.rows()
    topics.delete("again")
    topics.make("again")
    topics.numbers("again", 0, 20)

    stays, again = back(copy, "again-shop")
    set_now = stands(topics, "again-shop", Partition("again", 0), Partition("stays", 0))
    copy.run(go_on=["again=earliest"])
    copy.rows()

    assert stays == Step("stays/0", 15)
    assert again.partition == "again/0" and again.offset is None and "the topic was made anew: id " in again.refused
    assert set_now == {Partition("stays", 0): 15}
    assert back(copy, "again-shop") == [Step("again/0", 20), Step("stays/0", 15, before=15)]


def test_a_topic_that_is_gone_is_refused(topics: Topics, tmp_path: Path) -> None:
    topics.make("gone")
    topics.numbers("gone", 0, 5)
    copy = Copy(topics, queue(tmp_path), "gone")
    copy.run()
    copy.rows()
    topics.delete("gone")

    (step,) = back(copy, "gone-shop")

    assert step.partition.startswith("a topic with id ") and "the topic is not there" in step.refused


def test_partitions_of_another_cluster_are_refused_by_name(topics: Topics, tmp_path: Path) -> None:
    topics.make("moved", 2)
    for number in range(2):
        topics.numbers("moved", 0, 5, number)
    copy = Copy(topics, queue(tmp_path), "moved")
    copy.run()
    copy.rows()
    cluster = Cluster(topics.brokers, {}, "x")
    right, cluster._id = cluster.id(), "other"

    steps = back(copy, "moved-shop", cluster=cluster)

    why = f"it was read of cluster {right}, and this is cluster other"
    assert steps == [Step("moved/0", refused=why), Step("moved/1", refused=why)]
    assert stands(topics, "moved-shop", Partition("moved", 0)) == {}


def test_what_is_expired_or_forgotten_is_refused_and_what_was_added_begins_at_its_beginning(
    topics: Topics, broker: Server, tmp_path: Path
) -> None:
    topics.make("parts", 2)
    table = queue(tmp_path)
    for number in range(2):
        topics.numbers("parts", 0, 5, number)
    copy = Copy(topics, table, "parts")
    copy.run(slots=1)
    copy.rows()
    topics.numbers("parts", 5, 9, 0)
    topics.drop_before("parts", 0, 7)
    topics.widen("parts", 3)
    topics.numbers("parts", 0, 3, 2)
    Topics(broker).drop_before("parts", 2, 1)
    view = table.view()
    (channel,) = [name for name in view.marks.writer("copy-00").offsets if name.endswith("/1")]
    left = forget_channel(view.marks, folder_of(copy), table.settings, "copy-00", channel)
    table.book().publisher.record(view, left, "forgotten")

    added, *refused = back(copy, "parts-shop")

    assert added == Step("parts/2", 1)
    assert [(step.partition, step.refused) for step in refused] == [
        ("parts/0", "2 offsets, 5 to 6, are expired and are not in the table"),
        ("parts/1", "nothing of it is committed in the table"),
    ]


def test_an_offset_behind_the_end_of_a_topic_is_refused(
    topics: Topics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics.make("cut")
    topics.numbers("cut", 0, 5)
    copy = Copy(topics, queue(tmp_path), "cut")
    copy.run()
    copy.rows()
    monkeypatch.setattr("writers.kafka.client.SlotConsumer.range", lambda self, partition: (0, 4))

    assert back(copy, "cut-shop") == [Step("cut/0", refused="it was read up to 5 and ends at 4")]


def test_rejected_txlogs_are_named_for_their_rows_are_read_again(
    topics: Topics, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    topics.make("rejects")
    topics.numbers("rejects", 0, 5)
    copy = Copy(topics, queue(tmp_path), "rejects")
    copy.run()
    copy.rows()
    topics.numbers("rejects", 5, 9)
    copy.run()
    folder = folder_of(copy)
    (name,) = [item.name for item in folder.pending()]
    folder.reject(name, FileMissing("gone"), now())

    assert back(copy, "rejects-shop") == [Step("rejects/0", 5)]
    (said,) = [record for record in caplog.records if record.message == "rejected txlog"]
    assert said.txlog == str(name)
