"""The oracle is independent: it reads bytes by code of its own, and a table that says something wrong is found."""

import ast
from pathlib import Path
from typing import Any

import pytest

from bookkeeper.consumers.group import ConsumerGroup
from bookkeeper.ledger import summary as summaries
from bookkeeper.retention.rule import Rule
from tests.simulation import consumers
from tests.simulation.events import events
from tests.simulation.play import play
from tests.simulation.schedule import Event
from tests.simulation.snapshot_rules import COUNTERS, MERGES, PARTITIONS

HERE = Path(__file__).parent
#: what is tried, and what parses Iceberg's files for it
BANNED = ("bookkeeper", "reaper", "writers", "spark_jobs", "pyiceberg")


def imported(name: str) -> set[str]:
    """The modules that a module of this folder imports, anywhere in it."""
    found = set[str]()
    for node in ast.walk(ast.parse((HERE / f"{name}.py").read_text())):
        if isinstance(node, ast.Import):
            found |= {item.name for item in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0 and node.module
            found |= {node.module, *(f"{node.module}.{item.name}" for item in node.names)}
    return found


def reached(names: list[str]) -> dict[str, set[str]]:
    """What these modules import, and what the modules of this folder import that they import."""
    found, left = dict[str, set[str]](), [*names]
    while left:
        name = left.pop()
        if name not in found and (HERE / f"{name}.py").exists():
            found[name] = imported(name)
            own = (item.removeprefix("tests.simulation.") for item in found[name] if item.startswith("tests."))
            left += [item.partition(".")[0] for item in own]
    return found


@pytest.mark.parametrize("name", ["oracle", "account", "table_server"])
def test_the_oracle_and_all_that_it_imports_know_nothing_of_the_product(name: str) -> None:
    modules = reached([name])
    assert len(modules) >= (1 if name == "table_server" else 8)
    for module, imports in modules.items():
        odd = sorted(item for item in imports if item.split(".")[0] in BANNED or item.startswith("tests.support"))
        assert not odd, f"{module} imports {odd}"


def summary_with(key: str) -> Any:
    """Snapshots say one more of this than there is."""
    made = summaries.summary

    def summary(*given: Any) -> Any:
        found = made(*given)
        found.additional_properties[key] = str(int(found.additional_properties.get(key, 0)) + 1)
        return found

    return summary


@pytest.mark.parametrize("key", [*COUNTERS, PARTITIONS, "bookkeeper.odd"])
def test_each_counter_of_a_summary_is_checked(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(summaries, "summary", summary_with(key))
    played = play(1, list(events(1, 30)))
    assert key in played.wrong


def test_what_a_merge_says_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    counts, many = summaries.merge_counts, [Event("plain-1", 1.0), Event("book-1", 1.0)] * 20
    for key in MERGES:
        odd = lambda *given, key=key: {**counts(*given), key: "999"}  # noqa: E731
        monkeypatch.setattr(summaries, "merge_counts", odd)
        assert f"says {key} = 999" in play(5, many).wrong


def test_a_share_of_a_group_that_begins_when_it_is_opened_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The group begins with its first share; the other one is opened after rows were committed."""
    steps = [Event("consumer", 1.0), Event("plain-1", 1.0, 1), Event("chain-1", 1.0, 2), Event("book-1", 1.0)]
    assert play(3061, steps).wrong == ""
    monkeypatch.setattr(ConsumerGroup, "_register", lambda *given: None)
    assert "rows reach the consumer: not so for" in play(3061, steps).wrong


def test_a_consumer_of_all_rows_that_begins_at_the_end_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumers, "BEGINNING", consumers.END)
    steps = [Event("plain-1", 1.0, 1), Event("book-1", 1.0), Event("book-1", 1.0), Event("consumer", 1.0)]
    assert "which reads all rows, begins after snapshot" in play(5, steps).wrong


def test_a_file_past_retention_whose_nulls_are_not_counted_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another program wrote it; the column is required."""
    drops, steps = Rule.drops, [Event("plain-1", 1.0, 1), Event("book-1", 1.0), Event("plain-1", 1.0, 2)]
    steps += [Event("book-1", 1.0), Event("book-1", 1.0), Event("rewriter", 1.0, 5)]
    monkeypatch.setattr(Rule, "drops", lambda rule, nulls, *how: nulls is not None and drops(rule, nulls, *how))
    wrong = play(8, steps).wrong
    assert wrong.startswith("Wrong: rows past retention are dropped: not so for"), wrong
    assert "foreign-rewrite" in wrong
