"""
What `bookkeeper run` shows of itself while it runs: page, metrics and probes at `listen`.
"""

import logging
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from bookkeeper.cli.context import utc_now

if TYPE_CHECKING:
    from bookkeeper.config.settings import Daemon
    from bookkeeper.serve.loop import Observer, TableLoop


@contextmanager
def watched(
    loops: "Callable[[], Collection[TableLoop]]",
    settings: "Callable[[], Daemon]",
    listen: str,
    allowed_hosts: Collection[str] = (),
) -> "Iterator[Observer | None]":
    """
    Serves the metrics of `loops` while the block runs; yields whom each loop has to tell, None when nothing is served.

    Raises ConfigInvalid, NotPossible when the port is taken, and what a missing extra raises.
    """
    if not listen:
        yield None
        return
    from bookkeeper.http.site import Site, serving
    from bookkeeper.metrics.table_metrics import AllMetrics

    metrics = AllMetrics(loops, utc_now, time.monotonic)
    with serving(Site(metrics, settings, utc_now, time.monotonic), listen, allowed_hosts) as web:
        logging.getLogger("bookkeeper").info("serving", extra={"action": "serve", "url": web.url})
        yield metrics.on_tick
