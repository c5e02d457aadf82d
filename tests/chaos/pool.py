"""
Runs fault classes in processes of their own, a few at a time: forks of one that has imported everything.

A class that raises, dies or hangs is red; whatever it started is killed with its session.
"""

import gc
import os
import pickle
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from tests.chaos.table import Result
from tests.chaos.tally import Budget, FaultClass, Tally

PATIENCE_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class _Running:
    item: FaultClass
    pid: int
    answer: int
    began: float
    limit_seconds: float


def run_all(
    classes: Sequence[FaultClass], seed: int, budget: Budget, cores: int, limit_seconds: float
) -> Iterator[Result]:
    """
    The result of each class as it comes, at most `cores` at a time.

    None may go on for longer than `limit_seconds` beyond the time its rounds are given.
    """
    waiting, running = list(classes), dict[int, _Running]()
    try:
        while waiting or running:
            while waiting and len(running) < cores:
                started = _start(waiting.pop(0), seed, budget, limit_seconds)
                running[started.answer] = started
            for handle in _ready(running):
                yield _ended(running.pop(handle))
    finally:
        for left in running.values():
            _kill(left)


def _start(item: FaultClass, seed: int, budget: Budget, limit_seconds: float) -> _Running:
    sys.stdout.flush()
    answer, ours = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.setsid()
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, _unwind)
        os.close(answer)
        _child(lambda: item.tally(seed, budget), ours)
    os.close(ours)
    return _Running(item, pid, answer, time.monotonic(), budget.seconds * item.weight + limit_seconds)


def _unwind(number: int, frame: object) -> None:
    """Servers it started are in sessions of their own: only the class itself ends them."""
    raise SystemExit(128 + number)


def _child(run: Callable[[], Tally], answer: int) -> None:
    """Never returns."""
    # What the parent holds is not looked through again: that would copy it, seconds of CPU time in a large parent.
    gc.freeze()
    try:
        try:
            tally = run()
        except BaseException as error:  # noqa: BLE001 - whatever it was, the class is red
            if not isinstance(error, SystemExit):
                traceback.print_exc()
            tally = Tally(wrong=[f"it broke off: {error!r}"[:500]])
        with open(answer, "wb") as pipe:
            pickle.dump(tally, pipe)
    finally:
        os._exit(0)


def _ready(running: dict[int, _Running]) -> list[int]:
    """Those that have answered or died, and those whose time is up."""
    poll = select.poll()
    for handle in running:
        poll.register(handle, select.POLLIN)
    found = [handle for handle, _ in poll.poll(1000)]
    now = time.monotonic()
    return found or [handle for handle, item in running.items() if now - item.began > item.limit_seconds]


def _ended(item: _Running) -> Result:
    seconds = time.monotonic() - item.began
    over = seconds > item.limit_seconds
    data = b"" if over else _all(item.answer)
    _kill(item)
    if data:
        return Result(item.item.name, pickle.loads(data), seconds)
    what = f"it did not end within {item.limit_seconds:.0f} s" if over else "its process died"
    return Result(item.item.name, Tally(wrong=[what]), seconds)


def _all(handle: int) -> bytes:
    with open(handle, "rb", closefd=False) as pipe:
        return pipe.read()


def _kill(item: _Running) -> None:
    """Asks it to end, waits a little, and ends it and what is left of its session."""
    os.close(item.answer)
    os.kill(item.pid, signal.SIGTERM)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while os.waitid(os.P_PID, item.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None and time.monotonic() < deadline:
        time.sleep(0.01)
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(item.pid, signal.SIGKILL)
    os.waitpid(item.pid, 0)
