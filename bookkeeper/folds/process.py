"""
Folds are computed in a process of their own, so that ticks share neither the interpreter nor its memory with them.

It is started when a fold is due, works at a low priority, and ends after some minutes without one. Whatever ends it
costs one fold, which is tried again: a Parquet file that breaks the decoder, the kernel for want of memory, a person.
"""

import contextlib
import subprocess
import sys
from datetime import datetime, timedelta
from functools import partial
from typing import IO

from bookkeeper.catalogs.deadline import within
from bookkeeper.config.settings import Catalog
from bookkeeper.errors import Retry
from bookkeeper.folds.budget import Budget, Computed
from bookkeeper.folds.wire import MOST_BYTES, Failed, Job, decode_answer, encode_job
from bookkeeper.folds.worker import LENGTH_BYTES
from bookkeeper.ledger.fold_commit import MOST_AGE
from bookkeeper.ledger.ledger import Ledger
from bookkeeper.ledger.view import View

#: what the process runs
PROGRAM = "from bookkeeper.folds.worker import main; main()"
_HINT = "If memory was short: lower max-keys, max-key-bytes or max-rows in [tables.NAME.fold]."
_HINT_ANSWER = "It was ended, and the next fold gets a new one. `bookkeeper fold` plans without it."


class FoldDefect(Exception):
    """A defect of ours in the fold's process; its text is the traceback there."""


class _Ended(Exception):
    """The process ended before it answered."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class PlanProcess:
    """
    A process that plans folds, which is started for a fold and kept for the next; to be used by one thread at a time.
    """

    def __init__(self, most: timedelta = MOST_AGE) -> None:
        #: a plan that takes longer would be refused
        self._most = most
        self._process: subprocess.Popen[bytes] | None = None

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
        """Ends it, whatever it does."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            for pipe in (process.stdin, process.stdout):
                with contextlib.suppress(OSError):
                    assert pipe is not None
                    pipe.close()
            process.wait()

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
        try:
            return self._ask(self._running(), job)
        except BaseException:
            self.close()
            raise

    def _running(self) -> "subprocess.Popen[bytes]":
        if self._process is None or self._process.poll() is not None:
            self.close()
            self._process = self._started()
        return self._process

    def _started(self) -> "subprocess.Popen[bytes]":
        # The same modules, wherever they are; what follows -c must not come from the directory that we are in.
        words = [sys.executable, "-c", f"import sys; sys.path[:] = {sys.path!r}; {PROGRAM}"]
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
        except ValueError as error:
            raise Retry(f"the process of the fold answered no plan: {error}", hint=_HINT_ANSWER) from error
        except (OSError, EOFError) as error:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(5)
            process.kill()
            raise _Ended(process.wait()) from error


def _exchange(process: "subprocess.Popen[bytes]", job: Job) -> Computed | Failed:
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(encode_job(job))
    process.stdin.flush()
    length = int.from_bytes(_read(process.stdout, LENGTH_BYTES), "big")
    if length > MOST_BYTES:
        raise ValueError(f"an answer of {length} bytes, at most {MOST_BYTES} are read")
    return decode_answer(_read(process.stdout, length), job)


def _read(pipe: IO[bytes], count: int) -> bytes:
    data = pipe.read(count)
    if len(data) < count:
        raise EOFError
    return data
