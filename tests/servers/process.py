"""
A server process: started on a port, waited for with a deadline, ended by its pid. Nothing is ended by name.
"""

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import SystemRandom
from typing import Any

LOOPBACK = "127.0.0.1"
_MEMORY = "/dev/shm"
#: of the system: processes that test beside each other must not choose the same ones
_PORTS = SystemRandom()


class Unavailable(Exception):
    """
    What a server is made of cannot be had on this machine; the message says what and why.
    """


def free_port() -> int:
    """
    A port that is free: one of those that the system gives to no client, so that none takes it before the server does.
    """
    while True:
        port = _PORTS.randrange(10_000, 32_000)
        with socket.socket() as probe, suppress(OSError):
            probe.bind((LOOPBACK, port))
            return port


def scratch() -> str | None:
    """
    Where files that need not outlive a test are quickest: memory when there is enough of it; None: the usual place.
    """
    try:
        room = os.statvfs(_MEMORY)
    except OSError:
        return None
    enough = room.f_bavail * room.f_frsize > 2**29 and os.access(_MEMORY, os.W_OK)
    # In a container no program may be run from there.
    return _MEMORY if enough and not room.f_flag & os.ST_NOEXEC else None


def answers(port: int) -> bool:
    """
    Whether a server accepts connections on this port.
    """
    try:
        with socket.create_connection((LOOPBACK, port), timeout=1):
            return True
    except OSError:
        return False


@dataclass
class Server:
    """
    One server: `properties` are the `[catalog]` keys that reach it, `options` go to Popen.

    Stopped and started again it has the same port and the same data.
    """

    name: str
    port: int
    command: Sequence[str]
    log: Path
    properties: Mapping[str, str]
    ready: Callable[[int], bool] = answers
    stop_signal: int = signal.SIGTERM
    crash_signal: int = signal.SIGKILL
    options: Mapping[str, Any] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None

    def start(self, within_seconds: float = 120) -> None:
        """Starts it and waits until it is ready; raises RuntimeError with the end of its log."""
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, **self.options
            )
        deadline = time.monotonic() + within_seconds
        while not self.ready(self.port):
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.crash()
                raise RuntimeError(f"{self.name} did not start: {self.log.read_text('utf-8', 'replace')[-2000:]}")
            time.sleep(0.02)

    def stop(self) -> None:
        """Asks it to end, and ends it when it does not."""
        self._signal(self.stop_signal)

    def crash(self) -> None:
        """Ends it in the middle of whatever it does."""
        self._signal(self.crash_signal)

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Stopped in the middle of its work, with all connections open; then it goes on."""
        assert self.process is not None
        pids = [self.process.pid, *_children(self.process.pid)]
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        try:
            # Each thread stops when it is its turn: on a busy machine one may still answer after the signal was sent.
            while not all(_stopped(pid) for pid in pids):
                time.sleep(0.01)
            yield
        finally:
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)

    def _signal(self, number: int) -> None:
        if self.process is None:
            return
        self.process.send_signal(number)
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process = None


def _stopped(pid: int) -> bool:
    try:
        stats = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/stat")]
    except OSError:  # a thread has ended meanwhile
        return False
    return all(stat.rpartition(")")[2].split()[0] in "TtZX" for stat in stats)


def _children(pid: int) -> list[int]:
    return [int(text) for text in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
