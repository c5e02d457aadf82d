"""The oracle is independent: it reads bytes by code of its own, and a table that says something wrong is found."""

import ast
from pathlib import Path
from typing import Any

import pytest

from bookkeeper.ledger import summary as summaries
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
