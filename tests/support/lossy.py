"""
A catalog and a store whose requests go over a line that loses, delays and doubles them.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from pyiceberg.catalog import Catalog
from sqlalchemy.exc import OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from bookkeeper.errors import StorageUnavailable
from bookkeeper.stores.store import Store
from tests.servers.line import Answered, Line, Lost
from tests.support.wrapped import COMMIT, LOAD, WrappedCatalog, WrappedStore


def lossy_catalog(catalog: Catalog, line: Line, all_requests: bool = False) -> Any:
    """
    An SQL catalog whose commits go over `line`, or with `all_requests` its loads too; the rest is the catalog's own.

    Of a commit that is prepared only the compare-and-swap goes over the line.
    """

    def around(name: str, act: Callable[..., Any], *given: Any, **named: Any) -> Any:
        if name != COMMIT and not (all_requests and name == LOAD):
            return act(*given, **named)
        with _as_a_driver_says():
            return line.play(lambda: act(*given, **named))

    return WrappedCatalog(catalog, around)


@contextmanager
def _as_a_driver_says() -> Iterator[None]:
    """Drivers share no root of errors: three that have nothing in common."""
    try:
        yield
    except Lost as exc:
        cause = Exception("server closed the connection unexpectedly")
        raise OperationalError("UPDATE iceberg_tables", {}, cause) from exc
    except Answered as exc:
        raise (PoolTimeout("QueuePool limit") if exc.status == 503 else ConnectionResetError(str(exc))) from exc


def lossy_store(store: Store, line: Line) -> Any:
    """
    A store whose puts go over `line`; the rest is the store's own.

    A put that is sent twice says what the second one met: that is what a client that retries by itself hands on.
    """

    def around(name: str, act: Callable[..., Any], *given: Any, **named: Any) -> Any:
        if name not in ("create", "replace", "upload"):
            return act(*given, **named)
        try:
            return line.play(lambda: act(*given, **named))
        except (Lost, Answered) as exc:
            raise StorageUnavailable(f"{store.url}/{given[0]}: {exc or 'no answer'}") from exc

    return WrappedStore(store, around)
