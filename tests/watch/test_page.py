"""docs/writers.md, "Dropped objects": its command as it stands, and the examples of the command's help."""

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from bookkeeper.console.signals import StopSignal
from tests.cli.commands import WATCH, commands, examples, words
from tests.docs.blocks import blocks
from tests.packaging.project import ROOT
from tests.support.configured import configured
from tests.support.logs import logging_put_back
from tests.support.threads import again_and_again
from tests.support.writer_queue import Queue
from tests.watch.drops import ndjson
from writers.cli import main
from writers.watch import plan, waiting

PAGE = ROOT / "docs" / "writers.md"
TEXT = PAGE.read_text("utf-8").partition("## Dropped objects")[2].partition("\n## ")[0]
LINE = next(block.text.strip() for block in blocks(PAGE) if block.kind == "sh" and "writer watch" in block.text)
COMMAND = dict(commands())[WATCH[0]]


@pytest.fixture
def queue(tmp_path: Path) -> Queue:
    (tmp_path / "drops" / "events").mkdir(parents=True)
    return Queue(tmp_path / "lake")


def run(queue: Queue, line: str, drops: Path, code: int = 0) -> str:
    """What a command line says, with this table and prefix in the place of its own, while a bookkeeper ticks."""
    given = words(line)[2:]
    section = {"identifier": queue.settings.identifier, "folder": queue.made.folder}
    config = configured(queue, tables__events=section)
    here = {"--folder": queue.made.folder, "--config": str(config), "--from": str(drops)}
    for option, value in here.items():
        if option in given:
            given[given.index(option) + 1] = value
    with logging_put_back(), again_and_again(queue.tick, 0.05):
        done = CliRunner().invoke(main, ["watch", *given, "--settle", "0s"])
    assert done.exit_code == code, (done.output, done.exception)
    return done.output


@pytest.mark.parametrize("line", [LINE, *examples(COMMAND)])
def test_its_commands_load_what_is_dropped(
    line: str, queue: Queue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drops = tmp_path / "drops" / "events"
    (drops / "a.ndjson").write_bytes(ndjson("a", "b"))
    wait = StopSignal.wait

    def until_loaded(stop: StopSignal, *given: Any) -> bool:
        if not [*drops.glob("*.ndjson")]:
            stop.request()
        return wait(stop, *given)

    monkeypatch.setattr(StopSignal, "wait", until_loaded)
    run(queue, f"{line} --backfill", drops)
    assert queue.keys() == ["a", "b"]
    assert [*drops.glob("_done/1/*")] == ([drops / "_done" / "1" / "a.ndjson"] if "--done move" in line else [])


def test_once_says_what_was_not_loaded(queue: Queue, tmp_path: Path) -> None:
    drops = tmp_path / "drops" / "events"
    (drops / "bad").write_bytes(b"none")
    said = run(queue, f"{LINE} --once --backfill", drops, code=1)
    assert "objects that are no rows of the table: 1" in said and f"{drops}/_rejected/" in said
    (drops / "large").write_bytes(ndjson("a") * 100)
    said = run(queue, f"{LINE} --once --max-object=1KiB", drops, code=1)
    assert "objects that are not taken: large" in said
    (drops / "large").write_bytes(ndjson("a"))
    run(queue, f"{LINE} --once", drops)
    assert queue.keys() == ["a"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("--done leave", "objects that stay would have to be remembered"),
        ("--format ndjson --null NA", "--null is for CSV"),
        ("--from gone", "is not there"),
        ("--from .", "lie in each other"),
        ("--from _bookkeeper/x", "lie in each other"),
        ("--name No", "'No'"),
    ],
)
def test_what_cannot_be_is_refused(options: str, said: str, queue: Queue, tmp_path: Path) -> None:
    at = tmp_path / "gone" if "gone" in options else Path(queue.made.folder.removeprefix("file://"))
    drops = at if "--from" in options else tmp_path / "drops"
    found = run(queue, f"{LINE} {'' if '--from' in options else options}", drops, code=1)
    assert said in found and "hint: " in found


def test_its_numbers_are_those_of_the_code() -> None:
    given = COMMAND.make_context("watch", words(LINE)[2:]).params
    assert f"at most {plan.MOST_OBJECTS:,} objects and {waiting.BATCH_BYTES // 2**20} MiB" in TEXT
    assert f"`--every` ({given['every'].seconds} s)" in TEXT
    assert f"`--settle` ({given['settle'].seconds} s" in TEXT
    assert given["done"] == "delete"
