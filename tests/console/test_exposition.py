"""The file that a scraper's textfile collector reads."""

import os
import queue
import stat
import threading
from pathlib import Path

import pytest

from bookkeeper.console.exposition import replace_file
from bookkeeper.errors import NotPossible


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


def test_a_link_stays_one_and_what_it_names_is_replaced(tmp_path: Path) -> None:
    """As /dev/stdout is one, to a file when stdout goes to one."""
    there, link = tmp_path / "there.prom", tmp_path / "link"
    there.write_text("a 1\n")
    link.symlink_to(there)
    replace_file(str(link), "a 2\n")
    assert link.is_symlink() and there.read_text() == "a 2\n"
    assert sorted(os.listdir(tmp_path)) == ["link", "there.prom"]


def test_a_pipe_without_a_reader_is_refused_with_a_hint_and_not_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    answers: queue.Queue[Exception | None] = queue.Queue()

    def write() -> None:
        try:
            answers.put(replace_file(str(path), "a 1\n"))
        except NotPossible as error:
            answers.put(error)

    threading.Thread(target=write, daemon=True).start()
    answer = answers.get(timeout=30)
    assert isinstance(answer, NotPossible) and "start the reader first" in answer.hint
    assert os.listdir(tmp_path) == ["pipe"]


def test_a_pipe_whose_reader_sleeps_is_not_waited_for_once_it_is_full(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    writer = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
    os.write(writer, bytes(1 << 20))
    with pytest.raises(NotPossible) as refused:
        replace_file(str(path), "a 1\n")
    assert "too slow" in refused.value.hint
    os.close(writer)
    os.close(reader)


def test_a_folder_is_refused_with_a_hint(tmp_path: Path) -> None:
    with pytest.raises(NotPossible, match="cannot be written") as refused:
        replace_file(str(tmp_path), "a 1\n")
    assert "folder" in refused.value.hint
