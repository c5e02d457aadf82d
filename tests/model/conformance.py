"""
Whether recorded runs of the code are runs of the model: the model's binary, built by Cargo, follows them.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tests.servers import installed
from tests.servers.process import Unavailable
from tests.simulation.trace import record, steps


def refusal(lines: Iterable[Mapping[str, Any]], path: Path) -> str:
    """Why the model refuses these runs; empty where it takes them."""
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    followed = subprocess.run([str(installed.model(os.environ)), "trace", str(path)], capture_output=True, text=True)
    return followed.stdout if followed.returncode else ""


def seeds(first: int, count: int) -> list[int]:
    """So many seeds of worlds that the model knows: those of keyed tables are left out."""
    return [seed for seed in range(first, first + 2 * count) if seed % 3 != 1][:count]


def main() -> int:
    """`python -m tests.model.conformance 200`: records so many runs, and follows them; the exit code."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    try:
        follower = [str(installed.model(os.environ)), "trace", "/dev/stdin"]
    except Unavailable as error:
        print(error, file=sys.stderr)
        return 1
    following = subprocess.Popen(follower, stdin=subprocess.PIPE, text=True)
    assert following.stdin is not None
    with following.stdin as out:
        for seed in seeds(1, count):
            out.writelines(f"{json.dumps(line)}\n" for line in record(seed, steps(seed)))
    return following.wait()


if __name__ == "__main__":
    sys.exit(main())
