"""A few seconds of tests/http/kills.py, and its account."""

import re
import subprocess
import sys

from tests.http.kills import EVIL, Account
from tests.packaging.project import ROOT


def test_each_row_is_in_the_table_once_whatever_is_killed() -> None:
    # A process of its own: what is left of its connections is not this one's.
    words = ["--producers", "20", "--requests", "15", "--rows", "5", "--unnamed", "2", "--pause", "0.5", "--seed", "5"]
    words += ["--away", "2"]
    done = subprocess.run([sys.executable, "-m", "tests.http.kills", *words], cwd=ROOT, capture_output=True, text=True)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "1500 rows of named producers: 0 missing, 0 double" in done.stdout
    assert sum(map(int, re.findall(r"(\d+)[,}]", done.stdout.partition("killed")[2].partition(";")[0]))) >= 2
    assert "storage and catalog were away for 2 s each" in done.stdout
    assert EVIL in done.stdout and "\n0 acknowledged" not in done.stdout


def test_what_is_wrong_is_counted() -> None:
    account = Account(named={1, 2, 3}, unnamed={10**13})
    account.compare([1, 2, 2, 4, 10**12])

    assert (account.missing, account.double, account.lost) == (1, 2, 1)
    assert not account.right
