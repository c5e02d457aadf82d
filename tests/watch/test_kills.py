"""A minute of tests/watch/kills.py, and its account."""

import re
import subprocess
import sys

from tests.packaging.project import ROOT
from tests.watch.kills import Account


def test_each_version_is_in_the_table_once_whatever_is_killed() -> None:
    words = ["--objects", "600", "--pause", "4", "--seed", "5"]
    done = subprocess.run([sys.executable, "-m", "tests.watch.kills", *words], cwd=ROOT, capture_output=True, text=True)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 missing, 0 double, 0 left" in done.stdout
    assert int(re.findall(r"(\d+) txlogs rejected", done.stdout)[0]) >= 1


def test_what_is_wrong_is_counted() -> None:
    account = Account(dropped={1, 2, 3, 4, 5}, replaced={4}, bad={5})
    account.compare([1, 2, 2, 7])

    assert (account.missing, account.double) == (1, 2)
    assert not account.right
    account.compare([1, 2, 3, 4])
    assert not account.right
    account.kept = 1
    assert account.right
