"""
Remembers what a function makes of objects that never change, like pyiceberg's schemas and partition specs.

They cannot be hashed, and to compare two by what is in them costs as much as most things that are made of them. So they
are told apart by their identity. An entry holds its objects: their ids are not taken by others.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

#: entries of one function; a process uses few schemas and specs at a time
_ENTRIES = 256


def remembered(make: Callable[P, T]) -> Callable[P, T]:
    """
    `make`, which is called once for the same objects. What it returns is shared: no caller may change it.
    """
    known = dict[tuple[int, ...], tuple[tuple[Any, ...], T]]()

    @wraps(make)
    def found(*args: P.args, **kwargs: P.kwargs) -> T:
        if kwargs:
            return make(*args, **kwargs)
        key = tuple(map(id, args))
        entry = known.get(key)
        if entry is None:
            if len(known) >= _ENTRIES:
                known.clear()
            entry = known[key] = args, make(*args, **kwargs)
        return entry[1]

    return found
