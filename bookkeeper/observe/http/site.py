"""
What the daemon answers over HTTP: /metrics, /healthz, /readyz, /status.json, /history.json and the page at /.

Everything is in memory: a request here costs none to storage or catalog.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest

from bookkeeper.config.settings import Daemon
from bookkeeper.console.secrets import scrubbed
from bookkeeper.console.web import JSON, Response, Routes, WebServer
from bookkeeper.observe.http.page import page
from bookkeeper.observe.http.probes import healthz, readyz
from bookkeeper.observe.http.status import history, status
from bookkeeper.observe.metrics.inspector import Inspector
from bookkeeper.observe.metrics.prometheus import DaemonCollector
from bookkeeper.observe.metrics.table_metrics import AllMetrics


@dataclass
class Site:
    """The answers, from the metrics of all tables."""

    metrics: AllMetrics
    settings: Callable[[], Daemon]
    clock: Callable[[], datetime]
    monotonic: Callable[[], float]
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)

    def __post_init__(self) -> None:
        self.registry.register(DaemonCollector(self.metrics.now, self.settings, self.clock))
        for of_process in (ProcessCollector, PlatformCollector, GCCollector):
            of_process(registry=self.registry)

    def routes(self) -> Routes:
        """The answer to a request, by path."""
        return {
            "/": lambda query: page(),
            "/metrics": lambda query: Response(generate_latest(self.registry), CONTENT_TYPE_PLAIN_0_0_4),
            "/healthz": lambda query: self._probe(healthz(self.metrics.now(), self.settings(), self.monotonic())),
            "/readyz": lambda query: self._probe(readyz(self.metrics.now(), self.settings(), self.clock())),
            "/status.json": lambda query: _json(status(self.metrics.now(), self.settings(), self.clock())),
            "/history.json": self._history,
        }

    def _probe(self, found: tuple[bool, Mapping[str, Any]]) -> Response:
        good, body = found
        return _json(body, 200 if good else 503)

    def _history(self, query: Mapping[str, str]) -> Response:
        found = history(self.metrics.now(), query.get("table", ""), self.settings(), self.clock())
        return _json({"error": "no such table: /history.json?table=NAME"}, 404) if found is None else _json(found)


def _json(body: Mapping[str, Any], status_code: int = 200) -> Response:
    # A driver's error text may hold a password.
    return Response(json.dumps(scrubbed(body), separators=(",", ":")).encode() + b"\n", JSON, status_code)


@contextmanager
def serving(site: Site, listen: str, allowed_hosts: Iterable[str] = ()) -> Iterator[WebServer]:
    """
    Serves `site` and inspects the tables while the block runs; raises NotPossible when the port is taken.
    """
    web, inspector = WebServer(listen, site.routes(), allowed_hosts=allowed_hosts), Inspector(site.metrics, site.clock)
    web.open()
    inspector.start()
    try:
        yield web
    finally:
        inspector.stop()
        web.close()
