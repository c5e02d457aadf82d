"""
The demo's folder is fresh each time, and nothing is removed that no demo made.
"""

from pathlib import Path

import pytest

from bookkeeper.errors import NotPossible
from demo.folder import MARKER, fresh


def test_a_second_demo_finds_nothing_of_the_first(tmp_path: Path) -> None:
    with fresh(tmp_path / "a" / "demo") as paths:
        paths.config.write_text("x")
        (paths.root / "warehouse" / "deep").mkdir(parents=True)
        (paths.root / "link").symlink_to(tmp_path)
    with fresh(tmp_path / "a" / "demo") as paths:
        assert {path.name for path in paths.root.iterdir()} == {MARKER, "log", "evidence"}
    assert tmp_path.exists()


def test_an_empty_folder_is_taken(tmp_path: Path) -> None:
    with fresh(tmp_path) as paths:
        assert paths.logs.is_dir()


def test_a_folder_that_no_demo_made_is_refused_and_kept(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(NotPossible, match="not made by a demo"), fresh(tmp_path):
        pass
    assert (tmp_path / "thesis.tex").read_text() == "years of work"


@pytest.mark.parametrize("kind", ["file", "link"])
def test_what_is_no_folder_is_refused(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "demo"
    if kind == "file":
        path.write_text("x")
    else:
        path.symlink_to(tmp_path, target_is_directory=True)
    with pytest.raises(NotPossible, match="is not a folder"), fresh(path):
        pass
    assert path.exists()


def test_a_running_demo_is_left_alone(tmp_path: Path) -> None:
    with fresh(tmp_path) as paths:
        paths.config.write_text("x")
        with pytest.raises(NotPossible, match="a demo is running"), fresh(tmp_path):
            pass
        assert paths.config.read_text() == "x"
