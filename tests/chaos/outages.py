"""
A disk that says no to any call of the operating system in a tick: once, or from then on until the restart.

One level below the classes of storage: what LocalStore makes of a full disk in the middle of its own steps.
"""

import errno
import random
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.chaos.account import account
from tests.chaos.tally import Budget, FaultClass, Tally
from tests.outage.test_disk import cycle, refusing, scene
from tests.servers import scratch
from tests.support.disk import LOOKS, WRITES, Disk, mounted

KEYS = ("a", "b", "c")


def refused(error: int, calls: tuple[str, ...], seed: int, budget: Budget) -> Tally:
    """
    Every call (or a part of them), refused once and from then on.
    """
    rng, done = random.Random(seed), Tally()
    with TemporaryDirectory(prefix="bookkeeper-chaos-", dir=scratch()) as root:
        lake = scene(Path(root))
        saved = lake.saved()
        with mounted(Disk()) as disk:
            cycle(lake)
        points = [number for number, call in enumerate(disk.seen) if call in calls]
        for lasting in (False, True):
            for point in budget.some(points, rng):
                saved.restore()
                with mounted(Disk(refusing(point, calls, lasting), error)):
                    cycle(lake)
                lake.drain()
                where = f"{errno.errorcode[error]} at call {point}, {disk.seen[point]}{', lasting' * lasting}"
                done += account(KEYS, lake.keys(), points=1, where=where)
                left = lake.pending()
                done += Tally(wrong=[f"{where}: still pending {left}"] if left else [])
    return done


CLASSES = (
    FaultClass("disk: full at each call", partial(refused, errno.ENOSPC, WRITES)),
    FaultClass("disk: no permission at each call", partial(refused, errno.EACCES, (*WRITES, *LOOKS))),
)
