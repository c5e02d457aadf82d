"""
Storage and catalog disturbed at each operation of each scene, while the processes live on.

Each is refused, or done and its reply lost; each change is also done twice, done late after it was said to have failed
(soon, or when all is over), and done once more when all is over: after its txlog was consumed, for instance.
"""

import random
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

from bookkeeper.errors import BookkeeperError, StorageUnavailable
from tests.chaos.crashes import on_stage
from tests.chaos.scenes.cast import SCENES
from tests.chaos.scenes.scene import Scene
from tests.chaos.tally import Budget, FaultClass, Tally
from tests.support.enumerated import Point, error_points, late_points, recorded
from tests.support.faults import Faults


def disturbed(made: Callable[[Path], Scene], seed: int, budget: Budget) -> Tally:
    """
    Every point (or a part of them) of one scene.
    """
    done = Tally()
    with on_stage(made) as scene:
        seen = recorded(scene.act)
        points = [*error_points(seen), *late_points(seen)]
        for point in budget.some(points, random.Random(seed)):
            done += disturb_at(scene, point)
    return done


def disturb_at(scene: Scene, point: Point) -> Tally:
    """
    One disturbance, what follows from it, what arrives late, and the account.
    """
    scene.restore()
    faults = Faults().at(point.number, point.when, fault_of, point.delay)
    broke_off = True
    with suppress(BookkeeperError):
        scene.act(faults)
        broke_off = False
    if broke_off:
        scene.again()
    scene.drain()
    if faults.under_way:
        faults.arrive()
        scene.again()
        scene.drain()
    return scene.outcome(str(point))


def fault_of(operation: str) -> Exception:
    """
    What a client sees when nothing comes back.
    """
    # Drivers of catalogs share no root of errors; stores translate theirs.
    return (
        TimeoutError(operation) if "_table" in operation or "_namespace" in operation else StorageUnavailable(operation)
    )


CLASSES = tuple(FaultClass(f"storage: {made.name}", partial(disturbed, made)) for made in SCENES)
