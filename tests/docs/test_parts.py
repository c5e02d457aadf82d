"""docs/ has three parts: at most twelve pages for users, a maintainer's part, and one page of figures."""

from tests.docs.blocks import links, prose
from tests.packaging.project import ROOT

DOCS = ROOT / "docs"
INDEX = DOCS / "README.md"


def test_users_have_at_most_twelve_pages() -> None:
    assert len([path for path in DOCS.glob("*.md") if path != INDEX]) <= 12


def test_the_index_names_every_page() -> None:
    pages = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md") if path != INDEX}
    assert pages == {link.partition("#")[0] for link in links(INDEX)}


def test_the_whole_design_has_at_most_2500_words() -> None:
    assert 1000 < len((DOCS / "maintain" / "design.md").read_text("utf-8").split()) <= 2500


def test_figures_that_benchmarks_write_are_in_one_page() -> None:
    made = "made by `python -m benchmarks.publish`"
    marked = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md") if made in prose(path)}
    assert marked == {"figures/performance.md"}
