"""
What is done in a fork and answered to the process that forked.
"""

import os
import pickle
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


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
