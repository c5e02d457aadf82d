"""
`make prepare`: everything, or the steps that are named.
"""

import os
import sys
from collections.abc import Sequence

from tests.prepare.steps import ASKED, STEPS, Step, prepare


def chosen(names: Sequence[str], environ: os._Environ[str]) -> list[Step]:
    """
    The steps with these names, or those of a whole run; raises ValueError.
    """
    every = {step.name: step for step in (*STEPS, *ASKED)}
    unknown = [name for name in names if name not in every]
    if unknown:
        raise ValueError(f"prepare: no step {', '.join(unknown)}: there is {', '.join(every)}")
    usual = [*STEPS, *(step for step in ASKED if environ.get(step.asked) == "1")]
    return [every[name] for name in names] or usual


if __name__ == "__main__":
    try:
        wanted = chosen(sys.argv[1:], os.environ)
    except ValueError as exc:
        sys.exit(str(exc))
    sys.exit(0 if prepare(wanted, os.environ, lambda text: print(text, file=sys.stderr, flush=True)) else 1)
