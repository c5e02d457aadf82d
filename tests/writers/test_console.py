"""The manners that all commands share: rows, errors, logs, progress, options, stopping."""

import io
import json
import logging
import os
import signal
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import click
import pytest
from click.testing import CliRunner

from bookkeeper import errors
from bookkeeper.config.settings import Settings, Table
from bookkeeper.console import logs, output, status_line
from bookkeeper.console.errors import Commands, exit_code
from bookkeeper.console.options import DURATION, SIZE, common, pick_table
from bookkeeper.console.progress import Progress
from bookkeeper.console.signals import StopSignal
from tests.support.desk import START, Clock

ROWS = [
    {"writer": "w1", "data_bytes": 2048, "idle": timedelta(seconds=90), "seen": START, "position": None},
    {"writer": "ingest-7", "data_bytes": 5, "idle": timedelta(0), "seen": START, "held": True},
]


def test_rows_become_an_aligned_table_for_people() -> None:
    assert output.table(ROWS) == [
        "writer    data bytes   idle  seen                 position  held",
        "w1             2 KiB  1.5 m  2026-03-01 12:00:00  -         -",
        "ingest-7         5 B   0 ms  2026-03-01 12:00:00  -         yes",
    ]


def test_rows_become_json_for_programs() -> None:
    first = json.loads(output.to_json(ROWS))[0]
    assert first == {"writer": "w1", "data_bytes": 2048, "idle": 90.0, "seen": START.isoformat(), "position": None}


def test_what_is_said_of_an_error_holds_no_password(capsys: pytest.CaptureFixture[str]) -> None:
    row = {"table": "t", "outcome": "CatalogUnavailable: postgresql://etl:secret-word@db/lake"}
    for as_json in (True, False):
        output.show_rows([row], as_json)
        output.show_record(row, as_json)
    output.say(row["outcome"])
    out, err = capsys.readouterr()
    assert "secret-word" not in out + err
    assert (out.count("etl:***@db"), err.count("etl:***@db")) == (4, 1)


def test_the_id_of_a_snapshot_is_a_string_for_programs_however_small() -> None:
    given = {"snapshot": 7, "expire": [1, 2**60], "kept": [{"snapshots": [5], "why": "x"}], "snapshots": 3, "rows": 2}
    said = json.loads(output.to_json(given))
    assert said == {"snapshot": "7", "expire": ["1", str(2**60)], "kept": [{"snapshots": ["5"], "why": "x"}]} | {
        "snapshots": 3,
        "rows": 2,
    }


def test_no_rows_are_an_empty_array_or_a_word_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    output.show_rows([], as_json=False, nothing="nothing is pending")
    assert capsys.readouterr() == ("", "nothing is pending\n")
    output.show_rows([], as_json=True)
    assert capsys.readouterr().out == "[]\n"


def test_a_record_is_shown_line_by_line(capsys: pytest.CaptureFixture[str]) -> None:
    output.show_record({"last-commit": timedelta(seconds=2), "holes": [1, 2], "none": []}, as_json=False)
    assert capsys.readouterr().out == "last commit  2 s\nholes        1, 2\nnone         -\n"


@pytest.mark.parametrize(
    "error, code",
    [
        (errors.ConfigInvalid("x"), 1),
        (errors.SchemaRefused("x"), 1),
        (errors.TxlogCorrupt("x"), 1),
        (errors.HistoryChanged("x"), 3),
        (errors.NewerVersion("x"), 3),
        (errors.StorageUnavailable("x"), 4),
        (errors.Backpressure("x"), 4),
        (errors.Fenced("x"), 5),
        (errors.UnknownOutcome("x"), 5),
    ],
)
def test_every_kind_of_error_has_its_exit_code(error: errors.BookkeeperError, code: int) -> None:
    assert exit_code(error) == code


@click.group(cls=Commands)
def program() -> None:
    """A program."""


@program.command()
@common
@click.option("--every", type=DURATION)
@click.option("--most", type=SIZE)
@click.argument("what")
def do(what: str, every: timedelta | None, most: int | None, **_: Any) -> None:
    """Do something."""
    if what == "halt":
        raise errors.HistoryChanged("rolled back")
    if what == "extra":
        raise ModuleNotFoundError("No module named 'apscheduler.jobs'", name="apscheduler.jobs")
    if what == "bug":
        raise ModuleNotFoundError("No module named 'nonsense'", name="nonsense")
    click.echo(f"{every} {most}")


def test_an_error_is_one_line_with_a_hint_and_no_traceback() -> None:
    result = CliRunner().invoke(program, ["do", "halt"])
    assert result.exit_code == 3
    assert result.stdout == ""
    assert result.stderr.startswith("error: rolled back\nhint: If that was intended")
    assert "Traceback" not in result.output


def test_a_missing_extra_prints_the_pip_line() -> None:
    result = CliRunner().invoke(program, ["do", "extra"])
    assert (result.exit_code, result.stderr) == (
        1,
        "error: apscheduler is not installed\nhint: Run: pip install 'iceberg-bookkeeper[reaper]'\n",
    )
    assert isinstance(CliRunner().invoke(program, ["do", "bug"]).exception, ModuleNotFoundError)


def test_durations_and_sizes_are_options() -> None:
    assert CliRunner().invoke(program, ["do", "x", "--every", "90s", "--most", "2KiB"]).output == "0:01:30 2048\n"
    result = CliRunner().invoke(program, ["do", "x", "--every", "soon"])
    assert result.exit_code == 2
    assert "'soon': a duration such as" in result.stderr


def test_the_only_table_needs_no_name() -> None:
    one, two = Settings(tables={"a": Table("a")}), Settings(tables={"a": Table("a"), "b": Table("b")})
    assert pick_table(one, None).name == "a"
    assert pick_table(two, "b").name == "b"
    for settings, name in ((two, None), (one, "b"), (Settings(), None)):
        with pytest.raises(errors.ConfigInvalid):
            pick_table(settings, name)


@pytest.fixture
def root_logger() -> Any:
    root = logging.getLogger()
    before = root.handlers[:], root.level
    yield root
    root.handlers[:], root.level = before


@pytest.mark.usefixtures("root_logger")
def test_log_lines_carry_their_extra_fields() -> None:
    human, machine = io.StringIO(), io.StringIO()
    for stream, kind in ((human, "human"), (machine, "json")):
        logs.set_up(kind, stream=stream)
        logging.getLogger("writers.writer").warning("txlog published", extra={"action": "publish", "why": "a b"})
        logging.getLogger("urllib3").info("not ours")
    assert human.getvalue().endswith(' WARNING txlog published  action=publish why="a b"\n')
    line = json.loads(machine.getvalue())
    assert (line["message"], line["level"], line["action"], line["why"]) == (
        "txlog published",
        "warning",
        "publish",
        "a b",
    )
    assert datetime.fromisoformat(line["time"]).tzinfo is not None


@pytest.fixture
def quiet_again() -> Iterator[None]:
    """Afterwards logging is as it was."""
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    yield
    root.handlers[:] = before
    root.setLevel(level)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_a_line_now_and_then_or_one_that_is_written_over() -> None:
    clock, plain, terminal = Clock(datetime(2026, 1, 1, tzinfo=UTC)), io.StringIO(), Terminal()
    shown = [Progress("lines", clock, stream) for stream in (plain, terminal)]
    for second in range(12):
        for progress in shown:
            progress.tell({"rows": second})
        clock.move(seconds=1)
    for progress in shown:
        progress.close({"rows": 12, "bytes": 2048})
    assert plain.getvalue() == "lines: rows 5\nlines: rows 10\nlines: rows 12, bytes 2 KiB\n"
    assert terminal.getvalue().count("\r\x1b[K") == 12
    assert terminal.getvalue().endswith("\r\x1b[Klines: rows 12, bytes 2 KiB\n")


def test_a_log_line_goes_above_the_progress_and_neither_is_overwritten(quiet_again: None) -> None:
    clock, terminal = Clock(datetime(2026, 1, 1, tzinfo=UTC)), Terminal()
    logs.set_up("human", "info", terminal)
    progress = Progress("lines", clock, terminal)
    clock.move(seconds=1)
    progress.tell({"rows": 5})
    logging.getLogger("writers").warning("waiting", extra={"action": "wait"})
    progress.close({"rows": 6})
    logging.getLogger("writers").warning("over", extra={"action": "end"})

    assert [line[20:] if line[:2] == "20" else line for line in screen(terminal.getvalue())] == [
        " WARNING waiting  action=wait",
        "lines: rows 6",
        " WARNING over  action=end",
    ]


def test_a_log_line_leaves_the_progress_standing_below(quiet_again: None) -> None:
    clock, terminal = Clock(datetime(2026, 1, 1, tzinfo=UTC)), Terminal()
    logs.set_up("human", "info", terminal)
    progress = Progress("lines", clock, terminal)
    clock.move(seconds=1)
    progress.tell({"rows": 5})
    logging.getLogger("writers").warning("waiting", extra={"action": "wait"})
    assert screen(terminal.getvalue())[1:] == ["lines: rows 5"]
    status_line.release()
    terminal.write("error: over\n")
    assert screen(terminal.getvalue())[1:] == ["lines: rows 5", "error: over"]


def screen(drawn: str) -> list[str]:
    """The lines that a terminal shows."""
    lines = [line.rpartition("\r\x1b[K")[2] for line in drawn.split("\n")]
    return lines if lines[-1] else lines[:-1]


def test_quiet_progress_says_nothing() -> None:
    stream = io.StringIO()
    Progress("lines", Clock(), stream, quiet=True).close({"rows": 1})
    assert stream.getvalue() == ""


def test_a_wish_to_stop_ends_the_pause() -> None:
    stop = StopSignal()
    assert stop.wait(0) is False
    timer = threading.Timer(0.01, stop.request)
    timer.start()
    assert stop.wait(60) is True
    timer.join()
    assert stop.requested
    assert stop.wait(60) is True


def test_sigterm_is_only_a_wish() -> None:
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    try:
        stop = StopSignal.on_signals()
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.wait(60) is True
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    finally:
        signal.signal(signal.SIGTERM, before[0])
        signal.signal(signal.SIGINT, before[1])
