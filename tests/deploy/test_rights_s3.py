"""The S3 policies of docs/stores.md#least-privilege, in force on a real server: enough for each role, and no more."""

import json
import os
import re
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError
from botocore.session import get_session

from bookkeeper.contract.rewrite import key_of
from bookkeeper.errors import StorageUnavailable
from bookkeeper.leases.lease import Lease, lease_on
from bookkeeper.stores.open import stores_with
from bookkeeper.stores.store import check_deletes_by_tag
from tests.deploy.rights import ROLES, SECTION, Roles, compact, policies
from tests.servers import installed
from tests.servers.needed import needed
from tests.servers.objects import s3_properties
from tests.servers.process import LOOPBACK, Server, free_port
from tests.watch.drops import Drops
from writers.watch.command import lease_of

BUCKETS = ("lake", "lake-queue")
REWRITE = f"events/{key_of('01a1fdf4-2b80-7001-8203-0405060708aa')}"
#: has the policies of both
COMPACTING_REAPER = "compacting-reaper"
ROW = "warehouse/demo/events/data/"


def account(role: str) -> dict[str, str]:
    return {"access": role, "secret": f"{role}-secret", "role": "user"}


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """
    versitygw with an account for each role; nothing is allowed yet.
    """
    with needed("versitygw"):
        program = installed.versitygw(os.environ)
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="bookkeeper-rights-") as place:
        (Path(place) / "iam").mkdir()
        users = {"accessAccounts": {role: account(role) for role in (*ROLES, COMPACTING_REAPER)}}
        (Path(place) / "iam" / "users.json").write_text(json.dumps(users))
        (Path(place) / "buckets").mkdir()
        words = ["-q", "--port", f"{LOOPBACK}:{port}", "--iam-dir", f"{place}/iam", "posix", f"{place}/buckets"]
        environ = {**os.environ, "ROOT_ACCESS_KEY": "test", "ROOT_SECRET_KEY": "testtest"}
        made = Server(
            "versitygw", port, [program, *words], Path(place) / "log", s3_properties(port), options={"env": environ}
        )
        made.start()
        yield made
        made.crash()


def client(server: Server, access: str = "test", secret: str = "testtest") -> Any:
    return get_session().create_client(
        "s3",
        endpoint_url=f"http://{LOOPBACK}:{server.port}",
        region_name="us-east-1",
        aws_access_key_id=access,
        aws_secret_access_key=secret,
    )


@pytest.fixture(scope="module")
def clients(server: Server) -> Iterator[dict[str, Any]]:
    """
    A client for each role, and the policies in force.
    """
    root = client(server)
    for bucket in BUCKETS:
        root.create_bucket(Bucket=bucket)
        root.put_bucket_policy(Bucket=bucket, Policy=json.dumps(bucket_policy(bucket)))
    made = {role: client(server, role, f"{role}-secret") for role in ROLES}
    yield made
    for one in (root, *made.values()):
        one.close()


def bucket_policy(bucket: str) -> dict[str, Any]:
    """
    What the roles' identity policies say of one bucket, as that bucket's own policy.
    """
    found = []
    for role, policy in policies().items():
        for statement in policy["Statement"]:
            there = [arn for arn in statement["Resource"] if arn.removeprefix("arn:aws:s3:::").split("/")[0] == bucket]
            if there:
                roles = [role, COMPACTING_REAPER] if role in ("reaper", "compactor") else [role]
                found.append({**statement, "Resource": there, "Principal": {"AWS": roles}})
    return {"Version": "2012-10-17", "Statement": found}


@pytest.fixture
def roles(server: Server, clients: dict[str, Any], tmp_path: Path) -> Roles:
    sqlite = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog/catalog.db", "warehouse": "s3://lake/warehouse"}
    return Roles(tmp_path, "s3://lake-queue", {**server.properties, **sqlite})


def test_each_role_does_its_work_and_nothing_else(roles: Roles, clients: dict[str, Any]) -> None:
    queues = {role: roles.queue(role, **keys(role)) for role in ROLES}
    queues["bookkeeper"].run("bookkeeper", "init")
    rows = queues["writer"].generate("w1", files=2)
    queues["bookkeeper"].asked("once")
    rows |= queues["writer"].generate("w2", files=1)
    assert queues["bookkeeper"].asked("once")[0]["outcome"] == "committed"
    assert queues["bookkeeper"].asked("verify") == []
    name = compact(queues["compactor"])
    assert [row["rewrite"] for row in queues["bookkeeper"].asked("pending")] == [name]
    queues["bookkeeper"].asked("once")
    assert (queues["bookkeeper"].asked("status")["data_files"], queues["bookkeeper"].asked("verify")) == (1, [])
    time.sleep(1.1)  # the youngest snapshot that expires is a second old
    queues["reaper"].run("reaper", "once", "--release-brake")
    queues["reaper"].run("reaper", "orphans")
    assert queues["consumer"].keys() == dict.fromkeys(rows, 1)
    rows |= queues["writer"].generate("w3", files=2)
    queues["bookkeeper"].asked("once")
    roles.queue(COMPACTING_REAPER, **keys(COMPACTING_REAPER)).run("reaper", "compaction", "once")
    assert [row["replaces"] for row in queues["bookkeeper"].asked("pending")] == [2]
    queues["bookkeeper"].asked("once")
    assert (queues["bookkeeper"].asked("status")["data_files"], queues["bookkeeper"].asked("verify")) == (2, [])
    assert queues["consumer"].keys() == dict.fromkeys(rows, 1)
    queues["writer"].generate("w4", files=1)

    for role, what, call in forbidden(clients):
        with pytest.raises(ClientError) as refused:
            call()
        assert refused.value.response["Error"]["Code"] == "AccessDenied", (role, what)


def test_a_copy_of_kafka_takes_its_leases_by_what_the_page_adds_for_them(
    server: Server, clients: dict[str, Any]
) -> None:
    store = stores_with({**server.properties, **keys("writer")})("s3://lake-queue/events")
    found = re.search(r"`writer serve` also need `(s3:\w+)` and `(s3:\w+)` on `(\S+)`", SECTION)
    assert found is not None
    more = {"Effect": "Allow", "Action": list(found.groups()[:2]), "Resource": [f"arn:aws:s3:::{found[3]}"]}
    policy, root = bucket_policy("lake-queue"), client(server)

    def lease() -> Lease:
        return lease_on(store, "slots/orders-00.lease", "an instance")

    with pytest.raises(StorageUnavailable):
        lease().hold(datetime.now(UTC))
    statement = {**more, "Principal": {"AWS": ["writer"]}}
    root.put_bucket_policy(
        Bucket="lake-queue", Policy=json.dumps({**policy, "Statement": [*policy["Statement"], statement]})
    )
    first, other = lease(), lease()
    held = first.hold(datetime.now(UTC)), other.hold(datetime.now(UTC))
    first.release()
    after = other.hold(datetime.now(UTC))
    root.put_bucket_policy(Bucket="lake-queue", Policy=json.dumps(policy))
    root.close()

    assert (held, after) == ((True, False), True)


def test_a_watcher_does_all_below_its_prefix_by_what_the_page_adds_for_it_and_nothing_beside_it(
    server: Server, clients: dict[str, Any]
) -> None:
    found = re.search(
        r"`writer watch` also needs `(s3:\w+)` on `(\S+)`, and `(s3:\w+)`, `(s3:\w+)` and `(s3:\w+)` on `(\S+)`",
        SECTION,
    )
    assert found is not None
    lists, bucket, *acts, objects = found.groups()
    store = stores_with({**server.properties, **keys("writer")})(f"s3://{objects.removesuffix('/*')}")
    root, allowed = client(server), {"Effect": "Allow", "Principal": {"AWS": ["writer"]}}
    root.create_bucket(Bucket=bucket)
    with pytest.raises(StorageUnavailable):
        lease_of(store)
    statements = [
        {**allowed, "Action": [lists], "Resource": [f"arn:aws:s3:::{bucket}"]},
        {**allowed, "Action": acts, "Resource": [f"arn:aws:s3:::{objects}"]},
    ]
    root.put_bucket_policy(Bucket=bucket, Policy=json.dumps({"Version": "2012-10-17", "Statement": statements}))
    root.put_object(Bucket=bucket, Key="beside", Body=b"")
    check_deletes_by_tag(store, "_bookkeeper/probe")  # at once; a watcher would try for ever
    drops, lease = Drops(store=store), lease_of(store)
    assert lease.hold(datetime.now(UTC))
    lease.release()
    for moves in (False, True):
        drops.put(*(f"{moves}-{number}" for number in range(3)))
        store.create(f"bad-{moves}", b"none")
        drops.run(moves=moves)

    assert (len(drops.keys()), drops.dropped()) == (6, [])
    assert sorted(key.partition("/")[0] for key in drops.left()) == ["_done"] * 3 + ["_rejected"] * 4
    with pytest.raises(ClientError, match="AccessDenied"):
        clients["writer"].delete_object(Bucket=bucket, Key="beside")
    root.close()


def keys(role: str) -> dict[str, str]:
    return {"s3.access-key-id": role, "s3.secret-access-key": f"{role}-secret"}


def forbidden(clients: dict[str, Any]) -> Iterator[tuple[str, str, Callable[[], Any]]]:
    writer, bookkeeper, reaper, consumer, compactor = (clients[role] for role in ROLES)
    listed = clients["bookkeeper"].list_objects_v2(Bucket="lake", Prefix=ROW)["Contents"]
    data = listed[0]["Key"]
    pending = clients["bookkeeper"].list_objects_v2(Bucket="lake-queue", Prefix="events/pending/")["Contents"][0]["Key"]
    table, queue, metadata = {"Bucket": "lake"}, {"Bucket": "lake-queue"}, "warehouse/demo/events/metadata/x.json"
    yield "writer", "delete a txlog", lambda: writer.delete_object(**queue, Key=pending)
    yield "writer", "change the card", lambda: writer.put_object(**queue, Key="events/card.json", Body=b"{}")
    yield "writer", "change the marks", lambda: writer.put_object(**queue, Key="events/marks.json", Body=b"{}")
    yield "writer", "reject", lambda: writer.put_object(**queue, Key="events/rejected/x", Body=b"")
    yield "writer", "rewrite", lambda: writer.put_object(**queue, Key=REWRITE, Body=b"")
    yield "writer", "read rewrites", lambda: writer.get_object(**queue, Key=REWRITE)
    yield "writer", "read rows", lambda: writer.get_object(**table, Key=data)
    yield "writer", "delete rows", lambda: writer.delete_object(**table, Key=data)
    yield "writer", "list the table", lambda: writer.list_objects_v2(**table)
    yield "writer", "write metadata", lambda: writer.put_object(**table, Key=metadata, Body=b"")
    yield "bookkeeper", "delete rows", lambda: bookkeeper.delete_object(**table, Key=data)
    yield "bookkeeper", "write rows", lambda: bookkeeper.put_object(**table, Key=f"{ROW}x", Body=b"")
    yield "reaper", "delete a txlog", lambda: reaper.delete_object(**queue, Key=pending)
    yield "reaper", "publish", lambda: reaper.put_object(**queue, Key="events/pending/x", Body=b"")
    yield "reaper", "rewrite", lambda: reaper.put_object(**queue, Key=REWRITE, Body=b"")
    yield "reaper", "write rows", lambda: reaper.put_object(**table, Key=f"{ROW}x", Body=b"")
    yield "consumer", "write rows", lambda: consumer.put_object(**table, Key=f"{ROW}x", Body=b"")
    yield "consumer", "delete rows", lambda: consumer.delete_object(**table, Key=data)
    yield "consumer", "rewrite", lambda: consumer.put_object(**queue, Key=REWRITE, Body=b"")
    yield "compactor", "delete rows", lambda: compactor.delete_object(**table, Key=data)
    yield "compactor", "write metadata", lambda: compactor.put_object(**table, Key=metadata, Body=b"")
    yield "compactor", "publish", lambda: compactor.put_object(**queue, Key="events/pending/x", Body=b"")
    yield "compactor", "delete a txlog", lambda: compactor.delete_object(**queue, Key=pending)
    yield "compactor", "take a rewrite back", lambda: compactor.delete_object(**queue, Key=REWRITE)
    yield "compactor", "change the marks", lambda: compactor.put_object(**queue, Key="events/marks.json", Body=b"{}")
    yield "consumer", "look into the folder", lambda: consumer.list_objects_v2(**queue)
