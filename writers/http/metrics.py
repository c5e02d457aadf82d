"""
The metrics of requests for Prometheus, beside those of the writers.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any

from bookkeeper.console.families import COUNTER, Family

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

_PLACE = "/v1/tables/"


@dataclass
class RequestFigures:
    """Requests of one table by status of their answers; "" is of no table here. Written by the server's loop."""

    table: str
    answered: dict[tuple[str, ...], int] = field(default_factory=dict)
    seconds: dict[tuple[str, ...], float] = field(default_factory=dict)

    @property
    def labels(self) -> tuple[str, ...]:
        """The table, as its requests name it."""
        return (self.table,)

    def count(self, status: int, seconds: float) -> None:
        """Counts one more answer."""
        key = (str(status),)
        self.seconds[key] = self.seconds.get(key, 0.0) + seconds
        self.answered[key] = self.answered.get(key, 0) + 1


FAMILIES: tuple[Family[RequestFigures], ...] = (
    Family(
        "writer_http_requests_total",
        COUNTER,
        "requests answered, by status; the table is empty where the request names none that is served",
        ("table", "status"),
        lambda it: dict(it.answered),
    ),
    Family(
        "writer_http_request_seconds_total",
        COUNTER,
        "time from the head of a request to the begin of its answer, by status",
        ("table", "status"),
        lambda it: dict(it.seconds),
    ),
)


class Counted:
    """`app` (ASGI), whose answers are counted by table; `clock` in seconds."""

    def __init__(self, app: App, tables: Iterable[str], clock: Callable[[], float]) -> None:
        self._app, self._clock = app, clock
        self.figures: Mapping[str, RequestFigures] = {name: RequestFigures(name) for name in ("", *tables)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        began = self._clock()
        name = str(scope.get("path", "")).removeprefix(_PLACE).partition("/")[0]
        figures = self.figures.get(name, self.figures[""])

        async def counted(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                figures.count(message["status"], self._clock() - began)
            await send(message)

        await self._app(scope, receive, counted)
