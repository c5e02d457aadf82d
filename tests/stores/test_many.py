"""Many objects: pages of a listing, deletes in bulk, and how many requests that takes."""

import pytest

from bookkeeper.contract.names import TxlogName, new_incarnation
from bookkeeper.contract.txlog_folder import Folder
from tests.servers.line import Line
from tests.servers.shared import shared
from tests.stores.wires import OBJECTS, wired
from tests.support.stores import BACKENDS

#: Azurite writes and deletes some hundred a second: fewer, in small pages
PENDING = {"memory": 10_000, "s3": 10_000, "azurite": 250}

READ = 200


@pytest.mark.parametrize("kind", PENDING)
def test_thousands_of_pending_txlogs_are_listed_read_and_deleted(kind: str) -> None:
    opener, number = BACKENDS[kind], PENDING[kind]
    stores = opener(None)  # type: ignore[arg-type]
    first = TxlogName("w1", new_incarnation(1, bytes(10)), 1)
    names = [first.at(sequence) for sequence in range(1, number + 1)]

    folder = Folder(stores())
    if kind == "azurite":
        folder.store.remote.page_size = 60  # type: ignore[attr-defined]
    _publish(folder, names)
    assert [item.name for item in folder.pending()] == names
    read = folder.read(names[:READ])
    assert read == {name: str(name).encode() for name in names[:READ]}
    assert folder.delete(names) == number
    assert folder.pending() == []


def _publish(folder: Folder, names: list[TxlogName]) -> None:
    server = shared("s3") if folder.store.url.startswith("s3:") else None
    if server is None or server.name != "versitygw":
        for name in names:
            folder.publish(name, str(name).encode())
        return
    # It serves the files of a directory: ten thousand requests would take a minute.
    for name in names[:READ]:
        folder.publish(name, str(name).encode())
    pending = server.log.with_name("buckets") / folder.store.url.removeprefix("s3://") / "pending"
    for name in names[READ:]:
        (pending / str(name)).write_text(str(name))


@pytest.mark.parametrize("kind", OBJECTS)
def test_one_call_is_one_request(kind: str) -> None:
    with wired(kind) as (near, far, proxy):
        for number in range(5):
            near.create(f"f/{number}", b"1")
        far.read("f/0")
        costs = {
            "read": (lambda store: store.read("f/0"), 1),
            "missing": (lambda store: store.read_many(["f/none"]), 1),
            "size": (lambda store: store.size("f/0"), 1),
            "create": (lambda store: store.create("f/new", b"1"), 1),
            "replace": (lambda store: store.replace("f/new", b"2"), 1),
            "list": (lambda store: list(store.list("f/")), 1),
            "upload": (lambda store: store.upload("f/large", bytes(17 * 2**20)), 5 if kind == "s3" else 4),
            "delete": (lambda store: store.delete_many(["f/1"]), 1),
        }
        for name, (act, requests) in costs.items():
            line = Line()
            proxy.use(line, all_requests=True)
            act(far)
            assert (name, line.requests) == (name, requests)


def test_a_thousand_deletes_are_one_request_on_s3() -> None:  # Azurite's batches fail; there it is one each
    with wired("s3") as (near, far, proxy):
        for number in range(3):
            near.create(f"f/{number}", b"1")
        line = Line()
        proxy.use(line, all_requests=True)
        assert far.delete_many([f"f/{number}" for number in range(2500)]) == 2500
        assert line.requests == 3
        assert list(near.list("")) == []
