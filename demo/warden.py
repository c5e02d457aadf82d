"""
Ends the demo's processes when the demo itself was killed.

Reads `+pid` and `-pid` lines on stdin; when that ends, every process group that is still noted is killed.
"""

import os
import signal
import sys
from collections.abc import Iterable
from contextlib import suppress


def left(lines: Iterable[str]) -> set[int]:
    """
    The process groups that were begun (`+`) and not ended (`-`).
    """
    groups: set[int] = set()
    for line in lines:
        number = int(line[1:])
        if line.startswith("+"):
            groups.add(number)
        else:
            groups.discard(number)
    return groups


def main() -> None:
    """
    Wait for the end of stdin, then kill.
    """
    for group in left(sys.stdin):
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)


if __name__ == "__main__":
    main()
