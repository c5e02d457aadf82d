"""Rows that a program leaves unpublished: one line on stderr says how many, and of which writer."""

import gc
import logging
import subprocess
import sys
from pathlib import Path

import pytest

from bookkeeper.errors import StorageUnavailable, UnknownOutcome
from tests.support.desk import Desk, rows

_PROGRAM = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a suite in the background ignores it, and so do its children
from tests.support.desk import Desk, rows
from writers import Writer
desk = Desk(sys.argv[1])
{body}
"""
_ENDS = {
    "Ctrl-C": "with desk.writer() as w:\n    w.write(rows('a', 'b'))\n    os.kill(os.getpid(), signal.SIGINT)",
    "exception": "with desk.writer() as w:\n    w.write(rows('a', 'b'))\n    1 / 0",
    "end": "w = desk.writer()\nw.write(rows('a', 'b'))",
    "close": "w = desk.writer()\nw.write(rows('a', 'b'))\nw.close()",
    "forgotten": "w = desk.writer()\nw.write(rows('a', 'b'))\nw = None",
    "exit in a fork": ("w = desk.writer()\nw.write(rows('a', 'b'))\nif os.fork() == 0:\n    sys.exit()\nos.wait()"),
}
_LOST = "2 unpublished rows of the writer w1 were given up: write and publish them again"


@pytest.mark.parametrize("body", _ENDS.values(), ids=_ENDS)
def test_one_line_says_how_many_rows_are_lost(local: Desk, body: str) -> None:
    command = [sys.executable, "-W", "ignore", "-c", _PROGRAM.format(body=body), local.root]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2], timeout=60)
    assert [line for line in done.stderr.splitlines() if "unpublished" in line] == [_LOST], done.stderr


def test_nothing_is_said_where_nothing_is_lost(local: Desk, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(ZeroDivisionError), local.writer() as writer:
        writer.write(rows("a"))
        writer.publish()
        raise ZeroDivisionError
    with local.writer() as writer:
        writer.write(rows("b"))
    writer = local.writer()
    writer.write(rows("c"))
    writer.publish()
    writer.close()
    del writer
    gc.collect()
    assert not caplog.records


def test_rows_behind_the_last_position_are_counted_once(local: Desk, caplog: pytest.LogCaptureFixture) -> None:
    with local.writer() as writer:
        writer.write(rows("a"), position=b"1")
        writer.publish()
        writer.write(rows("b", "c"))
    del writer
    gc.collect()
    (record,) = caplog.records
    assert (record.levelno, record.action, record.rows) == (logging.WARNING, "leave", 2)  # type: ignore[attr-defined]


@pytest.mark.parametrize("error, said", [(UnknownOutcome, 0), (StorageUnavailable, 1)])
def test_a_publish_that_fails_at_the_end_says_it_where_the_outcome_is_known(
    local: Desk, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, error: type[Exception], said: int
) -> None:
    with pytest.raises(error), local.writer() as writer:
        writer.write(rows("a"))

        def fail(*given: object) -> None:
            if error is UnknownOutcome:
                writer._publisher.unknown = given[1]  # type: ignore[assignment]
            raise error("no")

        monkeypatch.setattr(writer._publisher, "publish", fail)
    assert sum("unpublished" in record.getMessage() for record in caplog.records) == said
