"""Every example that a help shows is run on a small lake: a command without one, or with one that fails, is red."""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from tests.cli.commands import HTTP, KAFKA, WATCH, commands, examples, programs, words
from tests.cli.sandbox import Sandbox
from tests.support.deletes import commit_deletes, equality
from tests.support.lake import Writes
from tests.support.logs import logging_put_back

COMMANDS = list(commands())
OURS = [(path, text) for path, command in COMMANDS for text in examples(command)]


@pytest.mark.parametrize("path, command", COMMANDS, ids=[" ".join(path) for path, _ in COMMANDS])
def test_the_help_of_every_command_ends_in_an_example_of_it(path: tuple[str, ...], command: click.Command) -> None:
    shown = examples(command)
    assert shown, "its help must end in `Example:` and lines that can be run"
    wanted = shlex_joined(path)
    assert any(" ".join(words(line)).startswith(wanted) for line in shown), f"none of them is of {wanted}"
    assert all(words(line)[0] in {shlex_joined((name,)) for name in programs()} for line in shown), shown


def shlex_joined(path: tuple[str, ...]) -> str:
    return " ".join(path).removeprefix("python -m ")


@pytest.mark.parametrize("path, example", OURS, ids=[text for _, text in OURS])
def test_every_example_is_understood(path: tuple[str, ...], example: str) -> None:
    name, *arguments = words(example)
    command = programs().get(name) or programs()[f"python -m {name}"]
    context: click.Context | None = None
    while True:
        # No file of an example is here.
        files = () if "load" in (name, *arguments) else (".ndjson", ".txt")
        given = [argument for argument in arguments if not argument.endswith(files)]
        if "--help" in given:
            return
        context = command.make_context(name, given, parent=context, resilient_parsing=False)
        if not isinstance(command, click.Group) or not context._protected_args:
            return
        (name, *_), arguments = context._protected_args, context.args
        command = command.commands[name]


def rejected(sandbox: Sandbox) -> None:
    """Number 42, whose data file is there now."""
    lake, writer = sandbox.lake, sandbox.writer
    file = writer.file(["late"])
    path = Path(file.path.removeprefix("file://"))
    data = path.read_bytes()
    path.unlink()
    lake.folder.publish(*writer.encoded([file], sequence=42))
    lake.drain()
    path.write_bytes(data)


def far_ahead(sandbox: Sandbox) -> None:
    sandbox.writer.publish("far", sequence=100)


def rolled_back(sandbox: Sandbox) -> None:
    lake = sandbox.lake
    before = lake.table().current_snapshot().snapshot_id
    Writes(lake, "w3").publish("gone")
    lake.tick()
    lake.table().manage_snapshots().set_current_snapshot(before).commit()


def stamped_ahead(sandbox: Sandbox) -> None:
    lake = sandbox.lake
    right = lake.clock.now
    lake.clock.move(days=4000)
    Writes(lake, "w3").publish("ahead")
    lake.tick()
    lake.clock.now = right


def marks_lost(sandbox: Sandbox) -> None:
    with sandbox.lake.table().transaction() as change:
        change.remove_properties("bookkeeper.marks")


def registered(sandbox: Sandbox) -> None:
    sandbox.lake.put("consumers/nightly.json", b'{"version": 1, "checkpoint": "file:///nowhere"}')


def odd_delete_file(sandbox: Sandbox) -> None:
    lake = sandbox.lake
    made = equality(lake, ["x"], partition=(0,) if lake.folder.card().spec.fields else ())
    place = f"{lake.folder.card().data_path}/odd-deletes.parquet"
    Path(made.file.path.removeprefix("file://")).rename(place.removeprefix("file://"))
    commit_deletes(lake, replace(made, file=replace(made.file, path=place, record_count=7)))


#: what has to be so before a command makes sense
BEFORE: dict[tuple[str, ...], Callable[[Sandbox], None]] = {
    ("bookkeeper", "show"): rejected,
    ("bookkeeper", "replay"): rejected,
    ("bookkeeper", "discard"): far_ahead,
    ("bookkeeper", "accept-rollback"): rolled_back,
    ("bookkeeper", "accept-clock"): stamped_ahead,
    ("bookkeeper", "drop-delete-file"): odd_delete_file,
    ("bookkeeper", "restore-marks"): marks_lost,
    ("bookkeeper", "consumers", "remove"): registered,
}


HERE = [(path, text) for path, text in OURS if path not in KAFKA + HTTP + WATCH and not path[0].startswith("python -m")]


@pytest.mark.usefixtures("soon_stopped")
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize("path, example", HERE, ids=[text for _, text in HERE])
def test_every_example_runs(
    path: tuple[str, ...], example: str, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    sandbox.restore()
    monkeypatch.chdir(sandbox.lake.root)
    for name in [name for name in os.environ if name.startswith("BOOKKEEPER_")]:
        monkeypatch.delenv(name)
    BEFORE.get(path, lambda _: None)(sandbox)
    name, *arguments = words(sandbox.here(example))
    (sandbox.lake.root / "yes").write_text("y\n")
    given = sandbox.lake.root / ("app.log" if " | " in example else "yes")
    with logging_put_back(), given.open("rb") as stdin:
        done: Any = CliRunner().invoke(programs()[name], arguments, input=stdin)
    assert (done.exit_code, done.exception) == (0, None), done.output
    assert done.stdout or done.stderr
