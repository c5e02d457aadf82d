"""
Benchmarks of another checkout and of this one, in slices of which one runs while the other stands still.

    git worktree add ../before COMMIT
    python -m benchmarks.against ../before [--only drain,curve] [--toy]

Both meet the same machine however its speed changes, so the ratio of their CPU times is good to a few percent; their
wall times mean nothing. The floor and the peers tell how good: they are the same code on both sides.
"""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from benchmarks.support import harness

ROOT = Path(__file__).parents[1]
SLICE_SECONDS = 0.2
#: those that count the CPU time of a commit, and wait for no clock
TIMED = "drain,commit,curve,retention,expire,fold"
COLUMNS = ("row", "column", "there, CPU ms", "here, CPU ms", "here / there")
_CPU = re.compile(r"[\d,.]+ \(([\d,.]+)\)")
_NUMBER = re.compile(r"[\d,.]+")

Row = tuple[str, str, str]


def main(words: Sequence[str] | None = None) -> None:
    """
    One table a benchmark. Raises SystemExit: 1 when one of them failed on either side.
    """
    options = harness.parser(__doc__)
    options.add_argument("checkout", type=Path, help="the folder of the other checkout")
    options.add_argument("--only", default=TIMED, help="which ones (default: %(default)s)")
    given = options.parse_args(words)
    chosen = harness.chosen(given)
    size = [] if chosen.size == "short" else [f"--{chosen.size}"]
    peer = ["--peer", given.peer] if given.peer else []
    failed = []
    for name in given.only.split(","):
        with chosen.folder() as folder:
            there, here = (folder / "there", folder / "here")
            codes = run(name, {there: given.checkout.resolve(), here: ROOT}, [*size, *peer])
            if any(codes):
                failed.append(name)
                print(f"\n{name} failed:\n{(there if codes[0] else here).with_suffix('.log').read_text()[-2000:]}")
                continue
            compare(name, cpu_ms(there), cpu_ms(here), chosen.report)
    raise SystemExit(f"failed: {', '.join(failed)}" if failed else 0)


def run(name: str, sides: dict[Path, Path], words: Sequence[str]) -> list[int]:
    """
    Runs a benchmark in each checkout of `sides`, results to the key; returns the exit codes.
    """
    with ExitStack() as stack:
        processes = [stack.enter_context(_running(name, *side, words)) for side in sides.items()]
        in_slices(processes)
        return [process.wait() for process in processes]


@contextmanager
def _running(name: str, results: Path, checkout: Path, words: Sequence[str]) -> Iterator["subprocess.Popen[bytes]"]:
    with tempfile.TemporaryDirectory(dir=results.parent, ignore_cleanup_errors=True) as work:
        command = [sys.executable, "-m", f"benchmarks.{name}", "--results", str(results), "--work", work, *words]
        environ = {**os.environ, "PYTHONPATH": str(checkout)}
        with results.with_suffix(".log").open("wb") as log:
            process = subprocess.Popen(
                command, cwd=checkout, env=environ, stdout=log, stderr=log, start_new_session=True
            )
            try:
                yield process
            finally:
                _signal(process, signal.SIGKILL)
                process.wait()


def in_slices(processes: Sequence["subprocess.Popen[bytes]"]) -> None:
    """
    Lets the processes, each with all that it started, run in turns until all have ended. Each leads a session.
    """
    for process in processes:
        _signal(process, signal.SIGSTOP)
    while left := [process for process in processes if process.poll() is None]:
        for process in left:
            _signal(process, signal.SIGCONT)
            try:
                process.wait(SLICE_SECONDS)
            except subprocess.TimeoutExpired:
                _signal(process, signal.SIGSTOP)


def _signal(process: "subprocess.Popen[bytes]", number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)


def cpu_ms(results: Path) -> dict[Row, float]:
    """
    The CPU times in a benchmark's results, in ms, by title, row and column.
    """
    found = dict[Row, float]()
    for line in map(json.loads, results.read_text().splitlines()):
        if "cells" not in line:
            continue
        cells = dict(zip(line["columns"], line["cells"], strict=True))
        row = ", ".join(text for text in line["cells"][:2] if text == line["cells"][0] or text.isalpha())
        for column, text in cells.items():
            match = _CPU.fullmatch(text) or (_NUMBER.fullmatch(text) if column == "CPU" else None)
            if match:
                found[line["title"], row, column] = float(match[match.re.groups].replace(",", ""))
    return found


def compare(name: str, there: dict[Row, float], here: dict[Row, float], report: harness.Report) -> None:
    """
    Prints and keeps what both have measured; says so when that is nothing.
    """
    title = ""
    for (title_here, row, column), now in here.items():
        before = there.get((title_here, row, column))
        if not before:
            continue
        if title != title_here:
            title = title_here
            report.table(name, title, COLUMNS)
        report.row(row, column, before, now, f"{now / before:.2f}")
    if not title:
        print(f"\n{name}: the two have no CPU time in common")


if __name__ == "__main__":
    main()
