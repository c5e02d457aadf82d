"""
What a REST catalog's answer says of a storage: the keys, under one name each, and how it is reached.

Polaris, Lakekeeper and Unity name an Azure account in different ways: by its host, for blobs or for files, or by its
name alone; and the end of a SAS token by one of these, or only in the token.
"""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qs

from bookkeeper.stores.handed_out import ENDS_AT, KEYS
from bookkeeper.stores.locations import one_account

_SCHEMES = {"s3": "s3", "s3a": "s3", "s3n": "s3", "gs": "gs", "gcs": "gs"}
_SCHEMES |= dict.fromkeys(("abfs", "abfss", "wasb", "wasbs", "adls"), "abfss")
_OPTIONS = {"s3": ("s3.", "client."), "gs": ("gcs.",), "abfss": ("adls.",)}
#: requests that the catalog wants to sign; where it hands out keys anew
_NOT_OPTIONS = ("s3.remote-signing-enabled", "s3.signer", "refresh-credentials-endpoint", "refresh-credentials-enabled")
_SAS, _SAS_ENDS = KEYS["abfss"][0], ENDS_AT["abfss"]


def place_of(prefix: str) -> str | None:
    """A prefix with the one spelling of its scheme and account; None where it is of no storage that is known."""
    scheme, _, rest = prefix.partition("://")
    plain = _SCHEMES.get(scheme)
    if plain is None:
        return None
    return one_account(f"abfss://{rest}") if plain == "abfss" else f"{plain}://{rest}"


def told_for(place: str, config: Mapping[str, Any]) -> dict[str, str]:
    """
    The options in an answer that count for `place`, with its keys; none where keys are missing.

    No class to import, and nothing that is about another storage.
    """
    scheme, _, rest = place.partition("://")
    told = {
        key: str(value)
        for key, value in config.items()
        if key.startswith(_OPTIONS[scheme]) and not key.endswith(_NOT_OPTIONS)
    }
    if scheme == "abfss":
        told = _of_account(rest.partition("/")[0].rpartition("@")[2], told)
    return told if all(told.get(key) for key in KEYS[scheme]) else {}


def _of_account(host: str, told: Mapping[str, str]) -> dict[str, str]:
    """The same with the SAS token of this account alone; of the only one where there is no account."""
    found = {key: value for key, value in told.items() if not key.startswith(_SAS)}
    token = next(_said(_SAS, host, told), "")
    ends = next(_said(_SAS_ENDS, host, told), "") or _end_of(token)
    return {**found, **({_SAS: token} if token else {}), **({_SAS_ENDS: ends} if ends else {})}


def _said(key: str, host: str, told: Mapping[str, str]) -> Iterator[str]:
    for name in (host, host.replace(".dfs.", ".blob.", 1), host.partition(".")[0]):
        yield from filter(None, [told.get(f"{key}.{name}")])
    yield from filter(None, [told.get(key)])
    others = {value for name, value in told.items() if name.startswith(f"{key}.")}
    if not host and len(others) == 1:
        yield from others


def _end_of(token: str) -> str:
    """The end that a SAS token says itself (`se=2026-01-31T12:00:00Z`), in ms since 1970; empty where it says none."""
    try:
        end = datetime.fromisoformat(parse_qs(token.removeprefix("?"))["se"][0])
        at = end if end.tzinfo else end.replace(tzinfo=UTC)
        return str(int(at.timestamp() * 1000))
    except (KeyError, ValueError, OverflowError):
        return ""
