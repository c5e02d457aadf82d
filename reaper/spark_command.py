"""
Jobs on Spark that the reaper starts, each as a process of its own: `spark_jobs.maintain`, or what stands in for it.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress

from bookkeeper.errors import Retry

#: runs a job of this name with these options
RunJob = Callable[..., None]
#: how often a job that may be stopped asks; then so long for its own end, before it is killed
_ASK_EVERY, _END_WITHIN = 0.5, 20.0


def job_runner(
    command: Sequence[str], config: str | None, table: str, stopped: Callable[[], bool] | None = None
) -> RunJob:
    """
    Starts `command` (default: this Python's `spark_jobs.maintain`) with the job's name, the table and more options.

    What it returns waits for the job's end and raises Retry, with the last line that the job printed, where it fails.
    With `stopped` it ends the job as soon as that is true, and returns; without, it waits whatever comes.
    """
    words = [*(command or (sys.executable, "-m", "spark_jobs.maintain"))]
    common = ["--table", table, *(["--config", config] if config else [])]

    def run(job: str, *options: str) -> None:
        try:
            done = _wait([*words, job, *common, *options], stopped)
        except OSError as exc:
            raise Retry(f"{words[0]} could not be started: {exc}", hint="Check reaper.spark-command.") from exc
        if done is not None and done.returncode:
            lines = [line for line in done.stderr.splitlines() if line.strip()] or ["no message"]
            raise Retry(f"the Spark job ended with {done.returncode}: {lines[-1][:500]}")

    return run


def _wait(words: Sequence[str], stopped: Callable[[], bool] | None) -> subprocess.CompletedProcess[str] | None:
    """The job's end; None when it was ended."""
    if stopped is None:
        return subprocess.run(words, capture_output=True, text=True)
    # A session of its own: the job's command may be a script, and what that started has to end as well.
    pipe = subprocess.PIPE
    with subprocess.Popen(words, stdout=pipe, stderr=pipe, text=True, start_new_session=True) as process:
        while not stopped():
            with suppress(subprocess.TimeoutExpired):
                out, errors = process.communicate(timeout=_ASK_EVERY)
                return subprocess.CompletedProcess(words, process.returncode, out, errors)
        _end(process)
    return None


def _end(process: subprocess.Popen[str]) -> None:
    """SIGTERM, and SIGKILL for what does not end by it."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(_END_WITHIN)
            return
