"""What a store says when requests are refused, lost, answered late or never: never that nothing is there."""

from collections.abc import Iterator

import pytest

from bookkeeper.errors import AlreadyExists, Changed, Missing, StorageUnavailable
from bookkeeper.stores.open import open_store
from bookkeeper.stores.store import Store, create_once
from tests.servers.line import Fault, Line
from tests.servers.proxy import Proxy
from tests.servers.shared import place, wanted
from tests.stores.wires import ALL_OBJECTS, unreached, wired

STORM = (Fault.REFUSED_503, Fault.REFUSED_500, Fault.REQUEST_LOST)
LOST = (Fault.REPLY_LOST, Fault.APPLIED_500, Fault.APPLIED_503)
ACTS = {
    "read": lambda store: store.read("a"),
    "read_tagged": lambda store: store.read_tagged("a"),
    "size": lambda store: store.size("a"),
    "list": lambda store: list(store.list("")),
    "create": lambda store: store.create("new", b"1"),
    "replace": lambda store: store.replace("a", b"1"),
    "upload": lambda store: store.upload("large", bytes(9 * 2**20)),
    "delete_many": lambda store: store.delete_many(["a", "b"]),
}
Wire = tuple[Store, Store, Proxy]


@pytest.fixture(params=ALL_OBJECTS)
def wire(request: pytest.FixtureRequest) -> Iterator[Wire]:
    """The near store, the one behind the proxy, and the proxy; `a` is there."""
    with wired(request.param) as made:
        made[0].create("a", b"here")
        made[1].read("a")
        yield made


@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("fault", STORM)
def test_a_storm_that_passes_is_not_noticed(wire: Wire, act: str, fault: Fault) -> None:
    near, far, proxy = wire
    line = Line(fault, most=3)
    proxy.use(line, all_requests=True)
    ACTS[act](far)
    assert line.injected == 3
    assert act == "delete_many" or near.size("a") > 0


@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("fault", STORM)
def test_a_storm_that_stays_is_storage_that_is_unavailable(wire: Wire, act: str, fault: Fault) -> None:
    near, far, proxy = wire
    proxy.use(Line(fault), all_requests=True)
    with pytest.raises(StorageUnavailable):
        ACTS[act](far)
    assert near.read("a") == b"here"
    assert [item.key for item in near.list("")] == ["a"]


def test_among_many_a_storm_says_missing_of_nothing(wire: Wire) -> None:
    near, far, proxy = wire
    proxy.use(Line(Fault.REFUSED_503, every=2), all_requests=True)
    known = {"a": near.read_tagged("a")[1], "gone": "", "b": ""}
    asked = (far.read_many(["a", "gone"] * 5), far.sizes(["a", "gone"] * 5), far.read_versions(known))
    for answers in asked:
        assert not isinstance(answers["a"], Missing)
        assert isinstance(answers["gone"], Missing | StorageUnavailable)


@pytest.mark.parametrize("fault", LOST)
def test_a_create_whose_reply_was_lost_is_recognised_by_its_bytes(wire: Wire, fault: Fault) -> None:
    near, far, proxy = wire
    proxy.use(Line(fault, most=1), all_requests=True)
    create_once(far, "mine", b"my bytes")
    assert near.read("mine") == b"my bytes"
    near.create("theirs", b"their bytes")
    proxy.use(Line(fault, most=1), all_requests=True)
    with pytest.raises(AlreadyExists):
        create_once(far, "theirs", b"my bytes")
    assert near.read("theirs") == b"their bytes"


@pytest.mark.parametrize("fault", LOST)
def test_a_guarded_replace_whose_reply_was_lost_is_done_once(wire: Wire, fault: Fault) -> None:
    near, far, proxy = wire
    _, tag = near.read_tagged("a")
    proxy.use(Line(fault, most=1), all_requests=True)
    with pytest.raises(Changed):  # its own: the caller reads back
        far.replace("a", b"mine", if_match=tag)
    assert near.read("a") == b"mine"


@pytest.mark.parametrize("fault", LOST)
def test_a_large_upload_whose_replies_were_lost_is_whole(wire: Wire, fault: Fault) -> None:
    near, far, proxy = wire
    data = bytes(range(256)) * (2**20 // 8)
    proxy.use(Line(fault, every=2, most=3), all_requests=True)
    far.upload("large", data)
    assert near.read("large") == data


def test_slow_answers_are_waited_for(wire: Wire) -> None:
    _, far, proxy = wire
    waited = []
    proxy.use(Line(Fault.OVERTAKEN, meanwhile=lambda: waited.append(1)), all_requests=True)
    assert far.read("a") == b"here"
    assert waited


@pytest.mark.parametrize("kind", ALL_OBJECTS)
def test_a_server_that_is_down_is_unavailable_and_never_empty(kind: str) -> None:
    far = unreached(kind)
    for act in ACTS.values():
        with pytest.raises(StorageUnavailable):
            act(far)
    assert isinstance(far.read_many(["a"])["a"], StorageUnavailable)


@pytest.mark.parametrize("act", [*ACTS, "modified"])
@pytest.mark.parametrize("kind", ALL_OBJECTS)
def test_a_bucket_that_is_not_there_is_unavailable_and_nothing_in_it_is_missing(kind: str, act: str) -> None:
    # As with a disk that is not mounted: if it counted as missing, every txlog would become a hole.
    properties = wanted(kind).properties
    store = open_store(place(kind).replace("lake-", "lost-"), properties)
    with pytest.raises(StorageUnavailable):
        store.modified("a") if act == "modified" else ACTS[act](store)
    for answers in (store.read_many(["a", "b"]), store.sizes(["a", "b"])):
        assert all(isinstance(answer, StorageUnavailable) for answer in answers.values())
