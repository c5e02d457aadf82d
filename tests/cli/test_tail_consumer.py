"""`bookkeeper tail --consumer`: goes on where the last one ended, and the reaper keeps what it has not shown."""

import json
from typing import Any

import pytest

from bookkeeper.console.pipe import Pipe
from tests.cli.conftest import Run
from tests.consumers.consumers import commit, expire
from tests.support.lake import Lake, Writes


def lines(run: Run, *more: str) -> list[str]:
    result = run("tail", "events", "--consumer", "nightly", "--exit", "--columns", "key", *more)
    assert result.exit_code == 0, result.output
    return result.stdout.splitlines()


def test_it_goes_on_where_the_last_one_ended(lake: Lake, writer: Writes, run: Run) -> None:
    commit(lake, writer, "ab", "c")
    assert lines(run) == ["a", "b", "c"]
    assert lines(run) == []
    commit(lake, writer, "d", "e")
    expire(lake)
    assert lines(run, "--json") == ['{"key": "d"}', '{"key": "e"}']


def test_it_ends_after_so_many_rows(lake: Lake, writer: Writes, run: Run) -> None:
    commit(lake, writer, "abc", "de")
    assert lines(run, "-n", "2") == ["a", "b"]
    assert lines(run, "-n", "2") == ["c", "d"]
    assert lines(run) == ["e"]


def test_a_new_one_begins_where_it_is_said(lake: Lake, writer: Writes, run: Run) -> None:
    commit(lake, writer, "a")
    assert lines(run, "--from", "end") == []
    commit(lake, writer, "b")
    assert lines(run, "--from", "beginning") == ["b"]
    result = run("tail", "events", "--consumer", "other", "--exit", "--from", "4711:3")
    assert result.exit_code != 0 and "is expected with --consumer" in result.stderr


def test_what_the_reader_did_not_take_is_shown_again(
    lake: Lake, writer: Writes, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(lake, writer, "ab")
    with monkeypatch.context() as patch:
        patch.setattr(Pipe, "flush", lambda self: False)
        assert lines(run) == []
    assert lines(run) == ["a", "b"]


def test_it_is_listed_with_its_lag(lake: Lake, writer: Writes, run: Run) -> None:
    commit(lake, writer, "a")
    lines(run)
    commit(lake, writer, "bc")

    def shown(*command: str) -> Any:
        return json.loads(run(*command, "--json").stdout)

    (row,) = shown("consumers")
    assert (row["consumer"], row["state"], row["by"]) == ("nightly", "live", "consumer")
    (row,) = shown("lag")
    assert (row["files"], row["rows"]) == (1, 2)
