"""
Hours of real processes, with everything on, killed now and then; and an account of every row in the end.

    python -m tests.soak --minutes 120 --folder DIR --seed 7 --cores-light        make soak ARGS="--minutes 3"

DIR/status.log has a line for each minute, DIR/report.txt the account, DIR/logs what each process said. Exit code 0: all
is right. SIGTERM ends all processes at once, without an account; SIGUSR1 ends the load now and makes the account.
"""

import argparse
import signal
import sys
import threading
from pathlib import Path
from random import SystemRandom
from tempfile import mkdtemp
from types import FrameType

from tests.soak.plan import Plan
from tests.soak.soak import Soak


def main() -> int:
    """
    Exit code 1: something is wrong; 2: it was stopped.
    """
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--minutes", type=float, default=120)
    parser.add_argument("--folder", type=Path, help="must not hold an earlier soak; default: a new one below /tmp")
    parser.add_argument("--seed", type=int, default=SystemRandom().randrange(10**6))
    parser.add_argument("--cores-light", action="store_true", help="half the load, at a low priority")
    parser.add_argument("--no-spark", action="store_true")
    chosen = parser.parse_args()
    early = threading.Event()
    signal.signal(signal.SIGUSR1, lambda number, frame: early.set())
    signal.signal(signal.SIGTERM, _stop)
    folder = chosen.folder or Path(mkdtemp(prefix="bookkeeper-soak-"))
    print(f"tail -f {folder}/status.log", file=sys.stderr)
    plan = Plan(folder.resolve(), chosen.minutes, chosen.seed, chosen.cores_light, not chosen.no_spark)
    right = Soak(plan, early.is_set).run()
    print((plan.root / "report.txt").read_text("utf-8"))
    return 0 if right else 1


def _stop(number: int, frame: FrameType | None) -> None:
    """All processes end on the way out."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(2)


if __name__ == "__main__":
    sys.exit(main())
