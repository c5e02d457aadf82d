"""
A fork of the fork server is, to whoever started it and to its program, the process that a new interpreter is.
"""

import json
import os
import re
import signal
import subprocess
import sys

import pytest

from tests.support import forked
from tests.support.crew import Crew, identity
from tests.support.forked import Forked, run

STATE = """
import gc, json, locale, logging, os, signal, sys, threading, time
streams = [sys.stdin, sys.stdout, sys.stderr]
print(json.dumps({
    "name": __name__, "main": sys.modules["__main__"].__name__, "argv": sys.argv, "orig_argv": sys.orig_argv,
    "file": globals().get("__file__"), "package": globals().get("__package__"), "path": sys.path,
    "cwd": os.getcwd(), "environ": dict(os.environ), "zone": time.localtime(0).tm_hour,
    "locale": locale.setlocale(locale.LC_ALL), "handlers": len(logging.root.handlers), "level": logging.root.level,
    "handles": [n for n in range(100) if os.path.exists(f"/proc/self/fd/{n}")],
    "streams": [[s.name, s.mode, s.encoding, s.errors, s.newlines, s.line_buffering, s.write_through, s.buffer.name,
                 type(s.buffer).__name__, s.fileno(), s is getattr(sys, f"__{s.name.strip('<>')}__")] for s in streams],
    "signals": {n: str(signal.getsignal(n)) for n in sorted(signal.valid_signals())},
    "mask": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ())), "wakeup": signal.set_wakeup_fd(-1),
    "threads": threading.active_count(), "tasks": len(os.listdir("/proc/self/task")), "umask": os.umask(0),
    "group": os.getpgid(0) == os.getpid(), "session": os.getsid(0) == os.getpid(), "nice": os.nice(0),
    "tests": [name for name in sys.modules if name.partition(".")[0] == "tests"],
    "gc": [gc.isenabled(), gc.get_threshold()],
}))
"""
ENDS = {
    "nothing": "pass",
    "a code": "raise SystemExit(7)",
    "a large code": "raise SystemExit(256 + 9)",
    "a negative code": "raise SystemExit(-1)",
    "a message": "import sys; print('said'); sys.exit('no disk')",
    "an error": "def f(): raise ValueError('bad')\nprint('said')\nf()",
    "no syntax": "print('said'",
    "interrupted": "raise KeyboardInterrupt",
    "killed by itself": "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
    "terminated": "import os, signal; os.kill(os.getpid(), signal.SIGTERM)",
    "at once": "import os; print('lost'); os._exit(5)",
    "handlers": "import atexit; atexit.register(print, 'last', flush=False); print('first')",
    "a thread": "import threading, time; threading.Timer(0.05, print, ['late']).start(); print('early')",
    "a daemon": "import threading; threading.Thread(target=threading.Event().wait, daemon=True).start(); print('said')",
    "no stdout left": "import os, sys; print('lost'); os.close(1)",
    "stdout closed": "import sys; sys.stdout.close()",
    "unbuffered": "import sys; sys.stdout.write('a'); sys.stderr.write('b'); sys.stdout.buffer.write(b'c')",
    "a child": "import subprocess, sys; subprocess.run([sys.executable, '-c', 'print(3)'])",
    "read": "import sys; print(sys.stdin.readline().upper(), sys.stdin.buffer.read())",
}


@pytest.fixture(autouse=True, scope="module")
def started():
    assert run([sys.executable, "-c", ""]).returncode == 0


def both(words, **options):
    """What a fork says, and a new interpreter."""
    options = {"env": dict(os.environ), "text": True, **options}
    options |= dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    said = []
    for start in (Forked, subprocess.Popen):
        with start(words, **options) as process:
            out, err = process.communicate("a line\nmore")
        said.append((process.returncode, out, err))
        assert start is subprocess.Popen or process.forked
    return said


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"start_new_session": True},
        {"process_group": 0},
        {"env": {**os.environ, "TZ": "Asia/Tokyo", "NEW": "\udcff", "PYTHONUNBUFFERED": ""}},
    ],
)
@pytest.mark.parametrize("safe", [[], ["-P"]], ids=["", "P"])
def test_a_fork_is_set_up_as_a_new_interpreter(options, safe, tmp_path):
    forks, new = both([sys.executable, *safe, "-c", STATE, "a", "b c"], cwd=tmp_path, **options)

    assert forks[0] == 0 and json.loads(forks[1]) == json.loads(new[1]) and forks[2] == new[2] == ""


def test_a_module_is_run_as_a_new_interpreter_runs_it(tmp_path):
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "__init__.py").touch()
    (tmp_path / "tests" / "odd.py").write_text(STATE)
    forks, new = both([sys.executable, "-m", "tests.odd", "a"], cwd=tmp_path)

    assert json.loads(forks[1]) == json.loads(new[1])


@pytest.mark.parametrize("code", ENDS.values(), ids=ENDS)
@pytest.mark.parametrize("unbuffered", [{}, {"PYTHONUNBUFFERED": "1"}], ids=["", "unbuffered"])
def test_a_fork_ends_as_a_new_interpreter_ends(code, unbuffered):
    forks, new = both([sys.executable, "-c", code], env={**os.environ, **unbuffered})

    assert forks == new


def test_each_fork_has_random_numbers_of_its_own():
    words = [sys.executable, "-c", "import random; print(random.random())"]

    assert len({run(words, capture_output=True).stdout for _ in range(3)}) == 3


@pytest.mark.parametrize(
    "words, options",
    [
        ([sys.executable, "-S", "-c", STATE], {}),
        ([sys.executable, "-c", STATE], {"env": {**os.environ, "PYTHONPATH": "/nowhere"}}),
        ([sys.executable, "-c", STATE], {"env": {**os.environ, "PYTHONWARNINGS": "ignore"}}),
        ([sys.executable, "-c", STATE], {"env": {**os.environ, "HOME": "/nowhere"}}),
        ([sys.executable, "-c", STATE], {"umask": 0o77}),
        ([sys.executable, "-c", STATE], {"preexec_fn": lambda: None}),
        ([sys.executable, "-m", "json.tool"], {}),
        (["sh", "-c", "echo"], {}),
    ],
)
def test_what_changes_the_interpreter_itself_starts_one(words, options):
    with Forked(
        words, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **options
    ) as process:
        process.communicate(b"1")
    assert not process.forked and process.returncode == 0


@pytest.mark.parametrize("name, forks", [("writers", False), ("json.py", False), ("writers.toml", True)])
def test_a_folder_whose_modules_would_be_imported_starts_an_interpreter(tmp_path, name, forks):
    (tmp_path / name).mkdir()
    for safe in (["-P"], []):
        with Forked([sys.executable, *safe, "-c", "pass"], cwd=tmp_path) as process:
            assert process.forked == (forks or bool(safe))


def test_a_signal_that_is_sent_at_once_is_not_lost():
    for number in (signal.SIGTERM, signal.SIGKILL, signal.SIGINT):
        with Forked([sys.executable, "-c", "import time; time.sleep(600)"], stderr=subprocess.DEVNULL) as process:
            process.send_signal(number)
            assert process.wait(60) == -number


def test_a_stopped_one_goes_on_and_waiting_for_it_has_an_end():
    with Forked([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        process.send_signal(signal.SIGSTOP)
        process.stdin.write(b"\n")
        process.stdin.flush()
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.05)
        assert process.poll() is None
        process.send_signal(signal.SIGCONT)
        assert process.wait(60) == 0


def test_a_run_that_takes_too_long_is_killed():
    words = [sys.executable, "-c", "import time; print(1, flush=True); time.sleep(600)"]
    with pytest.raises(subprocess.TimeoutExpired):
        run(words, capture_output=True, timeout=0.2)
    with pytest.raises(subprocess.CalledProcessError):
        run([sys.executable, "-c", "exit(3)"], check=True)


def test_the_spare_one_becomes_the_first_program_that_a_fork_starts():
    code = """
import os, subprocess, sys
print(type(subprocess.Popen).__name__, flush=True)
first = subprocess.Popen([sys.executable, "-P", "-m", "writers", "--version"])
assert first.wait(60) == 0
again = subprocess.Popen([sys.executable, "-c", "import os, sys; print(os.getppid(), 'pyarrow' in sys.modules)"])
again.wait()
print(os.getpid(), first.pid)
os.environ["SAID"] = "changed"
"""
    done = run([sys.executable, "-c", code], spare=True, capture_output=True, text=True)

    assert done.returncode == 0, done.stderr
    assert re.search(r"writer, version|writer ", done.stdout), done.stdout
    assert f"{done.stdout.split()[-2]} False" in done.stdout


def test_a_spare_process_ends_with_the_one_that_never_used_it():
    code = (
        "import os; print(open(f'/proc/self/task/{os.getpid()}/children').read(), flush=True); os.kill(os.getpid(), 9)"
    )
    done = run([sys.executable, "-c", code], spare=True, capture_output=True, text=True)

    # Its stdout, which the spare process has too, has ended.
    assert done.returncode == -9 and len(done.stdout.split()) == 1


def test_the_fork_server_ends_with_the_process_that_started_it(tmp_path):
    code = """
import os, sys
from tests.support import forked
forked.run([sys.executable, "-c", "pass"])
print(forked._SERVERS.server.process.pid, flush=True)
os.kill(os.getpid(), 9)
"""
    words = [sys.executable, "-c", code]
    with subprocess.Popen(words, cwd=forked.ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        # Both streams end with the last process that has them.
        said, complained = process.communicate(timeout=120)
    assert process.returncode == -9, complained
    Crew({}, tmp_path).until(lambda: identity(int(said)) is None)


def test_a_fork_of_the_process_has_a_server_of_its_own():
    mine = forked._SERVERS.server
    pid = os.fork()
    if pid == 0:
        os._exit(0 if forked._SERVERS.server is None else 1)
    assert os.waitpid(pid, 0)[1] == 0
    assert forked._SERVERS.the() is mine and run([sys.executable, "-c", "exit(4)"]).returncode == 4


def test_a_server_that_a_test_of_another_home_was_the_first_to_want_serves_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    servers = forked._Servers()
    monkeypatch.setattr(forked, "_SERVERS", servers)
    words = [sys.executable, "-c", "import bookkeeper"]
    try:
        with monkeypatch.context() as patch:
            patch.setenv("HOME", "/nowhere")
            with Forked(words) as other:
                assert other.wait() == 0 and not other.forked
        with Forked(words) as usual:
            assert usual.wait() == 0 and usual.forked
    finally:
        servers.end()
