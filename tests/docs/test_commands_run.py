"""The commands of docs/operate.md that change nothing, run as they stand beside a configuration."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.docs import shell
from tests.docs.blocks import blocks
from tests.docs.commands import is_ours
from tests.packaging.project import ROOT
from tests.support.configured import PROGRAMS
from tests.support.logs import logging_put_back

LOOKING = {"pending", "rejected", "lag", "writers", "status", "plan", "once", "consumers", "verify"}
LINES = [
    tuple(words)
    for block in blocks(ROOT / "docs" / "operate.md")
    if block.kind == "sh"
    for words in shell.commands(block.text)
    if is_ours(words) and words[1] in LOOKING
]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """
    A folder with a configuration, its table made.
    """
    folder = tmp_path_factory.mktemp("lake")
    (folder / "bookkeeper.toml").write_text((ROOT / "config" / "local.toml").read_text("utf-8"))
    with logging_put_back():
        done = CliRunner().invoke(PROGRAMS["bookkeeper"], ["init", "--config", str(folder / "bookkeeper.toml")])
    assert done.exit_code == 0, done.output
    return folder


def test_the_page_has_many_of_them() -> None:
    assert len(LINES) >= 8


@pytest.mark.parametrize("words", LINES, ids=" ".join)
def test_a_command_that_changes_nothing_runs_as_it_stands(
    lake: Path, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(lake)
    with logging_put_back():
        done = CliRunner().invoke(PROGRAMS[words[0]], words[1:])

    assert done.exit_code == 0, (done.output, done.exception)
