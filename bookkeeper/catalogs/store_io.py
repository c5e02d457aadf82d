"""
A file of a table as pyiceberg reads and writes it, through a Store: with its keys, its retries and its deadlines.
"""

import errno
import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

from pyiceberg.io import InputFile, InputStream, OutputFile, OutputStream

from bookkeeper.errors import AlreadyExists, BookkeeperError, Missing
from bookkeeper.stores.store import Range, Store

#: what a short read asks for; longer ones ask for what they need
_BUFFER_BYTES = 2**18


class StoreFile(InputFile, OutputFile):
    """The object `key` of a store; raises FileNotFoundError, FileExistsError, else the store's errors."""

    def __init__(self, location: str, store: Store, key: str) -> None:
        super().__init__(location)
        self._store, self._key = store, key

    def __len__(self) -> int:
        with self._as_a_file():
            return self._store.size(self._key)

    def exists(self) -> bool:
        """See InputFile."""
        try:
            return len(self) >= 0
        except FileNotFoundError:
            return False

    def open(self, seekable: bool = True) -> InputStream:
        """See InputFile; each read is a request of its own, so the file may be held for longer than keys live."""
        return cast(InputStream, io.BufferedReader(_Ranges(self._store, self._key, len(self)), _BUFFER_BYTES))

    def create(self, overwrite: bool = False) -> OutputStream:
        """See OutputFile; the object is there, whole, once the stream is closed. Its bytes are in memory until then."""
        if not overwrite and self.exists():
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), self.location)
        return cast(OutputStream, _Upload(self, overwrite))

    def to_input_file(self) -> InputFile:
        """See OutputFile."""
        return self

    def delete(self) -> None:
        """Deletes the object; no error where there is none."""
        self._store.delete_many([self._key])

    def write(self, data: bytes, overwrite: bool) -> None:
        """Makes the object, whole or not at all."""
        with self._as_a_file():
            if overwrite:
                self._store.upload(self._key, data)
            else:
                self._store.create(self._key, data)

    @contextmanager
    def _as_a_file(self) -> Iterator[None]:
        try:
            yield
        except Missing as exc:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), self.location) from exc
        except AlreadyExists as exc:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), self.location) from exc


class _Ranges(io.RawIOBase):
    """An object of `size` bytes, read by ranges."""

    def __init__(self, store: Store, key: str, size: int) -> None:
        super().__init__()
        self._store, self._key, self._size, self._at = store, key, size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = max(0, start + offset)
        return self._at

    def readinto(self, into: Any) -> int:
        view = memoryview(into).cast("B")
        end = min(self._at + len(view), self._size)
        if end <= self._at:
            return 0
        wanted = Range(self._key, self._at, end)
        found = self._store.read_ranges([wanted])[wanted]
        if isinstance(found, BookkeeperError):
            raise found
        view[: len(found.data)] = found.data
        self._at += len(found.data)
        return len(found.data)


class _Upload(io.BytesIO):
    """Sends all of it when it is closed; nothing where its block ends by an exception, or where it is never closed."""

    def __init__(self, file: StoreFile, overwrite: bool) -> None:
        super().__init__()
        self._file, self._overwrite = file, overwrite

    def close(self) -> None:
        if not self.closed:
            data = self.getvalue()
            super().close()
            self._file.write(data, self._overwrite)

    def __exit__(self, kind: Any, *given: Any) -> None:
        if kind is None:
            self.close()
        else:
            super().close()

    def __del__(self) -> None:
        super().close()
