"""
A catalog and a store whose requests go over a line that loses, delays and doubles them.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from pyiceberg.catalog import Catalog
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.update import TableRequirement, TableUpdate
from sqlalchemy.exc import OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from bookkeeper.catalogs.prepared import PreparedCommit
from bookkeeper.errors import StorageUnavailable
from bookkeeper.stores.store import Buffer, Store
from tests.servers.line import Answered, Line, Lost

T = TypeVar("T")


class LossyCatalog:
    """
    An SQL catalog whose commits go over `line`, or with `all_requests` its loads too; the rest is the catalog's own.
    """

    def __init__(self, catalog: Catalog, line: Line, all_requests: bool = False) -> None:
        self.catalog, self.line, self.all_requests = catalog, line, all_requests

    def __getattr__(self, name: str) -> Any:
        return getattr(self.catalog, name)

    def load_table(self, identifier: str) -> Table:
        """The table, bound to this catalog so that its commits come through here."""
        return self._loaded(lambda: self.catalog.load_table(identifier))

    def load_for_commit(self, identifier: str) -> Table:
        """The same, as a catalog that has this loads it."""
        return self._loaded(lambda: getattr(self.catalog, "load_for_commit", self.catalog.load_table)(identifier))

    def _loaded(self, load: Callable[[], Table]) -> Table:
        line = self.line if self.all_requests else Line()
        with _as_a_driver_says():
            table = line.play(load)
        table.catalog = self  # type: ignore[assignment]
        return table

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        with _as_a_driver_says():
            return self.line.play(lambda: self.catalog.commit_table(table, requirements, updates))

    def prepare_commit(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> PreparedCommit:
        """Only the compare-and-swap goes over the line."""
        made = self.catalog.prepare_commit(table, requirements, updates)  # type: ignore[attr-defined]

        def swap() -> CommitTableResponse:
            with _as_a_driver_says():
                return self.line.play(made.swap)

        return PreparedCommit(made.writes, swap)


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


class LossyStore:
    """
    A store whose puts go over `line`; the rest is the store's own.

    A put that is sent twice says what the second one met: that is what a client that retries by itself hands on.
    """

    def __init__(self, store: Store, line: Line) -> None:
        self.store, self.line, self.url = store, line, store.url

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)

    def create(self, key: str, data: bytes) -> None:
        self._put(key, lambda: self.store.create(key, data))

    def replace(self, key: str, data: bytes, if_match: str | None = None) -> str:
        return self._put(key, lambda: self.store.replace(key, data, if_match))

    def upload(self, key: str, data: Buffer) -> None:
        self._put(key, lambda: self.store.upload(key, data))

    def _put(self, key: str, put: Callable[[], T]) -> T:
        try:
            return self.line.play(put)
        except (Lost, Answered) as exc:
            raise StorageUnavailable(f"{self.url}/{key}: {exc or 'no answer'}") from exc
