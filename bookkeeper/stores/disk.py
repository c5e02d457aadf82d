"""
Files and folders of a disk as LocalStore needs them: durable writes, and reads of files that others can write.

A file is a name without a slash in a folder that is open, so it is where the folder is; `path` is that for errors.
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
from bookkeeper.stores.beneath import LinkRefused, open_in
from bookkeeper.stores.store import HEAD_BYTES, Buffer, Head, Part, check_bound

#: Linux searches for one large page per write: 46 ms for 20 MB at once, 8 ms in pieces
_PIECE = 2**20
TEMPORARY = ".tmp"
#: the disk's errors for a name that no object can have
_NO_OBJECT = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG)
#: its errors for a socket that is opened
_SOCKET = (errno.ENXIO, errno.EOPNOTSUPP)
#: does not wait for a pipe without a writer
READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
#: begins the tag of an object that was not read: made of inode and time instead of the content
UNREAD = "unread-"


def modified_at(found: os.stat_result) -> datetime:
    """
    When the file was written (UTC).
    """
    return datetime.fromtimestamp(found.st_mtime, UTC)


def read_whole(handle: int, path: str, most: int | None) -> tuple[bytes, os.stat_result]:
    """
    The bytes of a file that is open, which is closed; raises TooLarge for more than `most` of them.

    Raises NotAFile for what is no regular file.
    """
    try:
        found = os.fstat(handle)
        _check_file(path, found)
        check_bound(path, found.st_size, most, f"{UNREAD}{found.st_size}-{found.st_ino}-{found.st_mtime_ns}")
        size = found.st_size
        data = os.read(handle, size + 1)
        while len(data) < size and (more := os.read(handle, size - len(data))):
            data += more
        check_bound(path, len(data), most)  # it may have grown meanwhile
        return data, found
    finally:
        os.close(handle)


def read_range(handle: int, path: str, begin: int, end: int) -> Part:
    """
    The size of a file that is open, and its bytes from `begin` to `end`; closed and raises as by `read_whole`.
    """
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


def read_beginning(handle: int, path: str) -> Head:
    """
    The size and the first bytes of a file that is open; closed and raises as by `read_whole`.
    """
    try:
        found = os.fstat(handle)
        _check_file(path, found)
        return Head(found.st_size, os.pread(handle, HEAD_BYTES, 0))
    finally:
        os.close(handle)


def look_up(folder: int, name: str, path: str) -> os.stat_result:
    """
    What the disk says of a file; raises LinkRefused.
    """
    found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    if stat.S_ISLNK(found.st_mode):
        raise LinkRefused(path)
    if not stat.S_ISREG(found.st_mode):  # a listing shows regular files only
        raise IsADirectoryError(errno.EISDIR, "a directory, a pipe, a socket or a device")
    return found


def _check_file(path: str, found: os.stat_result) -> None:
    if stat.S_ISREG(found.st_mode):
        return
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, "a directory")
    raise NotAFile(f"{path} is no regular file", UNREAD)


@contextmanager
def no_object_is_missing(path: str) -> Iterator[None]:
    """
    Raises FileNotFoundError for a name that no object can have: it is missing, as on an object store. NotAFile for a
    socket.
    """
    try:
        yield
    except OSError as exc:
        if exc.errno in _SOCKET:
            raise NotAFile(f"{path} is no regular file", UNREAD) from exc
        if exc.errno in _NO_OBJECT:
            raise FileNotFoundError(exc.errno, exc.strerror) from exc
        raise


@contextmanager
def temporary(folder: int, name: str, path: str, data: Buffer) -> Iterator[str]:
    """
    A durable copy of `data` beside `name`, deleted in the end: a full disk must not keep unfinished files.
    """
    ending = f".{secrets.token_hex(6)}{TEMPORARY}"
    unfinished = name + ending
    try:
        write_durably(folder, unfinished, path + ending, data)
        yield unfinished
    finally:
        with suppress(FileNotFoundError):
            os.unlink(unfinished, dir_fd=folder)


def link(folder: int, source: str, name: str) -> None:
    """
    Gives a file another name, durable; raises FileExistsError when it is taken.
    """
    try:
        os.link(source, name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
    except FileExistsError as exc:
        if (there := _at(folder, name)) is not None and stat.S_ISDIR(there.st_mode):
            raise IsADirectoryError(errno.EISDIR, "a directory") from exc
        raise
    finally:
        # Also when the key was taken: a writer that finds its own bytes there takes them for durable.
        os.fsync(folder)


def rename(source: tuple[int, str], target: tuple[int, str]) -> None:
    """
    Gives a file in one folder a name in another, durable; raises TooLarge when it would have to be copied.
    """
    try:
        os.rename(source[1], target[1], src_dir_fd=source[0], dst_dir_fd=target[0])
    except OSError as exc:
        if exc.errno == errno.EXDEV:
            raise TooLarge(f"{source[1]} would have to be copied to another disk") from exc
        raise
    for folder, _ in (target, source):
        os.fsync(folder)


def delete_exactly(folder: int, name: str, aside: str, known: os.stat_result) -> bool:
    """
    Deletes a file, durable, if it is still the `known` one; False where it is another one, which then stays.

    There is no such call of the system: it gets the name `aside`, which no other program uses, and is looked at there.
    A crash leaves it there, which `put_back` undoes.
    """
    os.rename(name, aside, src_dir_fd=folder, dst_dir_fd=folder)
    there = os.stat(aside, dir_fd=folder, follow_symlinks=False)
    same = (there.st_ino, there.st_size, there.st_mtime_ns) == (known.st_ino, known.st_size, known.st_mtime_ns)
    if same:
        os.unlink(aside, dir_fd=folder)
        os.fsync(folder)
    else:
        put_back(folder, aside, name)
    return same


def put_back(folder: int, aside: str, name: str) -> None:
    """
    Gives the file `aside`, if there is one, its own name again, durable; where that is taken, it was replaced and goes.
    """
    if not is_taken(folder, aside):
        return
    try:
        os.link(aside, name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
    except FileExistsError:
        pass
    except PermissionError:  # the kernel may forbid hard links to files of another user
        if not is_taken(folder, name):
            os.rename(aside, name, src_dir_fd=folder, dst_dir_fd=folder)
            os.fsync(folder)
            return
    os.fsync(folder)
    os.unlink(aside, dir_fd=folder)
    os.fsync(folder)


def is_taken(folder: int, name: str) -> bool:
    """
    Whether there is anything of this name.
    """
    return _at(folder, name) is not None


def _at(folder: int, name: str) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None


def make_folder(folder: int, name: str) -> None:
    """
    Creates a folder in another, durable; one that is there already is success.
    """
    with suppress(FileExistsError):
        os.mkdir(name, dir_fd=folder)
    os.fsync(folder)


def make_directory(path: str, below: str = "") -> None:
    """
    Creates the directory `path` and missing ones above it, but not `below` or anything above that; each is durable.
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
    handle = os.open(above, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_durably(folder: int, name: str, path: str, data: Buffer) -> None:
    """
    Writes a file; its name is durable only after an fsync of the folder. Raises LinkRefused where the name is a link.
    """
    view = memoryview(data).cast("B")
    with open(name, "wb", opener=lambda name, flags: open_in(folder, name, flags, path)) as file:
        for start in range(0, len(view), _PIECE):
            file.write(view[start : start + _PIECE])
        file.flush()
        os.fsync(file.fileno())


def entries(folder: int) -> Iterator[tuple[str, os.stat_result | None]]:
    """
    The names in a folder: regular files, and links to such, each with what the disk says of itself; None: a folder.

    A link to anything else is passed over, as what is neither file nor folder is.
    """
    with os.scandir(folder) as found:
        for entry in found:
            if entry.is_dir(follow_symlinks=False):
                yield entry.name, None
            elif (listed := _listed(entry)) is not None:
                yield entry.name, listed


def _listed(entry: "os.DirEntry[str]") -> os.stat_result | None:
    try:
        if not entry.is_file():
            return None
    except OSError:
        return None  # a link that leads nowhere
    try:  # one for each txlog of a listing: `suppress` takes twice as long as the call
        return entry.stat(follow_symlinks=False)
    except FileNotFoundError:
        return None
