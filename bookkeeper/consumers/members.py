"""
Members of groups that are stopped (SIGSTOP, a debugger) on this machine: on local disk such a member keeps its shares.
"""

import os
import re
from pathlib import Path

from bookkeeper.errors import Missing, Unfit
from bookkeeper.history.registry import FOLDER
from bookkeeper.stores.local import LocalStore
from bookkeeper.stores.store import Store

_BYTES = 2**10
_HOLDER = re.compile(r"(\S+) ([0-9]{1,10}) since ")
_STOPPED = ("T", "t")


def stopped_member(folder: Store, name: str, host: str, proc: Path = Path("/proc")) -> str | None:
    """
    A warning if a stopped process of this `host` reads for the consumer `name`, else None.

    Only where the kernel keeps the lease, on local disk: elsewhere it ends after 15 s.
    """
    if not isinstance(folder, LocalStore):
        return None
    key = f"{FOLDER}{name}.lease"
    try:
        found = _HOLDER.match(folder.read(key, _BYTES).decode(errors="replace"))
        if found is None or found[1] != host:
            return None
        inode = os.lstat(f"{folder.root}/{key}").st_ino
        if not _is_locked(inode, found[2], proc) or not _is_stopped(found[2], proc):
            return None
    except (Missing, Unfit, OSError):
        return None
    return f"process {found[2]} of {host}, which reads it, is stopped: its rows wait until that goes on or ends"


def _is_stopped(pid: str, proc: Path) -> bool:
    status = (proc / pid / "stat").read_text(errors="replace").rpartition(")")[2].split()
    return status[:1] != [] and status[0] in _STOPPED


def _is_locked(inode: int, pid: str, proc: Path) -> bool:
    """Whether this process has the lease now: a file that a process left behind names it too."""
    return any(_of_lock(line) == (pid, f"{inode}") for line in (proc / "locks").read_text().splitlines())


def _of_lock(line: str) -> tuple[str, str] | None:
    """The process and the inode in a line of /proc/locks such as `1: FLOCK ADVISORY WRITE 4711 08:01:1234 0 EOF`."""
    words = line.split()
    return (words[4], words[5].rpartition(":")[2]) if len(words) > 5 and words[1] == "FLOCK" else None
