"""
Folds are computed in a process of their own, so that ticks share neither the interpreter nor its memory with them.

It is started when a fold is due, works at a low priority, and ends after some minutes without one. Whatever ends it
costs one fold, which is tried again: a Parquet file that breaks the decoder, the kernel for want of memory, a person.
"""

import contextlib
import os
import selectors
import subprocess
import sys
from collections.abc import Sequence
from datetime import datetime, timedelta
from time import monotonic

from bookkeeper.config.settings import Catalog
from bookkeeper.errors import Retry
from bookkeeper.folds.budget import Budget, Computed
from bookkeeper.folds.messages import MOST_ANSWER_BYTES, Failed, Job, job_line, read_answer
from bookkeeper.ledger.fold_commit import MOST_AGE
from bookkeeper.ledger.ledger import Ledger
from bookkeeper.ledger.view import View

#: the same modules, wherever they are; -P: none of the directory that we are in
COMMAND = (sys.executable, "-P", "-m", "bookkeeper.folds")
_PART_BYTES = 2**20
_HINT = "If memory was short: lower max-keys, max-key-bytes or max-rows in [tables.NAME.fold]."


class FoldDefect(Exception):
    """A defect of ours in the fold's process; its text is the traceback there."""


class _Ended(Exception):
    """The process ended before it answered."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class PlanProcess:
    """A process that plans folds, one after another: started for the first, kept for the next. One thread has it."""

    def __init__(
        self, most: timedelta = MOST_AGE, command: Sequence[str] = COMMAND, most_bytes: int = MOST_ANSWER_BYTES
    ) -> None:
        #: a plan that takes longer would be refused
        self._most = most
        self._command, self._most_bytes = command, most_bytes
        self._process: subprocess.Popen[bytes] | None = None

    def plan(
        self, catalog: Catalog, ledger: Ledger, view: View, now: datetime, random: bytes, budget: Budget
    ) -> Computed:
        """
        As `plan_fold`, of the head that `catalog` shows now; raises Retry, and FoldDefect.
        """
        job = Job(catalog, ledger.identifier, view.marks.folder, now, random, budget)
        found = self._answer(job, view.data_path)
        if isinstance(found, Computed):
            return found
        if found.expected:
            raise Retry(found.text, hint=found.hint)
        raise FoldDefect(found.text)

    def close(self) -> None:
        """Ends the process."""
        process, self._process = self._process, None
        if process is not None:
            _end(process)

    def _answer(self, job: Job, data_path: str) -> Computed | Failed:
        for attempt in (1, 2):
            try:
                return self._asked(job, data_path)
            except _Ended as error:
                if error.code or attempt == 2:  # 0: it had been idle for too long
                    why = f"the process of the fold ended with exit code {error.code}"
                    raise Retry(why, hint=_HINT) from error
        raise AssertionError("the last attempt returns or raises")

    def _asked(self, job: Job, data_path: str) -> Computed | Failed:
        process = self._started()
        try:
            return self._ask(process, job, data_path)
        except BaseException:
            self.close()
            raise

    def _started(self) -> "subprocess.Popen[bytes]":
        if self._process is not None and self._process.poll() is None:
            return self._process
        self.close()
        self._process = self._start()
        return self._process

    def _start(self) -> "subprocess.Popen[bytes]":
        try:
            # In a session of its own: Ctrl-C is the bookkeeper's, which ends it.
            return subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                start_new_session=True,
                bufsize=0,
                env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},  # noqa: TID251 - handed on
            )
        except OSError as error:
            raise Retry(f"no process can be started for the fold: {error}") from error

    def _ask(self, process: "subprocess.Popen[bytes]", job: Job, data_path: str) -> Computed | Failed:
        try:
            line = _exchanged(process, job_line(job), self._most.total_seconds(), self._most_bytes)
        except TimeoutError as error:
            raise Retry(f"the process of the fold gave no answer within {self._most}", hint=_HINT) from error
        except (OSError, EOFError) as error:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(5)
            process.kill()
            raise _Ended(process.wait()) from error
        except ValueError as error:
            raise Retry(f"the process of the fold gave too long an answer: {error}", hint=_HINT) from error
        try:
            return read_answer(line, job, data_path)
        except ValueError as error:
            raise Retry(f"the process of the fold answered what is no plan: {str(error)[:500]}") from error


def _exchanged(process: "subprocess.Popen[bytes]", line: bytes, seconds: float, most: int) -> bytes:
    """
    The line that it answers to this one. Raises TimeoutError, EOFError, other OSErrors; ValueError for more than
    `most` bytes.
    """
    assert process.stdin is not None and process.stdout is not None
    given, taken, answer, until = process.stdin.fileno(), process.stdout.fileno(), bytearray(), monotonic() + seconds
    os.set_blocking(given, False)  # one that reads nothing must not hold us
    with selectors.DefaultSelector() as ready:
        ready.register(given, selectors.EVENT_WRITE)
        ready.register(taken, selectors.EVENT_READ)
        while not answer.endswith(b"\n"):
            if (left := until - monotonic()) <= 0:
                raise TimeoutError
            for key, _ in ready.select(left):
                if key.fd == given:
                    line = line[os.write(given, line) :]
                    if not line:
                        ready.unregister(given)
                    continue
                part = os.read(taken, _PART_BYTES)
                if not part:
                    raise EOFError
                answer += part
                if len(answer) > most:
                    raise ValueError(f"more than {most} bytes")
    return bytes(answer)


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.kill()
    for pipe in (process.stdin, process.stdout):
        with contextlib.suppress(OSError):
            assert pipe is not None
            pipe.close()
    process.wait()
