"""
S3 and servers that speak it, through s3fs: its credentials and client, one request for each call.

A missing object is a definite NoSuchKey: a missing bucket, or one that may not be listed (403), never counts as one.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlsplit

import aiohttp
from aiobotocore.credentials import AioCredentials  # type: ignore[import-untyped]
from aiobotocore.session import AioSession  # type: ignore[import-untyped]
from botocore.credentials import ReadOnlyCredentials  # type: ignore[import-untyped]
from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError  # type: ignore[import-untyped]
from botocore.utils import parse_timestamp as botocore_time  # type: ignore[import-untyped]
from s3fs import S3FileSystem  # type: ignore[import-untyped]

from bookkeeper.errors import Changed, ConfigInvalid, Missing, StorageUnavailable, Unfit
from bookkeeper.stores.object_store import (
    AT_ONCE,
    BLOCK,
    RANGE,
    NoRange,
    Refused,
    Transient,
    Unchanged,
    whole_part,
    whole_size,
)
from bookkeeper.stores.store import HEAD_BYTES, Buffer, Head, Listed, ObjectVersion, Part, check_bound

_KEYS = {
    "endpoint_url": ("s3.endpoint",),
    "aws_access_key_id": ("s3.access-key-id", "client.access-key-id"),
    "aws_secret_access_key": ("s3.secret-access-key", "client.secret-access-key"),
    "aws_session_token": ("s3.session-token", "client.session-token"),
    "region_name": ("s3.region", "client.region"),
}
_GOOGLE = "storage.googleapis.com"
_NO_OBJECT = {"NoSuchKey", "KeyTooLongError"}
_BUSY = {"SlowDown", "RequestTimeout", "RequestTimeTooSkewed", "ConditionalRequestConflict", "OperationAborted"}


#: how S3 calls keys that have ended, or that it does not know (any more)
_REFUSED = {
    "AccessDenied",
    "ExpiredToken",
    "ExpiredTokenException",
    "InvalidAccessKeyId",
    "InvalidToken",
    "SignatureDoesNotMatch",
    "TokenRefreshRequired",
}


#: they log each signed request, with its keys, at DEBUG
_SIGNERS = ("botocore.auth", "botocore.endpoint")


def _is_no_detail(record: logging.LogRecord) -> bool:
    return record.levelno > logging.DEBUG


class HeldKeys(AioCredentials):  # type: ignore[misc]
    """What signs requests with the options that `now` returns at that moment; no log shows these, at any level."""

    def __init__(self, now: Callable[[], Mapping[str, str]]) -> None:
        super().__init__("", "", method="catalog")
        self._now = now
        for name in _SIGNERS:
            logging.getLogger(name).addFilter(_is_no_detail)

    async def get_frozen_credentials(self) -> ReadOnlyCredentials:
        """See AioCredentials; no request is made for it."""
        found = account(self._now())
        names = ("aws_access_key_id", "aws_secret_access_key", "aws_session_token")
        return ReadOnlyCredentials(*map(found.get, names))


def filesystem(options: Mapping[str, Any], keys: HeldKeys | None = None) -> S3FileSystem:
    """
    s3fs with pyiceberg's keys (`s3.endpoint`, `s3.region`, ...); without keys the usual AWS chain applies.

    `keys` stand for all keys, the chain's too; then there are none in `options`.
    """
    client = account(options)
    session = AioSession(profile=client.pop("profile", None))
    if keys is not None:
        session._credentials = keys
    session.get_component("response_parser_factory").set_parser_defaults(timestamp_parser=parse_time)
    config: dict[str, Any] = {
        "user_agent": "iceberg-bookkeeper",
        # ObjectStore retries; a conditional put must not be repeated by the client.
        "retries": {"total_max_attempts": 1, "mode": "standard"},
        "connect_timeout": float(options.get("s3.connect-timeout", 10)),
        "read_timeout": float(options.get("s3.request-timeout", 30)),
        # For all tables together: a frozen server keeps as many connections as are asked at once.
        "max_pool_connections": 16 * AT_ONCE,
    }
    if proxy := options.get("s3.proxy-uri"):
        config["proxies"] = {"http": proxy, "https": proxy}
    if options.get("s3.force-virtual-addressing") in (True, "true", "True"):
        config["s3"] = {"addressing_style": "virtual"}
    return S3FileSystem(
        anon=options.get("s3.anonymous") in (True, "true", "True"),
        client_kwargs=client,
        config_kwargs=config,
        s3_additional_kwargs=_encryption(options),
        use_listings_cache=False,
        skip_instance_cache=True,
        session=session,
    )


def held(bucket: str, host: str, settings: Mapping[str, str], now: Callable[[], Mapping[str, str]]) -> "S3Remote":
    """A bucket; of each request the keys are those that `now` returns at that moment."""
    return S3Remote(filesystem(settings, HeldKeys(now)), bucket)


def parse_time(value: str | float) -> datetime:
    """
    A time as S3 writes it, in a listing or a header; raises ValueError. botocore's own way takes 50 us and more.

    Other services of the same session write seconds as numbers.
    """
    if isinstance(value, str) and value.endswith("Z"):
        return datetime.fromisoformat(value)
    if isinstance(value, str) and value.endswith("GMT"):
        return parsedate_to_datetime(value)
    found: datetime = botocore_time(value)
    return found


def account(options: Mapping[str, Any]) -> dict[str, Any]:
    """
    Endpoint, keys, region and profile, as far as they are given, under botocore's names.
    """
    wanted = {**_KEYS, "profile": ("s3.profile-name", "client.profile-name")}
    found = {name: next((options[key] for key in keys if options.get(key)), None) for name, keys in wanted.items()}
    return {name: value for name, value in found.items() if value}


def _encryption(options: Mapping[str, Any]) -> dict[str, Any]:
    wanted = {"ServerSideEncryption": "s3.server-side-encryption", "SSEKMSKeyId": "s3.sse-kms-key-id"}
    return {name: options[key] for name, key in wanted.items() if options.get(key)}


class S3Remote:
    """Implements Remote for one bucket."""

    deletes_at_once = 1000
    largest_put = BLOCK

    def __init__(self, fs: S3FileSystem, bucket: str) -> None:
        self.fs, self.bucket = fs, bucket
        self._known: object = None

    async def get(self, path: str, most: int | None = None, known: str = "") -> ObjectVersion:
        reply = await self._ask("get_object", path, **({"IfNoneMatch": known} if known else {}))
        with self._translated(path):
            async with reply["Body"] as body:
                if most is not None and reply["ContentLength"] > most:
                    body.close()  # the rest must not be transferred
                    check_bound(self._where(path), reply["ContentLength"], most, reply["ETag"])
                return ObjectVersion(await body.read(), reply["ETag"], reply["LastModified"])

    async def size(self, path: str) -> int:
        try:
            return int((await self._ask("head_object", path))["ContentLength"])
        except _Unsaid:
            # The answer to HEAD has no body, so a missing bucket looks the same; the answer to GET distinguishes them.
            reply = await self._ask("get_object", path)
            reply["Body"].close()
            return int(reply["ContentLength"])

    async def head(self, path: str) -> Head:
        reply = await self._ask("get_object", path, Range=RANGE)
        with self._translated(path):
            async with reply["Body"] as body:
                start = await body.read(HEAD_BYTES)
        size = whole_size(reply.get("ContentRange"))
        return Head(int(reply["ContentLength"]) if size is None else size, start)

    async def part(self, path: str, begin: int, end: int) -> Part:
        reply = await self._ask("get_object", path, Range=f"bytes={begin}-{end - 1}")
        with self._translated(path):
            async with reply["Body"] as body:
                if reply["ContentLength"] > end - begin:
                    body.close()  # all of it would be transferred
                    raise Unfit(f"{self._where(path)}: the storage ignores ranges")
                data = await body.read()
        return whole_part(self._where(path), reply.get("ContentRange"), begin, end, data)

    async def modified(self, path: str) -> datetime:
        await self.size(path)  # raises Missing for a missing object
        reply = await self._ask("head_object", path)
        found: datetime = reply["LastModified"]
        return found

    async def put(self, path: str, data: Buffer, if_match: str | None) -> str:
        condition = {} if if_match is None else {"IfMatch": if_match} if if_match else {"IfNoneMatch": "*"}
        try:
            more = {**condition, **self.fs.s3_additional_kwargs}
            reply = await self._ask("put_object", path, Body=bytes(data), **more)
            return str(reply.get("ETag", ""))
        except Missing as exc:
            raise Changed(f"{self._where(path)} is not there any more") from exc

    async def copy(self, path: str, to: str) -> None:
        source = {"Bucket": self.bucket, "Key": path}
        await self._ask("copy_object", to, CopySource=source, **self.fs.s3_additional_kwargs)

    async def begin(self, path: str) -> str:
        reply = await self._ask("create_multipart_upload", path, **self.fs.s3_additional_kwargs)
        return str(reply["UploadId"])

    async def block(self, path: str, upload: str, number: int, data: bytes) -> Any:
        reply = await self._ask("upload_part", path, UploadId=upload, PartNumber=number, Body=data)
        return {"ETag": reply["ETag"], "PartNumber": number}

    async def finish(self, path: str, upload: str, blocks: Sequence[Any]) -> None:
        parts = {"Parts": list(blocks)}
        try:
            await self._ask("complete_multipart_upload", path, UploadId=upload, MultipartUpload=parts)
        except _NoUpload:
            # If an earlier reply was lost, the upload is complete and the object exists.
            await self.size(path)

    async def abandon(self, path: str, upload: str) -> None:
        await self._ask("abort_multipart_upload", path, UploadId=upload)

    async def page(self, prefix: str, token: str | None) -> tuple[list[Listed], str | None]:
        more = {"ContinuationToken": token} if token else {}
        reply = await self._ask("list_objects_v2", None, Prefix=prefix, **more)
        items = [Listed(item["Key"], item["Size"], item["LastModified"]) for item in reply.get("Contents", ())]
        # Consoles create an object whose name ends in / for a folder.
        return [item for item in items if not item.key.endswith("/")], reply.get("NextContinuationToken")

    async def delete(self, paths: Sequence[str]) -> None:
        wanted = {"Objects": [{"Key": path} for path in paths], "Quiet": True}
        reply = await self._ask("delete_objects", None, Delete=wanted)
        for error in reply.get("Errors", ()):
            if error.get("Code") not in _NO_OBJECT | _NEVER_THERE:
                busy = error.get("Code") in _BUSY | {"InternalError", "ServiceUnavailable"}
                kind = Transient if busy else Refused if error.get("Code") in _REFUSED else StorageUnavailable
                raise kind(f"{self._where(error.get('Key'))}: {error.get('Code')}")

    async def delete_if(self, path: str, tag: str) -> None:
        await self._ask("delete_object", path, IfMatch=tag)

    async def _ask(self, what: str, path: str | None, **given: Any) -> Any:
        if path is not None:
            given["Key"] = path
        with self._translated(path):
            client = await self.fs.set_session()
            if client is not self._known:
                _fit(client.meta.endpoint_url)
                events = client.meta.events
                events.register_last("before-call.s3", _without_expect, unique_id="bookkeeper-without-expect")
                self._known = client
            return await getattr(client, what)(Bucket=self.bucket, **given)

    def _where(self, path: str | None) -> str:
        return f"s3://{self.bucket}/{path or ''}"

    @contextmanager
    def _translated(self, path: str | None) -> Iterator[None]:
        where = self._where(path)
        try:
            yield
        except ClientError as exc:
            raise _meaning(where, exc) from exc
        except NoCredentialsError as exc:
            raise StorageUnavailable(f"{where}: no AWS credentials were found") from exc
        except (BotoCoreError, aiohttp.ClientError, asyncio.IncompleteReadError, OSError) as exc:
            raise Transient(f"{where}: {type(exc).__name__}") from exc


def _without_expect(params: dict[str, Any], **_: Any) -> None:
    """botocore lets each put wait for `100 Continue` before its body: a round trip more, for 8 MiB at most."""
    params["headers"].pop("Expect", None)


def _fit(endpoint: str) -> None:
    """Google accepts S3's requests but ignores its conditions: two creates of one key would both succeed."""
    host = urlsplit(endpoint).hostname or ""
    if host == _GOOGLE or host.endswith(f".{_GOOGLE}"):
        raise ConfigInvalid(f"{endpoint} ignores If-None-Match, so rows could be lost", hint="Use gs:// and [gcs].")


class _Unsaid(StorageUnavailable):
    """Refused without a reason: the answer to a HEAD has no body."""


class _NoUpload(StorageUnavailable):
    """There is no such multipart upload."""


_READS = {304: Unchanged, 416: NoRange}
#: the answers of servers on a disk for a name below an object
_NEVER_THERE = {"ObjectParentIsFile", "NoSuchVersion"}


def _meaning(where: str, exc: ClientError) -> Exception:
    # Only status and code: the message may hold what was sent.
    status = int(exc.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    code = str(exc.response.get("Error", {}).get("Code", ""))
    message = f"{where}: {status} {code}"
    if code in _NO_OBJECT:
        return Missing(f"{where} is not there")
    if status == 412:
        return Changed(f"{where} was replaced by another process")
    if (status == 409 and code in _BUSY) or status == 429 or status >= 500 or code in _BUSY:
        return Transient(message)
    if status in _READS or code == "NoSuchUpload":
        return _READS.get(status, _NoUpload)(message)
    if status in (400, 404) and code in (str(status), "NotFound", "BadRequest", ""):
        return _Unsaid(message)
    return Refused(message) if status in (401, 403) or code in _REFUSED else StorageUnavailable(message)
