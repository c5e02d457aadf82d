"""
How a run in several processes is spread over them: file by file in the usual order, after what must stay together.
"""

from typing import Any

import pytest

#: What is one piece of work, and begun first, for it takes longest. One JVM serves all of Spark's tests, and none
#: starts beside another; the servers of the catalogs are started once.
TOGETHER = {
    "JVM": (
        "tests/demo/test_demo.py",
        "tests/demo/test_readme.py",
        "tests/races/",
        "tests/spark/",
        "tests/stores/test_spark.py",
        "tests/writers/test_spark.py",
    ),
    "catalogs": ("tests/catalogs/",),
}


def piece(nodeid: str) -> str:
    """
    What one process does as a whole, one test after the other.
    """
    together = (name for name, paths in TOGETHER.items() if nodeid.startswith(paths))
    return next(together, nodeid.partition("::")[0])


def turn(nodeid: str) -> int:
    """
    When its piece is begun; pieces of the same turn keep their order.
    """
    return [*TOGETHER, piece(nodeid)].index(piece(nodeid))


def scheduler(config: pytest.Config, log: Any) -> Any:
    """
    A worker with nothing left to do takes the next piece.
    """
    from xdist.scheduler import LoadScopeScheduling

    class ByPiece(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return piece(nodeid)

    # Otherwise those with the most tests come first, and what is long has few.
    config.option.loadscopereorder = False
    return ByPiece(config, log)
