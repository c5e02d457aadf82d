"""
The command `writer lines`, with its options parsed.
"""

import sys
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from bookkeeper.console.output import say
from bookkeeper.console.progress import Progress
from bookkeeper.console.signals import StopSignal
from bookkeeper.errors import NotPossible
from writers.loader.formats import Format
from writers.loader.lines import BadLines, Loader
from writers.sources.source import STDIN
from writers.sources.stdin import ReplayedStdin
from writers.timing import Clock
from writers.writer import Writer


def run_lines(
    writer: Writer,
    files: Sequence[str],
    form: Format,
    bad: Path | None,
    most_bad: int | None,
    stop: StopSignal,
    progress: Progress,
    clock: Clock,
    at: int | None = None,
) -> None:
    """
    Load the files, or stdin when there are none; the file `-` is stdin with positions, from byte `at` on.

    Raises NotPossible after more than `most_bad` bad lines, and when no line that was read is a row.
    """
    began = clock()
    with BadLines(bad or Path(f"{writer.name}.bad.ndjson")) as bad_lines:
        loader = Loader(
            writer,
            form,
            bad_lines,
            clock,
            most_bad=most_bad,
            stopped=lambda: stop.requested,
            on_progress=lambda loader: progress.tell(_loaded(loader, clock() - began)),
        )
        if list(files) == [STDIN]:
            complete = loader.load_replayed(ReplayedStdin(writer.position, at), sys.stdin.fileno())
        else:
            complete = loader.load_files(files) if files else loader.load_pipe(sys.stdin.fileno())
        progress.close(_loaded(loader, clock() - began))
    if bad_lines.count:
        say(f"bad lines: {bad_lines.count}; {bad_lines.path} has each with its reason")
    if not complete:
        say("stopped before the end; start it again with the same --name to continue")
    if bad_lines.count and not loader.rows:
        raise NotPossible(
            f"no line is a row of this table; bad lines: {bad_lines.count}",
            hint=f"{bad_lines.path} has the reason for each. Are --format and the table right? Nothing was published.",
        )


def _loaded(loader: Loader, elapsed: timedelta) -> dict[str, Any]:
    seconds = max(elapsed.total_seconds(), 0.001)
    facts: dict[str, Any] = {
        "rows": loader.rows,
        "published": loader.published,
        "bad lines": loader.bad_lines.count,
        "rows/s": round(loader.rows / seconds),
        "MB/s": round(loader.read_bytes / seconds / 1e6, 1),
    }
    read = loader.disk_bytes - loader.disk_start
    if loader.disk_total and read > 0:
        facts["done"] = f"{loader.disk_bytes / loader.disk_total:.0%}"
        facts["left"] = timedelta(seconds=round((loader.disk_total - loader.disk_bytes) * seconds / read))
    return facts
