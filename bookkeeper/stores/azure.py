"""
Azure Data Lake and Blob Storage through adlfs: its credentials and client, one request for each call.

A missing blob is a definite BlobNotFound: a missing container never counts as one. With a hierarchical namespace
folders are listed like blobs; here they are none.
"""

import asyncio
import base64
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import Any
from weakref import WeakSet, finalize

from adlfs import AzureBlobFileSystem  # type: ignore[import-untyped]
from azure.core import MatchConditions
from azure.core.credentials import AzureSasCredential
from azure.core.exceptions import AzureError, ClientAuthenticationError, HttpResponseError
from azure.storage.blob import BlobBlock
from azure.storage.blob.aio import BlobLeaseClient, BlobServiceClient
from fsspec.asyn import get_loop  # type: ignore[import-untyped]

from bookkeeper.errors import Changed, ConfigInvalid, Missing, StorageUnavailable
from bookkeeper.stores.object_store import (
    BLOCK,
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
    "connection_string": "adls.connection-string",
    "account_name": "adls.account-name",
    "account_key": "adls.account-key",
    "sas_token": "adls.sas-token",
    "tenant_id": "adls.tenant-id",
    "client_id": "adls.client-id",
    "client_secret": "adls.client-secret",
    "account_host": "adls.account-host",
}
_SAS = "adls.sas-token."
_TAKEN = {"BlobAlreadyExists", "ConditionNotMet", "TargetConditionNotMet", "PathAlreadyExists"}
_COPY_PAUSE = 0.5
_NO_BATCHES: "WeakSet[AzureBlobFileSystem]" = WeakSet()
# ObjectStore retries; the SDK would wait for 15 s and more.
_ONCE: dict[str, Any] = {"retry_total": 0, "connection_timeout": 10, "read_timeout": 30}


def filesystem(options: Mapping[str, Any], host: str) -> AzureBlobFileSystem:
    """
    adlfs with pyiceberg's keys (`adls.account-name`, ...); without a key or token DefaultAzureCredential applies.
    """
    given = {name: options[key] for name, key in _KEYS.items() if options.get(key)}
    if host and "account_name" not in given:
        given["account_name"] = host.split(".", maxsplit=1)[0]
    sas = {key.removeprefix(_SAS): value for key, value in options.items() if key.startswith(_SAS)}
    if sas and "sas_token" not in given:
        given["sas_token"] = sas.get(host) or next(iter(sas.values()))
    anonymous = options.get("adls.anon") in (True, "true", "True")
    return AzureBlobFileSystem(anon=anonymous or None, use_listings_cache=False, skip_instance_cache=True, **given)


class HeldToken(AzureSasCredential):
    """What authorizes requests: the SAS token that `now` returns at that moment."""

    def __init__(self, now: Callable[[], Mapping[str, str]]) -> None:
        super().__init__("")
        self._now = now

    @property
    def signature(self) -> str:
        """See AzureSasCredential."""
        return self._now()["adls.sas-token"].removeprefix("?")


def held(container: str, host: str, settings: Mapping[str, str], now: Callable[[], Mapping[str, str]]) -> "AzureRemote":
    """
    A container of the account at `host`; of each request the SAS token is the one that `now` returns at that moment.
    """
    token = HeldToken(now)
    service = BlobServiceClient(_endpoint(host, settings), credential=token, user_agent="iceberg-bookkeeper")
    made = AzureRemote(service, container, token)
    finalize(made, lambda: asyncio.run_coroutine_threadsafe(service.close(), get_loop()))
    return made


def _endpoint(host: str, settings: Mapping[str, str]) -> str:
    """The URL of the account's blobs; Iceberg's key for another one than Azure's is called a connection string."""
    if not host:
        raise ConfigInvalid(
            "the catalog hands out SAS tokens for a location without an account",
            hint="Locations look like abfss://container@account.dfs.core.windows.net/path.",
        )
    said = settings.get(f"adls.connection-string.{host}", "")
    if said.startswith(("http://", "https://")) and not set(said) & set("?;@"):
        return said
    return f"https://{settings.get('adls.account-host') or host.replace('.dfs.', '.blob.', 1)}"


class AzureRemote:
    """Implements Remote for one container; where its `token` was handed out, no request is about all the container."""

    deletes_at_once = 256
    largest_put = BLOCK
    page_size = 5000

    def __init__(
        self, service: AzureBlobFileSystem | BlobServiceClient, container: str, token: HeldToken | None = None
    ) -> None:
        self.fs, self.name, self._token = service, container, token
        client = service if isinstance(service, BlobServiceClient) else service.service_client
        self.container: Any = client.get_container_client(container)

    async def get(self, path: str, most: int | None = None, known: str = "") -> ObjectVersion:
        part: dict[str, Any] = {} if most is None else {"offset": 0, "length": most + 1}
        if known:
            part |= {"etag": known, "match_condition": MatchConditions.IfModified}
        try:
            with self._translated(path):
                # As it is stored: the writer chose the Content-Encoding, which may be wrong, or a bomb.
                stream = await self._blob(path).download_blob(max_concurrency=4, decompress=False, **part, **_ONCE)
                # This has the first 32 MiB of a large blob; the rest is not requested yet.
                size = whole_size(stream.properties.content_range)
                bytes_there = int(stream.size) if size is None else size
                check_bound(self._where(path), bytes_there, most, str(stream.properties.etag))
                data = await stream.readall()
        except NoRange:
            return await self._empty(path)
        self._check(path, stream.properties.metadata)
        return ObjectVersion(bytes(data), str(stream.properties.etag), stream.properties.last_modified)

    async def _empty(self, path: str) -> ObjectVersion:
        with self._translated(path):
            found = await self._blob(path).get_blob_properties(**_ONCE)
        self._check(path, found.metadata)
        if found.size:
            raise Transient(f"{self._where(path)} was replaced meanwhile")
        return ObjectVersion(b"", str(found.etag), found.last_modified)

    async def size(self, path: str) -> int:
        with self._translated(path):
            found = await self._blob(path).get_blob_properties(**_ONCE)
        self._check(path, found.metadata)
        return int(found.size)

    async def head(self, path: str) -> Head:
        with self._translated(path):
            stream = await self._blob(path).download_blob(0, HEAD_BYTES, decompress=False, **_ONCE)
            start = await stream.readall()
        self._check(path, stream.properties.metadata)
        size = whole_size(stream.properties.content_range)
        return Head(len(start) if size is None else size, bytes(start))

    async def part(self, path: str, begin: int, end: int) -> Part:
        with self._translated(path):
            stream = await self._blob(path).download_blob(
                begin, end - begin, max_concurrency=4, decompress=False, **_ONCE
            )
            data = await stream.readall()
        self._check(path, stream.properties.metadata)
        return whole_part(self._where(path), stream.properties.content_range, begin, end, bytes(data))

    async def modified(self, path: str) -> datetime:
        with self._translated(path):
            found = await self._blob(path).get_blob_properties(**_ONCE)
        self._check(path, found.metadata)
        at: datetime = found.last_modified
        return at

    async def put(self, path: str, data: Buffer, if_match: str | None) -> str:
        condition: dict[str, Any] = {"overwrite": if_match != ""}
        if if_match:
            condition |= {"etag": if_match, "match_condition": MatchConditions.IfNotModified}
        try:
            with self._translated(path):
                reply = await self._blob(path).upload_blob(bytes(data), length=len(data), **condition, **_ONCE)
                return str(reply.get("etag", ""))
        except Missing as exc:
            raise Changed(f"{self._where(path)} is not there any more") from exc

    async def copy(self, path: str, to: str) -> None:
        with self._translated(path):
            # Within an account the copy is done at once, or soon; the caller has the deadline.
            target = self._blob(to)
            status = (await target.start_copy_from_url(self._source(path), **_ONCE))["copy_status"]
            while status == "pending":
                await asyncio.sleep(_COPY_PAUSE)
                status = (await target.get_blob_properties(**_ONCE)).copy.status
        if status != "success":
            raise StorageUnavailable(f"{self._where(to)}: the copy ended as {status}")

    def _source(self, path: str) -> str:
        """Where the storage itself reads a blob: that request has to be authorized too."""
        url = str(self._blob(path).url)
        return f"{url}?{self._token.signature}" if self._token else url

    async def begin(self, path: str) -> str:
        # Blocks of two uploads under one name must not mix.
        return secrets.token_hex(8)

    async def block(self, path: str, upload: str, number: int, data: bytes) -> Any:
        name = base64.b64encode(f"{upload}{number:08d}".encode()).decode()
        with self._translated(path):
            await self._blob(path).stage_block(name, data, length=len(data), **_ONCE)
        return BlobBlock(block_id=name)

    async def finish(self, path: str, upload: str, blocks: Sequence[Any]) -> None:
        with self._translated(path):
            await self._blob(path).commit_block_list(list(blocks), **_ONCE)

    async def abandon(self, path: str, upload: str) -> None:
        return None  # Azure deletes uncommitted blocks after a week

    async def page(self, prefix: str, token: str | None) -> tuple[list[Listed], str | None]:
        with self._translated(prefix):
            pages = self.container.list_blobs(prefix, include=["metadata"], results_per_page=self.page_size, **_ONCE)
            by_page = pages.by_page(continuation_token=token)
            blobs = [blob async for blob in await anext(by_page)]
        found = [Listed(blob.name, blob.size, blob.last_modified) for blob in blobs if not _is_folder(blob.metadata)]
        return found, by_page.continuation_token or None

    async def delete(self, paths: Sequence[str]) -> None:
        if len(paths) > 1 and self._token is None and self.fs not in _NO_BATCHES and await self._delete_batch(paths):
            return
        await delete_each(self._delete_one, paths)

    async def _delete_batch(self, paths: Sequence[str]) -> bool:
        """One request for all; False when the server does not support batches (some emulators do not)."""
        with self._translated(paths[0]):
            replies = await self.container.delete_blobs(*paths, raise_on_any_failure=False, **_ONCE)
            statuses = [reply.status_code async for reply in replies]
        if 400 in statuses:
            _NO_BATCHES.add(self.fs)
            return False
        refused = [status for status in statuses if status >= 300 and status != 404]
        if refused:
            busy = all(status == 429 or status >= 500 for status in refused)
            raise (Transient if busy else StorageUnavailable)(f"{self._where(paths[0])} and others: {refused[0]}")
        return len(statuses) == len(paths)

    async def _delete_one(self, path: str) -> None:
        with suppress(Missing), self._translated(path):
            await self._blob(path).delete_blob(**_ONCE)

    async def delete_if(self, path: str, tag: str) -> None:
        condition = {"etag": tag, "match_condition": MatchConditions.IfNotModified}
        with self._translated(path):
            await self._blob(path).delete_blob(**condition, **_ONCE)

    async def take_lease(self, path: str, lease: str, seconds: int, holder: bytes) -> bool:
        """Leases the blob, created if missing, and writes the holder into it; False while another has it."""
        blob = self._blob(path)
        try:
            with self._translated(path):
                await blob.acquire_lease(seconds, lease_id=lease, **_ONCE)
        except Missing:
            with suppress(Changed):
                await self.put(path, holder, "")
            return await self.take_lease(path, lease, seconds, holder)
        except _Leased:
            return False
        with suppress(_Leased), self._translated(path):
            await blob.upload_blob(holder, length=len(holder), overwrite=True, lease=lease, **_ONCE)
        return True

    async def renew_lease(self, path: str, lease: str) -> bool:
        """Renews the lease; False when it is no longer ours."""
        return await self._with_lease(path, lease, "renew")

    async def release_lease(self, path: str, lease: str) -> bool:
        """Gives the lease back, if it is still ours."""
        return await self._with_lease(path, lease, "release")

    async def _with_lease(self, path: str, lease: str, act: str) -> bool:
        try:
            with self._translated(path):
                await getattr(BlobLeaseClient(self._blob(path), lease), act)(**_ONCE)
        except (_Leased, Missing):
            return False
        return True

    def _blob(self, path: str) -> Any:
        return self.container.get_blob_client(path)

    def _check(self, path: str, metadata: Mapping[str, str] | None) -> None:
        if _is_folder(metadata):
            raise Missing(f"{self._where(path)} is a folder")

    def _where(self, path: str) -> str:
        return f"abfss://{self.name}/{path}"

    @contextmanager
    def _translated(self, path: str) -> Iterator[None]:
        where = self._where(path)
        try:
            yield
        except ClientAuthenticationError as exc:
            raise Refused(f"{where}: the credentials were refused ({_code(exc)})") from exc
        except HttpResponseError as exc:
            raise _meaning(where, exc) from exc
        except (AzureError, OSError, asyncio.IncompleteReadError) as exc:
            raise Transient(f"{where}: {type(exc).__name__}") from exc


class _Leased(StorageUnavailable):
    """Another process has a lease on it."""


_READS = {304: Unchanged, 416: NoRange}


def _is_folder(metadata: Mapping[str, str] | None) -> bool:
    known = {key.lower(): value for key, value in (metadata or {}).items()}
    return known.get("hdi_isfolder") == "true" or known.get("is_directory") == "true"


def _code(exc: Any) -> str:
    code = getattr(exc, "error_code", None)
    return str(getattr(code, "value", code) or getattr(exc, "status_code", "") or "no answer")


def _meaning(where: str, exc: HttpResponseError) -> Exception:
    # Only status and code: the message may hold what was signed.
    status, code = exc.status_code or 0, _code(exc)
    if code == "BlobNotFound":
        return Missing(f"{where} is not there")
    if status in _READS:  # before the code: 304 has that of a refused write
        return _READS[status](f"{where}: {status} {code}")
    if code in _TAKEN:
        return Changed(f"{where} was replaced by another process")
    if code.startswith("Lease"):
        return _Leased(f"{where}: {code}")
    if status in (0, 408, 429) or status >= 500:
        return Transient(f"{where}: {status} {code}")
    return (Refused if status in (401, 403) else StorageUnavailable)(f"{where}: {status} {code}")
