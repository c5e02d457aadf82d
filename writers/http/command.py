"""
The command `writer serve`, with its options parsed.
"""

import asyncio
import logging
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from itertools import chain
from pathlib import Path
from threading import Event
from typing import Any

import uvicorn

from bookkeeper.config.units import format_duration
from bookkeeper.console.exposition import CONTENT_TYPE, text
from bookkeeper.console.families import exposed
from bookkeeper.console.limits import set_limits
from bookkeeper.console.output import say
from bookkeeper.console.signals import StopSignal
from bookkeeper.console.web import Response, WebServer, address
from bookkeeper.contract.names import check_writer
from bookkeeper.contract.offsets import slot_name
from bookkeeper.errors import ConfigInvalid, Missing, NotPossible
from bookkeeper.leases.slot_lease import is_address
from bookkeeper.stores.store import Store
from writers.http.front import Front
from writers.http.lane import Table
from writers.http.metrics import FAMILIES as REQUESTS
from writers.http.metrics import RequestFigures
from writers.http.protocol import MOST_CONNECTIONS, Protocol, every_second
from writers.http.tokens import Tokens
from writers.metrics import FAMILIES
from writers.opener import Opener
from writers.timing import Clock

log = logging.getLogger(__name__)

#: requests wait so long for a bookkeeper that is behind, before they are answered 429
PATIENCE = timedelta(seconds=2)
#: the part of the grace after which what has no answer gets 503
_CUT = 0.8


def tables_of(
    folders: Mapping[str, str],
    stores: Callable[[str], Store],
    name: str,
    slots: int,
    clock: Clock,
    over: Event,
    address: str,
    keep: timedelta | None = None,
) -> list[Table]:
    """
    The tables by their names ("": as their cards say), each with its txlog folder; `address`: at which other instances
    reach this one; `keep`: how long a silent producer is remembered, None: for ever. Raises ConfigInvalid, NotPossible.
    """
    check_keep(keep)
    check_writer(slot_name(name, slots - 1))
    found = dict[str, Table]()

    for url, given in folders.items():
        # A request with no good row is known by its sequence alone, and its producer waits for the commit.
        opener = Opener(url, stores, clock, over.wait, PATIENCE, alone=timedelta(0))
        try:
            card = opener.folder().card()
        except Missing as exc:
            hint = "Give the folder that `bookkeeper init` printed."
            raise NotPossible(f"there is no card.json in {url}", hint=hint) from exc
        table = given or card.table.rpartition(".")[2]
        if table in found:
            raise ConfigInvalid(f"two tables are named {table}", hint="Serve one of them by another process.")
        found[table] = Table(table, name, opener, clock, over, slots, address, keep)
    return [*found.values()]


def check_keep(keep: timedelta | None) -> None:
    """
    Raises ConfigInvalid where it is shorter than a day: an offset says no time of day.
    """
    if keep is not None and keep < timedelta(days=1):
        raise ConfigInvalid(
            f"--producer-keep {format_duration(keep)}: at least 1d is expected",
            hint="A producer that sends a request again after that long may put its rows into the table twice.",
        )


class _Server(uvicorn.Server):
    """Signals are the program's."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def listening(listen: str) -> socket.socket:
    """
    A socket at `HOST:PORT`; raises ConfigInvalid, NotPossible.
    """
    host, port = address(listen)
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as exc:
        hint = "Is another one running here? --http says where: another port, or port 0 for any free one."
        raise NotPossible(f"cannot listen on {listen}: {exc.strerror or exc}", hint=hint) from exc


def address_of(at: socket.socket, advertised: str | None) -> str:
    """
    The address at which other instances reach this one: what is advertised, else where it listens, with the name of
    this machine where that is every address. Raises ConfigInvalid.
    """
    if advertised is not None:
        if not is_address(advertised):
            raise ConfigInvalid(f"--advertise {advertised}: http://HOST:PORT or https://HOST:PORT is expected")
        return advertised
    host, port = at.getsockname()[:2]
    return _url(socket.gethostname() if host in ("0.0.0.0", "::") else host, port)


def _url(host: str, port: int) -> str:
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def serve(front: Front, at: socket.socket, stop: StopSignal, over: Event, grace: timedelta) -> None:
    """
    Serves until a stop is requested and each request has an answer, at the latest until the end of the grace.
    """
    config = uvicorn.Config(
        front,
        http=Protocol,
        ws="none",
        loop="asyncio",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=MOST_CONNECTIONS + 1,
        timeout_graceful_shutdown=max(1, round(grace.total_seconds())),
    )
    server = _Server(config)

    async def until_stopped() -> None:
        loop = asyncio.get_running_loop()

        def end() -> None:
            for handle in stop.wakes():
                loop.remove_reader(handle)
            loop.call_later(grace.total_seconds() * _CUT, front.cut)
            server.should_exit = True

        for handle in stop.wakes():
            loop.add_reader(handle, end)
        looking = loop.create_task(every_second(server.server_state.connections, front.answer_late_ones))
        try:
            await server.serve(sockets=[at])
        finally:
            looking.cancel()

    # what strangers send is no line of the log each
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
    try:
        asyncio.run(until_stopped())
    finally:
        over.set()
        front.join(grace.total_seconds() * (1 - _CUT))


def run_serve(
    folders: Mapping[str, str],
    stores: Callable[[str], Store],
    name: str,
    options: Mapping[str, Any],
    stop: StopSignal,
    clock: Clock,
) -> None:
    """
    Takes rows for the tables in `folders` (name by URL, "" as its card says) until a stop is requested; raises
    ConfigInvalid, NotPossible.
    """
    tokens: Path | None = options["tokens"]
    if (tokens is None) != options["no_tokens"]:
        raise ConfigInvalid("either --tokens FILE or --no-tokens is expected")
    set_limits()
    over = Event()
    with listening(options["http"]) as at:
        own, keep = address_of(at, options["advertise"]), options["producer_keep"]
        tables = tables_of(folders, stores, name, options["slots"], clock, over, own, keep)
        known = None if tokens is None else Tokens(tokens, clock)
        front = Front(tables, known, options["max_body"], options["memory"])
        small = _small_server(front, tables, options) if options["listen"] else None
        say(f"rows are taken at {_url(*at.getsockname()[:2])}/v1/tables/NAME/rows")
        try:
            serve(front, at, stop, over, options["grace"])
        finally:
            if small is not None:
                small.close()


def _small_server(front: Front, tables: list[Table], options: Mapping[str, Any]) -> WebServer:
    routes = {
        "/metrics": lambda query: Response(metrics(tables, front.figures.values()).encode(), CONTENT_TYPE),
        "/healthz": lambda query: Response(b"ok\n") if front.alive else Response(b"a thread has ended\n", status=503),
    }
    return WebServer(options["listen"], routes, allowed_hosts=options["allowed_hosts"]).open()


def metrics(tables: Iterable[Table], requests: Iterable[RequestFigures]) -> str:
    """
    The metrics of all writers of this process and of its requests, in Prometheus' text format.
    """
    writers = exposed(FAMILIES, [item for table in tables for item in [*table.figures.values()]])
    return text(chain(writers, exposed(REQUESTS, requests)))
