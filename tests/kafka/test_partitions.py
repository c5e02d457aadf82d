"""What the txlogs of slots say of partitions, and what follows from it for the next run."""

from pathlib import Path

import pytest

from bookkeeper.contract import offsets
from bookkeeper.errors import ConfigInvalid, NotPossible
from writers.kafka import start_option
from writers.kafka.client import Cluster, properties_in
from writers.kafka.command import wanted_of
from writers.kafka.partitions import Chains, Place, Seen, Topic, tag

OLD = Topic("c1", "orders", "old-id", 4)
NEW = Topic("c1", "orders", "new-id", 4)


def chains(slot: str, topic: Topic, number: int, place: Place) -> Chains:
    return Chains({slot: {topic.channel(number): place.text(topic.name)}})


PLACES = [
    Place(0, None, 1),
    Place(2**63 - 1, 2**31 - 1, 999_999),
    Place(10**15, 99_999, 2000, Seen(10**15 - 1000, "abcdefgh")),
]


@pytest.mark.parametrize("place", PLACES)
def test_a_place_is_read_as_it_was_written_and_fits_a_txlog(place: Place) -> None:
    topic = Topic("A" * 22, "t" * 249, "B" * 22, 1)
    offsets.check({topic.channel(2**31 - 1): place.text(topic.name)})

    assert chains("s-00", topic, 7, place).place(topic, 7, "s-00") == place


def test_what_another_slot_has_read_is_refused() -> None:
    with pytest.raises(NotPossible, match="the number of slots has changed"):
        chains("s-00", OLD, 1, Place(5, 0, 4)).place(OLD, 1, "s-01")


def test_a_topic_that_was_made_anew_is_known_by_its_name() -> None:
    known = chains("s-00", OLD, 1, Place(5, 0, 4))

    assert known.place(NEW, 1, "s-00") is None
    assert known.earlier(NEW, 1) == "up to offset 5 of the one with id old-id"
    assert known.earlier(NEW, 2) is not None
    assert known.earlier(OLD, 2) is None
    assert known.earlier(Topic("c1", "others", "new-id", 4), 1) is None
    assert known.earlier(Topic("c2", "orders", "old-id", 4), 1) == "up to offset 5 of the one with cluster c1"


def test_a_partition_that_was_added_is_known_by_the_number_when_the_topic_was_begun() -> None:
    known = Chains(
        {"s-00": {OLD.channel(0): Place(5, 0, 4).text("orders"), OLD.channel(1): Place(5, 0, 8).text("orders")}}
    )

    assert known.begun(OLD) == 4
    assert known.begun(NEW) is None


@pytest.mark.parametrize(("channel", "text"), [("a/b/1", "5"), ("orders", f"1.1.1.{tag('orders')}")])
def test_offsets_of_another_kind_of_source_are_refused(channel: str, text: str) -> None:
    with pytest.raises(NotPossible, match="no partition"):
        Chains({"s-00": {channel: text}})


@pytest.mark.parametrize("text", ["", "now", "2026-01-31T12:00:00", "group:", "12"])
def test_what_is_no_beginning_is_refused(text: str) -> None:
    with pytest.raises(ConfigInvalid, match="is expected"):
        start_option.parsed(text)


@pytest.mark.parametrize("text", ["", "orders", "orders=", "orders=first", "orders:x=earliest", "=earliest"])
def test_what_is_no_place_to_go_on_is_refused(text: str) -> None:
    with pytest.raises(ConfigInvalid, match="is expected"):
        start_option.go_on(text)


def test_to_go_on_is_said_of_a_topic_or_of_a_partition() -> None:
    given = [start_option.go_on("orders:3=17"), start_option.go_on("orders=latest")]

    assert start_option.chosen(given, "orders", 3) == start_option.Start("offset", offset=17)
    assert start_option.chosen(given, "orders", 2) == start_option.Start("latest")
    assert start_option.chosen(given, "others", 3) is None


@pytest.mark.parametrize(
    "given",
    [
        {"columns": ["key"]},
        {"columns": ["colour=c"]},
        {"share": "2/1"},
        {"begin": "soon"},
        {"go_on": ["x"]},
        {"kind": "avro"},
        {"kind": "avro", "registry": "http://registry", "schema": Path(__file__)},
        {"kind": "avro", "registry": "http://registry", "base64_bytes": True},
        {"kind": "avro", "schema": Path(__file__)},
        {"kind": "debezium-avro", "schema": Path("nowhere")},
        {"registry": "http://registry"},
        {"kind": "raw", "schema": Path(__file__)},
        {"kind": "raw", "base64_bytes": True},
        {"kind": "raw", "ignore_unknown": True},
    ],
)
def test_options_that_say_nothing_are_refused(given: dict[str, object]) -> None:
    usual = {
        "kind": "json",
        "registry": None,
        "schema": None,
        "base64_bytes": False,
        "ignore_unknown": False,
        "share": "1/1",
        "begin": "earliest",
        "columns": [],
        "slots": 16,
        "go_on": [],
        "max_bad": 0,
        "until_end": False,
        "memory": 2**20,
    }
    assert wanted_of("copy", ["orders"], usual, {}).share == (1, 1)

    with pytest.raises(ConfigInvalid):
        wanted_of("copy", ["orders"], {**usual, **given}, {})


def test_settings_of_the_client_are_read_from_a_file_and_never_said(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text("# SASL\n\nsasl.username = me\nsasl.password=a=b#c\n")
    assert properties_in(path) == {"sasl.username": "me", "sasl.password": "a=b#c"}

    for line in ("isolation.level=read_uncommitted", "group.id=x", "secret-without-a-sign"):
        path.write_text(f"sasl.password=hidden\n{line}\n")
        with pytest.raises(ConfigInvalid) as refused:
            properties_in(path)
        assert "hidden" not in str(refused.value) and "secret" not in str(refused.value)
    with pytest.raises(ConfigInvalid) as refused:
        Cluster("localhost:1", {"sasl.password": "hidden", "no.such.setting": "hidden"}, "group")
    assert "hidden" not in str(refused.value)
