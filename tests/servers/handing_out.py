"""
A REST catalog that hands out keys for a table's prefixes, and an S3 server that really refuses them when they end.

Two thin proxies. The one before the catalog adds keys to what loadTable answers; the one before the S3 server checks
signature, end and prefix of each request, and sends it on signed with the server's own keys. Both go by a clock that
the test moves.
"""

import hashlib
import hmac
import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from pyiceberg.catalog.rest import DEFAULT_ENDPOINTS

from tests.servers.proxy import Proxy, Reply, Request, proxy

_LOAD = re.compile(r"/v1/(?:[^/]+/)?namespaces/([^/]+)/tables(?:/([^/?]+))?(?:\?.*)?")
_ALONE = re.compile(r"/v1/(?:[^/]+/)?namespaces/([^/]+)/tables/([^/?]+)/credentials")
_LISTED = "GET /v1/{prefix}/namespaces/{namespace}/tables/{table}/credentials"
_SIGNED = re.compile(r"AWS4-HMAC-SHA256 Credential=([^/]+)/([^,]+), ?SignedHeaders=([^,]+), ?Signature=(\w+)")
_KEY = re.compile(rb"<Key>([^<]*)</Key>")
_OWN = {"test": "testtest"}
_SAS = "sv=2026-02-06&sr=d&sdd=2&sp=racwdl"


class Now:
    """A clock that a test moves; stands for the module `time`."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def time(self) -> float:
        """Seconds since 1970."""
        return self.seconds

    monotonic = time


@dataclass
class Handed:
    """Keys that were handed out, and what was done with them."""

    secret: str = field(repr=False)
    token: str = field(repr=False)
    prefix: str
    ends: float
    uses: int = 0


@dataclass
class Desk:
    """What both proxies know: the keys by id, and what was refused."""

    now: Now
    seconds: float = 60
    keys: dict[str, Handed] = field(default_factory=dict)
    #: by table `namespace.name`: the prefixes that are handed out beside its location
    more: dict[str, list[str]] = field(default_factory=dict)
    #: what a loadTable says beside the keys
    config: dict[str, str] = field(default_factory=dict)
    says_end: bool = True
    as_config: bool = False
    hands_out: bool = True
    expired: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    loads: list[str] = field(default_factory=list)
    #: whether the catalog lists an endpoint for keys alone, what it answers there, and how often it was asked
    lists_credentials: bool = False
    credentials_status: int = 200
    asked: list[str] = field(default_factory=list)
    locations: dict[str, str] = field(default_factory=dict)
    used: list[tuple[str, str]] = field(default_factory=list)
    numbers: "count[int]" = field(default_factory=count)
    #: makes the SAS token of a prefix that ends then, for a server that checks it; else it is made up
    sas: Callable[[str, float], str] | None = None

    def hand_out(self, prefix: str) -> dict[str, str]:
        """New keys for a prefix, as loadTable says them."""
        number = next(self.numbers)
        made = Handed(f"secret-of-{number:04d}-Zq", f"token-of-{number:04d}-Zq", prefix, self.now.time() + self.seconds)
        if not prefix.startswith("s3"):
            return self._token(number, made)
        self.keys[f"KEY{number:04d}"] = made
        said = {"s3.access-key-id": f"KEY{number:04d}", "s3.secret-access-key": made.secret}
        said["s3.session-token"] = made.token
        if self.says_end:
            said["s3.session-token-expires-at-ms"] = str(int(made.ends * 1000))
        return said

    def credentials(self, table: str) -> list[dict[str, Any]]:
        """New keys for a table's location and its other prefixes."""
        prefixes = [self.locations[table], *self.more.get(table, ())]
        return [{"prefix": one, "config": self.hand_out(one)} for one in prefixes]

    def _token(self, number: int, made: Handed) -> dict[str, str]:
        """A SAS token as Polaris says it, or a token of Google."""
        ends, key = str(int(made.ends * 1000)), made.token
        if made.prefix.startswith("gs"):
            said, end = {"gcs.oauth2.token": key}, {"gcs.oauth2.token-expires-at": ends}
        else:
            token = self.sas(made.prefix, made.ends) if self.sas else f"{_SAS}&sig={made.secret}"
            key = dict(parse_qsl(token))["sig"]
            host = made.prefix.partition("@")[2].partition("/")[0].replace(".blob.", ".dfs.")
            said = {f"adls.sas-token.{host}": token}
            end = {f"adls.sas-token-expires-at-ms.{host}": ends}
        self.keys[key] = made
        return {**said, **(end if self.says_end else {})}

    def secrets(self) -> list[str]:
        """All that no log, error or metric may show."""
        return [text for key, made in self.keys.items() for text in (key, made.secret, made.token)]


class CatalogProxy(Proxy):
    """Before the REST catalog."""

    desk: Desk

    def answer(self, request: Request) -> Reply:
        """As the catalog answers; a table comes with keys."""
        if (alone := _ALONE.fullmatch(request.path)) is not None and self.desk.lists_credentials:
            return self._alone(request, f"{alone[1]}.{alone[2]}")
        plain = {key: value for key, value in request.headers.items() if key.lower() != "accept-encoding"}
        reply = super().answer(replace(request, headers=plain))
        if request.path.startswith("/v1/config") and self.desk.lists_credentials:
            body = json.loads(reply.body)
            body.setdefault("endpoints", [str(one) for one in DEFAULT_ENDPOINTS]).append(_LISTED)
            return _json(body)
        found = _LOAD.fullmatch(request.path)
        if found is None or reply.status != 200 or (request.method != "GET" and found[2]):
            return reply
        body = json.loads(reply.body)
        table = f"{found[1]}.{found[2]}"
        self.desk.loads.append(table)
        body["config"] = {**body.get("config", {}), **self.desk.config}
        if self.desk.lists_credentials and found[2]:
            where = f"v1/namespaces/{found[1]}/tables/{found[2]}/credentials"
            body["config"]["client.refresh-credentials-endpoint"] = where
        location = self.desk.locations[table] = body["metadata"]["location"]
        if self.desk.as_config and self.desk.hands_out:
            body["config"] |= self.desk.hand_out(location)
        elif self.desk.hands_out:
            body["storage-credentials"] = self.desk.credentials(table)
        return _json(body)

    def _alone(self, request: Request, table: str) -> Reply:
        self.seen.append(request)
        self.desk.asked.append(table)
        handed_out = self.desk.credentials(table) if self.desk.hands_out else []
        return _json({"storage-credentials": handed_out}, self.desk.credentials_status)


def _json(body: dict[str, Any], status: int = 200) -> Reply:
    return Reply(status, [("Content-Type", "application/json")], json.dumps(body).encode())


class Guard(Proxy):
    """Before a storage; `problem` says why a request is not let through."""

    desk: Desk

    def problem(self, request: Request, key: str, places: list[str]) -> str:
        """The kind of the refusal of a request that came with this key and is about these places; noted. Or empty."""
        handed = self.desk.keys.get(key)
        if handed is None:
            return self.note(request, "unknown")
        if handed.ends <= self.desk.now.time() and self.desk.sas is None:
            return self.too_late(request)
        if not all(place.startswith(handed.prefix.replace(".blob.", ".dfs.", 1)) for place in places):
            return self.note(request, "elsewhere")
        handed.uses += 1
        self.desk.used.append((key, unquote(urlsplit(request.path).path)))
        return ""

    def too_late(self, request: Request) -> str:
        """Notes that a request came with a key that had ended."""
        self.desk.expired.append(f"{request.method} {urlsplit(request.path).path}")
        return self.note(request, "expired")

    def note(self, request: Request, why: str) -> str:
        """Notes a refusal."""
        self.desk.refused.append(f"{why} {request.method} {unquote(urlsplit(request.path).path)}")
        return why


class StorageProxy(Proxy):
    """Before the S3 server."""

    desk: Desk

    def answer(self, request: Request) -> Reply:
        """The server's answer, or 403."""
        self.seen.append(request)
        headers = {key.lower(): value for key, value in request.headers.items()}
        found = _SIGNED.fullmatch(headers.get("authorization", ""))
        if found is None:
            return self._refuse(request, "AccessDenied")
        key, scope, names, signature = found.groups()
        handed = self.desk.keys.get(key)
        secret = handed.secret if handed else _OWN.get(key, "")
        if not secret or _signature(request, headers, names.split(";"), scope, secret) != signature:
            return self._refuse(request, "SignatureDoesNotMatch")
        if handed is not None:
            if headers.get("x-amz-security-token") != handed.token:
                return self._refuse(request, "InvalidToken")
            if handed.ends <= self.desk.now.time():
                self.desk.expired.append(f"{request.method} {request.path}")
                return self._refuse(request, "ExpiredToken")
            if not all(where.startswith(handed.prefix) for where in _places(request)):
                return self._refuse(request, "AccessDenied")
            handed.uses += 1
        self.desk.used.append((key, unquote(request.path)))
        whole = _whole(replace(request, headers=headers))
        return self.forward(
            _anew(whole, whole.headers, [name for name in names.split(";") if name in whole.headers], scope)
        )

    def _refuse(self, request: Request, code: str) -> Reply:
        self.desk.refused.append(f"{code} {request.method} {unquote(request.path)}")
        body = f'<?xml version="1.0"?><Error><Code>{code}</Code><Message>no</Message></Error>'.encode()
        return Reply(403, [("Content-Type", "application/xml")], body)


_TOKEN = "x-amz-security-token"
_OF_CHUNKS = {"content-encoding", "x-amz-decoded-content-length", "x-amz-trailer", "x-amz-sdk-checksum-algorithm"}


def _places(request: Request) -> list[str]:
    """What a request is about."""
    parts = urlsplit(request.path)
    bucket, _, key = unquote(parts.path).lstrip("/").partition("/")
    asked = dict(parse_qsl(parts.query, keep_blank_values=True))
    if "delete" in asked:
        return [f"s3://{bucket}/{found.decode()}" for found in _KEY.findall(request.body)]
    return [f"s3://{bucket}/{key or asked.get('prefix', '')}"]


def _whole(request: Request) -> Request:
    """The request without what its own keys signed besides: its token, and each chunk of a body in chunks."""
    headers = {key: value for key, value in request.headers.items() if key != _TOKEN}
    if not headers.get("x-amz-content-sha256", "").startswith("STREAMING-"):
        return replace(request, headers=headers)
    kept = {key: value for key, value in headers.items() if key not in _OF_CHUNKS}
    body, rest = b"", request.body
    while (size := int(rest.partition(b";")[0].partition(b"\r\n")[0], 16)) > 0:
        start = rest.index(b"\r\n") + 2
        body, rest = body + rest[start : start + size], rest[start + size + 2 :]
    kept |= {"x-amz-content-sha256": hashlib.sha256(body).hexdigest(), "content-length": str(len(body))}
    return replace(request, headers=kept, body=body)


def _anew(request: Request, headers: dict[str, str], names: list[str], scope: str) -> Request:
    """The request as the owner of the server sends it."""
    kept = {key: value for key, value in headers.items() if key != _TOKEN}
    signature = _signature(request, kept, names, scope, _OWN["test"])
    about = f"Credential=test/{scope}, SignedHeaders={';'.join(names)}, Signature={signature}"
    return replace(request, headers={**kept, "authorization": f"AWS4-HMAC-SHA256 {about}"})


def _signature(request: Request, headers: dict[str, str], names: list[str], scope: str, secret: str) -> str:
    """Signature version 4, of the request as it came."""
    parts = urlsplit(request.path)
    pairs = sorted((quote(key, "-_.~"), quote(value, "-_.~")) for key, value in parse_qsl(parts.query, True))
    # `http.client` says these itself.
    given = {"content-length": str(len(request.body)), **headers}
    lines = "".join(f"{name}:{' '.join(given.get(name, '').split())}\n" for name in names)
    hashed = headers.get("x-amz-content-sha256", "UNSIGNED-PAYLOAD")
    query = "&".join(f"{key}={value}" for key, value in pairs)
    canonical = "\n".join([request.method, parts.path, query, lines, ";".join(names), hashed])
    digest = hashlib.sha256(canonical.encode()).hexdigest()
    text = "\n".join(["AWS4-HMAC-SHA256", headers.get("x-amz-date", ""), scope, digest])
    key = f"AWS4{secret}".encode()
    for part in (*scope.split("/"), text):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return key.hex()


@contextmanager
def handing_out(catalog: int, storage: int, now: Now) -> Iterator[tuple[CatalogProxy, StorageProxy, Desk]]:
    """
    Proxies before the REST catalog and the S3 server on these ports, with one desk.
    """
    with proxy(catalog, CatalogProxy) as first, proxy(storage, StorageProxy) as second:
        assert isinstance(first, CatalogProxy) and isinstance(second, StorageProxy)
        first.desk = second.desk = desk = Desk(now)
        yield first, second, desk
