"""
Azurite and a server that speaks Google's JSON API, each behind a proxy that lets a request through only with a token
that was handed out for its path, and until that ends. The proxy sends it on with what the server itself asks for.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

from azure.storage.blob import AccountSasPermissions, ResourceTypes, generate_account_sas

from tests.servers.handing_out import Desk, Guard
from tests.servers.objects import ACCOUNT, KEY
from tests.servers.proxy import Reply, Request, proxy

_FAILED = b"<?xml version='1.0'?><Error><Code>AuthenticationFailed</Code><Message>no</Message></Error>"
_SAS = {"sv", "sr", "sdd", "sp", "se", "sig"}
_COPY = "x-ms-copy-source"
_OBJECT = re.compile(r"/storage/v1/b/([^/]+)/o(?:/([^/]+)(?:/rewriteTo/b/([^/]+)/o/([^/]+))?)?")
_UPLOAD = re.compile(r"/upload/storage/v1/b/([^/]+)/o")


@dataclass
class AzureGuard(Guard):
    """Before Azurite. A request that is signed with the account's key is Azurite's own affair."""

    #: what requests are sent on with; without it with their own token, which the server then checks
    sas: str = ""

    def answer(self, request: Request) -> Reply:
        """Azurite's answer, or 403 as Azure says it."""
        self.seen.append(request)
        headers = {key.lower(): value for key, value in request.headers.items()}
        if "authorization" in headers:
            self.desk.used.append(("own", unquote(urlsplit(request.path).path)))
            return self.forward(request)
        source = headers.get(_COPY)
        for url in [request.path, *([source] if source else [])]:
            if self.problem(request, dict(parse_qsl(urlsplit(url).query)).get("sig", ""), [_place(url)]):
                return _refused(_FAILED, "AuthenticationFailed")
        if source:
            headers["host"] = f"127.0.0.1:{self.upstream}"  # Azurite copies only from what has its own name
            headers[_COPY] = urlsplit(self._authorized(source))._replace(netloc=headers["host"]).geturl()
        reply = self.forward(replace(request, path=self._authorized(request.path), headers=headers))
        if not self.sas and reply.status == 403:
            self._refused_by_server(request)
        return reply

    def _refused_by_server(self, request: Request) -> None:
        key = dict(parse_qsl(urlsplit(request.path).query)).get("sig", "")
        if self.desk.keys[key].ends <= self.desk.now.time() + 1:  # a token ends at a whole second
            self.too_late(request)
        else:
            self.note(request, "403")

    def _authorized(self, url: str) -> str:
        if not self.sas:
            return url
        parts = urlsplit(url)
        asked = [(key, value) for key, value in parse_qsl(parts.query, True) if key not in _SAS]
        return parts._replace(query="&".join(filter(None, [urlencode(asked), self.sas]))).geturl()


def _place(url: str) -> str:
    parts = urlsplit(url)
    container, _, key = unquote(parts.path).removeprefix(f"/{ACCOUNT}/").partition("/")
    asked = dict(parse_qsl(parts.query))
    return f"abfss://{container}@{ACCOUNT}.dfs.core.windows.net/{key or asked.get('prefix', '')}"


class GoogleGuard(Guard):
    """Before a server that speaks Google's JSON API, which asks for no token."""

    def answer(self, request: Request) -> Reply:
        """The server's answer, or 401. The bucket `queue` needs no token."""
        self.seen.append(request)
        places = _objects(request.path)
        key = request.headers.get("authorization", request.headers.get("Authorization", "")).removeprefix("Bearer ")
        if not key and places and all(place.startswith("gs://queue/") for place in places):
            self.desk.used.append(("own", unquote(urlsplit(request.path).path)))
            return self.forward(request)
        if not places:
            self.note(request, "nowhere")
            return _refused(b"{}", "")
        return _refused(b"{}", "", 401) if self.problem(request, key, places) else self.forward(request)


def _objects(path: str) -> list[str]:
    parts = urlsplit(path)
    asked = dict(parse_qsl(parts.query, True))
    if (found := _UPLOAD.fullmatch(parts.path)) is not None:
        return [f"gs://{found[1]}/{asked.get('name', '')}"]
    if (found := _OBJECT.fullmatch(parts.path)) is None:
        return []
    name = unquote(found[2]) if found[2] else asked.get("prefix", "")
    more = [f"gs://{found[3]}/{unquote(found[4])}"] if found[3] else []
    return [f"gs://{found[1]}/{name}", *more]


def _refused(body: bytes, code: str, status: int = 403) -> Reply:
    return Reply(status, [("Content-Type", "application/xml"), ("x-ms-error-code", code)], body)


@contextmanager
def guarded(kind: type[Guard], storage: int, desk: Desk) -> Iterator[Guard]:
    """
    The proxy, before the server on this port.
    """
    with proxy(storage, kind) as made:
        assert isinstance(made, Guard)
        made.desk = desk
        if isinstance(made, AzureGuard) and desk.sas is None:
            may = AccountSasPermissions(read=True, write=True, delete=True, list=True, add=True, create=True)
            all_kinds, until = ResourceTypes(container=True, object=True), datetime.now(UTC) + timedelta(days=1)
            made.sas = generate_account_sas(ACCOUNT, KEY, all_kinds, may, until, protocol="https,http")
        yield made
