"""
Where a partition begins of which nothing was read, as the command line says it.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from bookkeeper.errors import ConfigInvalid
from bookkeeper.format.csv_json_types import instant

EARLIEST, LATEST, TIME, GROUP, OFFSET = "earliest", "latest", "time", "group", "offset"
_PARTITION = re.compile(r"(?P<topic>[^:=]+)(:(?P<number>[0-9]{1,10}))?=(?P<where>.+)")


@dataclass(frozen=True, slots=True)
class Start:
    """`earliest`, `latest`, at a time (milliseconds since 1970), where a group stands, or at an offset."""

    kind: str
    millis: int = 0
    group: str = ""
    offset: int = 0


def parsed(text: str) -> Start:
    """
    What `--from` says; raises ConfigInvalid.
    """
    if text in (EARLIEST, LATEST):
        return Start(text)
    if text.startswith("group:") and len(text) > len("group:"):
        return Start(GROUP, group=text.removeprefix("group:"))
    try:
        return Start(TIME, millis=instant(text) // 1000)
    except ValueError as exc:
        known = "earliest, latest, group:NAME or a time with its zone such as 2026-01-31T12:00:00Z"
        raise ConfigInvalid(f"--from {text}: {known} is expected") from exc


@dataclass(frozen=True, slots=True)
class GoOn:
    """Where a topic, or one partition of it, is begun again once its place is lost."""

    topic: str
    number: int | None
    start: Start

    def covers(self, topic: str, number: int) -> bool:
        """Whether it is about this partition."""
        return self.topic == topic and self.number in (None, number)


def go_on(text: str) -> GoOn:
    """
    What `--go-on TOPIC[:PARTITION]=earliest|latest|OFFSET` says; raises ConfigInvalid.
    """
    found = _PARTITION.fullmatch(text)
    where = found["where"] if found else ""
    if found is None or not (where in (EARLIEST, LATEST) or re.fullmatch("[0-9]{1,18}", where)):
        raise ConfigInvalid(f"--go-on {text}: TOPIC=earliest, TOPIC=latest or TOPIC:PARTITION=OFFSET is expected")
    start = Start(where) if where in (EARLIEST, LATEST) else Start(OFFSET, offset=int(where))
    return GoOn(found["topic"], int(found["number"]) if found["number"] else None, start)


def chosen(given: Sequence[GoOn], topic: str, number: int) -> Start | None:
    """
    Where this partition is begun again; None where nothing is said of it.
    """
    return next((item.start for item in given if item.covers(topic, number)), None)
