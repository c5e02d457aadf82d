"""
Where the lake of `tests.catalogs.kills` lies: a storage behind a proxy that lets requests through with keys of the
catalog until these end, or with keys of its own.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from azure.storage.blob import ContainerSasPermissions, generate_container_sas

from tests.servers.guarded import AzureGuard
from tests.servers.handing_out import Desk, StorageProxy
from tests.servers.objects import ACCOUNT, KEY, azure_properties, azurite, bucket, s3
from tests.servers.process import LOOPBACK
from tests.servers.proxy import Reply, Request, proxy

HOST = f"{ACCOUNT}.dfs.core.windows.net"


@dataclass(frozen=True)
class Ground:
    """URLs of a container for the tables and one for txlog folders; `queue` has its keys in the configuration."""

    lake: str
    queue: str
    desk: Desk
    #: of the catalog's own process
    own: dict[str, str]
    #: of [catalog]: the way to the storage, and the keys of `queue`
    governed: dict[str, str]
    #: of [storage], for writers with keys of their own
    policy: dict[str, str]


@contextmanager
def on_s3(life: float, **options: Any) -> Iterator[Ground]:
    """On versitygw; keys live for `life` seconds. `options` are those of the desk."""
    desk = Desk(time, life, **options)  # type: ignore[arg-type]  # the clock of this machine
    with s3() as storage, proxy(storage.port, _QuietS3) as guard:
        guard.desk = desk  # type: ignore[attr-defined]
        lake, queue = bucket(storage, "lake"), bucket(storage, "queue")
        reach = {"s3.endpoint": guard.uri, "s3.region": "us-east-1"}
        keys = {"access-key-id": "test", "secret-access-key": "testtest"}
        of_queue = {f"s3.bucket.queue.{key}": value for key, value in keys.items()}
        policy = {**reach, **{f"s3.{key}": value for key, value in keys.items()}}
        yield Ground(lake, queue, desk, storage.properties, {**reach, **of_queue}, policy)


@contextmanager
def on_azure(life: float, **options: Any) -> Iterator[Ground]:
    """
    On Azurite, which itself checks signature and end of each SAS token; the proxy looks only for what it is about.
    """
    desk = Desk(time, life, sas=container_sas, **options)  # type: ignore[arg-type]
    with azurite() as storage, proxy(storage.port, _QuietAzure) as guard:
        guard.desk = desk  # type: ignore[attr-defined]
        lake, queue = bucket(storage, "lake"), bucket(storage, "queue")
        own = {key: value for key, value in storage.properties.items() if key != "py-io-impl"}
        keys = azure_properties(guard.port)["adls.connection-string"]
        through = {f"adls.connection-string.{HOST}": f"http://{LOOPBACK}:{guard.port}/{ACCOUNT}"}
        governed = {**through, "adls.bucket.queue.connection-string": keys}
        yield Ground(lake, queue, desk, own, governed, {"adls.connection-string": keys})


def container_sas(prefix: str, ends: float) -> str:
    """
    A SAS token of the prefix's container, which is all that Azurite knows; it ends at the whole second before.

    Its header of answers tells it from the token of another prefix that ends then.
    """
    container = prefix.partition("://")[2].partition("@")[0]
    may = ContainerSasPermissions(read=True, add=True, create=True, write=True, delete=True, list=True)
    until = datetime.fromtimestamp(int(ends), UTC)
    return generate_container_sas(
        ACCOUNT, container, KEY, permission=may, expiry=until, cache_control=f"no-store, {prefix.rpartition('/')[2]}"
    )


GROUNDS = {"s3": on_s3, "azure": on_azure}


class _QuietS3(StorageProxy):
    """Keeps no request: the bodies of a long run would not fit into memory."""

    def answer(self, request: Request) -> Reply:
        """As before."""
        self.seen.clear()
        return super().answer(request)


class _QuietAzure(AzureGuard):
    """The same."""

    def answer(self, request: Request) -> Reply:
        """As before."""
        self.seen.clear()
        return super().answer(request)
