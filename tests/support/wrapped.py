"""
The one wrapping store and the one wrapping catalog: what fails, loses replies, delays, counts or stops is a setting.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Protocol

from bookkeeper.catalogs.prepared import PreparedCommit

#: what `around` is told of a catalog: loads of either kind, and both parts of a commit that is prepared
LOAD, COMMIT, METADATA = "load_table", "commit_table", "create metadata.json"


class Around(Protocol):
    """Does `act` with what it was given, or not, or twice, or raises; `name` is what was called."""

    def __call__(self, name: str, act: Callable[..., Any], *given: Any, **named: Any) -> Any: ...


class WrappedStore:
    """A store whose calls go through `around`; the rest is the store's own."""

    def __init__(self, store: Any, around: Around) -> None:
        self.store, self.around, self.url = store, around, store.url

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.store, name)
        if not callable(found):
            return found
        return partial(self.around, name, (lambda prefix: [*found(prefix)]) if name == "list" else found)

    def list(self, prefix: str) -> Iterator[Any]:
        return iter(self.__getattr__("list")(prefix))


class WrappedCatalog:
    """A catalog whose loads and changes go through `around`; the tables that it gives commit through it too."""

    def __init__(self, catalog: Any, around: Around) -> None:
        self._catalog, self._around = catalog, around

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._catalog, name)
        if name == "prepare_commit":
            return lambda *given: self._prepared(found(*given))
        told = LOAD if name == "load_for_commit" else name
        return self._through(told, found) if told in (LOAD, COMMIT, "create_table", "create_namespace") else found

    def _prepared(self, made: PreparedCommit) -> PreparedCommit:
        return PreparedCommit(
            [self._through(METADATA, write) for write in made.writes], self._through(COMMIT, made.swap)
        )

    def _through(self, name: str, act: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **named: Any) -> Any:
            result = self._around(name, act, *given, **named)
            if hasattr(result, "catalog"):
                result.catalog = self
            return result

        return call
