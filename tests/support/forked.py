"""
Starts of our own programs that cost a fork, not a new interpreter with all that it imports.

`Forked` is a Popen, `run` is `subprocess.run`. A start that no fork can be (another interpreter, options of its own, an
environment or a folder that changes what is imported) is a new interpreter. The parent of a fork is the fork server;
all else is as for any process.
"""

import atexit
import json
import os
import select
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.machinery import all_suffixes
from pathlib import Path
from typing import Any

from tests.support import fork_server
from tests.support.fork_server import NO_THREADS, ROOT, Start, ask, bound, heard, program_of, with_streams

#: variables that are read when an interpreter starts, or at import
_EARLY = ("PYTHON", "LC_", "LANG", "LD_", "MALLOC_", "HOME", "PYICEBERG_", "ARROW_", "JE_", "OMP_", "FSSPEC_", "GRPC_")
#: of those, what a fork can be told
_LATE = {"PYTHONUNBUFFERED"}
#: what Popen is asked for that a fork does without
_PLAIN = {"executable": None, "preexec_fn": None, "close_fds": True, "pass_fds": (), "shell": False} | dict.fromkeys(
    ("gid", "gids", "uid")
)

#: of the fork server: as it was at import, not as the test has changed it in which a fork is first wanted
_ENVIRON = dict(os.environ)


@dataclass
class _Server:
    process: subprocess.Popen[bytes]
    control: socket.socket
    early: Mapping[str, str]
    #: top-level modules that it has imported
    names: frozenset[str]

    def end(self) -> None:
        self.control.close()
        self.process.wait()


class _Servers:
    """The one of this process, started when it is first wanted; a fork of this process has another one."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        self.server: _Server | None = None
        self.lock = threading.Lock()

    def the(self) -> _Server:
        with self.lock:
            if self.server is None:
                self.server = _started()
        return self.server

    def after_fork(self) -> None:
        if self.server:
            self.server.control.close()
            self.server.process.returncode = 0
        self.forget()

    def end(self) -> None:
        if self.server:
            self.server.end()
        self.forget()


_SERVERS = _Servers()
os.register_at_fork(after_in_child=_SERVERS.after_fork)
atexit.register(_SERVERS.end)


def _started() -> _Server:
    mine, theirs = socket.socketpair()
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-P", str(fork_server.__file__), str(theirs.fileno())],
            stdin=subprocess.DEVNULL,
            cwd=ROOT,
            env={**_ENVIRON, **NO_THREADS},
            pass_fds=[theirs.fileno()],
        )
    with mine.makefile("rb") as file:
        names = file.readline()
    assert names, "the fork server has not started"
    return _Server(process, mine, _early(_ENVIRON), frozenset(json.loads(names)))


def _early(environ: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environ.items() if name.startswith(_EARLY) and name not in _LATE}


class Forked(subprocess.Popen[Any]):
    """
    A process of these words: a fork where it can be one.

    `spare`: so is the first program of ours that it starts itself.
    """

    def __init__(self, words: Sequence[str], nice: int = 0, spare: bool = False, **options: Any) -> None:
        self._nice, self._spare = nice, spare
        self._said: socket.socket | None = None
        self._hearing = threading.Lock()
        super().__init__(words, **options)

    def _execute_child(self, *given: Any) -> None:
        named = bound(super()._execute_child, given)  # type: ignore[misc]
        words = list(map(os.fspath, named["args"])) if not isinstance(named["args"], str | bytes) else []
        cwd = os.path.abspath(named["cwd"] or os.getcwd())
        environ = os.environ if named["env"] is None else named["env"]
        server = _server_for(words, cwd, environ, named)
        if server is None:
            nice = ["nice", "-n", str(self._nice)] if self._nice else []
            super()._execute_child([*nice, *words] if nice else given[0], *given[1:])  # type: ignore[misc]
            return
        group = named.get("process_group", -1)
        start = Start(words, cwd, dict(environ), named["start_new_session"], group, self._nice, self._spare)
        self.pid, self._said = ask(server.control, start, with_streams(named))
        self._child_created = True
        handles = (named[name] for name in ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite"))
        self._close_pipe_fds(*handles)  # type: ignore[attr-defined]

    @property
    def forked(self) -> bool:
        """Whether it is a fork."""
        return self._said is not None

    def _internal_poll(self, *given: Any, **more: Any) -> int | None:
        if self._said is None:
            return super()._internal_poll(*given, **more)  # type: ignore[misc, no-any-return]
        return self.returncode if self._hear(0) else None

    def _wait(self, timeout: float | None) -> int:
        if self._said is None:
            return super()._wait(timeout=timeout)  # type: ignore[misc, no-any-return]
        if not self._hear(timeout):
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        return self.returncode

    def _hear(self, seconds: float | None) -> bool:
        """Whether its exit status is known within these seconds."""
        said = self._said
        assert said is not None
        if self.returncode is None:
            waits = select.poll()
            waits.register(said, select.POLLIN)
            if not waits.poll(None if seconds is None else max(0, seconds) * 1000):
                return False
        with self._hearing:
            if self.returncode is None:
                self.returncode = os.waitstatus_to_exitcode(heard(said, b"s"))
                said.close()
        return True


def _server_for(words: Sequence[str], cwd: str, environ: Mapping[str, str], named: Mapping[str, Any]) -> _Server | None:
    """The fork server, unless what is asked for needs an interpreter of its own."""
    program = program_of(words) if words else None
    if program is None or named["umask"] >= 0 or not named["close_fds"] or named["pass_fds"] or not os.path.isdir(cwd):
        return None
    if any(named[name] != value for name, value in _PLAIN.items() if name in named and name != "executable"):
        return None
    server = _SERVERS.the()
    if not server.names or server.early != _early(environ):
        return None
    shadows = program[0] and Path(cwd) != ROOT and not server.names.isdisjoint(_modules_in(cwd))
    return None if shadows or os.path.exists(f"{cwd}/.pyiceberg.yaml") else server


def _modules_in(folder: str) -> set[str]:
    found = (os.path.splitext(name) for name in os.listdir(folder))
    return {stem.partition(".")[0] for stem, suffix in found if suffix in {"", *all_suffixes()}}


def run(
    words: Sequence[str],
    input: Any = None,
    timeout: float | None = None,
    capture_output: bool = False,
    check: bool = False,
    **options: Any,
) -> subprocess.CompletedProcess[Any]:
    """As `subprocess.run`."""
    if capture_output:
        options |= {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    if input is not None:
        options["stdin"] = subprocess.PIPE
    with Forked(words, **options) as process:
        try:
            said, complained = process.communicate(input, timeout)
        except BaseException:
            process.kill()
            process.wait()
            raise
    done = subprocess.CompletedProcess(words, process.wait(), said, complained)
    if check:
        done.check_returncode()
    return done
