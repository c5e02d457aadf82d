"""
What a REST catalog hands out with a table: keys of its storage, for all its prefixes.

pyiceberg keeps one set of keys, chosen by where the metadata lies, and never renews it. Here all that an answer
holds is kept, each load replaces it, and stores and FileIO of the table take the keys of each path as they are at that
moment. The catalog's answer is trusted: it may also name the endpoint and the region. The table's properties are not.
"""

import json
import logging
import os
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from hashlib import sha256
from threading import Lock
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4
from weakref import WeakValueDictionary

from pyiceberg.io import FileIO, InputFile, OutputFile, load_file_io
from pyiceberg.typedef import Properties

from bookkeeper.catalogs.answers import retry_after
from bookkeeper.catalogs.storage_credentials import place_of, told_for
from bookkeeper.catalogs.store_io import StoreFile
from bookkeeper.errors import CatalogUnavailable, PathRefused, TableUnusable
from bookkeeper.stores.handed_out import TableKeys
from bookkeeper.stores.locations import at_account
from bookkeeper.stores.open import handed_out_store, keys_of, prefix_of, stores_with, without_secrets
from bookkeeper.stores.store import Store

log = logging.getLogger(__name__)
_NAME = "_bookkeeper_handed_out"
_SIGNING = ("s3.remote-signing-enabled", "s3.signer")
_OWN_KEYS = ("s3.access-key-id", "client.access-key-id", "s3.profile-name", "client.profile-name")
_CREDENTIALS = "/tables/{table}/credentials"
#: options that only say how answers are read
_NO_IDENTITY = ("py-io-impl", "snapshot-loading-mode")
_SIGV4 = "rest.sigv4-enabled"
#: of `auth`: what the options alone say the principal of; of others the environment does, or a class of a stranger
_KINDS = (None, "noop", "basic", "legacyoauth2", "oauth2")
_OUR_AUTH = "bookkeeper.catalogs.rest."
_LOCK = Lock()
#: by process, configuration and table: what was handed out, as long as a catalog or a store has it
_SHARED: WeakValueDictionary[tuple[int, str, tuple[str, ...]], TableKeys] = WeakValueDictionary()
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


def covers(catalog: Any, identifier: str, url: str) -> int:
    """
    The length of the longest prefix of which the catalog handed out keys, and below which the folder at `url` lies;
    0 where there is none.
    """
    handed_out: HandedOut | None = getattr(catalog, _NAME, None)
    try:
        place = f"{at_account(url)}/"
    except PathRefused:
        return 0
    keys = handed_out and handed_out.keys(catalog.identifier_to_tuple(identifier)).at(place)
    return len(keys.prefix) if keys else 0


class HandedOut:
    """The keys of every table that a REST catalog was asked for."""

    def __init__(self, catalog: Any) -> None:
        self._catalog, self._identity = catalog, _identity(catalog)
        self._tables: dict[tuple[str, ...], TableKeys] = {}
        setattr(catalog, _NAME, self)

    def stores(self, table: tuple[str, ...]) -> Callable[[str], Store]:
        """Opens stores for the table."""
        return lambda url: handed_out_store(url, self.keys(table), self._catalog.properties)

    def take(self, table: tuple[str, ...], response: Any) -> "TableIO | None":
        """
        Keeps what an answer hands out; returns the table's FileIO, None where the answer has no keys.

        Raises TableUnusable where the catalog wants to sign each request itself, and there are no keys at all.
        """
        places = _places(response.metadata)
        handed_out = self._by_prefix(places, response.config, response.storage_credentials)
        if not handed_out:
            self._check_signing(table, response)
        known = self._tables.get(table) or _SHARED.get((os.getpid(), self._identity, table))
        keys = self.keys(table) if handed_out else known
        if keys is not None:
            keys.take(handed_out)
        return TableIO(self._catalog.properties, keys, self.stores(table)) if keys else None

    def keys(self, table: tuple[str, ...]) -> TableKeys:
        """
        What was handed out for the table so far, to this catalog or to another one of this process that the same
        configuration opened: one of them asks for new keys, for all.
        """
        if table not in self._tables:
            with _LOCK:
                made = _SHARED.get((os.getpid(), self._identity, table))
                if made is None:
                    made = TableKeys(".".join(table), partial(self._renew, table))
                    _SHARED[os.getpid(), self._identity, table] = made
            self._tables.setdefault(table, made)
        return self._tables[table]

    def _renew(self, table: tuple[str, ...]) -> None:
        """Asks for keys alone where the server lists that it answers; for the whole table else, or without success."""
        try:
            if self._lists_credentials() and self._take_alone(table):
                return
        except Exception as exc:  # noqa: BLE001 - of an HTTP client; the load of the table says what is wrong
            _leave_alone(exc)
            facts = {"action": "credentials", "table": ".".join(table), "error": type(exc).__name__}
            log.info("the catalog handed out no keys without the table", extra=facts)
        try:
            self._catalog.load_table(table)
        except Exception as exc:
            _leave_alone(exc)
            raise

    def _lists_credentials(self) -> bool:
        listed = getattr(self._catalog, "_supported_endpoints", ())
        return any(str(endpoint).startswith("GET ") and str(endpoint).endswith(_CREDENTIALS) for endpoint in listed)

    def _take_alone(self, table: tuple[str, ...]) -> bool:
        """Takes new keys for the same prefixes; False where the answer has not those."""
        keys, found = self.keys(table), dict[str, dict[str, str]]()
        settings = keys.settings
        for item in self._catalog._load_credentials(table).storage_credentials:
            place = place_of(item.prefix)
            told = told_for(place, item.config) if place else {}
            if place in settings and told:
                found[place] = {**settings[place], **told}
        if not found or found.keys() != settings.keys():
            return False
        keys.take(found)
        return True

    def _by_prefix(
        self, places: Iterable[str], config: Mapping[str, Any], credentials: Iterable[Any]
    ) -> dict[str, dict[str, str]]:
        """Options by prefix; keys in `config` count for the `places` that no other prefix covers."""
        given = [(item.prefix, {**config, **item.config}) for item in credentials]
        found = dict[str, dict[str, str]]()
        for prefix, options in (*given, *((place, config) for place in places)):
            place = place_of(prefix)
            told = told_for(place, options) if place else {}
            if place and told and not (options is config and place.startswith(tuple(found))):
                found[place] = {**self._own(place), **told}
        return found

    def _own(self, place: str) -> dict[str, str]:
        """What the configuration says of a place, and no secret."""
        parts = urlsplit(place)
        return without_secrets(prefix_of(parts.scheme), parts.username or parts.netloc, self._catalog.properties)

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


def _identity(catalog: Any) -> str:
    """
    Equal for two catalogs of this process only where whatever says address, warehouse and principal is equal.

    A digest, so that no dump of it shows a secret.
    """
    said = {key: value for key, value in catalog.properties.items() if key not in _NO_IDENTITY}
    auth = said.get("auth") or {}
    is_ours = isinstance(auth, Mapping) and str(auth.get("impl", "")).startswith(_OUR_AUTH)
    kind = auth.get("type") if isinstance(auth, Mapping) else auth
    if str(said.get(_SIGV4, "")).lower() == "true" or not (is_ours or kind in _KINDS):
        return uuid4().hex  # the environment says which principal it is, as it was when the catalog was opened
    text = json.dumps([type(catalog).__qualname__, getattr(catalog, "name", ""), said], sort_keys=True, default=repr)
    return sha256(text.encode()).hexdigest()


def _leave_alone(exc: Exception) -> None:
    """Raises CatalogUnavailable with the pause that the catalog asks for, where it does."""
    if (pause := retry_after(exc)) is not None:
        error = CatalogUnavailable("the catalog asks to be left alone")
        error.pause = pause
        raise error from exc


class TableIO(FileIO):
    """
    pyiceberg's FileIO of a table: what the catalog handed out keys for is read and written through stores, the rest as
    pyiceberg does it with the configuration.
    """

    def __init__(self, own: Properties, keys: TableKeys, stores: Callable[[str], Store]) -> None:
        super().__init__(without_secrets("s3.", "", own))
        self._own, self._keys, self._open = own, keys, stores
        self._stores: dict[str, Store] = {}
        self._others: dict[str, FileIO] = {}

    def new_input(self, location: str) -> InputFile:
        """See FileIO."""
        file = self._file(location)
        return self._other(location).new_input(location) if file is None else file

    def new_output(self, location: str) -> OutputFile:
        """See FileIO."""
        file = self._file(location)
        return self._other(location).new_output(location) if file is None else file

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """See FileIO."""
        text = location if isinstance(location, str) else location.location
        file = self._file(text)
        if file is None:
            self._other(text).delete(text)
        else:
            file.delete()

    def _file(self, location: str) -> StoreFile | None:
        try:
            place = at_account(location)
        except PathRefused:
            return None  # pyiceberg decides about locations that we refuse
        if self._keys.at(place) is None:
            return None
        scheme, _, rest = place.partition("://")
        authority, _, key = rest.partition("/")
        root = f"{scheme}://{authority}"
        if root not in self._stores:
            self._stores[root] = self._open(root)
        return StoreFile(location, self._stores[root], key)

    def _other(self, location: str) -> FileIO:
        scheme = location.partition("://")[0]
        if scheme not in self._others:
            self._others[scheme] = load_file_io(dict(self._own), location)
        return self._others[scheme]


def _places(metadata: Any) -> list[str]:
    """Where a table's files are written to; each with a slash behind it."""
    places = (metadata.location, *(metadata.properties.get(key) for key in _PLACES))
    return [f"{place.rstrip('/')}/" for place in places if place]
