"""The configuration files and their documentation are what the settings really take."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from bookkeeper.catalogs.open import STORAGE
from bookkeeper.config.load import load, parse
from bookkeeper.config.settings import Catalog, Table
from tests.support import reference

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "config").glob("*.toml"))
#: a setting or a section that is commented out, not prose
COMMENTED = re.compile(r'^# (?=["\w.-]+ = |\[|\]|    \{)', re.MULTILINE)
ENVIRON = {name: f"{name.lower()}-value" for name in re.findall(r"\$\{(\w+)", "".join(f.read_text() for f in FILES))}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_configuration_file_loads_and_lists_a_table(path: Path) -> None:
    read = load(str(path), ENVIRON)
    assert read.tables["events"].identifier == "demo.events"
    kind = read.catalog.properties.get("type") or read.catalog.properties["py-catalog-impl"]
    assert kind in ("sql", "rest", "glue", STORAGE)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_what_is_commented_out_in_a_configuration_file_is_right_too(path: Path) -> None:
    text = path.read_text()
    opened = COMMENTED.sub("", text)
    assert len(tomllib.loads(opened)["tables"]["events"]) >= len(tomllib.loads(text)["tables"]["events"])
    assert parse(opened, {"HERE": "/somewhere", **ENVIRON}).tables


def test_there_is_an_example_for_each_storage_and_catalog() -> None:
    kinds = ("azure", "local", "postgres", "rest", "s3", "storage")
    assert [path.name for path in FILES] == [f"{kind}.toml" for kind in kinds]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_configuration_file_holds_no_secret(path: Path) -> None:
    secret = re.compile(r"(key|secret|token|credential|password)\S* = (.*)")
    assert all(found[2].startswith('"${') for found in secret.finditer(path.read_text()) if "region" not in found[0])


def test_the_embedded_default_keeps_everything_beside_its_file() -> None:
    read = load(str(ROOT / "config" / "local.toml"), {})
    lake = ROOT / "config" / "lake"
    assert read.catalog == Catalog(
        "lake", {"type": "sql", "uri": f"sqlite:///{lake}/catalog.db", "warehouse": f"file://{lake}"}
    )
    assert read.tables == {
        "events": Table(
            name="events", identifier="demo.events", location=f"file://{lake}/demo/events", reaper=read.reaper
        )
    }


def test_the_documented_settings_are_those_that_exist() -> None:
    text = reference.DOC.read_text("utf-8")
    assert reference.renewed(text) == text, "docs/configure.md is stale: python -m tests.support.reference"


def test_the_documented_defaults_are_taken_by_the_configuration() -> None:
    sections = re.findall(r"<!-- \[([\w.]+)\]:.*?-->(.*?)<!-- end -->", reference.DOC.read_text("utf-8"), re.DOTALL)
    assert len(sections) == len(reference.SECTIONS)
    for section, rows in sections:
        given = re.findall(r"^\| `([\w-]+)` \| `(.+?)` \|", rows, re.MULTILINE)
        text = f"[{section}]\n" + "".join(f"{key} = {value}\n" for key, value in given)
        assert parse(text, {}) == parse(f"[{section}]\n", {})


@pytest.mark.parametrize("block", re.findall(r"```toml\n(.*?)```", reference.DOC.read_text("utf-8"), re.DOTALL))
def test_an_example_in_the_documentation_is_taken(block: str) -> None:
    read: Any = parse(block, {})
    assert read.tables
