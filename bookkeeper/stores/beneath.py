"""
Opens what lies below a directory without following a symbolic link: neither the last name of a path nor a folder before
it may be one. The directory itself may be a link, or be reached through links.

Where the kernel can (openat2, Linux 5.6), it resolves the whole path in one call. Elsewhere, and where the directory is
reached through links, each folder is opened from the handle of the one above it. Either way nothing can be swapped in
between a check and the use: nothing is checked beforehand, and a handle stays that of the folder that was opened.
"""

import ctypes
import errno
import os
import stat
import sys
from collections.abc import Callable
from functools import cache
from struct import pack
from types import TracebackType
from typing import Self

#: (directory, path below it, flags, mode) -> handle; raises as `open_beneath`
Open = Callable[[str, str, int, int], int]
#: of a folder, to open and delete in it; Linux needs no right to list it for that
FOLDER = os.O_DIRECTORY | os.O_CLOEXEC | getattr(os, "O_PATH", getattr(os, "O_SEARCH", os.O_RDONLY))
#: of a folder, to list it, and to make its names durable
LISTED = os.O_DIRECTORY | os.O_CLOEXEC | os.O_RDONLY
#: folders that are open at once in one call of a store
MOST_OPEN = 32
_OPENAT2, _AT_FDCWD, _RESOLVE_NO_SYMLINKS = 437, -100, 0x04


class LinkRefused(OSError):
    """A symbolic link lies where a file or a folder is expected; `link` is its path."""

    def __init__(self, link: str) -> None:
        super().__init__(errno.ELOOP, f"{link} is a symbolic link, which is not followed")
        self.link = link


def open_beneath(root: str, path: str, flags: int, mode: int = 0o666) -> int:
    """
    The handle of `path` below the directory `root`; "" is the directory itself.

    Raises LinkRefused, other errors of the operating system, and ValueError for a path with a null byte.
    """
    return best()(root, path, flags, mode)


@cache
def best() -> Open:
    """
    The quickest way that this machine has.
    """
    return by_kernel() or walk


def walk(root: str, path: str, flags: int, mode: int = 0o666) -> int:
    """
    As `open_beneath`, folder by folder.
    """
    if not path:
        return os.open(root, flags, mode)
    *folders, name = path.split("/")
    handle, reached = os.open(root, FOLDER), root
    try:
        for folder in folders:
            reached = f"{reached}/{folder}"
            below = open_in(handle, folder, FOLDER, reached)
            os.close(handle)
            handle = below
        return open_in(handle, name, flags, f"{reached}/{name}", mode)
    finally:
        os.close(handle)


def open_in(folder: int, name: str, flags: int, path: str, mode: int = 0o666) -> int:
    """
    The handle of a name in a folder that is open; `path` is where that is, for the error.
    """
    try:
        return os.open(name, flags | os.O_NOFOLLOW, mode, dir_fd=folder)
    except OSError as exc:
        if exc.errno in (errno.ELOOP, errno.ENOTDIR):  # with O_DIRECTORY Linux says ENOTDIR of a link
            there = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
            if stat.S_ISLNK(there):
                raise LinkRefused(path) from exc
            if stat.S_ISDIR(there):  # not when it was opened: that is no proof that a file is missing
                raise OSError(errno.EBUSY, f"{path} was replaced while it was opened") from exc
        raise


def by_kernel() -> Open | None:
    """
    `open_beneath` by openat2; None where there is none: another system, an older kernel, a container that forbids it.
    """
    if not sys.platform.startswith("linux"):
        return None
    call = ctypes.CDLL(None, use_errno=True).syscall
    call.argtypes = [ctypes.c_long, ctypes.c_int, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t]
    call.restype = ctypes.c_long

    @cache
    def how(flags: int, mode: int) -> bytes:  # struct open_how; a mode without O_CREAT is refused
        return pack("=QQQ", flags, mode if flags & os.O_CREAT else 0, _RESOLVE_NO_SYMLINKS)

    def open_path(root: str, path: str, flags: int, mode: int = 0o666) -> int:
        whole = os.fsencode(f"{root}/{path}")
        if b"\0" in whole:
            raise ValueError("embedded null byte")
        # No link at all is followed: neither below the directory nor above it, where one would be allowed.
        while (handle := call(_OPENAT2, _AT_FDCWD, whole, how(flags, mode), 24)) < 0:
            number = ctypes.get_errno()
            if number == errno.ELOOP:
                return walk(root, path, flags, mode)
            if number != errno.EINTR:
                raise OSError(number, os.strerror(number), whole)
        return int(handle)

    try:
        os.close(open_path("/", "", FOLDER))
    except OSError:
        return None
    return open_path


class Folders:
    """
    Folders below a directory, and the files in them, for one call of a store: what is open is closed in the end.

    `way` gives the arguments of `opened` for a path: the directory, and the path below it. `folders[path]` is the
    handle of a folder, which a name without a slash cannot lead out of. A file is opened from its folder when that has
    several: 2.1 us, by its whole path 3.6.
    """

    def __init__(self, opened: Open, way: Callable[[str], tuple[str, str]], flags: int = FOLDER) -> None:
        self._opened, self._way, self._flags = opened, way, flags
        self._handles: dict[str, int] = {}
        self._asked: set[str] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for handle in self._handles.values():
            os.close(handle)

    def __getitem__(self, folder: str) -> int:
        handle = self._handles.get(folder)
        if handle is None:
            if len(self._handles) == MOST_OPEN:
                os.close(self._handles.pop(next(iter(self._handles))))
            handle = self._handles[folder] = self._opened(*self._way(folder), self._flags, 0)
        return handle

    def open(self, key: str, flags: int, path: str) -> int:
        """The handle of the file `key`; `path` is where that is, for the error."""
        folder, _, name = key.rpartition("/")
        handle = self._handles.get(folder)
        if handle is None:
            if folder not in self._asked or len(self._handles) == MOST_OPEN:
                self._asked.add(folder)
                return self._opened(*self._way(key), flags, 0)
            handle = self[folder]
        return open_in(handle, name, flags, path)
