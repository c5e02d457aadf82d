"""
Lets the methods of an object that threads share run one after the other.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

Method = TypeVar("Method", bound=Callable[..., Any])


def one_at_a_time(method: Method) -> Method:
    """
    The method under the object's `_lock`, behind `_check_process`: a fork may copy a lock that another thread holds.
    """

    @wraps(method)
    def call(self: Any, *args: Any, **options: Any) -> Any:
        self._check_process()
        with self._lock:
            return method(self, *args, **options)

    return cast(Method, call)
