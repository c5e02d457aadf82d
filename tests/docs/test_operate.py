"""docs/operate.md: a section for each alert, and nothing in it that is not there."""

import ast
import re

import pytest
import yaml

from tests.docs.blocks import DOCS
from tests.packaging.project import ROOT

TEXT = (ROOT / "docs" / "operate.md").read_text("utf-8")
GROUPS = yaml.safe_load((ROOT / "config" / "alerts.yml").read_text("utf-8"))["groups"]
ALERTS = {rule["alert"]: rule for group in GROUPS for rule in group["rules"] if "alert" in rule}
SECTIONS = dict(
    re.findall(r"^## (\w+)\n(.*?)(?=^#+ )", TEXT.partition("# Alerts\n")[2] + "# ", re.MULTILINE | re.DOTALL)
)
CODE = "\n".join(
    path.read_text("utf-8") for name in ("bookkeeper", "reaper", "writers") for path in (ROOT / name).rglob("*.py")
)


def test_every_alert_has_its_section_and_every_section_its_alert() -> None:
    named = {name for name in SECTIONS if name not in ("Disasters",)}

    assert named == set(ALERTS)


@pytest.mark.parametrize("name", ALERTS)
def test_a_section_says_what_it_means_and_what_to_do_and_is_where_the_alert_points(name: str) -> None:
    assert "**Means** " in SECTIONS[name] and "**Do**" in SECTIONS[name]
    assert ALERTS[name]["annotations"]["runbook_url"].endswith(f"docs/operate.md#{name.lower()}")


@pytest.mark.parametrize(
    "action", sorted({found for path in DOCS for found in re.findall(r"action=([\w-]+)", path.read_text("utf-8"))})
)
def test_an_action_of_the_log_exists(action: str) -> None:
    assert re.search(rf'"{action}"', CODE), action


def test_the_actions_of_its_table_exist() -> None:
    table = TEXT.partition("| action | says |")[2].partition("\n\n")[0]
    actions = re.findall(r"`([\w-]+)`", "\n".join(line.split("|")[1] for line in table.splitlines() if "`" in line))

    assert len(actions) > 10 and not [action for action in actions if f'"{action}"' not in CODE]


@pytest.mark.parametrize("path", DOCS, ids=lambda path: path.name)
def test_an_error_that_a_page_names_exists(path: object) -> None:
    text = path.read_text("utf-8")  # type: ignore[attr-defined]
    tree = ast.parse((ROOT / "bookkeeper" / "errors.py").read_text("utf-8"))
    errors = {node.name for node in tree.body if isinstance(node, ast.ClassDef)}
    table = re.findall(r"^\| `([A-Z]\w+)`(?:, `([A-Z]\w+)`)? \|", text, re.MULTILINE)

    assert {name for pair in table for name in pair if name} <= errors


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`((?:bookkeeper|reaper|writer)_[a-z_]+)`", TEXT))))
def test_a_metric_it_names_exists(name: str) -> None:
    served = (ROOT / "docs" / "metrics.md").read_text(
        "utf-8"
    )  # made from a run: tests/observe/metrics/test_dashboard.py
    assert f"`{name}`" in served, name
