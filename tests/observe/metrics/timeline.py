"""
Scrapes, minute by minute, as a unit test for Prometheus' own rule engine: which alerts fire when.
"""

import json
import re
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.servers.installed import promtool
from tests.servers.needed import needed
from tests.support.watched import Samples

ALERTS = Path(__file__).parents[3] / "config" / "alerts.yml"
#: an alert that fires: its name and labels
Firing = frozenset[tuple[str, str]]


@dataclass
class Timeline:
    """What was scraped in each minute; times are told from the first one on, where Prometheus' clock begins."""

    began: float
    minutes: list[Samples] = field(default_factory=list)

    def take(self, samples: Samples) -> None:
        """The next minute's scrape."""
        self.minutes.append({key: self._shifted(key[0], value) for key, value in samples.items()})

    def _shifted(self, name: str, value: float) -> float:
        # 0 is how a time that never was is told.
        return value - self.began if name.endswith("_timestamp_seconds") and value else value

    def series(self, names: Iterable[str]) -> list[dict[str, str]]:
        """Every series of these names, `_` where a scrape did not have it."""
        wanted = set(names)
        keys = sorted({key for minute in self.minutes for key in minute if key[0] in wanted}, key=str)
        return [{"series": _selector(*key), "values": self._values(key)} for key in keys]

    def _values(self, key: tuple[str, frozenset[tuple[str, str]]]) -> str:
        return " ".join(f"{minute[key]:.10g}" if key in minute else "_" for minute in self.minutes)


def _selector(name: str, labels: Iterable[tuple[str, str]]) -> str:
    return f"{name}{{{','.join(f'{key}={json.dumps(value)}' for key, value in sorted(labels))}}}"


def names_in(text: str) -> set[str]:
    """
    Names of our metrics that PromQL or a dashboard uses.
    """
    return set(re.findall(r"\b(?:(?:bookkeeper|reaper|writer|process)_[a-z_]+|up)\b(?!=)", text))


def tool() -> str:
    """
    promtool, or the test is skipped.
    """
    import os

    with needed("promtool"):
        return promtool(os.environ)


def wrong(timeline: Timeline, rules: str, expected: Mapping[tuple[str, int], Iterable[Firing]], folder: Path) -> str:
    """
    What Prometheus says is not as expected: which alerts of a selector fire at a minute. Empty when all is.
    """
    (folder / "alerts.yml").write_text(rules)
    checks = [
        {
            "expr": selector,
            "eval_time": f"{minute}m",
            "exp_samples": [{"labels": _selector("ALERTS", labels), "value": 1} for labels in firing],
        }
        for (selector, minute), firing in expected.items()
    ]
    test = {"interval": "1m", "input_series": timeline.series(names_in(rules)), "promql_expr_test": checks}
    unit = {"rule_files": ["alerts.yml"], "evaluation_interval": "1m", "tests": [test]}
    (folder / "unit.json").write_text(json.dumps(unit))  # YAML is a superset of JSON
    command = [tool(), "test", "rules", str(folder / "unit.json")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    return "" if done.returncode == 0 else done.stdout + done.stderr
