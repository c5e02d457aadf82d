"""
The line of progress at the bottom of a terminal: a log line is written above it, and it is drawn again below.
"""

import threading
from contextlib import suppress
from typing import TextIO

_CLEAR = "\r\x1b[K"
_lock = threading.RLock()
_lines: dict[TextIO, str] = {}


def draw(stream: TextIO, text: str) -> None:
    """
    Draws the line of this terminal over its last one.
    """
    with _lock:
        _lines[stream] = text
        stream.write(f"{_CLEAR}{text}")
        stream.flush()


def finish(stream: TextIO, text: str) -> None:
    """
    Draws it for the last time; later output begins on a new line.
    """
    with _lock:
        _lines.pop(stream, None)
        stream.write(f"{_CLEAR}{text}\n")
        stream.flush()


def write_above(stream: TextIO, lines: str) -> None:
    """
    Writes whole lines above the terminal's line of progress, if it has one.
    """
    if stream not in _lines:
        stream.write(lines)
        return
    with _lock:
        text = _lines.get(stream)
        stream.write(lines if text is None else f"{_CLEAR}{lines}{text}")


def release() -> None:
    """
    Leaves every line as it was drawn last; later output begins on a new line.
    """
    with _lock:
        while _lines:
            with suppress(OSError, ValueError):  # that terminal is gone
                _lines.popitem()[0].write("\n")
