"""
One table's metadata on nothing but storage: `vN.metadata.json`, each made by one exclusive create, and the hint.

Two rules carry it. The hint (`version-hint.text`) never goes back, and no version at or above it is ever deleted
(only what is older than a loaded version is deleted, and loading moves the hint there first). So the newest version
is found from the hint upwards. A stale committer could create a deleted version anew; it then sees a hint above its
own version and raises CommitStateUnknownException. The layout is that of Iceberg's Hadoop tables, which Java reads.

A crash after the create leaves a hint that is one behind: the next load that looks for versions moves it. A reader
without the right to write, or a full disk, leaves it there, and the load succeeds. It never gets further behind: a
commit on top of such a version moves it first. The hint of a dropped table stays `dropped`, and its directory is never
used again.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException, NoSuchTableError
from pyiceberg.table.metadata import TableMetadata

from bookkeeper.catalogs.metadata_json import parse
from bookkeeper.errors import AlreadyExists, Changed, Missing, StorageUnavailable
from bookkeeper.stores.store import Store, create_once

HINT = "version-hint.text"
DROPPED = b"dropped"
_VERSION = re.compile(r"(?:.*/)?v(\d+)\.metadata\.json")
_TRIES = 50


def number(location: str) -> int:
    """
    N of `vN.metadata.json`; raises NoSuchTableError for any other name.
    """
    found = _VERSION.fullmatch(location)
    if not found:
        raise NoSuchTableError(f"{location} is no vN.metadata.json: the table belongs to another catalog")
    return int(found[1])


def name(version: int) -> str:
    """
    The file of a version.
    """
    return f"v{version}.metadata.json"


@dataclass(frozen=True, slots=True)
class Version:
    """One version as it was read."""

    number: int
    metadata: TableMetadata


class Versions:
    """The versions in a table's metadata directory, which is `folder` in the store."""

    def __init__(self, store: Store, folder: str, hints: dict[str, tuple[int, str]] | None = None) -> None:
        self.store, self.folder = store, folder
        self.hint_key, self.where = f"{folder}/{HINT}", f"{store.url}/{folder}"
        #: by `where`: the hint as this process last wrote or read it, and its tag, which saves reading it again
        self.hints: dict[str, tuple[int, str]] = {} if hints is None else hints

    def create(self, data: bytes) -> bool:
        """Creates version 1 where no table ever was; returns whether this call created it."""
        if self._begun():
            return False
        try:
            create_once(self.store, self.key(1), data)
        except AlreadyExists:
            return False
        return self._raise_hint(1) == 1

    def newest(self, known: Iterable[TableMetadata] = (), named: bool = True) -> Version:
        """
        The table now; raises NoSuchTableError, StorageUnavailable. `known`: see `parse`.

        Without `named` a hint that cannot be moved is no error: for callers that act on the table by commits or not
        at all.
        """
        hint, _ = self.hints[self.where] = self._hint()
        data, version = self._from(hint)
        if version > hint:
            try:
                # What a load has found, each later load for a commit has to find.
                self._raise_hint(version)
            except StorageUnavailable:
                if named:
                    raise
        return Version(version, parse(data, known))

    def commit(self, version: int, data: bytes) -> None:
        """
        Makes `version`, on top of the one before; raises CommitFailedException when it is there already.

        Raises CommitStateUnknownException when it is unknown whether this version counts: a later load shows it.
        Raises StorageUnavailable, also when the hint cannot be moved to the version before: then nothing is created.
        """
        if self.hints.get(self.where, (0, ""))[0] < version - 1:
            # At most one version is not named by the hint, and the reaper keeps the one below the newest: else the
            # version that the hint names could be deleted, and no load would find the table.
            self._raise_hint(version - 1)
        try:
            create_once(self.store, self.key(version), data)
        except AlreadyExists as exc:
            raise CommitFailedException(f"version {version} was committed by another process") from exc
        hint = self._raise_hint(version)
        if hint > version:
            raise CommitStateUnknownException(f"version {version} was created while {hint} was current")

    def drop(self) -> None:
        """Drops the table for good; raises NoSuchTableError when it was dropped already."""
        for _ in range(_TRIES):
            _, tag = self._hint()
            try:
                self.store.replace(self.hint_key, DROPPED, if_match=tag)
            except Changed:
                continue
            return
        raise StorageUnavailable(f"{self.where}/{HINT} is replaced by other processes all the time")

    def key(self, version: int) -> str:
        """The key of the object of a version."""
        return f"{self.folder}/{name(version)}"

    def _begun(self) -> bool:
        # A table that was dropped may have lost its first version, but never its hint.
        try:
            self.store.size(self.hint_key)
        except Missing:
            return False
        return True

    def is_dropped(self) -> bool:
        """Whether the table has ended; False also where it has not begun."""
        try:
            return self.store.read(self.hint_key) == DROPPED
        except Missing:
            return False

    def _hint(self) -> tuple[int, str]:
        """The hint and its tag; (0, "") when there is none yet."""
        try:
            data, tag = self.store.read_tagged(self.hint_key)
        except Missing:
            return 0, ""
        if data == DROPPED:
            raise NoSuchTableError(f"the table in {self.store.url} was dropped")
        try:
            return int(data), tag
        except ValueError as exc:
            raise StorageUnavailable(f"{self.where}/{HINT} is not a number") from exc

    def _raise_hint(self, version: int) -> int:
        """
        Raises the hint to `version` if it is lower; returns the hint.

        The hint never goes back, so one from memory is as good as one just read: it is at least that, and where it is
        lower than `version`, the put succeeds only if it is still the same. An error forgets it.
        """
        known = self.hints.pop(self.where, None)
        hint, tag = known or self._hint()
        for _ in range(_TRIES):
            if hint >= version:
                self.hints[self.where] = hint, tag
                return hint
            try:
                tag = self.store.replace(self.hint_key, b"%d" % version, if_match=tag)
            except Changed:
                hint, tag = self._hint()
                continue
            self.hints[self.where] = version, tag
            return version
        raise StorageUnavailable(f"{self.where}/{HINT} is replaced by other processes all the time")

    def _from(self, hint: int) -> tuple[bytes, int]:
        """The newest version at or above the hint."""
        found, version = self._read(hint, hint + 1), max(hint, 1)
        if hint > 0 and hint not in found:
            raise StorageUnavailable(f"{self.where}/{name(hint)} is not there, though the hint names it")
        if not found:
            raise NoSuchTableError(f"there is no table in {self.where}")
        while True:
            version = max(found)
            more = self._read(*range(version + 1, version + 5)) if version > hint else {}
            if not more:
                return found[version], version
            found = more

    def _read(self, *versions: int) -> dict[int, bytes]:
        """The versions that exist; raises StorageUnavailable when one cannot be read."""
        asked = self.store.read_many([self.key(version) for version in versions if version > 0])
        result = {}
        for key, answer in asked.items():
            if isinstance(answer, bytes):
                result[number(key)] = answer
            elif not isinstance(answer, Missing):
                raise answer
        return result
