"""
The processes of a round: forked, signalled and waited for by their ids. The process they are forks of has no threads.
"""

import os
import pickle
import signal
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any


@dataclass
class Party:
    """The processes: role -> what it does for ever, and its process; what it dies of on its own goes to `defects`."""

    roles: dict[str, Callable[[], None]]
    defects: Path
    pids: dict[str, int] = field(default_factory=dict)

    def start(self, role: str) -> None:
        """A new process for this role."""
        pid = os.fork()
        if pid == 0:
            _be(self.roles[role], self.defects, role)
        self.pids[role] = pid

    def kill(self, role: str) -> None:
        """kill -9, also of one that is stopped; gone when this returns."""
        pid = self.pids.pop(role)
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)

    def stop(self, role: str) -> None:
        """SIGSTOP: it stays as it is, wherever that is."""
        os.kill(self.pids[role], signal.SIGSTOP)

    def wake(self, role: str) -> None:
        """SIGCONT: it goes on as if nothing had been."""
        os.kill(self.pids[role], signal.SIGCONT)

    def __enter__(self) -> "Party":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for role in list(self.pids):
            self.kill(role)


def _be(act: Callable[[], None], defects: Path, role: str) -> None:
    """Never returns."""
    try:
        act()
    except BaseException:  # noqa: BLE001 - any error must be seen
        with defects.open("a", encoding="utf-8") as file:
            file.write(f"{role} ended by itself:\n{traceback.format_exc()}\n")
    finally:
        os._exit(0)


def in_fork(act: Callable[[], Any]) -> Any:
    """
    What `act` returns, done in a process of its own: whatever threads it starts, later forks do not inherit them.
    """
    ours, theirs = os.pipe()
    pid = os.fork()
    if pid == 0:
        _answer(act, theirs)
    os.close(theirs)
    with open(ours, "rb") as pipe:
        data = pipe.read()
    os.waitpid(pid, 0)
    if not data:
        raise RuntimeError("the process died")
    result = pickle.loads(data)
    if isinstance(result, _Failed):
        raise RuntimeError(result.trace)
    return result


@dataclass
class _Failed:
    trace: str


def _answer(act: Callable[[], Any], theirs: int) -> None:
    """Never returns."""
    try:
        try:
            result = act()
        except BaseException:  # noqa: BLE001 - raised again where it was asked for
            result = _Failed(traceback.format_exc())
        with open(theirs, "wb") as pipe:
            pickle.dump(result, pipe)
    finally:
        os._exit(0)
