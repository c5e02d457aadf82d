"""
Leases: which process works on a table. They save work and give fail-over; correctness never depends on one.

A lease that is lost, shared or switched off costs lost commit races, no rows: every commit guards itself.
"""

import fcntl
import os
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Protocol

from bookkeeper.errors import Missing, StorageUnavailable
from bookkeeper.stores.beneath import Folders, open_beneath
from bookkeeper.stores.local import FOLDER_GONE, LocalStore
from bookkeeper.stores.store import Store, translated

_FLAGS = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK


class Lease(Protocol):
    """
    A right to work that one process has at a time; `offering`: let go for a moment, so that another may take it.

    It is lost after `lasting` without a `hold`; None: only with its process.
    """

    @property
    def offering(self) -> bool: ...

    @property
    def lasting(self) -> timedelta | None: ...

    def hold(self, now: datetime) -> bool:
        """Takes the lease, or keeps it; False while another has it. Raises StorageUnavailable."""

    def release(self) -> None:
        """Gives the lease back."""


class NoLease:
    """A lease that every process holds: safe, and slower when there are several."""

    offering = False
    lasting = None

    def hold(self, now: datetime) -> bool:
        return True

    def release(self) -> None:
        return None


class FileLease:
    """
    `flock` on a file: the kernel gives it back when the process ends, however it ends.

    A waiting process takes over at its next try. A stopped process (SIGSTOP) keeps the lease.
    """

    offering = False
    lasting = None

    def __init__(self, path: str, holder: str, root: str | None = None) -> None:
        self.path = os.path.abspath(path)
        #: the folder; it is never created here, or a folder that was moved away would be replaced by an empty one
        self.root = root or os.path.dirname(self.path)
        self._name = self.path[len(self.root) + 1 :]
        self.holder = holder
        self.handle: int | None = None

    def hold(self, now: datetime) -> bool:
        try:
            return self._held(now)
        except Missing as exc:
            raise _gone(self.root) from exc

    def _held(self, now: datetime) -> bool:
        with translated(self.path):
            if self.handle is not None and self._is_still_ours():
                return True
            self.release()
            return self._take(now)

    def _is_still_ours(self) -> bool:
        # The file may have been removed, and another process may hold a new one.
        assert self.handle is not None
        try:
            return os.fstat(self.handle).st_ino == os.lstat(self.path).st_ino
        except FileNotFoundError:
            return False

    def _take(self, now: datetime) -> bool:
        # Never through a link: its target would be truncated.
        folder, _, _ = self._name.rpartition("/")
        if folder:
            with Folders(open_beneath, lambda name: (self.root, name)) as folders, suppress(FileExistsError):
                os.mkdir(folder, dir_fd=folders[""])
        handle = open_beneath(self.root, self._name, _FLAGS, 0o644)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as exc:
            os.close(handle)
            if isinstance(exc, BlockingIOError):
                return False
            raise
        self.handle = handle
        with suppress(OSError):  # it is for people; the reaper must run on a full disk, too
            os.ftruncate(handle, 0)
            os.write(handle, f"{self.holder} since {now.isoformat()}\n".encode())
        return True

    def release(self) -> None:
        if self.handle is not None:
            os.close(self.handle)
            self.handle = None


def lease_on(store: Store, name: str, holder: str, lasting: timedelta = timedelta(seconds=15)) -> Lease:
    """
    The lease called `name` of a folder's store; `holder` is written into it, for people.

    When a holder dies, the lease is free after `lasting` (15 to 60 s) on an object store, at once on local disk.
    Raises StorageUnavailable when the store is local and its root is missing.
    """
    if not isinstance(store, LocalStore):
        return _on_objects(store, name, holder, lasting)
    if not os.path.isdir(store.root):
        raise _gone(store.root)
    return FileLease(f"{store.root}/{name}", holder, store.root)


def _gone(root: str) -> StorageUnavailable:
    return StorageUnavailable(f"{root} is not there", hint=FOLDER_GONE)


def _on_objects(store: Store, name: str, holder: str, lasting: timedelta) -> Lease:
    from bookkeeper.leases.object_lease import BlobLease, PutLease
    from bookkeeper.stores.object_store import ObjectStore

    if not isinstance(store, ObjectStore):
        return NoLease()
    kind = BlobLease if hasattr(store.remote, "take_lease") else PutLease
    return kind(store, name, holder, lasting)
