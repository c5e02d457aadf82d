"""The SAS tokens of docs/stores.md#least-privilege, enforced by Azurite: enough for each role, and no more."""

from datetime import UTC, datetime, timedelta

import pytest

from bookkeeper.errors import AlreadyExists, Missing, StorageUnavailable
from bookkeeper.stores.open import stores_with
from tests.deploy.rights import permissions
from tests.servers.objects import ACCOUNT, KEY, bucket
from tests.servers.process import LOOPBACK, Server
from tests.servers.shared import wanted


@pytest.fixture
def server() -> Server:
    return wanted("azurite")


def keys(server: Server, role: str) -> dict[str, str]:
    """
    pyiceberg's keys of one role, or with these permissions.
    """
    from azure.storage.blob import generate_account_sas

    now = datetime.now(UTC)
    token = generate_account_sas(
        ACCOUNT, KEY, resource_types="co", permission=permissions().get(role, role),
        expiry=now + timedelta(hours=1), start=now - timedelta(hours=1),
    )  # fmt: skip
    end = f"http://{LOOPBACK}:{server.port}/{ACCOUNT}"
    text = f"DefaultEndpointsProtocol=http;BlobEndpoint={end};SharedAccessSignature={token}"
    return {"py-io-impl": "pyiceberg.io.fsspec.FsspecFileIO", "adls.connection-string": text}


def test_each_role_may_do_what_it_needs_and_nothing_else(server: Server) -> None:
    """Down at the store, one request each: Azurite answers 500 to deletes in a batch with a SAS."""
    url = f"{bucket(server, 'rights')}/events"
    roles = {role: stores_with(keys(server, role))(url) for role in permissions()}
    writer, bookkeeper, reaper, consumer, compactor = roles.values()
    bookkeeper.create("card.json", b"{}")
    bookkeeper.replace("card.json", b"{ }")
    for number in range(3):
        writer.upload(f"data/{number}.parquet", bytes(9 * 2**20))
        writer.create(f"pending/{number}", b"txlog")
    with pytest.raises(AlreadyExists):
        writer.create("pending/0", b"another")
    assert writer.read("card.json") == b"{ }" and len(list(writer.list("pending/"))) == 3
    with pytest.raises(Missing):
        writer.read("pending/none")
    assert consumer.size("data/0.parquet") == bookkeeper.size("data/0.parquet") == 9 * 2**20
    assert compactor.read("data/1.parquet") == bytes(9 * 2**20)
    compactor.upload("data/new.parquet", b"rows")
    compactor.create("rewrites/1", b"rewrite")
    writer.create("rewrites/2", b"which the page says that this token does not prevent")
    for key in ("pending/0", "rewrites/1", "rewrites/2"):
        bookkeeper.delete_many([key])
    reaper.delete_many(["data/new.parquet"])
    reaper.delete_many(["data/0.parquet"])

    for call in (
        lambda: writer.delete_many(["pending/1"]),
        lambda: writer.delete_many(["data/1.parquet"]),
        lambda: compactor.delete_many(["data/1.parquet"]),
        lambda: compactor.delete_many(["pending/1"]),
        lambda: consumer.delete_many(["data/1.parquet"]),
        lambda: consumer.create("rewrites/x", b""),
        lambda: consumer.create("pending/x", b""),
        lambda: consumer.replace("card.json", b""),
        lambda: consumer.upload("data/x", b"x"),
    ):
        with pytest.raises(StorageUnavailable, match="403"):
            call()
    assert [item.key for item in consumer.list("")] == [
        "card.json", "data/1.parquet", "data/2.parquet", "pending/1", "pending/2",
    ]  # fmt: skip


def test_create_without_write_does_not_do(server: Server) -> None:
    """What the page says of `c`: a put that is repeated is refused instead of recognised, and so are large files."""
    url = f"{bucket(server, 'rights-create')}/folder"
    only = stores_with(keys(server, "rcl"))(url)
    only.create("x", b"")

    with pytest.raises(StorageUnavailable, match="403"):
        only.create("x", b"")
    with pytest.raises(StorageUnavailable, match="403"):
        only.upload("y", bytes(9 * 2**20))
