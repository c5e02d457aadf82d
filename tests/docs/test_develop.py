"""What docs/, CONTRIBUTING.md and tests/README.md name is there; no package or folder is missing."""

import re
from pathlib import Path

import pytest

from tests.docs.blocks import DOCS, anchors, blocks, links
from tests.docs.test_examples import checked
from tests.packaging.project import ROOT, packages

PAGES = [ROOT / "docs" / "maintain" / "develop.md", ROOT / "tests" / "README.md", ROOT / "CONTRIBUTING.md"]
_PATH = re.compile(r"`((?:bookkeeper|writers|reaper|spark_jobs|tests|config|demo|benchmarks)/[\w./-]*|[\w-]+\.cfg)`")
#: of another file: folder/module.py
_MODULE = re.compile(r"\b([a-z_]+(?:/[a-z_]+)*/[a-z_]+\.py)\b")
#: objects of the txlog folder, which has a folder of the package's name
_OBJECTS = {"reaper/clock", "reaper/journal.json", "reaper/warned.json"}


def named() -> list[str]:
    found = {path for page in {*PAGES, *DOCS} for path in _PATH.findall(page.read_text("utf-8"))}
    assert found >= _OBJECTS
    return sorted(found - _OBJECTS)


def test_they_name_many_places() -> None:
    assert len(named()) > 50


@pytest.mark.parametrize("path", named())
def test_a_place_that_they_name_is_there(path: str) -> None:
    assert (ROOT / path).exists()


@pytest.mark.parametrize("page", PAGES[1:], ids=lambda page: page.name)
def test_a_link_leads_somewhere(page: Path) -> None:
    for link in links(page):
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        assert target.exists() and (not anchor or anchor in anchors(target)), link


def test_the_commands_of_the_tests_page_exist() -> None:
    for block in blocks(PAGES[1]):
        checked(block)


@pytest.mark.parametrize("package", sorted(path.parent.name for path in (ROOT / "bookkeeper").glob("*/__init__.py")))
def test_every_package_has_its_line_in_the_tree(package: str) -> None:
    lines = re.findall(r"^\| ([^|]+) \|", PAGES[0].read_text("utf-8"), re.MULTILINE)
    assert any(f"`bookkeeper/{package}`" in line for line in lines)


def test_the_tree_names_no_module_that_is_not_there() -> None:
    rows = re.findall(r"^\| `([a-z_/]+)` \| (.*) \|$", PAGES[0].read_text("utf-8"), re.MULTILINE)
    tree = [
        (ROOT / package, re.findall(r"`([a-z0-9_]+)`", text)) for package, text in rows if (ROOT / package).is_dir()
    ]
    assert len(tree) > 15
    modules = [folder / name for folder, names in tree for name in names]
    assert [str(path) for path in modules if not (path.is_dir() or path.with_suffix(".py").is_file())] == []


@pytest.mark.parametrize("folder", sorted(path.parent.name for path in (ROOT / "tests").glob("*/__init__.py")))
def test_every_folder_of_tests_has_its_line(folder: str) -> None:
    lines = re.findall(r"^\| ([^|]+) \|", PAGES[1].read_text("utf-8"), re.MULTILINE)
    assert any(f"`{folder}`" in line for line in lines)


def test_a_module_that_sources_and_readmes_name_is_there() -> None:
    sources = [path for package in packages() for path in (ROOT / package).rglob("*") if path.suffix in {".py", ".md"}]
    modules = {str(path.relative_to(ROOT)) for path in [*sources, *(ROOT / "tests").rglob("*.py")]}
    ends = {module[at + 1 :] for module in modules for at in [-1, *(m.start() for m in re.finditer("/", module))]}
    named = {(str(path), word) for path in sources for word in _MODULE.findall(path.read_text("utf-8"))}
    assert len(named) > 10
    assert {(path, word) for path, word in named if word not in ends} == set()
