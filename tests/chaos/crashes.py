"""
A crash before, in the middle of and after each operation that changes something, scene by scene; then a restart.

The points are those of one recorded run, not of a list. A crash is a BaseException that nothing may catch,
after which every object is thrown away.
"""

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from bookkeeper.ledger import merge
from tests.chaos.scenes.cast import SCENES
from tests.chaos.scenes.scene import Scene
from tests.chaos.tally import Budget, FaultClass, Tally
from tests.servers import scratch
from tests.support.enumerated import Point, crash_points, crashed, recorded


@contextmanager
def on_stage(made: Callable[[Path], Scene]) -> Iterator[Scene]:
    """
    The scene, in memory where the system has that: the disk is put back hundreds of times.
    """
    fan, merge.FAN = merge.FAN, 3  # few manifests of a kind are merged already, so that a small scene merges too
    try:
        with TemporaryDirectory(dir=scratch(), prefix="bookkeeper-chaos-") as root:
            yield made(Path(root))
    finally:
        merge.FAN = fan


def crashes(made: Callable[[Path], Scene], seed: int, budget: Budget) -> Tally:
    """
    Every point (or a part of them) of one scene.
    """
    done = Tally()
    with on_stage(made) as scene:
        points = list(crash_points(recorded(scene.act)))
        for point in budget.some(points, random.Random(seed)):
            done += crash_at(scene, point)
    return done


def crash_at(scene: Scene, point: Point) -> Tally:
    """
    One crash, the restart of everything, and the account.
    """
    scene.restore()
    if not crashed(scene.act, point):
        return Tally(1, wrong=[f"{point}: it was never reached"])
    scene.again()
    scene.drain()
    return scene.outcome(str(point))


CLASSES = tuple(FaultClass(f"crash: {made.name}", partial(crashes, made)) for made in SCENES)
