"""The dashboard asks only for what there is, in PromQL that Prometheus takes."""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reaper.files import Reaped
from reaper.metrics import Metrics
from tests.daemon.lake import Writes
from tests.metrics.kit import Watched, samples
from tests.metrics.timeline import names_in, tool
from tests.streams.kit import Query, offset
from writers.metrics import Figures as WriterFigures

DASHBOARD = json.loads((Path(__file__).parents[2] / "config" / "grafana.json").read_text("utf-8"))


def panels() -> Iterator[Any]:
    yield from (panel for panel in DASHBOARD["panels"] if panel["type"] != "row")


def expressions() -> list[str]:
    return [target["expr"] for panel in panels() for target in panel["targets"]]


@pytest.fixture(scope="module")
def scraped(tmp_path_factory: pytest.TempPathFactory) -> set[tuple[str, frozenset[str]]]:
    """Names and labels of everything that a run tells."""
    from bookkeeper.streams.registry import Registry, spark

    watched = Watched()
    lake = watched.add(tmp_path_factory.mktemp("dashboard"))
    Writes(lake).publish("a")
    lake.put("pending/none.txlog.avro", b"x")
    watched.turn()
    query, reaper = Query(lake.root / "checkpoint"), Metrics()
    Registry(lake.folder.store).add(spark("live", query.url, watched.clock.now, by="command"))
    query.begin(offset(-1)).done(offset(lake.table().metadata.current_snapshot_id))
    watched.look()
    reaper.note("events", Reaped(consumers=(("live", "live", 0.1),)), watched.clock.now)
    texts = (watched.ask("/metrics")[1], reaper.text(), WriterFigures("w1").text())
    return {(name, frozenset(dict(labels))) for text in texts for name, labels in samples(text)}


def test_it_asks_only_for_metrics_that_exist(scraped: set[tuple[str, frozenset[str]]]) -> None:
    there = {name for name, _ in scraped}
    asked = names_in(" ".join([*expressions(), json.dumps(DASHBOARD["templating"])]))
    assert asked <= there, asked - there
    assert len(asked) > 20


def test_it_groups_and_names_only_by_labels_that_exist(scraped: set[tuple[str, frozenset[str]]]) -> None:
    labels: dict[str, frozenset[str]] = {}
    for name, found in scraped:
        labels[name] = labels.get(name, frozenset()) | found
    for panel in panels():
        for target in panel["targets"]:
            asked = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) | {
                label for group in re.findall(r"by \(([^)]*)\)", target["expr"]) for label in group.split(", ")
            }
            known = frozenset[str]().union(*(labels[name] for name in names_in(target["expr"]))) | {"instance", "job"}
            assert asked <= known, (panel["title"], asked - known)


def test_prometheus_takes_every_expression(tmp_path: Path) -> None:
    plain = [text.replace("$__rate_interval", "5m").replace("$table", ".*") for text in expressions()]
    rules = [{"record": f"panel:{number}", "expr": text} for number, text in enumerate(plain)]
    (tmp_path / "rules.json").write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))
    done = subprocess.run([tool(), "check", "rules", str(tmp_path / "rules.json")], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_panels_say_what_they_show_and_do_not_overlap() -> None:
    assert all(
        panel["title"] and panel["description"] and panel["fieldConfig"]["defaults"]["unit"] for panel in panels()
    )
    taken = [
        (x, y)
        for panel in DASHBOARD["panels"]
        for at in [panel["gridPos"]]
        for x in range(at["x"], at["x"] + at["w"])
        for y in range(at["y"], at["y"] + at["h"])
    ]
    assert len(taken) == len(set(taken)) and max(x for x, _ in taken) < 24
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
