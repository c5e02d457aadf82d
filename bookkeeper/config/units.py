"""
Durations and sizes as people write them (`10m`, `1.5h`, `128MiB`), and times in milliseconds since 1970.
"""

import re
from datetime import UTC, datetime, timedelta

#: now minus the longest duration is still a date
LONGEST = timedelta(days=36500)
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d|w)")
_SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(B|KiB|MiB|GiB|TiB|kB|MB|GB|TB)?")
_BYTES = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
_BYTES |= {"kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}


def duration(text: str) -> timedelta:
    """
    `250ms`, `10s`, `10m`, `24h`, `7d`, `2w`; raises ValueError on anything else.
    """
    match = _DURATION.fullmatch(text.strip())
    if not match:
        raise ValueError("a duration such as 500ms, 10s, 10m, 24h or 7d")
    seconds = float(match[1]) * _SECONDS[match[2]]
    if seconds > LONGEST.total_seconds():
        raise ValueError("a duration of at most 36500d")
    return timedelta(seconds=seconds)


def size(text: str) -> int:
    """
    Bytes in `512`, `64KiB`, `128MiB`, `20MB`; raises ValueError on anything else.
    """
    match = _SIZE.fullmatch(text.strip())
    if not match:
        raise ValueError("a size such as 512, 64KiB, 128MiB or 2GiB")
    count = float(match[1]) * _BYTES[match[2] or "B"]
    if count >= 2**63:
        raise ValueError("a size below 8 EiB")
    return int(count)


def format_duration(span: timedelta) -> str:
    """
    A duration in its largest fitting unit: `1.5 s`, `10 m`, `2 d`.
    """
    seconds = span.total_seconds()
    for unit, worth in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        if abs(seconds) >= worth:
            return f"{_short(seconds / worth)} {unit}"
    return f"{_short(seconds * 1000)} ms"


def spoken_size(count: float) -> str:
    """
    Bytes in their largest fitting binary unit: `1.7 KiB`, `20 MiB`.
    """
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(count) < 1024:
            return f"{_short(count)} {unit}"
        count /= 1024
    return f"{_short(count)} TiB"


def _short(number: float) -> str:
    """Three digits, or all that stand before the point; never an exponent."""
    return f"{number:.3g}" if abs(number) < 999.5 else f"{number:.0f}"


def millis(span: timedelta) -> int:
    """
    Whole milliseconds in a duration.
    """
    return span // timedelta(milliseconds=1)


def epoch_ms(at: datetime) -> int:
    """
    Milliseconds since 1970, as Iceberg's metadata and the marks have times.
    """
    return int(at.timestamp() * 1000)


def moment(text: str) -> datetime:
    """
    The time in ISO 8601; raises ValueError where it is none, or has no zone.
    """
    found = datetime.fromisoformat(text)
    if found.tzinfo is None:
        raise ValueError(f"{text} has no time zone")
    return found


def from_epoch_ms(ms: int) -> datetime:
    """
    The time (UTC) of so many milliseconds since 1970.
    """
    return datetime.fromtimestamp(ms / 1000, UTC)


def format_rough(span: timedelta) -> str:
    """
    A span for people, in the largest unit that is exact enough: `90 s`, `5 min`, `47 h`, `3 d`.
    """
    seconds = max(int(span.total_seconds()), 0)
    for unit, name in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * unit:
            return f"{seconds // unit} {name}"
    return f"{seconds} s"
