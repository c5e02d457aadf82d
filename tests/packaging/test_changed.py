"""
Which tests run for a change: of a guest its own and those that name it, of anything else all.
"""

import subprocess
from pathlib import Path

import pytest

from tests import changed
from tests.packaging.project import ROOT


def test_of_a_guest_its_own_tests_run_those_that_name_it_and_those_of_the_whole_tree() -> None:
    found = changed.folders(["bookkeeper/folds/duty.py"])
    assert {"tests/folds", "tests/histories", *changed.ALWAYS} <= {*found}
    assert not {"tests", "tests/leases", "tests/config", "tests/stores"} & {*found}
    # Through a guest that imports it.
    assert "tests/spark" in changed.folders(["bookkeeper/consumers/lag.py"])
    assert "tests/support" not in found


@pytest.mark.parametrize(
    "path",
    [
        "bookkeeper/tick/tick.py",
        "writers/writer.py",
        "setup.cfg",
        "tests/support/lake.py",
        "tests/conftest.py",
        "new/x",
    ],
)
def test_of_the_kernel_the_build_and_what_tests_share_all_run(path: str) -> None:
    assert changed.folders(["bookkeeper/folds/duty.py", path]) == ["tests"]


def test_of_a_page_those_run_that_name_it_and_of_a_test_its_folder() -> None:
    assert "tests/format" in changed.folders(["docs/maintain/txlog-format.md"])
    assert changed.folders(["tests/leases/test_lease.py"]) == sorted([*changed.ALWAYS, "tests/leases"])
    assert changed.folders([]) == sorted(changed.ALWAYS)


def test_each_guest_is_there_and_says_in_a_readme_what_it_is_for() -> None:
    assert [guest for guest in changed.GUESTS if not (ROOT / guest / "README.md").exists()] == []


def test_what_is_not_committed_counts_and_a_commit_that_is_not_there_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def git(*words: str) -> None:
        who = ["-c", "user.name=x", "-c", "user.email=x@example.com"]
        subprocess.run(["git", *who, *words], cwd=tmp_path, check=True, capture_output=True)

    git("init", "--quiet")
    (tmp_path / "tests").mkdir()
    (tmp_path / "setup.cfg").write_text("")
    git("add", ".")
    git("commit", "--quiet", "--message", "first")
    monkeypatch.setattr(changed, "ROOT", tmp_path)
    changed.main("HEAD")
    assert capsys.readouterr().out.split() == sorted(changed.ALWAYS)
    (tmp_path / "setup.cfg").write_text("other")
    changed.main("HEAD")
    assert capsys.readouterr().out == "tests\n"
    with pytest.raises(SystemExit, match="nonsense"):
        changed.main("nonsense")
    assert capsys.readouterr().out == ""
