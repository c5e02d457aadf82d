"""
Store on this machine's disk.

Publishes by temporary file, fsync, link, fsync of the directory: link is atomic and exclusive where fsspec's
local `mode="create"` is not. What a crash leaves is a `*.tmp` that nothing names; it is swept by age.
"""

import errno
import fcntl
import os
import secrets
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import Any, TypeVar

from bookkeeper.errors import Changed, Missing, NotAFile, StorageUnavailable, TooLarge, Unfit
from bookkeeper.stores.store import (
    HEAD_BYTES,
    Buffer,
    Head,
    Listed,
    Most,
    ObjectVersion,
    Store,
    bound_of,
    check_bound,
    checked_key,
    content_tag,
    translated,
)

T = TypeVar("T")
#: Linux searches for one large page per write: 46 ms for 20 MB at once, 8 ms in pieces
_PIECE = 2**20
TEMPORARY = ".tmp"
LOCK = ".lock"
#: the disk's errors for a name that no object can have
_NO_OBJECT = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.ELOOP, errno.ENXIO)
#: for files that others can write: does not follow a link, does not wait for a pipe
_UNTRUSTED = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
#: begins the tag of an object that was not read: made of inode and time instead of the content
_UNREAD = "unread-"


FOLDER_GONE = (
    "Is the disk mounted? Was the txlog folder moved? Put it back with its pending txlogs. Only if it is lost: "
    "`bookkeeper init` creates it again for its table."
)


class LocalStore:
    """Implements Store below the directory `root`."""

    at_once = 1

    def __init__(self, root: str) -> None:
        self.root = os.path.abspath(root)
        self.url = "file://" + self.root
        #: whether the root existed once: then it is never created again
        self._rooted = False
        #: the advice when the root is missing
        self._hint = "Is the disk mounted?"

    def keep_root(self) -> None:
        """From now on the root is never created: it is a txlog folder, which only `init` creates."""
        self._rooted, self._hint = True, FOLDER_GONE

    def read(self, key: str, most: int | None = None) -> bytes:
        return self._read(key, most)[0]

    def _read(self, key: str, most: int | None) -> tuple[bytes, os.stat_result]:
        try:
            return _whole(self._path(key), most)
        except OSError:
            pass
        with self._reading(key):  # it costs more than reading a small file, so it is used only to translate an error
            return _whole(self._path(key), most)

    def read_many(
        self, keys: Sequence[str], most: Most = None
    ) -> Mapping[str, bytes | Missing | Unfit | StorageUnavailable]:
        return self._each(lambda key: self.read(key, bound_of(key, most)), keys)

    def read_tagged(self, key: str, most: int | None = None) -> tuple[bytes, str]:
        data = self.read(key, most)
        return data, _tag(data)

    def read_versions(
        self, known: Mapping[str, str], most: Most = None
    ) -> Mapping[str, ObjectVersion | Missing | Unfit | StorageUnavailable | None]:
        def read(key: str) -> ObjectVersion | None:
            data, found = self._read(key, bound_of(key, most))
            tag = _tag(data)
            return None if tag == known[key] else ObjectVersion(data, tag, _modified(found))

        return self._each(read, [*known])

    def create(self, key: str, data: bytes) -> None:
        path = self._path(key)
        with self._writing(key):
            self._make_parent(path)
            with _temporary(path, data) as temporary:
                _link(temporary, path)

    def replace(self, key: str, data: bytes, if_match: str | None = None) -> str:
        path = self._path(key)
        with self._writing(key):
            self._make_parent(path)
            with self._locked():
                self._expect(key, if_match)
                with _temporary(path, data) as temporary:
                    os.rename(temporary, path)
                _sync_directory(os.path.dirname(path))
        return _tag(data)

    def move(self, key: str, to: str) -> None:
        # Not by a hard link: the kernel may forbid those to files of another user.
        source, target = self._path(key), self._path(to)
        with self._writing(to):
            self._make_parent(target)
        with self._reading(key), self._locked():
            if os.path.lexists(target):
                raise FileExistsError(errno.EEXIST, to)
            _rename(source, target)

    def upload(self, key: str, data: Buffer) -> None:
        path = self._path(key)
        with self._writing(key):
            self._make_parent(path)
            _write_durably(path, data)
            _sync_directory(os.path.dirname(path))

    def size(self, key: str) -> int:
        return self._stat(key).st_size

    def modified(self, key: str) -> datetime:
        return _modified(self._stat(key))

    def _stat(self, key: str) -> os.stat_result:
        with self._reading(key):
            found = os.stat(self._path(key))
            if not stat.S_ISREG(found.st_mode):  # a listing shows regular files only
                raise IsADirectoryError(errno.EISDIR, "a directory, a pipe, a socket or a device")
            return found

    def sizes(self, keys: Sequence[str]) -> Mapping[str, int | Missing | StorageUnavailable]:
        return self._each(self.size, keys)

    def heads(self, keys: Sequence[str]) -> Mapping[str, Head | Missing | StorageUnavailable]:
        return self._each(self._head, keys)

    def _head(self, key: str) -> Head:
        try:
            return _beginning(self._path(key))
        except PermissionError:
            return Head(self.size(key), None)
        except OSError:
            pass
        with self._reading(key):  # only to translate an error, as in `read`
            return _beginning(self._path(key))

    def list(self, prefix: str) -> Iterator[Listed]:
        start = self._path(prefix.rstrip("/")) if prefix else self.root
        self._check_root()
        with translated(prefix or self.url):
            for item in _walk(start, len(self.root) + 1):
                if item.key != LOCK:
                    yield item
        self._check_root()

    def delete_many(self, keys: Iterable[str]) -> int:
        count = 0
        for key in keys:
            try:
                os.unlink(self._path(key))
            except OSError:
                with suppress(Missing), self._reading(key):  # only to translate an error, as in `read`
                    os.unlink(self._path(key))
            count += 1
        return count

    def _path(self, key: str) -> str:
        return f"{self.root}/{checked_key(key)}"  # half a microsecond less than os.path.join

    def _each(self, act: Callable[[str], T], keys: Sequence[str]) -> dict[str, Any]:
        results: dict[str, Any] = {}
        for key in keys:
            try:
                results[key] = act(key)
            except (Missing, Unfit, StorageUnavailable) as exc:
                results[key] = exc
        return results

    @contextmanager
    def _reading(self, key: str) -> Iterator[None]:
        try:
            with translated(f"{self.root}/{key}"), _no_object():
                yield
        except Missing:
            self._check_root()
            raise

    @contextmanager
    def _writing(self, key: str) -> Iterator[None]:
        try:
            with translated(f"{self.root}/{key}"):
                yield
        except Missing as exc:
            raise StorageUnavailable(f"{self.root}/{key}: its directory vanished", hint=self._hint) from exc

    def _check_root(self) -> None:
        # Below a disk that is not mounted nothing exists, which does not prove that a file is gone.
        if not os.path.isdir(self.root):
            raise StorageUnavailable(f"{self.root} is not there", hint=self._hint)
        self._rooted = True

    def _make_parent(self, path: str) -> None:
        if self._rooted:
            self._check_root()
        # The root may vanish right here; then the folders above it are not created either.
        _make_directory(os.path.dirname(path), below=self.root if self._rooted else "")
        self._rooted = True

    def _expect(self, key: str, if_match: str | None) -> None:
        if if_match is None:
            return
        try:
            tag = self.read_tagged(key, _size_in(if_match))[1]
        except Missing:
            tag = ""
        except Unfit as exc:
            tag = exc.tag
        if tag != if_match:
            raise Changed(f"{self.root}/{key} was replaced by another process")

    @contextmanager
    def _locked(self) -> Iterator[None]:
        # Never through a link: that would create a file at its target.
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        lock = os.open(os.path.join(self.root, LOCK), flags, 0o666)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)


def _tag(data: bytes) -> str:
    """Begins with the size: a comparison need not read more than that."""
    return f"{len(data)}-{content_tag(data)}"


def _size_in(tag: str) -> int:
    size = tag.partition("-")[0]
    return int(size) if size.isdigit() else 0


def _modified(found: os.stat_result) -> datetime:
    return datetime.fromtimestamp(found.st_mtime, UTC)


def _whole(path: str, most: int | None) -> tuple[bytes, os.stat_result]:
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


def _beginning(path: str) -> Head:
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
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, "a directory")
    if not stat.S_ISREG(found.st_mode):
        raise NotAFile(f"{path} is no regular file", _UNREAD)


def kept(store: Store) -> Store:
    """
    The store of a txlog folder: on a local disk its root is never created.
    """
    if isinstance(store, LocalStore):
        store.keep_root()
    return store


@contextmanager
def _no_object() -> Iterator[None]:
    """A name that no object can have is missing, as on an object store."""
    try:
        yield
    except OSError as exc:
        if exc.errno in _NO_OBJECT:
            raise FileNotFoundError(exc.errno, exc.strerror) from exc
        raise


@contextmanager
def _temporary(path: str, data: Buffer) -> Iterator[str]:
    """A durable copy of `data` beside `path`, deleted in the end: a full disk must not keep unfinished files."""
    name = f"{path}.{secrets.token_hex(6)}{TEMPORARY}"
    try:
        _write_durably(name, data)
        yield name
    finally:
        with suppress(FileNotFoundError):
            os.unlink(name)


def _link(temporary: str, path: str) -> None:
    try:
        os.link(temporary, path)
    except FileExistsError as exc:
        if os.path.isdir(path):
            raise IsADirectoryError(errno.EISDIR, "a directory") from exc
        raise
    finally:
        # Also when the key was taken: a writer that finds its own bytes there takes them for durable.
        _sync_directory(os.path.dirname(path))


def _rename(source: str, target: str) -> None:
    try:
        os.rename(source, target)
    except OSError as exc:
        if exc.errno == errno.EXDEV:
            raise TooLarge(f"{source} would have to be copied to another disk") from exc
        raise
    for path in (target, source):
        _sync_directory(os.path.dirname(path))


def _make_directory(path: str, below: str = "") -> None:
    """Creates `path` and missing folders above it, but not `below` or anything above that; each is durable."""
    if os.path.isdir(path) or path == below:
        return
    above = os.path.dirname(path)
    _make_directory(above, below)
    try:
        os.mkdir(path)
    except FileExistsError as exc:
        if not os.path.isdir(path):
            raise NotADirectoryError(errno.ENOTDIR, f"{path} is not a directory") from exc
    _sync_directory(above)


def _write_durably(path: str, data: Buffer) -> None:
    view = memoryview(data).cast("B")
    with open(path, "wb") as file:
        for start in range(0, len(view), _PIECE):
            file.write(view[start : start + _PIECE])
        file.flush()
        os.fsync(file.fileno())


def _sync_directory(path: str) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _walk(start: str, cut: int) -> Iterator[Listed]:
    try:
        entries = os.scandir(start)
    except (FileNotFoundError, NotADirectoryError):
        return
    with entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield from _walk(entry.path, cut)
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
    return Listed(entry.path[cut:], found.st_size, _modified(found))
