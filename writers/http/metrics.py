"""
The metrics of requests for Prometheus, beside those of the writers.
"""

from dataclasses import dataclass, field

from bookkeeper.console.families import COUNTER, Family


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
