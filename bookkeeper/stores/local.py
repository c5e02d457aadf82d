"""
Store on this machine's disk.

Publishes by temporary file, fsync, link, fsync of the directory: link is atomic and exclusive where fsspec's
local `mode="create"` is not. What a crash leaves is a `*.tmp` that nothing names; it is swept by age.
"""

import errno
import fcntl
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import partial

from bookkeeper.errors import Changed, Missing, NotAFile, StorageUnavailable, Unfit
from bookkeeper.stores import disk
from bookkeeper.stores.beneath import FOLDER, LISTED, Folders, LinkRefused, Open, best
from bookkeeper.stores.store import (
    Buffer,
    Head,
    Listed,
    Most,
    ObjectVersion,
    Part,
    Range,
    bound_of,
    checked_key,
    content_tag,
    each,
    translated,
)

LOCK = ".lock"
_LOCK_FLAGS = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
FOLDER_GONE = (
    "Is the disk mounted? Was the txlog folder moved? Put it back with its pending txlogs. Only if it is lost: "
    "`bookkeeper init` creates it again for its table."
)
LINKED = (
    "Put the folder itself in the place of the link. If it lies on another disk, mount that there (`mount --bind`), or "
    'make the whole location of the table the link: docs/stores.md, "Links on a disk".'
)


class FolderUnavailable(StorageUnavailable):
    """A folder of the storage is not there, or is a symbolic link: nothing is known of what should lie below it."""


class LocalStore:
    """
    Implements Store below the directory `root`; `opened` overrides how files are opened (tests).

    No symbolic link below the root is followed. The root may be one, or be reached through links.
    """

    at_once = 1

    def __init__(self, root: str, opened: Open | None = None) -> None:
        self.root = os.path.abspath(root)
        self.url = "file://" + self.root
        self._opened = opened or best()
        #: below it no link is followed; it is the root, above it or below it
        self._base = self.root
        #: folders that all is lost without; None: every folder of the store
        self._places: tuple[str, ...] | None = ()
        #: whether the root existed once: then it is never created again
        self._rooted = False
        #: the advice when the root is missing
        self._hint = "Is the disk mounted?"

    def keep_root(self) -> None:
        """From now on the root is never created: it is a txlog folder, which only `init` creates."""
        self._rooted, self._hint, self._places = True, FOLDER_GONE, None

    def keep_below(self, base: str, places: Sequence[str] = ()) -> None:
        """
        From now on no link below the directory `base` is followed, which is the root, above it or below it.

        A link that is the root or one of `places`, or leads to one, is StorageUnavailable: no object is at fault then.
        """
        self._base = os.path.abspath(base)
        self._places = (self.root, *map(os.path.abspath, places))

    def read(self, key: str, most: int | None = None) -> bytes:
        with self._folders() as folders:
            return self._read(folders, key, most)[0]

    def _read(self, folders: Folders, key: str, most: int | None) -> tuple[bytes, os.stat_result]:
        path = self._path(key)
        try:
            return disk.read_whole(folders.open(key, disk.READ, path), path, most)
        except OSError:
            pass
        with self._reading(key):  # it costs more than reading a small file, so it is used only to translate an error
            return disk.read_whole(folders.open(key, disk.READ, path), path, most)

    def read_many(
        self, keys: Sequence[str], most: Most = None
    ) -> Mapping[str, bytes | Missing | Unfit | StorageUnavailable]:
        with self._folders() as folders:
            return each(lambda key: self._read(folders, key, bound_of(key, most))[0], keys)

    def read_ranges(self, ranges: Sequence[Range]) -> Mapping[Range, Part | Missing | Unfit | StorageUnavailable]:
        with self._folders() as folders:
            return each(partial(self._read_range, folders), ranges)

    def _read_range(self, folders: Folders, wanted: Range) -> Part:
        path = self._path(wanted.key)
        with self._reading(wanted.key):
            return disk.read_range(folders.open(wanted.key, disk.READ, path), path, wanted.begin, wanted.end)

    def read_tagged(self, key: str, most: int | None = None) -> tuple[bytes, str]:
        data = self.read(key, most)
        return data, _tag(data)

    def read_versions(
        self, known: Mapping[str, str], most: Most = None
    ) -> Mapping[str, ObjectVersion | Missing | Unfit | StorageUnavailable | None]:
        def read(key: str) -> ObjectVersion | None:
            data, found = self._read(folders, key, bound_of(key, most))
            tag = _tag(data)
            return None if tag == known[key] else ObjectVersion(data, tag, disk.modified_at(found))

        with self._folders() as folders:
            return each(read, [*known])

    def create(self, key: str, data: bytes) -> None:
        path = self._path(key)
        with self._writing(key) as (folder, name), disk.temporary(folder, name, path, data) as temporary:
            disk.link(folder, temporary, name)

    def replace(self, key: str, data: bytes, if_match: str | None = None) -> str:
        path = self._path(key)
        with self._writing(key) as (folder, name), self._locked():
            self._expect(key, if_match)
            with disk.temporary(folder, name, path, data) as temporary:
                os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
            os.fsync(folder)
        return _tag(data)

    def move(self, key: str, to: str) -> None:
        # Not by a hard link: the kernel may forbid those to files of another user.
        source, _, old = checked_key(key).rpartition("/")
        with self._writing(to) as (target, new), self._reading(key), self._locked():
            if disk.is_taken(target, new):
                raise FileExistsError(errno.EEXIST, to)
            with self._folders(LISTED) as folders:
                disk.rename((folders[source], old), (target, new))

    def upload(self, key: str, data: Buffer) -> None:
        path = self._path(key)
        with self._writing(key) as (folder, name):
            disk.write_durably(folder, name, path, data)
            os.fsync(folder)

    def size(self, key: str) -> int:
        with self._folders() as folders:
            return self._look_up(folders, key).st_size

    def modified(self, key: str) -> datetime:
        with self._folders() as folders:
            return disk.modified_at(self._look_up(folders, key))

    def _look_up(self, folders: Folders, key: str) -> os.stat_result:
        path = self._path(key)
        folder, _, name = key.rpartition("/")
        with self._reading(key):
            return disk.look_up(folders[folder], name, path)

    def sizes(self, keys: Sequence[str]) -> Mapping[str, int | Missing | Unfit | StorageUnavailable]:
        with self._folders() as folders:
            return each(lambda key: self._look_up(folders, key).st_size, keys)

    def heads(self, keys: Sequence[str]) -> Mapping[str, Head | Missing | Unfit | StorageUnavailable]:
        with self._folders() as folders:
            return each(partial(self._head, folders), keys)

    def _head(self, folders: Folders, key: str) -> Head:
        path = self._path(key)
        try:
            return disk.read_beginning(folders.open(key, disk.READ, path), path)
        except PermissionError:
            return Head(self._look_up(folders, key).st_size, None)
        except OSError:
            pass
        with self._reading(key):  # only to translate an error, as in `_read`
            return disk.read_beginning(folders.open(key, disk.READ, path), path)

    def list(self, prefix: str) -> Iterator[Listed]:
        start = checked_key(prefix.rstrip("/")) if prefix else ""
        self._check_root()
        with translated(prefix or self.url):
            try:
                yield from self._below(start)
            except LinkRefused as exc:
                raise self._unavailable(exc.link) from exc
        self._check_root()

    def _below(self, start: str) -> Iterator[Listed]:
        """Raises LinkRefused where `start` is a link, or below one; what is one below it is passed over."""
        left = [start]
        while left:
            folder = left.pop()
            try:
                handle = self._opened(*self._way(folder), LISTED, 0)
            except (FileNotFoundError, NotADirectoryError):
                continue
            except LinkRefused:
                if folder == start:
                    raise
                continue
            try:
                for name, found in disk.entries(handle):
                    key = f"{folder}/{name}" if folder else name
                    if found is None:
                        left.append(key)
                    elif key != LOCK:
                        yield Listed(key, found.st_size, disk.modified_at(found))
            finally:
                os.close(handle)

    def delete_many(self, keys: Iterable[str]) -> int:
        count, any_missing = 0, False
        with Folders(self._opened, self._way_of_folder) as folders:
            for key in keys:
                folder = key[: key.rfind("/") + 1]
                # Without a slash it cannot leave the folder, so only the folder is checked: 2.7 us, by path 4.
                try:
                    os.unlink(key[len(folder) :], dir_fd=folders[folder])
                    count += 1
                except FileNotFoundError:
                    checked_key(key)
                    any_missing = True
                    count += 1
                except (OSError, ValueError):
                    count += self._delete(folders, key)
        if any_missing:
            self._check_root()
        return count

    def delete_if(self, key: str, tag: str) -> None:
        folder, _, name = checked_key(key).rpartition("/")
        try:
            # No other bookkeeper's process deletes meanwhile; a program that replaces the file may.
            with self._reading(key), self._locked(), self._folders(LISTED) as folders:
                aside = f".{name}.deleting"
                disk.put_back(folders[folder], aside, name)
                data, found = self._read(folders, key, _size_in(tag))
                if _tag(data) == tag and disk.delete_exactly(folders[folder], name, aside, found):
                    return
        except Missing:
            return
        except Unfit as exc:
            raise Changed(f"{self.root}/{key} was replaced by another process") from exc
        raise Changed(f"{self.root}/{key} was replaced by another process")

    def _delete(self, folders: Folders, key: str) -> bool:
        folder, _, name = checked_key(key).rpartition("/")
        try:
            with suppress(Missing), self._reading(key):
                os.unlink(name, dir_fd=folders[folder])
        except NotAFile:
            return False  # behind a link there is nothing of this store
        return True

    def _path(self, key: str) -> str:
        return f"{self.root}/{checked_key(key)}"  # half a microsecond less than os.path.join

    def _folders(self, flags: int = FOLDER) -> Folders:
        return Folders(self._opened, self._way, flags)

    def _way(self, key: str) -> tuple[str, str]:
        """The directory below which no link to this file or folder is followed, and the path from there."""
        if self._base == self.root:
            return self.root, key
        path = f"{self.root}/{key}".rstrip("/")
        base = self._base if f"{path}/".startswith(f"{self._base}/") else self.root
        return base, path[len(base) + 1 :]

    def _way_of_folder(self, folder: str) -> tuple[str, str]:
        return self._way(checked_key(folder.removesuffix("/")) if folder else "")

    @contextmanager
    def _reading(self, key: str) -> Iterator[None]:
        try:
            with translated(f"{self.root}/{key}"), disk.no_object_is_missing(f"{self.root}/{key}"):
                try:
                    yield
                except LinkRefused as exc:
                    raise self._refused(f"{self.root}/{key}", exc.link) from exc
        except Missing:
            self._check_root()
            raise

    @contextmanager
    def _writing(self, key: str) -> Iterator[tuple[int, str]]:
        """The folder of a key, which is made where it is missing, and the name in it."""
        folder, _, name = checked_key(key).rpartition("/")
        rooted = self._rooted  # once: another thread that makes the root meanwhile is no sign that it vanished
        if rooted:
            self._check_root()
        with translated(f"{self.root}/{key}"):
            try:
                handle = self._make_folder(*self._way(folder), rooted)
                self._rooted = True
                try:
                    yield handle, name
                finally:
                    os.close(handle)
            except LinkRefused as exc:
                raise self._unavailable(exc.link) from exc
            except FileNotFoundError as exc:
                gone = f"{self.root}/{key}: its directory vanished"
                raise StorageUnavailable(gone, hint=self._hint) from exc

    def _make_folder(self, base: str, path: str, rooted: bool) -> int:
        try:
            return self._opened(base, path, LISTED, 0)
        except FileNotFoundError:
            if rooted and f"{self.root}/".startswith(f"{base}/{path}".rstrip("/") + "/"):
                raise  # the root has vanished right here; it is not created, nor are the folders above it
        if path:
            above, _, name = path.rpartition("/")
            handle = self._make_folder(base, above, rooted)
            try:
                disk.make_folder(handle, name)
            finally:
                os.close(handle)
        else:
            disk.make_directory(base, below=self.root if rooted else "")
        return self._opened(base, path, LISTED, 0)

    def _refused(self, path: str, link: str) -> NotAFile | StorageUnavailable:
        """The error that a link means for the object at `path`."""
        of_all = link != path if self._places is None else any(_leads(link, place) for place in self._places)
        if of_all:
            return self._unavailable(link)
        if link == path:
            return NotAFile(f"{path} is no regular file but a symbolic link, which is not followed", disk.UNREAD)
        return NotAFile(f"{link} is a symbolic link, so {path} is not read", disk.UNREAD)

    def _unavailable(self, link: str) -> StorageUnavailable:
        return FolderUnavailable(f"{link} is a symbolic link, and none is followed below {self._base}", hint=LINKED)

    def _check_root(self) -> None:
        # Below a disk that is not mounted nothing exists, which does not prove that a file is gone.
        if not os.path.isdir(self.root):
            raise FolderUnavailable(f"{self.root} is not there", hint=self._hint)
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
        base, path = self._way(LOCK)
        lock = self._opened(base, path, _LOCK_FLAGS, 0o666)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)


def _leads(link: str, place: str) -> bool:
    return f"{place}/".startswith(f"{link}/")


def _tag(data: bytes) -> str:
    """Begins with the size: a comparison need not read more than that."""
    return f"{len(data)}-{content_tag(data)}"


def _size_in(tag: str) -> int:
    size = tag.partition("-")[0]
    return int(size) if size.isdigit() else 0
