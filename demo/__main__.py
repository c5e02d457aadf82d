"""
`python -m demo`; see `make demo`.
"""

import os
import random
import sys

import click

from bookkeeper.console.errors import Failure
from bookkeeper.errors import BookkeeperError

INTERRUPTED = 130


def main() -> int:
    """
    The demo's exit code: 0 exactly once, 1 not so, 130 interrupted.
    """
    from demo.children import ending_on_sigterm
    from demo.options import read_options
    from demo.run import run

    try:
        with ending_on_sigterm():
            return run(read_options(os.environ, random.SystemRandom().randrange(10_000)), sys.stdout)
    except BookkeeperError as error:
        failure = Failure(error)
        failure.show()
        return failure.exit_code
    except KeyboardInterrupt:
        click.echo("interrupted; every process is ended", err=True)
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
