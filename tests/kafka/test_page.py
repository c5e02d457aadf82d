"""docs/kafka.md: its commands as they stand, with a real broker, and what else it says."""

import json
import re
from itertools import pairwise
from pathlib import Path

import pytest
from click.testing import CliRunner
from pyiceberg.schema import Schema
from pyiceberg.types import BinaryType, NestedField, StringType

from benchmarks.support.lake import written
from bookkeeper.catalogs.open import open_catalog
from bookkeeper.config import load
from bookkeeper.config.settings import Settings
from bookkeeper.serve.open import open_bookkeeper
from tests.cli.commands import commands, examples, words
from tests.docs import shell
from tests.docs.blocks import blocks
from tests.kafka.topics import Copy, Topics, queue
from tests.packaging.project import ROOT
from tests.support.configured import PROGRAMS
from tests.support.logs import logging_put_back
from tests.support.threads import again_and_again
from writers.kafka import start_option
from writers.kafka.client import Cluster
from writers.kafka.messages import PARTS
from writers.kafka.partitions import Partition
from writers.timing import utc_now

PAGE = ROOT / "docs" / "kafka.md"
TABLE = next(block.text for block in blocks(PAGE) if block.kind == "toml")
COMMANDS, BACK = (
    next(block.text for block in blocks(PAGE) if block.kind == "sh" and command in block.text)
    for command in ("bookkeeper init --table orders", "writer kafka-group")
)
REPLAY = next(block.text for block in blocks(PAGE) if block.kind == "sh" and "rejected-rows" in block.text)


def run(words: list[str]) -> str:
    with logging_put_back():
        done = CliRunner().invoke(PROGRAMS[words[0]], words[1:])
    assert done.exit_code == 0, (done.output, done.exception)
    return done.output


def settings(folder: Path) -> Settings:
    return load.load(str(folder / "bookkeeper.toml"), {})


def test_its_commands_copy_a_topic_and_lead_back(
    topics: Topics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    local = (ROOT / "config" / "local.toml").read_text("utf-8")
    table = TABLE.replace("[tables.orders]", '[tables.orders]\nlocation = "file://${HERE}/lake/shop/orders"')
    (tmp_path / "bookkeeper.toml").write_text(f"{local}\n{table}", "utf-8")
    monkeypatch.chdir(tmp_path)
    topics.make("orders", 3)
    topics.send("orders", [{"id": n, "at": "2026-01-31T12:00:00Z", "price": n / 4} for n in range(50)], partition=2)

    for line in shell.commands(COMMANDS.replace("kafka:9092", topics.brokers)):
        run([*line, "--until-end"] if line[:2] == ["writer", "kafka"] else [*line])
    run(["bookkeeper", "once", "--table", "orders"])

    found = open_catalog(settings(tmp_path).catalog).load_table("shop.orders").scan().to_arrow()
    assert sorted(found["kafka_offset"].to_pylist()) == [*range(50)]
    assert set(found["kafka_partition"].to_pylist()) == {2}
    assert sorted(found["id"].to_pylist()) == [*range(50)]

    rehearsed, done = [run([*line]) for line in shell.commands(BACK.replace("kafka:9092", topics.brokers))]
    assert re.search(r"orders/2 +- +50 +would be set", rehearsed) and re.search(r"orders/2 +- +50 +set", done)
    group = Cluster(topics.brokers, {}, "x").offsets_of("shop", [Partition("orders", number) for number in range(3)])
    assert group == {Partition("orders", 0): 0, Partition("orders", 1): 0, Partition("orders", 2): 50}


def test_its_commands_replay_dead_letters_once_the_table_has_the_column(
    topics: Topics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    local = (ROOT / "config" / "local.toml").read_text("utf-8")
    section = '[tables.orders]\nlocation = "file://${HERE}/lake/shop/orders"\ndead-letters = true'
    (tmp_path / "bookkeeper.toml").write_text(f"{local}\n{TABLE.replace('[tables.orders]', section)}", "utf-8")
    monkeypatch.chdir(tmp_path)
    topics.make("noted", 2)
    topics.send("noted", [{"id": n, "note": "\x1b[2J"} if n % 5 == 0 else {"id": n} for n in range(20)], partition=1)
    topics.send("noted", [b"{"], partition=0)
    copy = COMMANDS.replace("kafka:9092", topics.brokers).replace("--topic orders", "--topic noted")

    def commit() -> None:
        known = settings(tmp_path)
        for name in ("orders", "orders__rejected"):
            open_bookkeeper(known, known.tables[name], utc_now).tick(utc_now())

    init, read = [[*words] for words in shell.commands(copy)]
    run(init)
    with again_and_again(commit, 0.05):
        run([*read, "--until-end"])
    commit()
    catalog = open_catalog(settings(tmp_path).catalog)
    with catalog.load_table("shop.orders").update_schema() as change:
        change.add_column("note", StringType())
    commit()
    for example in examples(dict(commands())["bookkeeper", "rejected-rows"]):
        assert "\x1b" not in run(words(example))
    count, *replay = [[*line] for line in shell.commands(REPLAY)]
    assert run(count).split()[-1] == "1"
    with again_and_again(commit, 0.05):
        for line in replay:
            run(line)
    commit()

    found = catalog.load_table("shop.orders").scan().to_arrow()
    assert sorted(found["kafka_offset"].to_pylist()) == [*range(20)]
    assert found["note"].to_pylist().count("\x1b[2J") == 4
    (left,) = json.loads(run(["bookkeeper", "rejected-rows", "--table", "orders", "--json"]))
    assert (left["partition"], left["value"]) == (0, "{")


def test_it_names_every_part_of_a_message_and_only_places_to_go_on_that_there_are() -> None:
    text = PAGE.read_text("utf-8")

    assert all(f"`{part}`" in text for part in PARTS)
    given = re.findall(r"`--go-on (\S+)`", text)
    assert len(given) == 3 and all(start_option.go_on(one).topic == "orders" for one in given)


@pytest.mark.parametrize("example", examples(dict(commands())["writer", "kafka-group"]))
def test_each_example_of_the_way_back_runs(example: str, topics: Topics, tmp_path: Path) -> None:
    topic = f"help-{len(example)}"
    topics.make(topic)
    topics.numbers(topic, 0, 5)
    copy = Copy(topics, queue(tmp_path), topic, name="orders")
    copy.run()
    copy.rows()
    given = words(example)
    given[given.index("--folder") + 1] = copy.folder
    given[given.index("--brokers") + 1] = topics.brokers

    assert topic in run(given)


def test_the_way_back_is_said_to_programs_and_what_is_not_set_is_exit_code_1(topics: Topics, tmp_path: Path) -> None:
    for topic in ("told-back", "told-gone"):
        topics.make(topic)
        topics.numbers(topic, 0, 5)
    copy = Copy(topics, queue(tmp_path), "told-back", "told-gone", name="orders")
    copy.run()
    copy.rows()
    topics.drop_before("told-gone", 0, 5)
    topics.numbers("told-gone", 5, 9)
    topics.drop_before("told-gone", 0, 7)
    where = ["--folder", copy.folder, "--name", "orders", "--brokers", topics.brokers, "--group", "told"]

    with logging_put_back():
        done = CliRunner().invoke(PROGRAMS["writer"], ["kafka-group", *where, "--json"])

    why = "2 offsets, 5 to 6, are expired and are not in the table"
    assert json.loads(done.stdout) == [
        {"partition": "told-back/0", "before": None, "offset": 5, "outcome": "set"},
        {"partition": "told-gone/0", "before": None, "offset": None, "outcome": why},
    ]
    assert done.exit_code == 1 and "1 partitions are not set: told-gone/0" in done.stderr


@pytest.mark.parametrize("example", examples(dict(commands())["writer", "kafka"]))
def test_each_example_of_its_help_runs(example: str, topics: Topics, tmp_path: Path) -> None:
    given = words(example)
    read = [given[at + 1].partition("=") for at, word in enumerate(given) if word == "--topic"]
    schema = Schema(NestedField(1, "key", StringType()), NestedField(2, "value", BinaryType()))
    named = [{"name": name or "events", "identifier": f"demo.{name or 'events'}"} for _, _, name in read]
    tables = [queue(tmp_path / str(number), schema, **one) for number, one in enumerate(named)]
    for topic, _, _ in read:
        topics.make(f"{len(example)}-{topic}")
        topics.send(f"{len(example)}-{topic}", [{"key": "a", "value": "b"}] * 20)
    places = {f"tables.{table.settings.name}": {"identifier": "x.y", "folder": table.made.folder} for table in tables}
    config = written(tmp_path / "lake.toml", {"catalog": {"type": "memory"}, **places})
    put = {"--folder": tables[0].made.folder, "--brokers": topics.brokers, "--config": str(config)}
    more = [] if "--until-end" in given else ["--until-end"]

    run(
        [
            put.get(before, f"{len(example)}-{word}" if before == "--topic" else word)
            for before, word in pairwise(["", *given])
        ]
        + more
    )

    for table in tables:
        table.tick()
        assert len(table.table().scan().to_arrow()) == 20
