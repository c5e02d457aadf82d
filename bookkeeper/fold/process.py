"""
Folds are computed in a process of their own, so that ticks share neither the interpreter nor its memory with them.

It is started when a fold is due, works at a low priority, and ends after some minutes without one. Whatever ends it
costs one fold, which is tried again: a Parquet file that breaks the decoder, the kernel for want of memory, a person.
"""

import contextlib
import pickle  # noqa: TID251 - between two processes of ours, over pipes that no other has
import subprocess
import sys
import threading
from datetime import datetime, timedelta
from functools import partial

from bookkeeper.catalogs.deadline import within
from bookkeeper.config.settings import Catalog
from bookkeeper.errors import Retry
from bookkeeper.fold.budget import Budget, Computed
from bookkeeper.fold.worker import Failed, Job
from bookkeeper.ledger.fold_commit import MOST_AGE
from bookkeeper.ledger.ledger import Ledger
from bookkeeper.ledger.view import View

_HINT = "If memory was short: lower max-keys, max-key-bytes or max-rows in [tables.NAME.fold]."


class FoldDefect(Exception):
    """A defect of ours in the fold's process; its text is the traceback there."""


class _Ended(Exception):
    """The process ended before it answered."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class PlanProcesses:
    """Processes that plan folds: one for each fold that is being planned, kept for the next."""

    def __init__(self, most: timedelta = MOST_AGE) -> None:
        #: a plan that takes longer would be refused
        self._most = most
        self._idle: list[subprocess.Popen[bytes]] = []
        self._lock = threading.Lock()

    def plan(
        self, catalog: Catalog, ledger: Ledger, view: View, now: datetime, random: bytes, budget: Budget
    ) -> Computed:
        """
        As `plan_fold`, of the head that `catalog` shows now; raises Retry, and FoldDefect.
        """
        job = Job(catalog, ledger.identifier, view.marks.folder, now, random, budget)
        found = self._answer(job)
        if isinstance(found, Computed):
            return found
        if found.expected:
            raise Retry(found.text, hint=found.hint)
        raise FoldDefect(found.text)

    def close(self) -> None:
        """Ends those that have nothing to do."""
        with self._lock:
            idle, self._idle = self._idle, []
        for process in idle:
            _end(process)

    def _answer(self, job: Job) -> Computed | Failed:
        for attempt in (1, 2):
            try:
                return self._asked(job)
            except _Ended as error:
                if error.code or attempt == 2:  # 0: it had been idle for too long
                    why = f"the process of the fold ended with exit code {error.code}"
                    raise Retry(why, hint=_HINT) from error
        raise AssertionError("the last attempt returns or raises")

    def _asked(self, job: Job) -> Computed | Failed:
        process = self._take()
        try:
            found = self._ask(process, job)
        except BaseException:
            _end(process)
            raise
        with self._lock:
            self._idle.append(process)
        return found

    def _take(self) -> "subprocess.Popen[bytes]":
        with self._lock:
            while self._idle:
                process = self._idle.pop()
                if process.poll() is None:
                    return process
                _end(process)
        # The same modules, wherever they are; what follows -c must not come from the directory that we are in.
        code = f"import sys; sys.path[:] = {sys.path!r}; from bookkeeper.fold.worker import main; main()"
        words = [sys.executable, "-c", code]
        try:
            # In a session of its own: Ctrl-C is the bookkeeper's, which ends it.
            return subprocess.Popen(
                words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True, bufsize=-1
            )
        except OSError as error:
            raise Retry(f"no process can be started for the fold: {error}") from error

    def _ask(self, process: "subprocess.Popen[bytes]", job: Job) -> Computed | Failed:
        try:
            return within(self._most, partial(_exchange, process, job))
        except TimeoutError as error:
            process.kill()
            raise _Ended(process.wait()) from error
        except (OSError, EOFError, pickle.UnpicklingError) as error:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(5)
            process.kill()
            raise _Ended(process.wait()) from error


def _exchange(process: "subprocess.Popen[bytes]", job: Job) -> Computed | Failed:
    assert process.stdin is not None and process.stdout is not None
    pickle.dump(job, process.stdin)
    process.stdin.flush()
    found: Computed | Failed = pickle.load(process.stdout)
    return found


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.kill()
    for pipe in (process.stdin, process.stdout):
        with contextlib.suppress(OSError):
            assert pipe is not None
            pipe.close()
    process.wait()
