"""
The bookkeeper as a process of its own, as it is run: started, watched through its folder and /proc, ended by pid.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.support.synthetic import Queue


@contextmanager
def running(config: Path, log: Path | None = None, module: str = "bookkeeper") -> Iterator["subprocess.Popen[bytes]"]:
    """
    `bookkeeper run`, or what stands in for it, until the block ends.
    """
    options = ["--log-format", "json", "--listen", ""]
    words = [sys.executable, "-m", module, "run", "--config", str(config), *options]
    with open(log or config.with_suffix(".log"), "wb") as out:
        process = subprocess.Popen(words, stdout=out, stderr=out)
        try:
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            ended(process)


def ended(process: "subprocess.Popen[bytes]") -> None:
    """
    Waits a minute for a process that was asked to end, then kills it.
    """
    try:
        process.wait(60)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def await_marks(queue: Queue, sequence: int, process: "subprocess.Popen[bytes]", seconds: float = 600) -> None:
    """
    Until marks.json says that the queue's run is in up to `sequence`.
    """
    deadline = time.monotonic() + seconds
    while process.poll() is None and time.monotonic() < deadline:
        copy = queue.folder.marks()
        mark = copy.marks.mark(queue.run) if copy else None
        if mark is not None and mark.last >= sequence:
            return
        time.sleep(0.005)
    raise RuntimeError(f"the bookkeeper has not committed {queue.run.at(sequence)}")


def memory_mb(pid: int) -> tuple[float, float]:
    """
    Resident memory now, and its peak, in MiB.
    """
    lines = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":" in line)
    now_kb, peak_kb = (int(lines[key].split()[0]) for key in ("VmRSS", "VmHWM"))
    return now_kb / 1024, peak_kb / 1024


def commits(log: Path) -> list[dict[str, Any]]:
    """
    The lines in which a bookkeeper says that it committed.
    """
    said = (json.loads(line) for line in log.read_text().splitlines() if line.startswith("{"))
    return [line for line in said if line.get("action") == "commit"]


def cpu_seconds(pid: int) -> float:
    """
    What a process has used so far.
    """
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")
