"""
A store at the end of a line that plays faults on its HTTP requests.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from bookkeeper.stores.open import open_store
from bookkeeper.stores.store import Store
from tests.servers.objects import azure_properties, gcs_properties, s3_properties
from tests.servers.process import free_port
from tests.servers.proxy import Proxy, proxy
from tests.servers.shared import place, wanted

OBJECTS = ("azurite", "s3")
#: with the one that is only tested when asked for
ALL_OBJECTS = (*OBJECTS, "gcs")
_REACHED = {"azurite": azure_properties, "s3": s3_properties, "gcs": gcs_properties}


@contextmanager
def wired(kind: str) -> Iterator[tuple[Store, Store, Proxy]]:
    """
    One place twice: with nothing between, and through a proxy; and the proxy. Our client does not wait between tries.
    """
    server = wanted(kind)
    with proxy(server.port) as between:
        far = _REACHED[kind](between.port)
        url = place(kind)
        through = open_store(url, {**server.properties, **far})
        through.sleep = _at_once  # type: ignore[attr-defined]
        yield open_store(url, server.properties), through, between


def unreached(kind: str) -> Store:
    """
    A store on a server that is not there.
    """
    wanted(kind)
    store = open_store(place(kind), _REACHED[kind](free_port()))
    store.sleep = _at_once  # type: ignore[attr-defined]
    return store


async def _at_once(seconds: float) -> None:
    assert seconds > 0
