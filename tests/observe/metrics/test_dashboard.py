"""The dashboard asks only for what there is, in PromQL that Prometheus takes."""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.observe.metrics.reference import labels_of
from tests.observe.metrics.timeline import names_in, tool

DASHBOARD = json.loads((Path(__file__).parents[3] / "config" / "grafana.json").read_text("utf-8"))
_OF_PROMETHEUS = frozenset({"instance", "job"})


def panels() -> Iterator[Any]:
    yield from (panel for panel in DASHBOARD["panels"] if panel["type"] != "row")


def expressions() -> list[str]:
    return [target["expr"] for panel in panels() for target in panel["targets"]]


def test_it_asks_only_for_metrics_that_exist() -> None:
    asked = names_in(" ".join([*expressions(), json.dumps(DASHBOARD["templating"])]))
    assert not {name for name in asked if labels_of(name) is None}
    assert len(asked) > 20


def test_it_groups_and_names_only_by_labels_that_exist() -> None:
    for panel in panels():
        for target in panel["targets"]:
            asked = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) | {
                label for group in re.findall(r"by \(([^)]*)\)", target["expr"]) for label in group.split(", ")
            }
            known = _OF_PROMETHEUS.union(*(labels_of(name) or () for name in names_in(target["expr"])))
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
