"""The writer in Java (docs/writers.md): compiled, run, killed, run twice at once; each line becomes a row once."""

import json
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.servers import spark as prepared
from tests.support.crew import Crew
from tests.support.lake import Lake

pytestmark = pytest.mark.spark

SOURCE = Path(__file__).parents[2] / "docs" / "java" / "LinesWriter.java"
LINES, BATCH = 600, 10


@pytest.fixture(scope="module")
def java(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """
    The command that runs the writer, without its arguments.
    """
    path = ":".join(prepared.compiled(SOURCE, tmp_path_factory.mktemp("classes")))
    program = f"{prepared.wanted().java_home}/bin/java"
    return [program, "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", path, "LinesWriter"]


class Copy:
    """A source of lines, a queue, and runs of the Java writer that copy the one into the other."""

    def __init__(self, root: Path, java: list[str]) -> None:
        self.lake = Lake(root)
        self.pending = Path(self.lake.made.folder.removeprefix("file://")) / "pending"
        self.data = self.pending.parents[1] / "data"
        self.source = root / "source.ndjson"
        self.keys = [f"k{number:05}" for number in range(LINES)]
        with self.source.open("w") as file:
            for number, key in enumerate(self.keys):
                row = {"timestamp": f"2026-07-0{1 + number % 2}T12:00:00+02:00", "key": key, "value": "ä"}
                file.write(json.dumps(row) + "\n")
        self.crew, self.command = (
            Crew({}, root),
            [*java, str(self.pending.parent), "java-1", str(self.source), str(BATCH)],
        )

    def start(self) -> Any:
        return self.crew.start(f"run {len(self.crew.since)}", self.command, stderr=subprocess.PIPE, text=True)

    def killed(self, when: Callable[[], bool]) -> None:
        """A run that is killed in the middle of its work, as soon as `when` says so."""
        run = self.start()
        while not when():
            assert run.poll() is None, run.communicate()[1]
            time.sleep(0.001)
        run.send_signal(signal.SIGKILL)
        run.communicate()
        assert run.returncode == -signal.SIGKILL, "it was done before it was killed"

    def names(self) -> set[str]:
        return {path.name for path in self.pending.glob("*.avro")}

    def files(self) -> int:
        return len(list(self.data.glob("*.parquet")))


@pytest.fixture
def copy(tmp_path: Path, java: list[str]) -> Iterator[Copy]:
    made = Copy(tmp_path, java)
    with made.crew:
        yield made


def finish(copy: Copy) -> None:
    """
    Runs it until it says that all is published.
    """
    for _ in range(5):
        run = copy.start()
        said = run.communicate()[1]
        copy.lake.drain()
        if run.returncode == 0:
            return
        assert run.returncode == 5, said
    raise AssertionError("it was fenced again and again")


def test_each_line_is_a_row_once_though_the_writer_is_killed_again_and_again(copy: Copy) -> None:
    copy.killed(lambda: copy.files() > 0)
    copy.killed(lambda: len(copy.names()) > 2)
    copy.lake.tick()  # what the next run finds is in the marks now, and no longer pending
    before = copy.files()
    copy.killed(lambda: copy.files() > before)

    finish(copy)

    assert copy.lake.keys() == copy.keys
    assert (copy.lake.pending(), copy.lake.rejected()) == ([], {})
    assert len(copy.lake.view().marks.writers["java-1"].incarnations) >= 2
    assert {row["value"].decode() for row in copy.lake.table().scan().to_arrow().to_pylist()} == {"ä"}


def test_a_line_that_does_not_fit_ends_the_run_and_nothing_of_its_batch_is_published(copy: Copy) -> None:
    copy.source.write_text('{"timestamp": "2026-07-01T12:00:00Z", "key": 7}\n')

    run = copy.start()

    assert "key: 7 is no string" in run.communicate()[1] and run.returncode == 1
    assert copy.names() == set()


def test_of_two_runs_at_once_one_is_fenced_and_each_line_is_a_row_once(copy: Copy) -> None:
    runs, book = [copy.start(), copy.start()], copy.lake.book()
    while any(run.poll() is None for run in runs):
        copy.lake.tick(book, milliseconds=50)
        with suppress(subprocess.TimeoutExpired):
            runs[0].wait(0.05) if runs[0].poll() is None else runs[1].wait(0.05)
    said = sorted((run.returncode, run.communicate()[1]) for run in runs)

    finish(copy)

    assert [code for code, _ in said] == [0, 5] and "start again" in said[1][1]
    assert set(copy.lake.rejected().values()) == {"PositionTaken"}
    assert copy.lake.keys() == copy.keys
