"""
Runs of the code are runs of the model, and doctored ones are refused where they break a rule. Runs of broken code:
tests/rules.
"""

import os
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from tests.model.conformance import refusal, seeds
from tests.servers import installed
from tests.servers.process import Unavailable
from tests.simulation.schedule import Event
from tests.simulation.trace import record, steps

Lines = list[dict[str, Any]]
#: of one tick of a bookkeeper that commits two txlogs of one writer, and of a reject
QUIET = [Event("plain-1", 1.0), Event("plain-1", 1.0), Event("chain-1", 1.0), Event("book-1", 1.0)]
FORK = [Event("chain-1", 1.0, 0, 4), Event("chain-1b", 1.0), Event("chain-1", 1.0), Event("book-1", 1.0)]


@pytest.fixture(scope="module", autouse=True)
def model() -> None:
    try:
        installed.model(os.environ)
    except Unavailable as error:
        pytest.skip(str(error))


def find(lines: Lines, do: str) -> int:
    return next(number for number, line in enumerate(lines) if line["do" if number else "run"] == do)


def marks_left_out(lines: Lines) -> None:
    at = find(lines, "swap")
    lines[at]["marks"] = {**lines[find(lines, "load")]["marks"], "snapshot": 0}


def deleted_before_marks_json(lines: Lines) -> None:
    copy = lines.pop(find(lines, "copy"))
    lines.insert(find(lines, "unpend") + 1, copy)


def committed_twice(lines: Lines) -> None:
    at = find(lines, "swap")
    again = deepcopy(lines[at]) | {"b": None}
    again["marks"]["snapshot"] += 1
    lines.insert(at + 1, again)


def a_hole_passed_over(lines: Lines) -> None:
    for do in ("send", "swap"):
        line = lines[find(lines, do)]
        line["marks"]["holes"] = [first := min(slot for slot in lines[find(lines, "list")]["found"] if slot > 50)]
        if do == "swap":
            line["adds"].remove(first)


def a_needed_file_expired(lines: Lines) -> None:
    at = find(lines, "swap")
    lines.insert(at + 1, {"do": "gone", "slot": lines[at]["adds"][0]})


def the_head_expired(lines: Lines) -> None:
    lines.insert(find(lines, "swap") + 1, {"do": "expire", "snapshots": [0]})


def a_txlog_before_its_file(lines: Lines) -> None:
    del lines[find(lines, "file")]


def begun_at_another_position(lines: Lines) -> None:
    starts = next(line for line in lines if "from" in line)
    starts["from"] += 1


def deleted_before_it_is_rejected(lines: Lines) -> None:
    at = find(lines, "reject")
    lines[at], lines[at + 1] = lines[at + 1], lines[at]


DOCTORED: dict[Callable[[Lines], None], tuple[list[Event], str, str]] = {
    marks_left_out: (QUIET, "swap", "the marks have last 0"),
    deleted_before_marks_json: (QUIET, "unpend", "in phase Committed does not delete it"),
    committed_twice: (QUIET, "swap", "nothing was sent"),
    a_hole_passed_over: (QUIET, "send", "the marks have holes"),
    a_needed_file_expired: (QUIET, "gone", "the model cannot take ReaperDeletes"),
    the_head_expired: (QUIET, "expire", "may not expire"),
    a_txlog_before_its_file: (QUIET, "put", "the model cannot take Publishes"),
    begun_at_another_position: (QUIET, "writer-starts", "it starts at position 1, the model's writer at 0"),
    deleted_before_it_is_rejected: (FORK, "unpend", "does not delete it"),
}


def test_recorded_runs_of_the_code_are_runs_of_the_model(tmp_path: Path) -> None:
    runs = [line for seed in seeds(1, 16) for line in record(seed, steps(seed))]
    assert refusal(runs, tmp_path / "runs") == ""
    seen = {line.get("do") for line in runs}
    assert seen >= {"append", "copy", "die", "expire", "gone", "reject", "rollback", "swap", "unpend"}


@pytest.mark.parametrize("doctor", DOCTORED)
def test_a_doctored_run_is_refused_at_its_line(doctor: Callable[[Lines], None], tmp_path: Path) -> None:
    events, do, why = DOCTORED[doctor]
    lines = record(2, events)
    assert refusal(lines, tmp_path / "run") == ""
    doctor(lines)
    refused = refusal(lines, tmp_path / "doctored")
    assert f'"do": "{do}"' in refused.splitlines()[0]
    assert why in refused
