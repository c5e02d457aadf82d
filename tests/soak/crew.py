"""
The processes of a soak: each is started by its command, killed, ended by its pid, and started again.
"""

import os
import signal
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

#: a process and when it began, which tells it from a later one with its pid
Identity = tuple[int, str]


@dataclass
class Crew:
    """Role -> its command, and its process while it has one; `helpers` are what killed processes left behind."""

    commands: dict[str, list[str]]
    logs: Path
    nice: int = 0
    running: dict[str, "subprocess.Popen[bytes]"] = field(default_factory=dict)
    helpers: dict[Identity, tuple[str, float]] = field(default_factory=dict)
    spent: float = 0.0
    since: dict[str, float] = field(default_factory=dict)

    def start(self, role: str, command: list[str] | None = None) -> "subprocess.Popen[bytes]":
        """A new process; what it says is appended to its log."""
        words = ["nice", "-n", str(self.nice), *(command or self.commands[role])]
        with open(self.logs / f"{role}.log", "ab") as out:
            process = subprocess.Popen(words, stdout=out, stderr=out, stdin=subprocess.DEVNULL)
        self.running[role], self.since[role] = process, time.monotonic()
        return process

    def kill(self, role: str, family: bool = False) -> None:
        """kill -9, of its own children too if it is a `family`; others must end by themselves."""
        process = self.running.pop(role)
        children = descendants(process.pid)
        self.spent += sum(map(cpu_of, [process.pid, *(pid for pid, _ in children)]))
        process.kill()
        process.wait()
        for child in children:
            if family:
                end(child, signal.SIGKILL)
            else:
                self.helpers[child] = (role, time.monotonic())

    def stop(self, role: str, seconds: float = 300) -> int:
        """
        SIGTERM, and its exit code; -9 when it does not end. 0 too when it had just started: it may know no signals yet.
        """
        process = self.running[role]
        children = descendants(process.pid)
        self.spent += sum(map(cpu_of, [process.pid, *(pid for pid, _ in children)]))
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill(role, family=True)
            return -9
        del self.running[role]
        self.helpers |= dict.fromkeys(children, (role, time.monotonic()))
        starting = time.monotonic() - self.since[role] < 180
        return 0 if starting and process.returncode == -signal.SIGTERM else process.returncode

    def ended(self) -> dict[str, int]:
        """Roles whose process ended by itself, with its exit code; they have none any more."""
        found = {role: process.returncode for role, process in self.running.items() if process.poll() is not None}
        for role in found:
            del self.running[role]
        return found

    def left_behind(self, seconds: float = 60) -> list[str]:
        """Children of killed processes that still live so long after; they are ended."""
        found = []
        for child, (role, since) in list(self.helpers.items()):
            if identity(child[0]) != child:
                del self.helpers[child]
            elif time.monotonic() - since > seconds:
                found.append(f"{role} left process {child[0]} behind")
                end(child, signal.SIGKILL)
        return found

    def close(self) -> None:
        """Ends all, by pid."""
        for role in list(self.running):
            self.kill(role, family=True)
        for child in self.helpers:
            end(child, signal.SIGKILL)

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
    for name in os.listdir("/proc"):
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
