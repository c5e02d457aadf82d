"""
The storage of a checkpoint: a Store where there is one for its URL, else any fsspec filesystem.

Spark is not locked or waited for: a file that is read here may be half written.
"""

import os
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import fsspec  # type: ignore[import-untyped]

from bookkeeper.errors import ConfigInvalid
from bookkeeper.stores.open import open_store
from bookkeeper.stores.store import Listed, Store, translated

OpenStore = Callable[[str], Store]


class CheckpointReading(Protocol):
    """The operations that reading a checkpoint needs; every Store has them."""

    @property
    def url(self) -> str:
        """The URL of the checkpoint."""

    def read(self, key: str) -> bytes:
        """The whole object; raises Missing, StorageUnavailable."""

    def list(self, prefix: str) -> Iterator[Listed]:
        """Objects below the folder `prefix`; raises StorageUnavailable."""


class CheckpointStore(CheckpointReading, Protocol):
    """The operations that mending needs too; every Store has them."""

    def create(self, key: str, data: bytes) -> None:
        """A new object."""

    def delete_many(self, keys: Any) -> int:
        """Deletes what is there."""


class FsspecCheckpointStore:
    """A CheckpointStore on any fsspec filesystem, such as HDFS; it promises nothing about races."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        with translated(url):
            self.fs, root = fsspec.core.url_to_fs(self.url, use_listings_cache=False)
        self.root = root.rstrip("/")

    def read(self, key: str) -> bytes:
        with translated(f"{self.url}/{key}"):
            return bytes(self.fs.cat_file(f"{self.root}/{key}"))

    def list(self, prefix: str) -> Iterator[Listed]:
        with translated(f"{self.url}/{prefix}"):
            paths = list(self.fs.find(f"{self.root}/{prefix}"))
            found = [Listed(path[len(self.root) + 1 :], self.fs.size(path), self.fs.modified(path)) for path in paths]
        return iter(found)

    def create(self, key: str, data: bytes) -> None:
        with translated(f"{self.url}/{key}"):
            self.fs.pipe_file(f"{self.root}/{key}", data)

    def delete_many(self, keys: Any) -> int:
        wanted = list(keys)
        for key in wanted:
            with translated(f"{self.url}/{key}"):
                if self.fs.exists(f"{self.root}/{key}"):
                    self.fs.rm_file(f"{self.root}/{key}")
        return len(wanted)


def absolute(location: str) -> str:
    """
    A location that does not depend on the working folder: a path on this machine's disk becomes a file: URL.
    """
    if ":" in location:
        return location.rstrip("/")
    return f"file://{os.path.abspath(location)}"


def open_checkpoint(url: str, open_store: OpenStore = open_store) -> CheckpointStore:
    """
    The checkpoint's store at `url`; raises ConfigInvalid when no installed filesystem knows it, StorageUnavailable.
    """
    try:
        return open_store(url)
    except ConfigInvalid:
        try:
            return FsspecCheckpointStore(url)
        except (ValueError, ImportError) as exc:
            raise ConfigInvalid(f"{url}: {exc}", hint="Install the fsspec filesystem for it.") from exc
