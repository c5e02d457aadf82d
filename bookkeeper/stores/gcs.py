"""
Google Cloud Storage through gcsfs: its credentials and client, one request for each call of the JSON API.

Exclusive create is `ifGenerationMatch=0`, replacing is by the generation that was read: Google honours If-None-Match
on reads only. A 404 that does not name the object counts as missing only when the bucket can be listed.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import quote

import aiohttp
from gcsfs.core import GCSFileSystem  # type: ignore[import-untyped]
from google.auth.credentials import Credentials
from google.auth.exceptions import GoogleAuthError, TransportError

from bookkeeper.errors import Changed, Missing, StorageUnavailable
from bookkeeper.format import json_text
from bookkeeper.stores.object_store import (
    RANGE,
    NoRange,
    Refused,
    Transient,
    Unchanged,
    delete_each,
    whole_part,
    whole_size,
)
from bookkeeper.stores.store import HEAD_BYTES, Buffer, Head, Listed, ObjectVersion, Part, check_bound

_KEYS = {
    "project": "gcs.project-id",
    "token": "gcs.oauth2.token",
    "endpoint_url": "gcs.service.host",
    "requester_pays": "gcs.requester-pays",
}
_TIMEOUT = aiohttp.ClientTimeout(sock_connect=10, sock_read=30)


class HeldToken(Credentials):
    """What authorizes requests: the token that `now` returns at that moment."""

    def __init__(self, now: Callable[[], Mapping[str, str]]) -> None:
        self._now = now
        super().__init__()  # type: ignore[no-untyped-call]

    @property
    def token(self) -> str:
        """See Credentials."""
        return self._now()["gcs.oauth2.token"]

    @token.setter
    def token(self, _: object) -> None:
        """Credentials begins with none."""

    def refresh(self, request: object) -> None:
        """See Credentials; no request is made for it."""


def filesystem(options: Mapping[str, Any], token: HeldToken | None = None) -> GCSFileSystem:
    """
    gcsfs with pyiceberg's keys (`gcs.project-id`, `gcs.oauth2.token`, ...); without a token Google's usual chain.

    `token` stands for all of these; then there is none in `options`.
    """
    given = {name: options[key] for name, key in _KEYS.items() if options.get(key)}
    if token is not None:
        given["token"] = token
    if "requester_pays" in given:
        given["requester_pays"] = str(given["requester_pays"]).lower() == "true"
    return GCSFileSystem(use_listings_cache=False, skip_instance_cache=True, **given)


def held(bucket: str, host: str, settings: Mapping[str, str], now: Callable[[], Mapping[str, str]]) -> "GcsRemote":
    """A bucket; of each request the token is the one that `now` returns at that moment."""
    return GcsRemote(filesystem(settings, HeldToken(now)), bucket)


class GcsRemote:
    """Implements Remote for one bucket."""

    deletes_at_once = 100
    #: a large object is one request too: blocks that lie beside each other until they are joined would be listed
    largest_put = 5 * 2**40
    page_size = 1000

    def __init__(self, fs: GCSFileSystem, bucket: str) -> None:
        self.fs, self.bucket = fs, bucket

    async def get(self, path: str, most: int | None = None, known: str = "") -> ObjectVersion:
        asked: dict[str, Any] = {"ifGenerationNotMatch": known} if known else {}
        headers, data = await self._object("GET", path, most, alt="media", **asked)
        dated = headers.get("Last-Modified")
        return ObjectVersion(data, headers["X-Goog-Generation"], parsedate_to_datetime(dated) if dated else None)

    async def size(self, path: str) -> int:
        return int((await self._about(path))["size"])

    async def head(self, path: str) -> Head:
        headers, start = await self._object("GET", path, more={"Range": RANGE}, alt="media")
        size = whole_size(headers.get("Content-Range"))
        return Head(len(start) if size is None else size, start[:HEAD_BYTES])

    async def part(self, path: str, begin: int, end: int) -> Part:
        asked = {"Range": f"bytes={begin}-{end - 1}"}
        headers, data = await self._object("GET", path, end - begin, more=asked, alt="media")
        return whole_part(self._where(path), headers.get("Content-Range"), begin, end, data)

    async def modified(self, path: str) -> datetime:
        return datetime.fromisoformat((await self._about(path))["updated"])

    async def put(self, path: str, data: Buffer, if_match: str | None) -> str:
        condition = {} if if_match is None else {"ifGenerationMatch": if_match or "0"}
        where = f"{self.fs._location}/upload/storage/v1/b/{quote(self.bucket)}/o"
        _, body = await self._ask("POST", path, where, data=data, uploadType="media", name=path, **condition)
        return str(self._json(path, body).get("generation", ""))

    async def copy(self, path: str, to: str) -> None:
        there = f"{quote(path, safe='')}/rewriteTo/b/{quote(self.bucket)}/o/{quote(to, safe='')}"
        more: dict[str, str] = {}
        while True:
            _, body = await self._ask("POST", path, f"{self._bucket_url()}/o/{there}", **more)
            reply = self._json(path, body)
            if reply.get("done"):
                return
            more = {"rewriteToken": str(reply.get("rewriteToken"))}

    async def begin(self, path: str) -> str:
        raise NotImplementedError("large objects are put whole")

    async def block(self, path: str, upload: str, number: int, data: bytes) -> Any:
        raise NotImplementedError("large objects are put whole")

    async def finish(self, path: str, upload: str, blocks: Sequence[Any]) -> None:
        raise NotImplementedError("large objects are put whole")

    async def abandon(self, path: str, upload: str) -> None:
        return None

    async def page(self, prefix: str, token: str | None) -> tuple[list[Listed], str | None]:
        more = {"pageToken": token} if token else {}
        fields = "nextPageToken,items(name,size,updated)"
        reply = await self._listing(prefix, maxResults=str(self.page_size), fields=fields, **more)
        items = [
            Listed(item["name"], int(item["size"]), datetime.fromisoformat(item["updated"]))
            for item in reply.get("items", ())
        ]
        # Consoles create an object whose name ends in / for a folder.
        return [item for item in items if not item.key.endswith("/")], reply.get("nextPageToken") or None

    async def delete(self, paths: Sequence[str]) -> None:
        await delete_each(self._delete_one, paths)

    async def _delete_one(self, path: str) -> None:
        with suppress(Missing):
            await self._object("DELETE", path)

    async def delete_if(self, path: str, tag: str) -> None:
        await self._object("DELETE", path, ifGenerationMatch=tag)

    async def _about(self, path: str) -> Any:
        _, data = await self._object("GET", path, fields="size,updated,generation")
        return self._json(path, data)

    async def _object(
        self,
        method: str,
        path: str,
        most: int | None = None,
        more: Mapping[str, str] | None = None,
        **asked: Any,
    ) -> tuple[Mapping[str, str], bytes]:
        """Asks for one object; raises Missing only when the bucket is known to exist and the object not to."""
        try:
            where = f"{self._bucket_url()}/o/{quote(path, safe='')}"
            return await self._ask(method, path, where, most=most, more=more, **asked)
        except _NotFound as exc:
            if not exc.of_the_object:
                await self._listing(path, maxResults="1", fields="nextPageToken")
            raise Missing(f"{self._where(path)} is not there") from exc

    async def _listing(self, prefix: str, **asked: str) -> Any:
        _, data = await self._ask("GET", prefix, f"{self._bucket_url()}/o", prefix=prefix, **asked)
        return self._json(prefix, data)

    def _bucket_url(self) -> str:
        return f"{self.fs.base}b/{quote(self.bucket)}"

    def _json(self, path: str, data: bytes) -> Any:
        try:
            return json_text.loads(data)
        except ValueError as exc:
            raise Transient(f"{self._where(path)}: the answer is no JSON") from exc

    async def _ask(
        self,
        method: str,
        path: str,
        url: str,
        data: Buffer | None = None,
        most: Any = None,
        more: Any = None,
        **asked: Any,
    ) -> tuple[Mapping[str, str], bytes]:
        """Sends one request, with the headers in `more`; returns headers and body of the answer."""
        # Not gcsfs' own call: it retries for a minute, conditional puts too.
        with self._translated(path):
            headers = await asyncio.to_thread(self.fs._get_headers, {**(more or {})})  # may fetch a token
            session = await self.fs._set_session()
            given = {"params": self.fs._get_params(asked), "headers": headers, "data": data, "timeout": _TIMEOUT}
            given["auto_decompress"] = False  # the writer of the object chose its Content-Encoding
            async with session.request(method, url, **given) as reply:
                body = await (reply.read() if most is None else _part(reply.content, most + 1))
        if reply.status == 304 or reply.status >= 400:
            raise _meaning(self._where(path), reply.status, body)
        check_bound(self._where(path), len(body), most, reply.headers.get("X-Goog-Generation", ""))
        return reply.headers, body

    def _where(self, path: str) -> str:
        return f"gs://{self.bucket}/{path}"

    @contextmanager
    def _translated(self, path: str) -> Iterator[None]:
        where = self._where(path)
        try:
            yield
        except TransportError as exc:
            raise Transient(f"{where}: {type(exc).__name__}") from exc
        except GoogleAuthError as exc:
            raise StorageUnavailable(f"{where}: no usable Google credentials ({type(exc).__name__})") from exc
        except (aiohttp.ClientError, asyncio.IncompleteReadError, TimeoutError, OSError) as exc:
            raise Transient(f"{where}: {type(exc).__name__}") from exc


async def _part(body: aiohttp.StreamReader, most: int) -> bytes:
    """At most so many bytes: an object stored compressed may come without a length."""
    try:
        return await body.readexactly(most)
    except asyncio.IncompleteReadError as exc:
        return exc.partial


class _NotFound(StorageUnavailable):
    """Not found; `of_the_object`: the answer names the object, not the bucket."""

    def __init__(self, message: str, of_the_object: bool) -> None:
        super().__init__(message)
        self.of_the_object = of_the_object


def _meaning(where: str, status: int, body: bytes) -> Exception:
    # Only the status: the answer may hold what was sent.
    if status == 404:
        return _NotFound(f"{where}: 404", b"No such object" in body[:2000])
    if status == 304:
        return Unchanged(f"{where}: 304")
    if status == 416:
        return NoRange(f"{where}: 416")
    if status == 412:
        return Changed(f"{where} was replaced by another process")
    if status in (408, 429) or status >= 500:
        return Transient(f"{where}: {status}")
    return (Refused if status in (401, 403) else StorageUnavailable)(f"{where}: {status}")
