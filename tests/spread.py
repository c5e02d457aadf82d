"""
How a run in several processes is spread over them: file by file in the usual order, after what must stay together.
"""

from typing import Any

import pytest

#: What is one piece of work, and begun first, for it takes longest. Programs that start JVMs of their own do so one
#: after the other, beside the two JVMs that serve all of Spark's other tests; the servers of the catalogs and
#: Kafka are started once.
TOGETHER = {
    "programs with a JVM": (
        "tests/benchmarks/test_with_a_jvm.py",
        "tests/demo/test_demo.py",
        "tests/demo/test_readme.py",
        "tests/spark/test_handed_out_keys.py",
        "tests/spark/test_java_writer.py",
        "tests/spark/test_jobs.py",
        "tests/spark/test_prepare.py",
        "tests/stores/test_spark.py",
    ),
    "JVM": ("tests/races/", "tests/spark/", "tests/writers/test_spark.py"),
    "catalogs": ("tests/catalogs/",),
    "Kafka": ("tests/kafka/",),
}
#: In one piece they would take longer than all else does beside it: the second half, from this file on, is another.
SECOND_HALF = {"JVM": "tests/spark/test_java.py"}
#: Files that take a quarter of a minute or more: begun next, or the last of them runs alone at the end.
LONG = (
    "tests/soak/test_soak.py",
    "tests/cli/test_load.py",
    "tests/benchmarks/test_small_runs.py",
    "tests/consumers/test_consumer_kills.py",
    "tests/consumers/test_consumer_group.py",
    "tests/reaper/test_crash.py",
    "tests/writers/test_cli.py",
    "tests/writers/test_lines.py",
    "tests/chaos/test_processes.py",
    "tests/chaos/test_crashes.py",
    "tests/consumers/test_consumer_crashes.py",
    "tests/writers/test_change_lines.py",
)


def piece(nodeid: str) -> str:
    """
    What one process does as a whole, one test after the other.
    """
    file = nodeid.partition("::")[0]
    together = next((name for name, paths in TOGETHER.items() if file.startswith(paths)), file)
    is_second = together in SECOND_HALF and file >= SECOND_HALF[together]
    return f"{together}, second half" if is_second else together


def turn(nodeid: str) -> int:
    """
    When its piece is begun; pieces of the same turn keep their order.
    """
    name = piece(nodeid)
    return [*TOGETHER, *LONG, name].index(name.removesuffix(", second half"))


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
