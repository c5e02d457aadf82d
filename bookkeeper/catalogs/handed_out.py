"""
What a REST catalog hands out with a table: keys of its storage, for all its prefixes.

pyiceberg keeps one set of keys, chosen by where the metadata lies, and never renews it. Here all that an answer
holds is kept, each load replaces it, and stores and FileIO of the table take the keys of each path as they are at that
moment. The catalog's answer is trusted: it may also name the endpoint and the region. The table's properties are not.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from pyiceberg.io import FileIO, InputFile, OutputFile, load_file_io
from pyiceberg.typedef import Properties

from bookkeeper.errors import PathRefused, TableUnusable
from bookkeeper.stores.handed_out import ACCESS_KEY, SECRET_KEY, Keys, TableKeys
from bookkeeper.stores.locations import normal
from bookkeeper.stores.open import handed_out_store, keys_of, stores_with, without_secrets
from bookkeeper.stores.store import Store

_NAME = "_bookkeeper_handed_out"
_S3 = ("s3.", "client.")
_SIGNING = ("s3.remote-signing-enabled", "s3.signer")
_OWN_KEYS = ("s3.access-key-id", "client.access-key-id", "s3.profile-name", "client.profile-name")
_PLACES = ("write.data.path", "write.metadata.path")


def stores_of(catalog: Any, identifier: str) -> Callable[[str], Store]:
    """
    Opens stores for a table: with the keys that its catalog hands out for paths in them, else with the catalog's own
    properties. What was handed out counts from the first load of the table on.
    """
    handed_out: HandedOut | None = getattr(catalog, _NAME, None)
    if handed_out is None:
        return stores_with(catalog.properties)
    return handed_out.stores(catalog.identifier_to_tuple(identifier))


class HandedOut:
    """The keys of every table that a REST catalog was asked for."""

    def __init__(self, catalog: Any) -> None:
        self._catalog = catalog
        self._tables: dict[tuple[str, ...], TableKeys] = {}
        setattr(catalog, _NAME, self)

    def stores(self, table: tuple[str, ...]) -> Callable[[str], Store]:
        """Opens stores for the table."""
        return lambda url: handed_out_store(url, self._of(table), self._catalog.properties)

    def take(self, table: tuple[str, ...], response: Any) -> "TableIO | None":
        """
        Keeps what an answer hands out; returns the table's FileIO, None where the answer has no keys.

        Raises TableUnusable where the catalog wants to sign each request itself, and there are no keys at all.
        """
        handed_out = self._by_prefix(response)
        if not handed_out:
            self._check_signing(table, response)
        keys = self._of(table) if handed_out else self._tables.get(table)
        if keys is not None:
            keys.take(handed_out)
        return TableIO(self._catalog.properties, keys) if keys else None

    def _of(self, table: tuple[str, ...]) -> TableKeys:
        if table not in self._tables:
            made = TableKeys(".".join(table), partial(self._catalog.load_table, table))
            self._tables.setdefault(table, made)
        return self._tables[table]

    def _by_prefix(self, response: Any) -> dict[str, dict[str, str]]:
        config, found = _told(response.config), dict[str, dict[str, str]]()
        if _has_keys(config):
            properties = response.metadata.properties
            places = (response.metadata.location, *(properties.get(key) for key in _PLACES))
            found |= {f"{place.rstrip('/')}/": config for place in places if place}
        for item in response.storage_credentials:
            if _has_keys(told := {**config, **_told(item.config)}):
                found[item.prefix] = told
        return {
            place: {**without_secrets("s3.", urlsplit(place).netloc, self._catalog.properties), **told}
            for prefix, told in found.items()
            if (place := _place(prefix)) is not None
        }

    def _check_signing(self, table: tuple[str, ...], response: Any) -> None:
        asked = dict(response.config)
        for item in response.storage_credentials:
            asked |= item.config
        if not any(str(asked.get(key, "false")).lower() != "false" for key in _SIGNING):
            return
        own = keys_of("s3.", urlsplit(response.metadata.location).netloc, self._catalog.properties)
        if not any(own.get(key) for key in _OWN_KEYS):
            raise TableUnusable(
                f"the catalog hands out no keys with {'.'.join(table)}: it would sign each request to the storage "
                "itself (remote signing), which is not supported",
                hint="Let the catalog hand out keys (vended credentials), or give this program keys of its own in "
                "[catalog]: docs/stores.md.",
            )


class TableIO(FileIO):
    """
    pyiceberg's FileIO of a table, with the keys of each path as they are now; made anew inside when they are renewed.
    """

    def __init__(self, own: Properties, keys: TableKeys) -> None:
        super().__init__(without_secrets("s3.", "", own))
        self._own, self._keys = own, keys
        self._made: dict[str, tuple[Keys | None, FileIO]] = {}

    def new_input(self, location: str) -> InputFile:
        """See FileIO; raises StorageUnavailable where keys have ended."""
        return self._at(location).new_input(location)

    def new_output(self, location: str) -> OutputFile:
        """See FileIO; raises StorageUnavailable where keys have ended."""
        return self._at(location).new_output(location)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """See FileIO."""
        text = location if isinstance(location, str) else location.location
        self._at(text).delete(text)

    def _at(self, location: str) -> FileIO:
        try:
            keys = self._keys.fresh(normal(location))
        except PathRefused:
            keys = None  # pyiceberg decides about locations that we refuse
        place = keys.prefix if keys else location.partition("://")[0]
        known = self._made.get(place)
        if known is None or known[0] is not keys:
            options = {**_others(self._own), **keys.options} if keys else self._own
            known = self._made[place] = (keys, load_file_io(dict(options), location))
        return known[1]


def _others(own: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in own.items() if not key.startswith(_S3)}


def _told(config: Mapping[str, Any]) -> dict[str, str]:
    """What counts of an answer: no class to import, and none of what is not about S3."""
    return {key: str(value) for key, value in config.items() if key.startswith(_S3) and key not in _SIGNING}


def _has_keys(config: Mapping[str, str]) -> bool:
    return bool(config.get(ACCESS_KEY) and config.get(SECRET_KEY))


def _place(prefix: str) -> str | None:
    """The prefix with the one spelling of its scheme; None where it is not of S3."""
    scheme, colon, rest = prefix.partition("://")
    if scheme not in ("s3", "s3a", "s3n"):
        return None
    return f"s3://{rest}" if colon else "s3://"
