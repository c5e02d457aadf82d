"""
Kills the demo's processes when the demo itself was killed.

Reads lines on stdin: `+pid` when a process group starts, `-pid` when it has ended. At the end of stdin it kills every
group that has not ended.
"""

import os
import signal
import sys
from collections.abc import Iterable
from contextlib import suppress


def running_groups(lines: Iterable[str]) -> set[int]:
    """
    The process groups that were started (`+`) and not ended (`-`).
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
    for group in running_groups(sys.stdin):
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)


if __name__ == "__main__":
    main()
