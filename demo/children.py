"""
The demo's processes: each in a group of its own, ended by its id, never left behind.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from bookkeeper.errors import BookkeeperError

PATIENCE, HURRY = 20.0, 5.0
_TAIL = 12


class ChildFailed(BookkeeperError):
    """A process of the demo ended unexpectedly."""


@dataclass
class Child:
    """One process of the demo; `command` is asked anew at each start."""

    name: str
    command: Callable[[], Sequence[str]]
    log: Path
    process: subprocess.Popen[bytes] | None = None
    ended: bool = False
    kills: int = 0

    @property
    def running(self) -> bool:
        """Whether it runs."""
        return self.process is not None and self.process.poll() is None

    @property
    def exit_code(self) -> int | None:
        """Its exit code, None while it runs."""
        return None if self.process is None else self.process.poll()

    def tail(self) -> str:
        """The last lines of its log."""
        lines = self.log.read_text("utf-8", "replace").splitlines() if self.log.exists() else []
        return "\n".join(f"    {line[:300]}" for line in lines[-_TAIL:]) or "    (its log is empty)"


@dataclass
class Children:
    """All processes of the demo; leaving the block ends every one of them."""

    folder: Path
    members: dict[str, Child] = field(default_factory=dict)
    _guard: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> "Children":
        # Its own session: a Ctrl-C must not end it before us.
        self._guard = subprocess.Popen(
            [sys.executable, "-m", "demo.process_guard"], stdin=subprocess.PIPE, start_new_session=True, bufsize=0
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.stop(list(self.members), HURRY if kind else PATIENCE)
        finally:
            for child in self.members.values():
                self._end(child)
            assert self._guard is not None and self._guard.stdin is not None
            self._guard.stdin.close()
            self._guard.wait()

    def add(self, name: str, command: Callable[[], Sequence[str]]) -> Child:
        """Start a new process under this name."""
        self.members[name] = Child(name, command, self.folder / f"{name}.log")
        return self.start(name)

    def start(self, name: str) -> Child:
        """Start it (again)."""
        child = self.members[name]
        with child.log.open("ab") as log:
            child.process = subprocess.Popen(
                list(child.command()),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
            )
        child.ended = False
        self._notify_guard("+", child.process.pid)
        return child

    def run(self, name: str, command: Sequence[str], seconds: float) -> None:
        """Run a command to its end; raises ChildFailed."""
        child = self.add(name, lambda: command)
        assert child.process is not None
        with suppress(subprocess.TimeoutExpired):
            child.process.wait(seconds)
        if child.exit_code != 0:
            raise failed(child)
        self._end(child)

    def kill(self, name: str) -> bool:
        """kill -9, of it and of what it started; says whether it was running."""
        child = self.members[name]
        was_running = child.running
        self._end(child)
        child.kills += was_running
        return was_running

    def stop(self, names: Sequence[str], seconds: float = PATIENCE) -> None:
        """SIGTERM to all of them at once, and SIGKILL to those that are not gone after `seconds`."""
        chosen = [self.members[name] for name in names]
        for child in chosen:
            if child.process is not None and child.running:
                child.process.terminate()
        until = time.monotonic() + seconds
        for child in chosen:
            if child.process is not None:
                with suppress(subprocess.TimeoutExpired):
                    child.process.wait(max(0.0, until - time.monotonic()))
        for child in chosen:
            self._end(child)

    def _end(self, child: Child) -> None:
        """Nothing of its group is left, and the process is waited for; its number is never used again after that."""
        if child.process is None or child.ended:
            return
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(child.process.pid, signal.SIGKILL)
        child.process.wait()
        child.ended = True
        self._notify_guard("-", child.process.pid)

    def _notify_guard(self, sign: str, number: int) -> None:
        assert self._guard is not None and self._guard.stdin is not None
        with suppress(BrokenPipeError):
            self._guard.stdin.write(f"{sign}{number}\n".encode())


def failed(child: Child) -> ChildFailed:
    """
    The error with its exit code and the end of its log.
    """
    how = "did not end in time" if child.running else f"ended with exit code {child.exit_code}"
    return ChildFailed(f"{child.name} {how}; the end of its log:\n{child.tail()}", hint=f"All of it is in {child.log}")


@contextmanager
def ending_on_sigterm() -> Iterator[None]:
    """
    Makes SIGTERM unwind the block as Ctrl-C does.
    """

    def unwind(number: int, frame: object) -> None:
        raise SystemExit(128 + number)

    former = signal.signal(signal.SIGTERM, unwind)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, former)
