"""
From a URL to its store. One client for each account and process, however many stores are opened on it.
"""

import os
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache, partial
from importlib import import_module
from typing import Any
from urllib.parse import SplitResult, urlsplit

from bookkeeper.errors import ConfigInvalid, ExtraMissing
from bookkeeper.stores.handed_out import TableKeys
from bookkeeper.stores.locations import at_account, local_path, normal
from bookkeeper.stores.object_store import ObjectStore, Remote
from bookkeeper.stores.store import Store

#: scheme -> module of the remote, prefix of its options, the extra that brings its client
_KINDS = {
    "s3": ("bookkeeper.stores.s3", "s3.", "s3"),
    "abfss": ("bookkeeper.stores.azure", "adls.", "azure"),
    "gs": ("bookkeeper.stores.gcs", "gcs.", "gcs"),
}
_ALSO = {"wasbs": "abfss"}
_CLASSES = {"s3": "S3Remote", "abfss": "AzureRemote", "gs": "GcsRemote"}
_CLIENT = "client."
#: keys, without their prefix, that are a credential or a part of one
_SECRETS = frozenset({
    "access-key-id", "secret-access-key", "session-token", "profile-name", "connection-string", "account-key",
    "sas-token", "tenant-id", "client-id", "client-secret", "oauth2.token",
})  # fmt: skip

#: of an account
_SAS = "sas-token."
_ANONYMOUS = ("anonymous", "anon")


def stores_with(options: Mapping[str, Any]) -> Callable[[str], Store]:
    """
    `open_store` with these options, as a configuration or a catalog has them.
    """
    return partial(open_store, options=options)


def open_store(url: str, options: Mapping[str, Any] | None = None) -> Store:
    """
    The store at `url`: a path or `file:` URL, `memory:`, `s3:`, `abfs(s):`, `wasb(s):` or `gs:`.

    `options` are pyiceberg's keys (`s3.endpoint`, `adls.account-name`, ...). Raises ConfigInvalid, ExtraMissing.
    """
    path = None if url.startswith("memory:") else local_path(url)
    if path is not None:
        from bookkeeper.stores.local import LocalStore

        return LocalStore(path)
    if url.startswith("memory:"):
        from bookkeeper.stores.memory import MemoryStore

        return MemoryStore(url, {})
    return object_store(url, options or {})


def object_store(url: str, options: Mapping[str, Any]) -> ObjectStore:
    """
    The store at `url`; raises ConfigInvalid for an unknown scheme, ExtraMissing when its client is not installed.
    """
    parts, scheme = _parts(url)
    if scheme not in _KINDS:
        raise ConfigInvalid(
            f"{url}: storage {parts.scheme!r} is not supported; file, s3, abfs(s), gs and memory are",
            hint="docs/stores.md says what is.",
        )
    return ObjectStore(url, parts.path, _own_remote(parts, scheme, options), options=options)


def _parts(url: str) -> tuple[SplitResult, str]:
    parts = urlsplit(normal(url))
    return parts, _ALSO.get(parts.scheme, parts.scheme)


def _own_remote(parts: SplitResult, scheme: str, options: Mapping[str, Any]) -> Remote:
    bucket = parts.username or parts.netloc
    chosen = frozenset(keys_of(_KINDS[scheme][1], bucket, options).items())
    return _remote(scheme, bucket, parts.hostname if parts.username else "", chosen)


def handed_out_store(url: str, keys: TableKeys, own: Mapping[str, Any]) -> Store:
    """
    The store at `url`, with the keys that a catalog handed out for paths in it, and the options `own` for all others.

    Raises like `open_store`.
    """
    if not keys or url.startswith("memory:"):
        return open_store(url, own)
    parts, scheme = _parts(url)
    if scheme not in _KINDS:
        return open_store(url, own)
    from bookkeeper.stores.handed_out_remote import HandedOutAzure, HandedOutRemote

    module = _imported(scheme)
    made = HandedOutAzure if scheme == "abfss" else HandedOutRemote
    remote = made(
        keys,
        at_account(f"{parts.scheme}://{parts.netloc}/"),
        getattr(module, _CLASSES[scheme]),
        partial(module.held, parts.username or parts.netloc, parts.hostname if parts.username else ""),
        partial(_own_remote, parts, scheme, own),
    )
    return ObjectStore(url, parts.path, remote, options=own)


def prefix_of(scheme: str) -> str:
    """What the options of a scheme's storage begin with, such as `s3.`; raises KeyError for another scheme."""
    return _KINDS[scheme][1]


def without_secrets(prefix: str, bucket: str, options: Mapping[str, Any]) -> dict[str, str]:
    """
    The options of this bucket or container, without any that is a credential or a part of one.
    """
    found = keys_of(prefix, bucket, options)
    return {
        key: value
        for key, value in found.items()
        if not _is_secret(key.removeprefix(prefix)) and key.removeprefix(prefix) not in _ANONYMOUS
    }


def keys_of(prefix: str, bucket: str, options: Mapping[str, Any]) -> dict[str, str]:
    """
    The options of this bucket or container: its own (`s3.bucket.NAME.endpoint`) override the shared ones.
    """
    others = f"{prefix}bucket."
    found = {key: str(value) for key, value in options.items() if key.startswith((prefix, _CLIENT))}
    mine = f"{others}{bucket}."
    own = {prefix + key.removeprefix(mine): value for key, value in found.items() if key.startswith(mine)}
    # Half of one credential and half of another do not make one.
    taken = any(_is_secret(key.removeprefix(prefix)) for key in own)
    shared = {
        key: value
        for key, value in found.items()
        if not key.startswith(others) and not (taken and _is_secret(key.removeprefix(prefix)))
    }
    return {**shared, **own}


def names_keys(url: str, options: Mapping[str, Any]) -> bool:
    """
    Whether these options say how the bucket or container of `url` is reached: by a credential, or by any option of its
    own (`s3.bucket.NAME.region`), with which the environment has the keys. A local disk needs none.
    """
    if url.startswith("memory:") or local_path(url) is not None:
        return True
    parts, scheme = _parts(url)
    if scheme not in _KINDS:
        return True  # refused where it is opened
    prefix, bucket = _KINDS[scheme][1], parts.username or parts.netloc
    own = any(key.startswith(f"{prefix}bucket.{bucket}.") for key in options)
    return own or any(_is_secret(key.removeprefix(prefix)) for key in keys_of(prefix, bucket, options))


def _is_secret(name: str) -> bool:
    plain = name.removeprefix(_CLIENT)
    return plain in _SECRETS or plain.startswith(_SAS)


def _remote(scheme: str, bucket: str, host: str | None, options: Iterable[tuple[str, str]]) -> Remote:
    module = _imported(scheme)
    # A fork inherits sockets, but neither the thread nor the loop that reads them.
    fs = _filesystem(scheme, host or "", frozenset(options), os.getpid())
    remote: Remote = getattr(module, _CLASSES[scheme])(fs, bucket)
    return remote


@lru_cache(maxsize=256)
def _filesystem(scheme: str, host: str, options: frozenset[tuple[str, str]], process: int) -> Any:
    make: Callable[..., Any] = _imported(scheme).filesystem
    try:
        return make(dict(options), host) if scheme == "abfss" else make(dict(options))
    except ValueError as exc:
        # adlfs repeats the credentials in its message, so the message is not shown.
        raise ConfigInvalid(
            f"{scheme}: no usable credentials for {host or 'this account'} ({type(exc).__name__})",
            hint="docs/stores.md says which keys and which variables of the environment are read.",
        ) from None


def _imported(scheme: str) -> Any:
    module, _, extra = _KINDS[scheme]
    try:
        return import_module(module)
    except ModuleNotFoundError as exc:
        missing = (exc.name or "").partition(".")[0]
        if missing == "bookkeeper":
            raise
        hint = f"Run: pip install 'iceberg-bookkeeper[{extra}]'"
        raise ExtraMissing(f"{missing} is not installed, which {scheme}: needs", hint=hint) from exc
