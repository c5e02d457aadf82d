"""
Logging as it was before a command that was run in this process.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from bookkeeper.console.logs import OURS


@contextmanager
def logging_put_back() -> Iterator[None]:
    """
    A command that is run in the block leaves logging as it was.
    """
    root, levels = logging.getLogger(), {name: logging.getLogger(name).level for name in OURS}
    handlers, level = root.handlers[:], root.level
    try:
        yield
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
        for name, before in levels.items():
            logging.getLogger(name).setLevel(before)
