"""Topics into several tables by one process."""

from datetime import timedelta
from pathlib import Path

import pytest

from bookkeeper.errors import ConfigInvalid, NotPossible
from bookkeeper.stores.open import open_store
from tests.kafka.topics import FILLED, JSON, Topics, queue, until
from tests.support.threads import beside
from tests.support.writer_queue import Queue
from writers.kafka import start_option, tables
from writers.kafka.command import metrics
from writers.kafka.slot_loop import read_slot
from writers.kafka.source import Memory, Shared, Wanted
from writers.kafka.tables import Target, run_tables, targets
from writers.opener import Opener
from writers.timing import PATIENCE, Wait, pause, utc_now

CONFIG = """
[catalog]
name = "lake"
type = "sql"
uri = "sqlite:////tmp/none.db"
[tables.orders]
identifier = "shop.orders"
folder = "/lake/orders"
dead-letters = true
[tables.orders__rejected]
folder = "/lake/letters"
[tables.users]
identifier = "shop.users"
folder = "/lake/users"
"""


def found(root: Path, *topics: str, **given: str | None) -> list[Target]:
    (root / "lake.toml").write_text(CONFIG, "utf-8")
    options = {"folder": None, "letters": None, "config": str(root / "lake.toml"), "table": None, **given}
    return targets(topics, environ={}, **options)  # type: ignore[arg-type]


def test_a_topic_names_its_table_or_goes_to_the_one_that_the_other_options_name(tmp_path: Path) -> None:
    both = found(tmp_path, "a", "b=users", "c.d=users", "e=orders", "a", table="orders")

    assert [(it.folder, it.topics) for it in both] == [
        ("/lake/orders", ("a", "e")),
        ("/lake/users", ("b", "c.d")),
    ]
    assert [it.letters is None for it in both] == [False, True]
    assert found(tmp_path, "a", folder="/lake/x") == [Target("/lake/x", None, ("a",))]


@pytest.mark.parametrize(
    ("topics", "given", "what"),
    [
        (["a="], {}, "--topic a=: TOPIC or TOPIC=TABLE is expected"),
        (["=users"], {}, "--topic =users"),
        (["a=users"], {"folder": "/lake/x"}, "--folder is for one table, and --topic names others: users"),
        (["a=users"], {"letters": "/lake/x"}, "--dead-letters is for one table"),
        (["a=nothing"], {}, "nothing"),
        (["a", "b=users"], {}, "Say which of them"),
    ],
)
def test_what_does_not_say_one_table_for_a_topic_is_refused(
    tmp_path: Path, topics: list[str], given: dict[str, str], what: str
) -> None:
    with pytest.raises(ConfigInvalid) as refused:
        found(tmp_path, *topics, **given)
    assert what in f"{refused.value} {refused.value.hint}"


class Copies:
    """A process that copies topics into several tables."""

    def __init__(self, topics: Topics, wanted: dict[str, Queue], until_end: bool = True) -> None:
        self.topics, self.wanted, self.until_end, self.memory = topics, wanted, until_end, Memory()
        self.stop = False
        self.every = [self._shared(topic, table, self._wait) for topic, table in wanted.items()]

    def _wait(self, seconds: float) -> bool:
        pause(min(seconds, 0.05))
        return self.stop

    def _shared(self, topic: str, table: Queue, wait: Wait) -> Shared:
        return Shared(
            Wanted("copy", [topic], start_option.parsed("earliest"), JSON, FILLED, slots=2, until_end=self.until_end),
            self.topics.cluster("copy"),
            Opener(table.made.folder, open_store, utc_now, wait, PATIENCE),
            table.clock,
            wait,
            lambda: self.stop,
            memory=self.memory,
        )

    def run(self, _: object = None) -> None:
        run_tables(self.every, read_slot)


def rows(table: Queue) -> list[tuple[str, int]]:
    table.tick()
    found = table.table().scan().to_arrow().select(["topic", "n"])
    return sorted(tuple(row.values()) for row in found.to_pylist())


def test_each_topic_is_in_its_table_once_over_two_runs_under_one_name(topics: Topics, tmp_path: Path) -> None:
    wanted = {name: queue(tmp_path / name, identifier=f"demo.{name}") for name in ("left", "right")}
    for name in wanted:
        topics.make(name, 3)
        topics.numbers(name, 0, 20, 1)
    Copies(topics, wanted).run()
    for name in wanted:
        topics.numbers(name, 20, 30, 2)
    again = Copies(topics, wanted)
    again.run()

    for name, table in wanted.items():
        assert rows(table) == [(name, n) for n in range(30)]
    assert {key for key, value in again.memory.slots.items() if value} == {it.made.folder for it in wanted.values()}
    text = metrics(again.every)
    series = [line.rpartition(" ")[0] for line in text.splitlines() if not line.startswith("#")]
    assert len(series) == len(set(series))


def test_a_table_that_fails_leaves_the_others_going_says_so_and_begins_anew(
    topics: Topics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "_PAUSE", timedelta(milliseconds=300))
    wanted = {name: queue(tmp_path / name, identifier=f"demo.{name}") for name in ("whole", "torn")}
    for name in wanted:
        topics.make(name)
    topics.numbers("whole", 0, 10)
    topics.send("torn", [b"["])
    copies = Copies(topics, wanted, until_end=False)
    torn = copies.every[1]

    with beside(lambda over: copies.run()):
        try:
            until(lambda: any(it.stopped for it in torn.figures.values()))
            assert 'writer_kafka_stopped{partition="0",table="demo.torn",topic="torn"' in metrics(copies.every)
            topics.numbers("whole", 10, 20)
            until(lambda: sum(it.rows + it.unpublished for it in copies.every[0].figures.values()) >= 20)
            object.__setattr__(torn.wanted, "most_bad", 1)
            topics.numbers("torn", 0, 10)
            until(lambda: sum(it.rows + it.unpublished for it in torn.figures.values()) >= 10)
        finally:
            copies.stop = True

    assert rows(wanted["whole"]) == [("whole", n) for n in range(20)]
    assert rows(wanted["torn"]) == [("torn", n) for n in range(10)]
    assert not any(it.stopped for it in torn.figures.values())


def test_what_ends_all_tables_ends_the_process_and_until_end_tells_of_the_one_that_failed(
    topics: Topics, tmp_path: Path
) -> None:
    wanted = {name: queue(tmp_path / name, identifier=f"demo.{name}") for name in ("here", "absent", "neither")}
    topics.make("here")
    topics.numbers("here", 0, 5)

    with pytest.raises(NotPossible, match="there is no topic absent"):
        Copies(topics, wanted).run()
    assert rows(wanted["here"]) == [("here", n) for n in range(5)]

    only = Copies(topics, {name: wanted[name] for name in ("absent", "neither")}, until_end=False)
    with pytest.raises(NotPossible, match="there is no topic absent"):
        only.run()
    folder = wanted["neither"].made.folder
    assert f'writer_kafka_stopped{{partition="0",table="{folder}",topic="neither"' in metrics(only.every)


def test_memory_is_of_all_tables() -> None:
    memory = Memory(1000, slots={"a": 3, "b": 2})
    assert memory.ahead() == 50
    assert not memory.full("a", "copy-00", 400)
    assert memory.full("b", "copy-00", 700)
    assert not memory.full("a", "copy-01", 0)
