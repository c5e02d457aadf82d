"""
The process that computes folds for a bookkeeper. It reads jobs from stdin and writes answers to stdout: `messages`.

It commits nothing. When the bookkeeper ends, however it ends, its end of stdin is closed, and this process exits.
Killed in the middle of a fold it leaves position delete files that nothing names, for the orphan sweep.
"""

import logging
import os
import queue
import traceback
from functools import partial
from typing import IO

from pyiceberg.catalog import Catalog as IcebergCatalog

from bookkeeper.catalogs.open import open_catalog
from bookkeeper.config.settings import Catalog
from bookkeeper.errors import BookkeeperError
from bookkeeper.folds.budget import Computed
from bookkeeper.folds.fold import plan_fold
from bookkeeper.folds.messages import MOST_JOB_BYTES, Failed, Job, answer_line, read_job
from bookkeeper.ledger.ledger import Ledger
from bookkeeper.threads import start

#: it gives its memory back after so many seconds without a job, and after a fold that took more than so many KiB
IDLE_SECONDS, MOST_KIB = 300.0, 512 * 1024
#: ticks come first
_NICENESS = 10
#: the exit code after a line that is no job
_NO_JOB = 2


class Planner:
    """Answers jobs; the catalog stays open from one to the next."""

    def __init__(self) -> None:
        self._open: tuple[Catalog, IcebergCatalog] | None = None

    def answer(self, job: Job) -> Computed | Failed:
        """
        The plan of a job, or why there is none; raises nothing.
        """
        try:
            if self._open is None or self._open[0] != job.catalog:
                self._open = job.catalog, open_catalog(job.catalog, scans=False)
            ledger = Ledger(self._open[1], job.identifier, lambda: job.now)
            return plan_fold(ledger, ledger.load(job.folder), job.now, job.random, job.budget)
        except BookkeeperError as error:
            self._open = None
            return Failed(str(error), error.hint)
        except Exception:  # noqa: BLE001 - the bookkeeper logs it
            self._open = None
            return Failed(traceback.format_exc(), expected=False)


def main() -> None:
    """
    Computes until stdin ends, or there was no job for IDLE_SECONDS.
    """
    logging.getLogger("bookkeeper").addHandler(logging.NullHandler())  # stdout and stderr are the bookkeeper's
    os.nice(_NICENESS)
    given, taken = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints must not come between the answers
    jobs, planner = queue.Queue[bytes](), Planner()
    start(partial(_receive, given, jobs), "jobs")
    while True:
        try:
            line = jobs.get(timeout=IDLE_SECONDS)
        except queue.Empty:
            break
        try:
            job = read_job(line)
        except ValueError:
            traceback.print_exc()  # on the bookkeeper's stderr
            os._exit(_NO_JOB)
        taken.write(answer_line(job, planner.answer(job)))
        taken.flush()
        if _peak_kib() > MOST_KIB:
            break
    os._exit(0)


def _peak_kib() -> int:
    """The most memory that this program has used; 0 where the kernel does not say."""
    # getrusage counts what the process had before it became this program: a fork of a large bookkeeper.
    try:
        with open("/proc/self/status") as status:
            return next((int(line.split()[1]) for line in status if line.startswith("VmHWM:")), 0)
    except OSError:
        return 0


def _receive(given: IO[bytes], jobs: "queue.Queue[bytes]") -> None:
    try:
        while (line := given.readline(MOST_JOB_BYTES)).endswith(b"\n"):
            jobs.put(line)
    finally:  # also in the middle of a fold: no bookkeeper takes its plan
        os._exit(0)
