"""
inotify (Linux, local disk): the kernel reports within a millisecond that a name appeared in pending/.

It sees what happens on this machine only: over NFS, what other machines publish is found by listing.
"""

import errno
import os
from collections.abc import Collection
from contextlib import suppress
from typing import Any

from inotify_simple import INotify, flags  # type: ignore[import-untyped]

from bookkeeper.contract.names import TxlogName
from bookkeeper.contract.txlog_folder import SUFFIX
from bookkeeper.discover.discovery import LOOK, Hints
from bookkeeper.errors import NameMismatch

#: link() arrives as CREATE, rename() as MOVED_TO
_APPEARED = flags.CREATE | flags.MOVED_TO
_ENDED = flags.DELETE_SELF | flags.MOVE_SELF | flags.UNMOUNT | flags.IGNORED
#: more names than this are no cheaper than a listing
_MOST = 1000


class Inotify:
    """
    Watches one directory, which it makes if its parent is there; raises OSError when the kernel gives no watch.

    Without a watch (the directory was removed, its disk is away) it answers LOOK, and asks for one again each time.
    """

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._names: set[TxlogName] = set()
        self._look = True
        self._inotify: INotify | None = None
        self._watch = -1
        self._closed = False
        self._open()

    def _open(self) -> None:
        # Not its parents: under a mount point whose disk is away they would hide that it is.
        with suppress(FileExistsError):
            os.mkdir(self._directory)
        inotify = INotify(nonblocking=True)
        try:
            self._watch = inotify.add_watch(self._directory, _APPEARED | flags.DELETE_SELF | flags.MOVE_SELF)
        except OSError:
            inotify.close()
            raise
        self._inotify = inotify

    def hints(self) -> Hints:
        if self._inotify is None and not self._closed:
            # The watch comes before the listing that it answers LOOK for: nothing appears unseen in between.
            with suppress(OSError):
                self._open()
            self._look = True
        self._drain()
        names, look = frozenset(self._names), self._look or len(self._names) > _MOST
        self._names, self._look = set(), self._closed
        return LOOK if look else names

    def after(self, found: Collection[TxlogName], asked: Collection[TxlogName] = ()) -> Collection[TxlogName]:
        return ()

    def hinted(self) -> bool:
        self._drain()
        return bool(self._names) or (self._look and self._inotify is not None)

    def wakes(self) -> Collection[int]:
        return () if self._inotify is None else (self._inotify.fileno(),)

    def close(self) -> None:
        self._closed = self._look = True
        self._lose()

    def _lose(self) -> None:
        inotify, self._inotify, self._look = self._inotify, None, True
        if inotify is not None:
            inotify.close()

    def _drain(self) -> None:
        if self._inotify is None:
            return
        try:
            events = self._inotify.read(timeout=0)
        except OSError as exc:
            if exc.errno not in (errno.EAGAIN, errno.EINTR):
                self._lose()
            return
        for event in events:
            self._take(event)

    def _take(self, event: Any) -> None:
        if event.mask & _ENDED:
            self._lose()
        elif event.mask & flags.Q_OVERFLOW:
            self._look = True
        elif event.name.endswith(SUFFIX):
            self._note(event.name)

    def _note(self, text: str) -> None:
        try:
            self._names.add(TxlogName.parse(text))
        except NameMismatch:
            # Named like no txlog: the listing has it rejected.
            self._look = True
