"""
A process that has imported what our programs import, and forks a child for each start of one.

It is started as a script, with one end of a socket that it serves until the other end is closed: by `forked.py`, which
holds that end, or by the end of its process. A start is a byte with file descriptors: of a socket of its own, on which
the child reads its `Start` and says its pid, and this process its exit status; and of its stdin, stdout and stderr.
"""

import atexit
import gc
import importlib
import inspect
import io
import json
import os
import pkgutil
import random
import runpy
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import types
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
_PROGRAMS = ("bookkeeper", "writers", "reaper")
#: what few programs use, and what takes long or much: each imports it where it needs it
_LEFT_OUT = ("bookkeeper.stores.azure", "bookkeeper.stores.gcs")
_LIBRARIES = (
    "pyarrow.csv", "pyarrow.dataset", "pyarrow.json", "pyarrow.parquet", "pyiceberg.catalog.rest",
    "pyiceberg.catalog.sql", "pyiceberg.io.pyarrow", "sqlalchemy.dialects.sqlite",
)  # fmt: skip
#: jemalloc would start a thread
NO_THREADS = {"JE_ARROW_MALLOC_CONF": "background_thread:false"}
_SAYS = struct.Struct("!cq")


@dataclass(frozen=True)
class Start:
    """What a new interpreter is started with; `spare`: a child of its own is forked, for the program it starts."""

    words: Sequence[str]
    cwd: str
    environ: Mapping[str, str]
    session: bool = False
    group: int = -1
    nice: int = 0
    spare: bool = False


def program_of(words: Sequence[str]) -> tuple[bool, str, str, Sequence[str]] | None:
    """
    Whether the folder of the start is on the path, `-m` or `-c`, what that names, and its arguments; None: another one.
    """
    executable, *rest = words
    safe = rest[:1] == ["-P"]
    option, what, *arguments = rest[safe:] if len(rest) > 1 + safe else ["", ""]
    if executable != sys.executable or option not in {"-m", "-c"}:
        return None
    ours = option == "-c" or what.partition(".")[0] in {*_PROGRAMS, "tests"}
    return (not safe, option, what, arguments) if ours else None


def ask(control: socket.socket, start: Start, streams: Sequence[int]) -> tuple[int, socket.socket]:
    """The pid of the new process, and where its exit status will be read; raises OSError when no process is there."""
    mine, theirs = socket.socketpair()
    with theirs:
        socket.send_fds(control, [b"x"], [theirs.fileno(), *streams])
    text = json.dumps(asdict(start)).encode()
    mine.sendall(len(text).to_bytes(8, "big") + text)
    return heard(mine, b"p"), mine


def heard(said: socket.socket, what: bytes) -> int:
    """The number that is said there; raises ChildProcessError when that is another one, or none."""
    text = said.recv(_SAYS.size, socket.MSG_WAITALL)
    kind, number = _SAYS.unpack(text) if text else (b"", 0)
    if kind != what:
        raise ChildProcessError(f"the fork server said {kind!r} {number}, not {what!r}")
    return int(number)


def with_streams(given: Mapping[str, Any]) -> list[int]:
    """Stdin, stdout and stderr of a start, of what Popen gives `_execute_child`: its own unless said otherwise."""
    named = (given["p2cread"], given["c2pwrite"], given["errwrite"])
    return [number if handle == -1 else handle for number, handle in enumerate(named)]


def bound(execute: Callable[..., None], given: Sequence[Any]) -> dict[str, Any]:
    """What Popen gives its `_execute_child`, by name."""
    return inspect.signature(execute).bind(*given).arguments


class _Spared(subprocess.Popen[Any]):
    """In a child: its first start of a program becomes the spare process, which is its child."""

    spare: tuple[int, socket.socket] | None = None

    def _execute_child(self, *given: Any) -> None:
        execute = super()._execute_child  # type: ignore[misc]
        named, spare = bound(execute, given), _Spared.spare
        words = list(map(os.fspath, named["args"]))
        if spare is None or not program_of(words) or named["env"] or named["cwd"] or named["start_new_session"]:
            return execute(*given)
        _Spared.spare = None
        with spare[1]:
            _, said = ask(spare[1], Start(words, os.getcwd(), dict(os.environ)), with_streams(named))
        said.close()
        self.pid = spare[0]
        self._child_created = True
        self._close_pipe_fds(*(named[name] for name in list(named) if name[:3] in {"p2c", "c2p", "err"}))  # type: ignore[attr-defined]
        return None


def main() -> None:
    """Serves; in a child it returns when that has become the program."""
    signals = {number: signal.getsignal(number) for number in signal.valid_signals()}
    control = socket.socket(fileno=int(sys.argv[1]))
    names = _imported()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.collect()
    gc.freeze()
    control.sendall(json.dumps(names).encode() + b"\n")
    taken = _serve(control)
    if taken:
        _be(*taken, signals)


def _imported() -> list[str]:
    """What is imported, the top of each; nothing when it is not this project's."""
    for program in _PROGRAMS:
        package = importlib.import_module(program)
        if Path(str(package.__file__)).parents[1] != ROOT:
            return []
        for item in pkgutil.walk_packages(package.__path__, f"{program}."):
            if not item.name.endswith(".__main__") and item.name not in _LEFT_OUT:
                with suppress(ImportError):
                    importlib.import_module(item.name)
    for library in _LIBRARIES:
        importlib.import_module(library)
    tasks = Path("/proc/self/task")
    assert not tasks.exists() or len(list(tasks.iterdir())) == 1, "an import has started a thread"
    return sorted({name.partition(".")[0] for name in sys.modules})


def _serve(control: socket.socket) -> tuple[socket.socket, list[int]] | None:
    """Forks until the other side has gone; in a child it returns where that reads what it is, and its streams."""
    woken, wakes = os.pipe()
    os.set_blocking(woken, False)
    os.set_blocking(wakes, False)
    signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    asked: dict[int, socket.socket] = {}
    while True:
        ready, _, _ = select.select([control, woken], [], [])
        if woken in ready:
            with suppress(BlockingIOError):
                os.read(woken, 4096)
            _tell_ended(asked)
        if control in ready:
            taken = _taken(control)
            if taken is None:
                return None
            # A signal that comes before the child has handlers of its own waits for them.
            signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
            pid = os.fork()
            if pid == 0:
                return taken
            signal.pthread_sigmask(signal.SIG_SETMASK, ())
            asked[pid] = taken[0]
            for handle in taken[1]:
                os.close(handle)


def _taken(control: socket.socket) -> tuple[socket.socket, list[int]] | None:
    data, handles, _, _ = socket.recv_fds(control, 1, 4)
    return (socket.socket(fileno=handles[0]), handles[1:]) if data else None


def _tell_ended(asked: dict[int, socket.socket]) -> None:
    while asked:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        with asked.pop(pid) as said, suppress(OSError):
            said.sendall(_SAYS.pack(b"s", status))


def _be(said: socket.socket, streams: Sequence[int], signals: Mapping[int, Any]) -> None:
    """Becomes what is read there; never returns."""
    with said.makefile("rb") as file:
        start = Start(**json.loads(file.read(int.from_bytes(file.read(8), "big"))))
    _set_up(start, signals)
    handles = [os.dup2(handle, number) for number, handle in enumerate(_above(streams))]
    said.sendall(_SAYS.pack(b"p", os.getpid()))
    said.close()
    os.closerange(len(handles), os.sysconf("SC_OPEN_MAX"))
    _open_streams(start)
    if start.spare and (taken := _with_spare()):
        _be(*taken, signals)
    for number, handler in signals.items():
        if handler is not None and signal.getsignal(number) != handler:
            signal.signal(number, handler)
    _end(_ran(start))


def _above(handles: Sequence[int]) -> list[int]:
    """The same, none of them where one of them goes."""
    return [handle if handle > 2 else os.dup(handle) for handle in handles]


def _set_up(start: Start, signals: Mapping[int, Any]) -> None:
    signal.set_wakeup_fd(-1)
    if start.session:
        os.setsid()
    if start.group >= 0:
        os.setpgid(0, start.group)
    if start.nice:
        os.nice(start.nice)
    os.chdir(start.cwd)
    os.environ.clear()
    os.environ.update(start.environ)
    time.tzset()
    random.seed()
    importlib.invalidate_caches()


def _open_streams(start: Start) -> None:
    """Those of the interpreter, as it makes them."""
    unbuffered = bool(start.environ.get("PYTHONUNBUFFERED"))
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        old: Any = getattr(sys, name)
        # A buffer that has been made here is never flushed: the one it had belongs to the fork server.
        raw: Any = io.FileIO(number, "wb" if number else "rb", closefd=False)
        buffer: Any = raw if number and unbuffered else (io.BufferedWriter if number else io.BufferedReader)(raw)
        raw.name = f"<{name}>"
        stream = io.TextIOWrapper(
            buffer,
            old.encoding,
            old.errors,
            "\n",
            not unbuffered and (number == 2 or raw.isatty()),
            unbuffered,
        )
        stream.mode = "w" if number else "r"  # type: ignore[misc]
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def _with_spare() -> tuple[socket.socket, list[int]] | None:
    """Forks one that waits until it becomes a program, or this process ends."""
    mine, theirs = socket.socketpair()
    pid = os.fork()
    if pid:
        theirs.close()
        _Spared.spare = (pid, mine)
        subprocess.Popen = _Spared  # type: ignore[misc]
        return None
    mine.close()
    taken = _taken(theirs)
    return taken or os._exit(0)


def _ran(start: Start) -> int:
    """Its exit code, when it has run as `__main__`."""
    program = program_of(start.words)
    assert program is not None
    here, option, what, arguments = program
    sys.orig_argv = list(start.words)
    sys.argv = [option, *arguments]
    if here:
        sys.path.insert(0, os.getcwd() if option == "-m" else "")
    try:
        # What came before is the program's: elsewhere it would end the fork server's interpreter, with all that it has.
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        if option == "-m":
            sys.modules.pop(what, None)
            runpy.run_module(what, run_name="__main__", alter_sys=True)
        else:
            sys.modules["__main__"] = module = types.ModuleType("__main__")
            exec(compile(what, "<string>", "exec"), module.__dict__)
    except SystemExit as exc:
        return _exit_code(exc.code)
    except BaseException as exc:  # noqa: BLE001 - as the interpreter does
        trace = exc.__traceback__ and exc.__traceback__.tb_next
        sys.excepthook(type(exc), exc.with_traceback(trace), trace)
        return -signal.SIGINT if isinstance(exc, KeyboardInterrupt) else 1
    return 0


def _exit_code(code: Any) -> int:
    if isinstance(code, int) or code is None:
        return code or 0
    print(code, file=sys.stderr)
    return 1


def _end(code: int) -> None:
    """As the interpreter ends, but for what it would free."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream and not stream.closed:
                stream.flush()
        except (OSError, ValueError) as exc:
            code = 120
            print(f"Exception ignored in: {stream!r}\n{type(exc).__name__}: {exc}", file=sys.stderr, flush=True)
    if code == -signal.SIGINT:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    os._exit(code & 0xFF)


if __name__ == "__main__":
    main()
