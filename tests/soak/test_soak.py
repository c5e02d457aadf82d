"""
A short soak without Spark is even; and its account is red once a row of it is taken away, or put in twice.
"""

import sqlite3
import sys
import time
from contextlib import closing

import pytest

from tests.soak.account import WORK, Account, copied, events, files, outputs, state, work
from tests.soak.independent import Independent
from tests.soak.plan import Plan, local
from tests.soak.soak import Soak
from tests.soak.status import Status
from tests.support.crew import Crew, descendants, identity


@pytest.fixture(scope="module")
def soak(tmp_path_factory):
    root = tmp_path_factory.mktemp("soak") / "lake"
    made = Soak(Plan(root, minutes=1 / 3, seed=7, spark=False, names=("plain-0", "source-0", "keyed-0")))
    assert made.run(), made.account.wrong
    return made


def wrong(part, soak, *more):
    """What a part of the account says is wrong."""
    account = Account()
    part(soak.ground, account, *more)
    return account.wrong


def test_it_publishes_kills_and_says_so(soak):
    report = (soak.plan.root / "report.txt").read_text()

    assert soak.kills.total() >= 1 and report.endswith("rc 0\n")
    assert soak.status.published == soak.status.committed > 0
    assert sum(copied(soak.plan.output).values()) > 0
    assert (soak.plan.root / "status.log").read_text().startswith("minute")


def test_a_row_that_the_consumer_lost_or_has_twice_is_seen(soak):
    assert wrong(outputs, soak) == []
    with closing(sqlite3.connect(soak.plan.output, isolation_level=None)) as output:
        row = output.execute("SELECT writer, number FROM seen LIMIT 1").fetchone()
        output.execute("INSERT INTO seen VALUES (?, ?)", row)
        (double,) = wrong(outputs, soak)
        output.execute("DELETE FROM seen WHERE writer = ? AND number = ?", row)
        (lost,) = wrong(outputs, soak)
        output.execute("INSERT INTO seen VALUES (?, ?)", row)

    assert "consumer: rows more than once: 1" in double
    assert "consumer: published rows that are missing: 1" in lost


def test_a_row_that_the_keyed_table_lost_or_has_twice_is_seen(soak):
    assert wrong(state, soak) == []
    table = soak.ground.table("state")
    row = table.scan(limit=1).to_arrow()
    table.append(row)
    double = wrong(state, soak)
    table.delete(f"id = {row['id'][0].as_py()}")
    lost = wrong(state, soak)

    assert [item.partition(", ")[0] for item in double] == [
        "state by pyiceberg: rows more than once: 1",
        "state by DuckDB: rows more than once: 1",
    ]
    assert [item.partition(", ")[0] for item in lost] == [
        "state by pyiceberg: rows that are missing: 1",
        "state by DuckDB: rows that are missing: 1",
    ]


def test_a_row_that_the_append_only_table_has_twice_is_seen(soak):
    table, at = soak.ground.table("events"), soak.quiet
    row = table.scan(limit=1).to_arrow()
    if not row.num_rows:
        pytest.skip("on a slow machine retention has dropped all rows")
    assert wrong(events, soak, at) == []
    table.append(row)

    (double,) = wrong(events, soak, at)

    assert "events: rows more than once: 1" in double


def test_a_file_that_is_needed_and_gone_is_seen(soak):
    assert wrong(files, soak) == []
    needed = map(local, Independent(soak.plan.root / "cat.db", "state").reachable())  # others are of killed processes
    path = next(path for path in needed if path.suffix == ".parquet")
    path.unlink()

    (gone,) = wrong(files, soak)

    assert "state: files that are needed and gone: 1" in gone and path.name in gone


def test_what_ends_by_itself_or_cannot_be_read_is_wrong_and_the_soak_goes_on(tmp_path):
    made = Soak(Plan(tmp_path / "lake", minutes=1, seed=7, spark=False, names=()))
    made.crew.commands = {"daemon": [sys.executable, "-c", "import time; time.sleep(600)"]}
    made.status = Status(made.ground, made.crew, watch=None, began=time.monotonic())
    try:
        made.crew.start("daemon").kill()
        made.crew.running["daemon"].wait(60)
        made._look_after()
        made._line()
        assert made.crew.running["daemon"].poll() is None
    finally:
        made.crew.close()

    ended, line = made.account.wrong
    assert "daemon ended by itself with exit code -9" in ended and "no status line" in line


def test_a_soak_in_which_nothing_was_done_is_wrong(tmp_path):
    made = Soak(Plan(tmp_path / "lake", minutes=1, seed=7, spark=False))
    for role in ("daemon", "reaper"):
        (made.plan.root / "logs" / f"{role}.log").touch()

    found = wrong(work, made)

    assert {"commits: 0", "folds: 0", "plain-0: txlogs: 0"} <= {*found}


def test_sigterm_ends_all_processes_without_an_account(tmp_path):
    words = ["--minutes", "5", "--folder", str(tmp_path / "lake"), "--no-spark", "--cores-light", "--seed", "1"]
    crew = Crew({"soak": [sys.executable, "-m", "tests.soak", *words]}, tmp_path)
    process = crew.start("soak")
    wanted = len(Plan(tmp_path, 5, 1, spark=False).commands())
    crew.until(lambda: len(descendants(process.pid)) >= wanted)
    children = descendants(process.pid)

    assert crew.stop("soak", 60) == 2
    assert [child for child in children if identity(child[0]) == child] == []
    assert not (tmp_path / "lake" / "report.txt").exists()


def test_a_short_soak_goes_on_until_each_program_has_done_something(tmp_path):
    made = Soak(Plan(tmp_path / "lake", minutes=1, seed=7, spark=False, names=()))
    for role in ("daemon", "reaper"):
        (made.plan.root / "logs" / f"{role}.log").touch()
    assert [made._goes_on(spent) for spent in (59, 61, 299, 301)] == [True, True, True, False]

    for role, message in WORK.values():
        with (made.plan.root / "logs" / f"{role}.log").open("a") as log:
            log.write(f'{{"message": "{message}"}}\n')
    assert [made._goes_on(spent) for spent in (59, 61)] == [True, False]
    made.stopped = lambda: True
    assert not made._goes_on(59)
