"""
The one supervisor of real processes: it starts them by role, kills, stops and signals them by pid, keeps what they say,
and ends with none of them left.
"""

import json
import os
import queue
import signal
import subprocess
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.support.forked import Forked

#: a process and when it began, which tells it from a later one with its pid
Identity = tuple[int, str]
#: the words of a program, or what a fork of this process does, which then has no threads
Command = Sequence[str] | Callable[[], None]


class Said:
    """What several processes say on stderr, as it comes: whose line, and the line, which is JSON or a message."""

    def __init__(self) -> None:
        self.lines: queue.Queue[tuple[str, dict[str, Any]]] = queue.Queue()

    def hear(self, role: str, stream: Any) -> threading.Thread:
        """Takes what comes until the end of the stream, which it closes."""
        reader = threading.Thread(target=self._read, args=(role, stream), daemon=True)
        reader.start()
        return reader

    def _read(self, role: str, stream: Any) -> None:
        with stream:
            for line in stream:
                self.lines.put((role, json.loads(line) if line.startswith(b"{") else {"message": line.decode()}))
        self.lines.put((role, {"action": "ended"}))

    def next(self) -> tuple[str, dict[str, Any]]:
        return self.lines.get(timeout=120)

    def until(self, **wanted: Any) -> dict[str, Any]:
        """The next line that says this; raises AssertionError when a process ends before."""
        while True:
            said = self.next()[1]
            if said.items() >= wanted.items():
                return said
            assert said.get("action") != "ended", f"it ended and never said {wanted}"


class Fork:
    """A fork of this process that does `act`; what it dies of by itself is appended to `log`."""

    def __init__(self, act: Callable[[], None], log: Path) -> None:
        self.returncode: int | None = None
        self.pid = os.fork()
        if self.pid == 0:
            _be(act, log)

    def send_signal(self, number: int) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def poll(self) -> int | None:
        return self.returncode if self.returncode is not None else self._waited(os.WNOHANG)

    def wait(self, seconds: float | None = None) -> int | None:
        if seconds is None and self.returncode is None:
            return self._waited(0)
        until = time.monotonic() + (seconds or 0)
        while self.poll() is None:
            if time.monotonic() > until:
                raise subprocess.TimeoutExpired(str(self.pid), seconds or 0)
            time.sleep(0.001)
        return self.returncode

    def _waited(self, options: int) -> int | None:
        pid, status = os.waitpid(self.pid, options)
        if pid:
            self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode


def _be(act: Callable[[], None], log: Path) -> None:
    """Never returns."""
    try:
        act()
    except BaseException:  # noqa: BLE001 - any error must be seen
        with log.open("a", encoding="utf-8") as file:
            file.write(f"{log.stem} ended by itself:\n{traceback.format_exc()}\n")
    finally:
        os._exit(0)


@dataclass
class Crew:
    """
    Role -> its command, and its process while it has one; `helpers` are what killed processes left behind.

    A process that is stopped within `grace` seconds of its start may know no signals yet. Our own programs are forks,
    as in `forked.py`, unless `forked` is False.
    """

    commands: Mapping[str, Command]
    logs: Path
    nice: int = 0
    grace: float = 0.0
    #: seconds that what a killed process had started may outlive it
    patience: float = 60.0
    running: dict[str, Any] = field(default_factory=dict)
    helpers: dict[Identity, tuple[str, float]] = field(default_factory=dict)
    readers: dict[str, threading.Thread] = field(default_factory=dict)
    spent: float = 0.0
    since: dict[str, float] = field(default_factory=dict)
    forked: bool = True

    def start(self, role: str, command: Command | None = None, said: Said | None = None, **options: Any) -> Any:
        """
        A new process, with these `options` of Popen; what it says is appended to its log, its stderr told to `said`.
        """
        words = command or self.commands[role]
        self.running[role] = process = (
            Fork(words, self.log(role)) if callable(words) else self._started(role, words, said, options)
        )
        self.since[role] = time.monotonic()
        if said is not None:
            self.readers[role] = said.hear(role, process.stderr)
        return process

    def _started(self, role: str, words: Sequence[str], said: Said | None, options: dict[str, Any]) -> Any:
        with self.log(role).open("ab") as out:
            err = out if said is None else subprocess.PIPE
            options = {"stdin": subprocess.DEVNULL, "stdout": out, "stderr": err, **options}
            if self.forked:
                return Forked(words, self.nice, **options)
            nice = ["nice", "-n", str(self.nice)] if self.nice else []
            return subprocess.Popen([*nice, *words], **options)

    def log(self, role: str) -> Path:
        """What the processes of this role said."""
        return self.logs / f"{role}.log"

    def signal(self, role: str, number: int) -> None:
        """Sends it; SIGSTOP leaves the process as it is, wherever that is, until SIGCONT."""
        self.running[role].send_signal(number)

    def kill(self, role: str, family: bool = False) -> int:
        """
        kill -9, of its own children too if it is a `family`; others must end by themselves. Its exit code.
        """
        process = self.running[role]
        children = self._children_of(process)
        process.kill()
        for child in children if family else []:
            end(child, signal.SIGKILL)
        return self._ended(role, [] if family else children)

    def stop(self, role: str, seconds: float = 300) -> int:
        """
        SIGTERM, and its exit code; -9 when it does not end. 0 too when it had just started.
        """
        process = self.running[role]
        children = self._children_of(process)
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            return self.kill(role, family=True)
        starting = time.monotonic() - self.since[role] < self.grace
        code = self._ended(role, children)
        return 0 if starting and code == -signal.SIGTERM else code

    def wait(self, role: str, seconds: float | None = 300) -> int:
        """Its exit code, once it has ended; raises TimeoutExpired."""
        self.running[role].wait(seconds)
        return self._ended(role, [])

    def until(self, done: Callable[[], object], seconds: float = 120) -> None:
        """Looks again until it is so; raises AssertionError when a process ends by itself before, or patience does."""
        deadline = time.monotonic() + seconds
        while not done():
            for role, code in self.ended().items():
                said = self.log(role).read_text("utf-8", "replace")
                raise AssertionError(f"{role} ended early with exit code {code}: {said[-3000:]}")
            assert time.monotonic() < deadline, f"not within {seconds} s: {self._said_last()}"
            time.sleep(0.05)

    def _said_last(self) -> str:
        logs = {role: self.log(role) for role in self.running}
        return "\n".join(
            f"{role}: {log.read_text('utf-8', 'replace')[-1000:]}" for role, log in logs.items() if log.exists()
        )

    def _children_of(self, process: Any) -> list[Identity]:
        """Those of a program; their CPU time counts."""
        children = [] if isinstance(process, Fork) else descendants(process.pid)
        self.spent += sum(map(cpu_of, [process.pid, *(pid for pid, _ in children)]))
        return children

    def _ended(self, role: str, children: Sequence[Identity]) -> int:
        process = self.running.pop(role)
        code: int = process.wait()
        self.helpers |= dict.fromkeys(children, (role, time.monotonic()))
        if role in self.readers:
            self.readers.pop(role).join()
        for pipe in (getattr(process, name, None) for name in ("stdin", "stdout", "stderr")):
            if pipe:
                pipe.close()
        return code

    def ended(self) -> dict[str, int]:
        """Roles whose process ended by itself, with its exit code; they have none any more."""
        done = [role for role, process in self.running.items() if process.poll() is not None]
        return {role: self._ended(role, []) for role in done}

    def left_behind(self, seconds: float | None = None) -> list[str]:
        """Children of killed processes that still live so long after; they are ended."""
        found = []
        for child, (role, since) in list(self.helpers.items()):
            if identity(child[0]) != child:
                del self.helpers[child]
            elif time.monotonic() - since > (self.patience if seconds is None else seconds):
                found.append(f"{role} left process {child[0]} behind")
                end(child, signal.SIGKILL)
        return found

    def close(self) -> None:
        """Ends all, by pid."""
        for role in list(self.running):
            self.kill(role, family=True)
        for child in self.helpers:
            end(child, signal.SIGKILL)

    def __enter__(self) -> "Crew":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Raises AssertionError when what a process had started has not ended after it."""
        left = list[str]()
        while kind is None and not left and self.helpers:
            left = self.left_behind()
            time.sleep(0.02)
        self.close()
        assert not left, left

    def cpu(self) -> float:
        """Seconds of CPU time of all processes so far, about."""
        pids = [process.pid for process in self.running.values()]
        families = {pid for parent in pids for pid, _ in descendants(parent)} | set(pids)
        return self.spent + sum(map(cpu_of, families))


def end(child: Identity, number: int) -> None:
    """
    Signals this process, if it still is the one.
    """
    if identity(child[0]) == child:
        os.kill(child[0], number)


def identity(pid: int) -> Identity | None:
    """
    A living process, or None.
    """
    words = _stat(pid)
    return (pid, words[19]) if words and words[0] != "Z" else None


def descendants(pid: int) -> list[Identity]:
    """
    Its children, theirs, and so on.
    """
    parents: dict[int, list[int]] = {}
    for name in os.listdir("/proc") if os.path.isdir("/proc") else ():
        words = _stat(int(name)) if name.isdigit() else []
        if words:
            parents.setdefault(int(words[1]), []).append(int(name))
    found, todo = list[int](), [pid]
    while todo:
        children = parents.get(todo.pop(), [])
        found += children
        todo += children
    return [item for item in map(identity, found) if item]


def cpu_of(pid: int) -> float:
    """
    Seconds of CPU time of a process, 0 if it is gone.
    """
    words = _stat(pid)
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK") if words else 0.0


def rss_mb(pid: int) -> float:
    """
    Resident memory of a process, MiB; 0 if it is gone.
    """
    words = _stat(pid)
    return int(words[21]) * os.sysconf("SC_PAGE_SIZE") / 2**20 if words else 0.0


def _stat(pid: int) -> list[str]:
    """The fields behind its name; none when it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []
