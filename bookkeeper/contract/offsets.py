"""
Offsets: how far a slot has read each of its channels (docs/maintain/txlog-format.md, "Offsets: version 3").

A slot is a writer that reads many channels, such as partitions of a topic. Its txlogs say, beside the one position
that is compared, the offset that some channels have reached. Offsets are opaque and never compared.
"""

import json
import re
import zlib
from collections.abc import Mapping
from typing import Any

from bookkeeper.errors import TxlogCorrupt

Offsets = Mapping[str, str]

#: the offset of a channel that its slot forgets; in a txlog alone, never in marks
FORGOTTEN = ""
#: channels that one txlog names
MOST_IN_TXLOG = 1000
#: channels of all slots of a table: each commit writes all of them
MOST_CHANNELS = 2000
CHANNEL_CHARS, OFFSET_CHARS = 200, 64
MOST_SLOTS = 999
#: of the header's value: what honest ones have, and room for a JSON writer that escapes more
_BYTES = 2**19
#: printable ASCII but blank, quote and backslash: as long in JSON, logs and command lines as it is
_TEXT = re.compile(r"[!#-\[\]-~]+")
_ALLOWED = "printable ASCII characters without blank, quote and backslash"


def slot_of(source: str, channel: str, slots: int) -> str:
    """
    The slot that reads this channel of a source with so many slots.

    Its number is the CRC-32 of the channel. Of one that ends with `/` and a number (1 to 18 digits) it is the CRC-32 of
    what is before, plus that number: neighbours, such as the partitions of a topic, are in different slots.
    """
    numbered = re.fullmatch("(.*)/([0-9]{1,18})", channel)
    prefix, number = numbered.groups() if numbered else (channel, "0")
    return slot_name(source, (zlib.crc32(prefix.encode()) + int(number)) % slots)


def slot_name(source: str, number: int) -> str:
    """
    The name of the writer that is the slot of this number, from 0.
    """
    return f"{source}-{number:02d}"


def merged(before: Offsets, reached: Offsets) -> Offsets:
    """
    The offsets after a txlog that reached these: a channel that it does not name stays where it was.
    """
    if not reached:
        return before
    found = {**before, **reached}
    return {key: value for key, value in found.items() if value} if forgets_some(reached) else found


def forgets_some(reached: Offsets) -> bool:
    """
    Whether a channel among these is forgotten.
    """
    return FORGOTTEN in reached.values()


def is_slot(source: str, writer: str) -> bool:
    """
    Whether a writer is named as a slot of this source.
    """
    return re.fullmatch(rf"{re.escape(source)}-[0-9]{{2,3}}", writer) is not None


def check(offsets: Mapping[Any, Any], forgets: bool = False) -> None:
    """
    Raises ValueError unless each channel has 1 to 200 such characters, and each offset 1 to 64; with `forgets` it may
    be FORGOTTEN.
    """
    for channel, offset in offsets.items():
        if not _is_text(channel, CHANNEL_CHARS):
            raise ValueError(f"channel {channel!r:.80}: 1 to {CHANNEL_CHARS} {_ALLOWED} are expected")
        if not _is_text(offset, OFFSET_CHARS) and not (forgets and offset == FORGOTTEN):
            raise ValueError(f"the offset {offset!r:.80} of {channel}: 1 to {OFFSET_CHARS} {_ALLOWED} are expected")


def _is_text(value: object, most: int) -> bool:
    return isinstance(value, str) and len(value) <= most and _TEXT.fullmatch(value) is not None


def encode(offsets: Offsets) -> bytes:
    """
    The value of the header key; equal offsets give equal bytes. Raises ValueError.
    """
    if not 1 <= len(offsets) <= MOST_IN_TXLOG:
        raise ValueError(f"offsets of {len(offsets)} channels, 1 to {MOST_IN_TXLOG} are expected in a txlog")
    check(offsets, forgets=True)
    return json.dumps(dict(sorted(offsets.items())), separators=(",", ":")).encode()


def decode(data: bytes, forgets: bool = False) -> Offsets:
    """
    The offsets in a header's value, in their order; with `forgets` some may be FORGOTTEN. Raises TxlogCorrupt.
    """
    if len(data) > _BYTES:
        raise TxlogCorrupt(f"offsets of {len(data)} bytes, at most {_BYTES} are expected")
    try:
        # An object as a tuple of pairs: of a channel that is named twice, each reader would take another offset.
        pairs = json.loads(data.decode(), object_pairs_hook=tuple)
    except (ValueError, RecursionError) as exc:
        raise TxlogCorrupt(f"its offsets are not JSON: {exc}"[:300]) from exc
    found = dict(pairs) if isinstance(pairs, tuple) else {}
    if not found or len(found) != len(pairs):
        raise TxlogCorrupt("its offsets are no JSON object, or empty, or name a channel twice")
    if len(found) > MOST_IN_TXLOG:
        raise TxlogCorrupt(f"offsets of {len(found)} channels, 1 to {MOST_IN_TXLOG} are expected in a txlog")
    try:
        check(found, forgets)
    except ValueError as exc:
        raise TxlogCorrupt(str(exc)) from exc
    return found
