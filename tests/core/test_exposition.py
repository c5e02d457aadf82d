"""The file that a scraper's textfile collector reads."""

import os
import stat
from pathlib import Path

import pytest

from bookkeeper.core.errors import NotPossible
from bookkeeper.core.exposition import replace_file


def test_a_file_is_replaced_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "reaper.prom"
    replace_file(str(path), "a 1\n")
    with open(path) as before:
        replace_file(str(path), "a 2\n")
        assert before.read() == "a 1\n"
    assert path.read_text() == "a 2\n"
    assert os.listdir(tmp_path) == ["reaper.prom"]


def test_a_pipe_or_device_is_written_to_and_stays_one(tmp_path: Path) -> None:
    """As root, replacing /dev/null would break half of the machine."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    replace_file(str(path), "a 1\n")
    assert stat.S_ISFIFO(os.stat(path).st_mode)
    assert os.read(reader, 100) == b"a 1\n"
    os.close(reader)


def test_a_folder_is_refused_with_a_hint(tmp_path: Path) -> None:
    with pytest.raises(NotPossible, match="cannot be written") as refused:
        replace_file(str(tmp_path), "a 1\n")
    assert "folder" in refused.value.hint
