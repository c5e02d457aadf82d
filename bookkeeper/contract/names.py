"""
Names in the txlog folder: the writer, its incarnation, and the sequence within that.

Refuses any name that does not parse back to itself, so a path can never be smuggled in.
"""

import re
from typing import NamedTuple

from bookkeeper.errors import ConfigInvalid, NameMismatch

WRITER = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")
UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_TXLOG = re.compile(rf"({WRITER.pattern})\.({UUID})\.([0-9]{{10}})\.txlog\.avro")
#: writer and incarnation
IncarnationKey = tuple[str, str]


class TxlogName(NamedTuple):
    """
    `<writer>.<incarnation>.<sequence:010d>.txlog.avro`, ordered by writer, then time of start, then sequence.
    """

    writer: str
    incarnation: str
    sequence: int

    @classmethod
    def parse(cls, text: str) -> "TxlogName":
        """
        The name in `text`; raises NameMismatch when it is none.
        """
        match = _TXLOG.fullmatch(text)
        if not match or (sequence := int(match[3])) == 0:
            raise NameMismatch(f"{text[:200]!r} is not named <writer>.<incarnation>.<sequence>.txlog.avro")
        return cls(match[1], match[2], sequence)

    def __str__(self) -> str:
        return f"{self.writer}.{self.incarnation}.{self.sequence:010d}.txlog.avro"

    @property
    def incarnation_key(self) -> IncarnationKey:
        """What all txlogs of its incarnation have in common."""
        return self.writer, self.incarnation

    def at(self, sequence: int) -> "TxlogName":
        """
        The name of another txlog of the same incarnation.
        """
        return TxlogName(self.writer, self.incarnation, sequence)


def check_writer(name: str) -> str:
    """
    `name` itself; raises ConfigInvalid when it cannot name a writer.
    """
    if not WRITER.fullmatch(name):
        raise ConfigInvalid(
            f"writer name {name!r} is not valid: use 1 to 63 of a-z, 0-9, _ and -, starting with a letter or digit",
            hint="Take a name that stays the same when the writer is started again, such as that of its source.",
        )
    return name


def new_incarnation(now_ms: int, random: bytes) -> str:
    """
    A UUIDv7 (RFC 9562): ordered by `now_ms`, made unique by 10 random bytes.
    """
    value = (now_ms & ((1 << 48) - 1)) << 80 | int.from_bytes(random[:10], "big")
    value = value & ~(0xF << 76) | 0x7 << 76
    value = value & ~(0x3 << 62) | 0x2 << 62
    text = f"{value:032x}"
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


def started_ms(incarnation: str) -> int:
    """
    When a UUIDv7 was made, by the clock of the machine that made it.
    """
    return int(incarnation[:8] + incarnation[9:13], 16)


def year_of(ms: int) -> int:
    """
    The year of a time in ms since 1970, also of one that no calendar of Python's holds.
    """
    return 1970 + ms // 31_556_952_000
