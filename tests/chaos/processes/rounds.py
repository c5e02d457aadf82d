"""
Rounds of real processes: a schedule, all killed, the queue drained, the source copied to its end, the account.
"""

import gc
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from bookkeeper.catalogs.open import open_catalog
from bookkeeper.config.settings import Catalog
from bookkeeper.errors import Fenced, UnknownOutcome
from bookkeeper.ledger import merge
from reaper import reap
from tests.chaos.processes import slots
from tests.chaos.processes.ground import Ground, now
from tests.chaos.processes.in_fork import in_fork
from tests.chaos.processes.roles import copied, eager, source_keys
from tests.chaos.tally import Budget, Tally
from tests.servers import Unavailable, postgres, rest_catalog, scratch
from tests.support.crew import Crew

ROUNDS_A_LAKE = 4
Roles = Callable[[Ground], Mapping[str, Callable[[], None]]]
#: breaks what it likes and returns how often it did
Course = Callable[[Crew, Random], int]


def rounds(roles: Roles, course: Course, kind: str, seed: int, budget: Budget) -> Tally:
    """
    Rounds on a catalog of this kind until time is up or one is red, at least one.
    """
    merge.FAN = 4  # in this process and its forks: merges come as often as everything else
    try:
        with TemporaryDirectory(dir=scratch(), prefix="bookkeeper-chaos-") as root, served(kind, Path(root)) as catalog:
            import_what_a_round_imports(Path(root), catalog)
            return _rounds(
                Path(root), catalog, lambda ground, rng, n: _round(ground, roles, course, rng, n), seed, budget
            )
    except Unavailable as exc:
        return Tally(skipped=str(exc))


@contextmanager
def served(kind: str, root: Path) -> Iterator[Catalog]:
    """
    A catalog for lakes in `root`: what each process opens for itself, and its server. Raises Unavailable.
    """
    (root / "warehouse").mkdir()
    with ExitStack() as stack:
        if kind == "postgres":
            properties = stack.enter_context(postgres()).properties
        elif kind == "rest":
            properties = stack.enter_context(rest_catalog(root / "warehouse")).properties
        else:
            properties = {"type": "sql", "uri": f"sqlite:///{root}/catalog.db"}
        yield Catalog("lake", {**properties, "warehouse": (root / "warehouse").as_uri()})


def _rounds(
    root: Path, catalog: Catalog, one: Callable[[Ground, Random, int], Tally], seed: int, budget: Budget
) -> Tally:
    """A new lake now and then, for what is old makes rounds slow."""
    rng, until, done = Random(seed), time.monotonic() + budget.seconds, Tally()
    while not done.rounds or (time.monotonic() < until and not done.red):
        ground: Ground = in_fork(partial(Ground.make, root / f"lake{done.rounds + 1}", catalog, done.rounds + 1))
        before = 0
        for _ in range(ROUNDS_A_LAKE):
            counted = one(ground, rng, done.rounds)
            # Compared are all rows of the lake in each round; published are the new ones.
            done += replace(counted, published=counted.published - before)
            before = counted.published
            if done.red or time.monotonic() >= until:
                break
        shutil.rmtree(Path(ground.folder.removeprefix("file://")).parent)
    return done


def import_what_a_round_imports(root: Path, catalog: Catalog) -> None:
    """
    Once, here, or each fork would do it for longer than it lives; a fork tells what, for that may start threads.
    """

    def needed() -> list[str]:
        ground = Ground.make(root / "first", catalog)
        for _ in copied(ground, "source", end=6):
            ground.drain()
        assert eager(ground).round(open_catalog(catalog), now()).rewrites == 1
        reap(open_catalog(catalog), ground.table, now(), release_brake=True)
        ground.outcome([], "", 0)
        return list(sys.modules)

    for name in in_fork(needed):
        with suppress(ImportError):
            import_module(name)
    gc.collect()
    gc.freeze()  # what a fork never frees it need not copy


def _round(ground: Ground, roles: Roles, course: Course, rng: Random, number: int) -> Tally:
    with Crew(roles(ground), ground.root) as crew:
        for role in crew.commands:
            crew.start(role)
        points = course(crew, rng)
    done: Tally = in_fork(lambda: finished(ground, f"round {number}", points))
    return done


def finished(ground: Ground, where: str, points: int) -> Tally:
    """
    Restarts what is needed to bring every row in, and counts.
    """
    ground.drain()
    end = max((int(line[0]) for line in ground.notes("source")), default=0)
    ends = slots.ends_of(ground)
    for _ in range(3):
        with suppress(Fenced, UnknownOutcome):
            for _ in copied(ground, "source", end):
                continue
        with suppress(Fenced, UnknownOutcome):
            slots.read_to(ground, ends)
        left = ground.drain()
    done = ground.outcome(source_keys(0, end) + slots.keys_to(ends), where, points)
    done.wrong += [f"{where}: {what}" for what in left]
    return done
