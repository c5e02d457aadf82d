"""
Files and directories of a disk as LocalStore needs them: durable writes, and reads of files that others can write.

Raises the operating system's errors.
"""

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime

from bookkeeper.errors import NotAFile, TooLarge
from bookkeeper.stores.store import HEAD_BYTES, Buffer, Head, Listed, Part, check_bound

#: Linux searches for one large page per write: 46 ms for 20 MB at once, 8 ms in pieces
_PIECE = 2**20
TEMPORARY = ".tmp"
#: the disk's errors for a name that no object can have
_NO_OBJECT = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.ELOOP, errno.ENXIO)
#: for files that others can write: does not follow a link, does not wait for a pipe
_UNTRUSTED = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
#: begins the tag of an object that was not read: made of inode and time instead of the content
_UNREAD = "unread-"


def modified_at(found: os.stat_result) -> datetime:
    """
    When the file was written (UTC).
    """
    return datetime.fromtimestamp(found.st_mtime, UTC)


def read_whole(path: str, most: int | None) -> tuple[bytes, os.stat_result]:
    """
    The bytes of a file; raises TooLarge for more than `most` of them.

    With `most` also NotAFile, for what is no regular file: no link is followed, and no pipe is waited for.
    """
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC) if most is None else _untrusted(path)
    try:
        found = os.fstat(handle)
        if most is not None:
            _check_file(path, found)
            check_bound(path, found.st_size, most, f"{_UNREAD}{found.st_size}-{found.st_ino}-{found.st_mtime_ns}")
        size = found.st_size
        data = os.read(handle, size + 1)
        while len(data) < size and (more := os.read(handle, size - len(data))):
            data += more
        check_bound(path, len(data), most)  # it may have grown meanwhile
        return data, found
    finally:
        os.close(handle)


def read_range(path: str, begin: int, end: int) -> Part:
    """
    The size of a file and its bytes from `begin` to `end`; raises NotAFile as `read_whole` with a bound does.
    """
    handle = _untrusted(path)
    try:
        found = os.fstat(handle)
        _check_file(path, found)
        data = os.pread(handle, end - begin, begin)
        while begin + len(data) < min(end, found.st_size):  # one call reads 2 GiB at most
            if not (more := os.pread(handle, end - begin - len(data), begin + len(data))):
                break
            data += more
        return Part(found.st_size, data)
    finally:
        os.close(handle)


def read_beginning(path: str) -> Head:
    """
    The size and the first bytes of a file.
    """
    # Must not wait for a pipe without a writer.
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode):
            raise IsADirectoryError(errno.EISDIR, "no regular file")
        return Head(found.st_size, os.pread(handle, HEAD_BYTES, 0))
    finally:
        os.close(handle)


def _untrusted(path: str) -> int:
    try:
        return os.open(path, _UNTRUSTED)
    except OSError:
        _check_file(path, os.lstat(path))  # the errors for a link (ELOOP) and a socket (ENXIO) do not name the kind
        raise


def _check_file(path: str, found: os.stat_result) -> None:
    if stat.S_ISREG(found.st_mode):
        return
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, "a directory")
    raise NotAFile(f"{path} is no regular file", _UNREAD)


@contextmanager
def no_object_is_missing() -> Iterator[None]:
    """
    Raises FileNotFoundError for a name that no object can have: it is missing, as on an object store.
    """
    try:
        yield
    except OSError as exc:
        if exc.errno in _NO_OBJECT:
            raise FileNotFoundError(exc.errno, exc.strerror) from exc
        raise


@contextmanager
def temporary(path: str, data: Buffer) -> Iterator[str]:
    """
    A durable copy of `data` beside `path`, deleted in the end: a full disk must not keep unfinished files.
    """
    name = f"{path}.{secrets.token_hex(6)}{TEMPORARY}"
    try:
        write_durably(name, data)
        yield name
    finally:
        with suppress(FileNotFoundError):
            os.unlink(name)


def link(source: str, path: str) -> None:
    """
    Gives a file another name, durable; raises FileExistsError when it is taken.
    """
    try:
        os.link(source, path)
    except FileExistsError as exc:
        if os.path.isdir(path):
            raise IsADirectoryError(errno.EISDIR, "a directory") from exc
        raise
    finally:
        # Also when the key was taken: a writer that finds its own bytes there takes them for durable.
        sync_directory(os.path.dirname(path))


def rename(source: str, target: str) -> None:
    """
    Durable; raises TooLarge when the file would have to be copied.
    """
    try:
        os.rename(source, target)
    except OSError as exc:
        if exc.errno == errno.EXDEV:
            raise TooLarge(f"{source} would have to be copied to another disk") from exc
        raise
    for path in (target, source):
        sync_directory(os.path.dirname(path))


def make_directory(path: str, below: str = "") -> None:
    """
    Creates `path` and missing folders above it, but not `below` or anything above that; each is durable.
    """
    if os.path.isdir(path) or path == below:
        return
    above = os.path.dirname(path)
    make_directory(above, below)
    try:
        os.mkdir(path)
    except FileExistsError as exc:
        if not os.path.isdir(path):
            raise NotADirectoryError(errno.ENOTDIR, f"{path} is not a directory") from exc
    sync_directory(above)


def write_durably(path: str, data: Buffer) -> None:
    """
    Writes a file; its name is durable only after `sync_directory`.
    """
    view = memoryview(data).cast("B")
    with open(path, "wb") as file:
        for start in range(0, len(view), _PIECE):
            file.write(view[start : start + _PIECE])
        file.flush()
        os.fsync(file.fileno())


def sync_directory(path: str) -> None:
    """
    Makes the names in a directory durable.
    """
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def walk(start: str, cut: int) -> Iterator[Listed]:
    """
    The regular files below `start`, each under its path without the first `cut` characters.
    """
    try:
        entries = os.scandir(start)
    except (FileNotFoundError, NotADirectoryError):
        return
    with entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield from walk(entry.path, cut)
            elif (listed := _listed(entry, cut)) is not None:
                yield listed


def _listed(entry: "os.DirEntry[str]", cut: int) -> Listed | None:
    try:
        found = entry.stat()
    except OSError as exc:
        if exc.errno in _NO_OBJECT:
            return None
        raise
    if not stat.S_ISREG(found.st_mode):
        return None
    return Listed(entry.path[cut:], found.st_size, modified_at(found))
