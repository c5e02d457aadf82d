"""What child processes do in the tests of the local store; imports nothing heavy."""

import ctypes
import json
import os
import signal
import sys
from collections.abc import Callable
from threading import BrokenBarrierError
from types import FrameType
from typing import Any

from bookkeeper.errors import AlreadyExists, BookkeeperError, Changed
from bookkeeper.stores import disk as disk_calls
from bookkeeper.stores import local as local_store
from bookkeeper.stores.local import LocalStore

NEW = b"new" * 1000


def create_each(root: str, me: int, rounds: int, barrier: Any, won: Any) -> None:
    """
    Tries to create every key at the same moment as the other processes; puts those it won on the queue.
    """
    store, mine = LocalStore(root), []
    for number in range(rounds):
        try:
            barrier.wait(60)
            store.create(f"race/{number}", f"{me}".encode())
            mine.append(number)
        except AlreadyExists:
            continue
        except BrokenBarrierError:
            break
    won.put((me, mine))


def increment(root: str, times: int, barrier: Any) -> None:
    """
    Adds `times` to the counter, by tag.
    """
    store, done = LocalStore(root), 0
    barrier.wait(60)
    while done < times:
        data, tag = store.read_tagged("counter")
        try:
            store.replace("counter", str(int(data) + 1).encode(), if_match=tag)
            done += 1
        except Changed:
            continue


def killed_at_line(root: str, act: str, line: int) -> bool:
    """
    Does `act` in a process that kills itself (SIGKILL) before the `line`-th line it runs of the store's code.

    False when it was through before.
    """
    child = os.fork()
    if child == 0:
        left = line

        def count(frame: FrameType, event: str, argument: Any) -> Callable[..., Any] | None:
            nonlocal left
            if frame.f_code.co_filename not in (local_store.__file__, disk_calls.__file__):
                return None
            if event == "line":
                left -= 1
                if left == 0:
                    os.kill(os.getpid(), signal.SIGKILL)
            return count

        store = LocalStore(root)
        sys.settrace(count)
        getattr(store, act)("pending/a", NEW)
        os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


def outcomes_of_kills(root: str, act: str, old: str) -> None:
    """
    Prints, for each line at which `act` was killed, what lies in the folder then.
    """
    lines = 0
    while True:
        lines += 1
        where = os.path.join(root, str(lines))
        os.makedirs(os.path.join(where, "pending"))
        if old:
            with open(os.path.join(where, "pending", "a"), "wb") as file:
                file.write(old.encode())
        if not killed_at_line(where, act, lines):
            break
        found = {}
        for name in os.listdir(os.path.join(where, "pending")):
            with open(os.path.join(where, "pending", name), "rb") as file:
                data = file.read()
            found[name] = "new" if data == NEW else "old" if data == old.encode() and old else "torn"
        print(json.dumps(found))


def as_nobody(root: str) -> None:
    """
    Prints what each operation says when the disk gives no permission.
    """
    if os.getuid() == 0:
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # never outlive the test
        os.setgid(65534)
        os.setuid(65534)
    store = LocalStore(root)
    acts: dict[str, Callable[[], Any]] = {
        "read": lambda: store.read("a"),
        "read gone": lambda: store.read("gone"),
        "size": lambda: store.size("a"),
        "sizes": lambda: _raised(store.sizes(["a"])["a"]),
        "read_many": lambda: _raised(store.read_many(["a"])["a"]),
        "read_versions": lambda: _raised(store.read_versions({"a": ""})["a"]),
        "list": lambda: list(store.list("")),
        "create": lambda: store.create("b", b"1"),
        "replace": lambda: store.replace("a", b"1"),
        "upload": lambda: store.upload("c", b"1"),
        "delete_many": lambda: store.delete_many(["a"]),
    }
    print(json.dumps({name: _answer(act) for name, act in acts.items()}))


def _raised(outcome: Any) -> Any:
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


def _answer(act: Callable[[], Any]) -> str:
    try:
        act()
    except BookkeeperError as error:
        return type(error).__name__
    return "done"


if __name__ == "__main__":
    {"kills": outcomes_of_kills, "nobody": as_nobody}[sys.argv[1]](*sys.argv[2:])
