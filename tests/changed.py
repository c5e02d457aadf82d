"""
`python -m tests.changed BASE`: the folders whose tests are to run for what is other than in the commit BASE, on a line.

Of guests, pages and tests alone: their own, and those that name them. Of anything else, which is the kernel or what
tests share: all.
"""

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[1]
#: packages that the kernel lacks nothing without
GUESTS = (
    "bookkeeper/consumers",
    "bookkeeper/folds",
    "bookkeeper/observe",
    "reaper/compactor",
    "spark_jobs",
    "writers/http",
    "writers/kafka",
    "writers/loader",
    "writers/sources",
    "writers/watch",
)
#: what shared modules lie in; and tests that look at the whole tree
SHARED, EVERYTHING = ("tests/support", "tests/servers", "tests/golden"), "tests"
ALWAYS = ("tests/cli", "tests/docs", "tests/packaging", "tests/rules")


def folders(changed: Iterable[str]) -> list[str]:
    """The folders for changed paths of the repository."""
    names, found = set[str](), {*ALWAYS}
    for path in changed:
        guest = next((guest for guest in GUESTS if path.startswith(f"{guest}/")), None)
        if guest:
            names.add(guest.replace("/", "."))
        elif path.endswith(".md") or path.startswith("docs/"):
            names.add(Path(path).name)
        elif path.startswith("tests/") and path.count("/") > 1 and not path.startswith(SHARED):
            found.add("/".join(path.split("/")[:2]))
            names.add(path.removesuffix(".py").replace("/", "."))
        else:
            return [EVERYTHING]
    files = (file for root in (EVERYTHING, *GUESTS) for file in (ROOT / root).rglob("*.py"))
    texts = {str(file.relative_to(ROOT)): file.read_text("utf-8") for file in files}
    seen = set[str]()
    while naming := {path for path in texts if path not in seen and any(name in texts[path] for name in names)}:
        seen |= naming
        names |= {path.removesuffix(".py").replace("/", ".") for path in naming if "/test_" not in path}
    of_tests = {path for path in seen if path.startswith("tests/") and path.count("/") > 1}
    return sorted(found | {"/".join(path.split("/")[:2]) for path in of_tests} - {*SHARED})


def main(base: str) -> None:
    """Also what is not committed; exits 1, and says nothing on stdout, where git does not know BASE."""
    given = ["git", "diff", "--name-only", "--no-renames", base, "--"]
    done = subprocess.run(given, capture_output=True, text=True, cwd=ROOT)
    if done.returncode:
        sys.exit(done.stderr)
    print(*folders(done.stdout.split()))


if __name__ == "__main__":
    main(sys.argv[1])
