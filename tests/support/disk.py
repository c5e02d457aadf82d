"""
A local disk that says no: every call of the operating system that LocalStore makes is seen, and can be refused.

One level below FaultyStore: what is tried is what the store makes of ENOSPC or EACCES in the middle of its own steps.
"""

import builtins
import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from bookkeeper.stores import disk as disk_calls
from bookkeeper.stores import local as local_store

#: what changes the disk; the rest only looks
WRITES = ("open wb", "write", "fsync", "link", "rename", "mkdir")
LOOKS = ("open rb", "stat", "scandir", "unlink")


@dataclass
class Disk:
    """What was asked of the disk so far; `refuse` says which calls it refuses, by number and name, and with what."""

    refuse: Callable[[int, str], bool] = lambda number, call: False
    error: int = errno.ENOSPC
    seen: list[str] = field(default_factory=list)

    def asked(self, call: str) -> None:
        """Takes a note of the call, and refuses it if told to."""
        number = len(self.seen)
        self.seen.append(call)
        if self.refuse(number, call):
            raise OSError(self.error, os.strerror(self.error))

    def open(self, path: Any, mode: str = "r", *arguments: Any, **named: Any) -> Any:
        if mode not in ("rb", "wb"):
            return builtins.open(path, mode, *arguments, **named)
        self.asked(f"open {mode}")
        file = builtins.open(path, mode, *arguments, **named)  # noqa: SIM115  (the caller closes it)
        return _Written(file, self) if mode == "wb" else file


class _Written:
    """A file that takes half of what is written when the disk is full."""

    def __init__(self, file: Any, disk: Disk) -> None:
        self._file, self._disk = file, disk

    def write(self, data: Any) -> int:
        try:
            self._disk.asked("write")
        except OSError:
            self._file.write(bytes(data)[: len(data) // 2])
            raise
        return int(self._file.write(data))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __enter__(self) -> "_Written":
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()


class _Os:
    """The module `os`, through the disk."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk

    def __getattr__(self, name: str) -> Any:
        found = getattr(os, name)
        if name not in (*WRITES, *LOOKS):
            return found

        def call(*arguments: Any, **named: Any) -> Any:
            self._disk.asked(name)
            return found(*arguments, **named)

        return call


@contextmanager
def mounted(disk: Disk) -> Iterator[Disk]:
    """
    Every LocalStore of this process is on `disk` meanwhile.
    """
    with pytest.MonkeyPatch.context() as patched:
        for module in (local_store, disk_calls):
            patched.setattr(module, "os", _Os(disk))
            patched.setattr(module, "open", disk.open, raising=False)
        yield disk
