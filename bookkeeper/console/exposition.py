"""
Metrics in Prometheus' text format: one text for a scraper, or a file for node_exporter's textfile collector.

prometheus_client is imported by the first text only (bookkeeper.console.families).
"""

import errno
import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

from bookkeeper.errors import NotPossible

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_NOT_ALLOWED = "Its folder must be there, and this user must be allowed to write to it."
_UNREAD = "It is a pipe without a reader, or with one that is too slow: name a file, or start the reader first."


def text(families: "Iterable[Metric]") -> str:
    """
    The families in Prometheus' text format.
    """
    from prometheus_client import CollectorRegistry, generate_latest
    from prometheus_client.registry import Collector

    class Given(Collector):
        def collect(self) -> "Iterable[Metric]":
            return families

    registry = CollectorRegistry()
    registry.register(Given())
    return generate_latest(registry).decode()


def replace_file(path: str, content: str) -> None:
    """
    Writes `content` there in one go, so that a scraper never sees half of it; raises NotPossible.

    /dev/null, a pipe or anything else that is no file is written to and stays what it is; a pipe without a reader is
    refused, not waited for. A link stays a link: the file it names is replaced.
    """
    # A link elsewhere than to a file stays: as root, /dev/stdout itself would be replaced while stdout is a file.
    path = os.path.realpath(path) if os.path.islink(path) and os.path.isfile(path) else path
    fresh = f"{path}.{os.getpid()}.tmp"
    try:
        if os.path.exists(path) and not os.path.isfile(path):
            fresh = path
        with open(fresh, "w", encoding="utf-8", opener=_at_once) as file:
            file.write(content)
        if fresh != path:
            os.replace(fresh, path)
    except OSError as exc:
        hint = _UNREAD if exc.errno in (errno.ENXIO, errno.EAGAIN) else _NOT_ALLOWED
        raise NotPossible(f"the metrics file {path} cannot be written: {exc.strerror}", hint=hint) from exc


def _at_once(path: str, flags: int) -> int:
    # Without O_NONBLOCK opening a pipe waits for its reader, for ever if there is none.
    return os.open(path, flags | os.O_NONBLOCK, 0o666)
