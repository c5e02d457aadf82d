"""
Writers: Arrow in, data files and one txlog per publish out; no catalog, no catalog credentials.

`from writers import Writer` gives the class, and the same for the errors that its callers catch. Names are loaded when
they are asked for, so that importing `writers` loads neither pyarrow nor pyiceberg and `writer --help` stays instant.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bookkeeper.contract.names import TxlogName as TxlogName
    from bookkeeper.errors import Backpressure as Backpressure
    from bookkeeper.errors import BookkeeperError as BookkeeperError
    from bookkeeper.errors import ConfigInvalid as ConfigInvalid
    from bookkeeper.errors import Fenced as Fenced
    from bookkeeper.errors import NotPossible as NotPossible
    from bookkeeper.errors import SchemaRefused as SchemaRefused
    from bookkeeper.errors import StorageUnavailable as StorageUnavailable
    from bookkeeper.errors import UnknownOutcome as UnknownOutcome
    from bookkeeper.errors import WrongFolder as WrongFolder
    from bookkeeper.stores.open import stores_with as stores_with
    from writers.bare import Bare as Bare
    from writers.bare import TooOld as TooOld
    from writers.publish.suspects import Suspects as Suspects
    from writers.reach import stores_of_catalog as stores_of_catalog
    from writers.tasks.handover import Handover as Handover
    from writers.tasks.task import Task as Task
    from writers.tasks.task import TaskWriter as TaskWriter
    from writers.writer import Writer as Writer

__all__ = [
    "Backpressure",
    "Bare",
    "BookkeeperError",
    "ConfigInvalid",
    "Fenced",
    "Handover",
    "NotPossible",
    "SchemaRefused",
    "StorageUnavailable",
    "Suspects",
    "Task",
    "TaskWriter",
    "TooOld",
    "TxlogName",
    "UnknownOutcome",
    "Writer",
    "WrongFolder",
    "stores_of_catalog",
    "stores_with",
]
_MODULES = {
    "Bare": "writers.bare",
    "Handover": "writers.tasks.handover",
    "Suspects": "writers.publish.suspects",
    "Task": "writers.tasks.task",
    "TaskWriter": "writers.tasks.task",
    "TooOld": "writers.bare",
    "TxlogName": "bookkeeper.contract.names",
    "Writer": "writers.writer",
    "stores_of_catalog": "writers.reach",
    "stores_with": "bookkeeper.stores.open",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES.get(name, "bookkeeper.errors")), name)
