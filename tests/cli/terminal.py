"""A program on a terminal of its own."""

import fcntl
import os
import pty
import re
import struct
import subprocess
import termios
import time
from codecs import getincrementaldecoder
from collections.abc import Iterator
from contextlib import contextmanager

from bookkeeper.console.readable import readable

_END = "\x04 nothing more"


class Terminal:
    """A program on a terminal of its own, and what it drew there."""

    def __init__(self, *words: str, rows: int = 24, columns: int = 80, **environ: str) -> None:
        self.master, self.slave = pty.openpty()
        self.before = termios.tcgetattr(self.slave)
        self.resize(rows, columns)
        kept = {key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "COLUMNS", "LINES")}
        self.process = subprocess.Popen(
            words,
            stdin=self.slave,
            stdout=self.slave,
            stderr=self.slave,
            start_new_session=True,
            env={**kept, "TERM": "xterm", **environ},
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509 -- no thread is at work here
        )
        self.drawn, self._decoder = "", getincrementaldecoder("utf-8")()

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def until(self, wanted: str, seconds: float = 60) -> str:
        """The newest frame that holds this."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self._read()
            if re.search(wanted, self.frame()):
                return self.frame()
        raise AssertionError(f"{wanted} not within {seconds} s: {self.drawn[-2000:]!r}")

    def wait_for(self, wanted: str, seconds: float = 60) -> None:
        """Anything at all that holds this."""
        deadline = time.monotonic() + seconds
        while not re.search(wanted, self.drawn):
            assert time.monotonic() < deadline, self.drawn
            self._read()

    def _read(self) -> None:
        if readable([self.master], 0.05):
            self.drawn += self._decoder.decode(os.read(self.master, 65536))

    def frame(self) -> str:
        whole = self.drawn.rpartition("\x1b[J")[0]
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", whole.rpartition("\x1b[H")[2])

    def press(self, keys: str) -> None:
        os.write(self.master, keys.encode())

    def end(self) -> int:
        """Its exit code; what it wrote until then is drawn."""
        deadline = time.monotonic() + 60
        while self.process.poll() is None:
            assert time.monotonic() < deadline, self.drawn
            self._read()  # a terminal that is not read would hold it up
        # What it wrote last may come after it is gone, but before what is written now.
        os.write(self.slave, _END.encode())
        self.wait_for(_END)
        self.drawn = self.drawn.removesuffix(_END)
        return self.process.returncode


@contextmanager
def terminal(*words: str, rows: int = 24, columns: int = 80, **environ: str) -> Iterator[Terminal]:
    """One that ends with the block."""
    found = Terminal(*words, rows=rows, columns=columns, **environ)
    try:
        yield found
    finally:
        if found.process.poll() is None:
            found.process.kill()
            found.process.wait()
        os.close(found.master)
        os.close(found.slave)
