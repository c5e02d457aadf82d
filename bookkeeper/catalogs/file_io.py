"""
pyiceberg's FileIO for the daemon: files on local disk are opened as files, all others as pyiceberg opens them.

pyiceberg would load pyarrow for the first metadata.json it reads: 0.15 s and 40 MiB that a bookkeeper does not need.

A table's properties say nothing of how its files are reached: a user that may alter the table could name another
endpoint, which would get the catalog's keys, or a class to import.
"""

import os
from collections.abc import Callable, Sequence
from typing import IO, Any, cast

from pyiceberg.io import FileIO, InputFile, InputStream, OutputFile, OutputStream, load_file_io
from pyiceberg.table import Table
from pyiceberg.typedef import EMPTY_DICT, Properties

from bookkeeper.catalogs.handed_out import HandedOut, TableIO
from bookkeeper.errors import PathRefused
from bookkeeper.stores.beneath import open_beneath
from bookkeeper.stores.locations import local_path

_KEY = "py-io-impl"
#: in a REST server's answer: what authorizes requests for that table
_TOKEN = "token"


class DiskFirst(FileIO):
    """
    The class for `py-io-impl`; for a local file it raises the operating system's errors.

    No symbolic link below one of `roots` is followed: of an open table its location, its data path, its metadata path.
    """

    def __init__(
        self, properties: Properties = EMPTY_DICT, roots: Sequence[str] = (), others: FileIO | None = None
    ) -> None:
        """`others` opens what is not on local disk; without it pyiceberg chooses by `properties`."""
        super().__init__(properties)
        self._others: dict[str, FileIO] = {}
        self._roots, self._given = roots, others

    def new_input(self, location: str) -> InputFile:
        """See FileIO."""
        path = _path(location)
        return self._other(location).new_input(location) if path is None else self._local(location, path)

    def new_output(self, location: str) -> OutputFile:
        """See FileIO."""
        path = _path(location)
        return self._other(location).new_output(location) if path is None else self._local(location, path)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """See FileIO."""
        text = location if isinstance(location, str) else location.location
        path = _path(text)
        if path is None:
            self._other(text).delete(text)
        else:
            os.unlink(path)

    def _local(self, location: str, path: str) -> "LocalFile":
        return LocalFile(location, path, next((root for root in self._roots if path.startswith(f"{root}/")), ""))

    def _other(self, location: str) -> FileIO:
        if self._given is not None:
            return self._given
        scheme = location.partition("://")[0]
        if scheme not in self._others:
            others = {key: value for key, value in self.properties.items() if key != _KEY}
            self._others[scheme] = load_file_io(others, location)
        return self._others[scheme]


def ignore_table_properties(catalog: Any) -> None:
    """
    From now on a FileIO of this catalog has the catalog's own properties, and what a REST server answers with a table
    (its `config` and `storage-credentials`), and none of the table's properties, which pyiceberg would add.
    """
    if hasattr(catalog, "_response_to_table"):
        handed_out = HandedOut(catalog)
        catalog._response_to_table = _without_properties(catalog._response_to_table, handed_out)
        catalog._response_to_staged_table = _without_properties(catalog._response_to_staged_table, handed_out)
    else:
        catalog._load_file_io = lambda properties=EMPTY_DICT, location=None: load_file_io(catalog.properties, location)


def stay_below(table: Table) -> None:
    """
    From now on the table's FileIO follows no symbolic link below the table's location, on a local disk.
    """
    metadata = table.metadata
    places = [metadata.properties.get(key) for key in ("write.data.path", "write.metadata.path")]
    roots = [root for place in (metadata.location, *places) if place and (root := _path(place)) is not None]
    if roots:
        others = table.io if isinstance(table.io, TableIO) else None
        table.io = DiskFirst(table.io.properties, roots, others)


def _without_properties(build: Callable[[Any, Any], Any], handed_out: HandedOut) -> Callable[[Any, Any], Any]:
    """`build` makes a table of a REST server's response, and its FileIO also of what the metadata's properties say."""

    def built(identifier: Any, response: Any) -> Any:
        io = handed_out.take(identifier, response)
        update: dict[str, Any] = {"metadata": response.metadata.model_copy(update={"properties": {}})}
        if io is not None:
            # The table keeps no keys that would end while it is held.
            kept = {key: response.config[key] for key in (_TOKEN,) if key in response.config}
            update |= {"config": kept, "storage_credentials": []}
        table = build(identifier, response.model_copy(update=update))
        table.metadata = response.metadata
        if io is not None:
            table.io = io
        return table

    return built


def _path(location: str) -> str | None:
    try:
        return local_path(location)
    except PathRefused:
        return None  # pyiceberg decides about locations that we refuse


class LocalFile(InputFile, OutputFile):
    """A file on local disk; with a `root` no link below that is followed. Then it raises LinkRefused."""

    def __init__(self, location: str, path: str, root: str = "") -> None:
        super().__init__(location)
        self._path, self._root = path, root

    def __len__(self) -> int:
        with self._opened("rb") as file:
            return os.fstat(file.fileno()).st_size

    def exists(self) -> bool:
        """See InputFile."""
        return os.path.isfile(self._path)

    def open(self, seekable: bool = True) -> InputStream:
        """See InputFile."""
        return cast(InputStream, self._opened("rb"))

    def create(self, overwrite: bool = False) -> OutputStream:
        """See OutputFile; the directory is made."""
        os.makedirs(os.path.dirname(self._path), exist_ok=True)
        return cast(OutputStream, self._opened("wb" if overwrite else "xb"))

    def _opened(self, mode: str) -> IO[bytes]:
        return cast(IO[bytes], open(self._path, mode, opener=self._handle))

    def _handle(self, path: str, flags: int) -> int:
        if not self._root:
            return os.open(path, flags, 0o666)
        # No pipe without a writer is waited for.
        return open_beneath(self._root, path[len(self._root) + 1 :], flags | os.O_NONBLOCK)

    def to_input_file(self) -> InputFile:
        """See OutputFile."""
        return self
