"""
Limits of a process that has many files open, and threads that wait for each other's turn.
"""

import sys
from contextlib import suppress

#: a table has about ten, a request over HTTP one, and a thousand in all is a common limit
_FILES = 65_536
_SWITCH_SECONDS = 0.001


def set_limits() -> None:
    """
    Raises the limit of open files, and shortens the interpreter's switch interval.
    """
    import resource

    now, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _FILES if most == resource.RLIM_INFINITY else min(_FILES, most)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(now, wanted), most))
    # A tick gives the interpreter up some sixty times, to read, write and sync; a busy table then keeps it for this
    # long. With the default of 5 ms the slowest rows of the others were three times as late.
    sys.setswitchinterval(_SWITCH_SECONDS)
