"""A group shares the files: each row once, and a member that is gone is stood in for."""

import os
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bookkeeper.consumers import ConsumerGroup, SqlitePlace
from bookkeeper.consumers.consumer import Limits
from bookkeeper.consumers.members import stopped_member
from bookkeeper.consumers.share_leases import WANTED, Request
from bookkeeper.consumers.source import Source, registered_at
from bookkeeper.errors import ConfigInvalid, ConsumerFenced, NotPossible, Overwritten, PlaceExpired, RolledBack
from bookkeeper.history.registry import FOLDER
from tests.consumers.consumers import SqliteOutput, expire, keys, member, settings_of, take
from tests.consumers.test_consumer import changed
from tests.packaging.project import ROOT
from tests.support import compactions
from tests.support.configured import Queue, configured
from tests.support.crew import Crew
from tests.support.lake import Lake, Writes, append_by_others


def commits(lake: Lake, writer: Writes, first: int, count: int) -> list[str]:
    book, found = lake.book(), []
    for number in range(first, first + count):
        found += [f"{number}.a", f"{number}.b"]
        writer.publish(*found[-2:])
        lake.tick(book)
    return found


def test_each_row_is_read_by_one_member(lake: Lake, writer: Writes) -> None:
    wanted = commits(lake, writer, 0, 40)  # a share without a file has odds of one in a million
    with member(lake, "1/3") as one, member(lake, "2/3") as two, member(lake, "3/3") as three:
        parts = [take(group) for group in (one, two, three)]
        assert all(parts) and sorted(key for part in parts for key in part) == sorted(wanted)
        more = commits(lake, writer, 40, 12)
        assert sorted(key for group in (one, two, three) for key in take(group)) == sorted(more)


def test_a_member_whose_beginning_expired_does_not_begin_later(lake: Lake, writer: Writes) -> None:
    commits(lake, writer, 0, 12)
    with member(lake, "1/2") as one, member(lake, "2/2") as two:
        assert take(one)
        *old, _ = (item.snapshot_id for item in lake.table().metadata.snapshots)
        lake.table().maintenance.expire_snapshots().by_ids(old).commit()
        with pytest.raises(PlaceExpired):  # a rewrite may have moved rows that the other one has read into its files
            take(two)


def test_a_share_that_is_free_is_borrowed_and_given_back(lake: Lake, writer: Writes) -> None:
    wanted = commits(lake, writer, 0, 12)
    with member(lake, "1/2") as one:
        found = take(one)
        assert one.held == [1] and len(found) < len(wanted)
        lake.clock.move(seconds=4)
        found += take(one)
        assert one.held == [1, 2] and sorted(found) == sorted(wanted)
        with member(lake, "2/2") as two:
            assert take(two) == [] and two.held == []
            lake.clock.move(minutes=1)
            more = commits(lake, writer, 12, 6)
            found = take(one)
            assert one.held == [1]
            found += take(two)
            assert two.held == [2] and sorted(found) == sorted(more)


def test_a_member_that_joins_has_its_share_within_ten_seconds(lake: Lake, writer: Writes) -> None:
    commits(lake, writer, 0, 12)
    with member(lake, "1/2") as one:
        take(one)
        lake.clock.move(seconds=4)
        take(one)
        assert one.held == [1, 2]
        with member(lake, "2/2") as two:
            assert seconds_until(lake, lambda: two.held == [2], one, two) <= 5
            assert one.held == [1]
            more = commits(lake, writer, 12, 6)
            assert sorted(take(one) + take(two)) == sorted(more)
            assert lake.folder.store.read(f"{FOLDER}group-2of2{WANTED}") == b""


def seconds_until(lake: Lake, is_done: Callable[[], bool], *members: ConsumerGroup) -> int:
    """So many seconds in which each member looks ten times."""
    for second in range(100):
        for _ in range(10):
            for group in members:
                take(group)
            lake.clock.move(seconds=0.1)
        if is_done():
            return second + 1
    raise AssertionError("it never came to that")


def test_a_member_that_joins_does_not_wait_for_the_backlog_of_another_share(lake: Lake, writer: Writes) -> None:
    with member(lake, "1/2") as one:
        take(one)
        lake.clock.move(seconds=4)
        take(one)
        assert one.held == [1, 2]
        commits(lake, writer, 0, 40)
        one._how["limits"] = Limits(1)
        for share in one._open.values():
            share.limits = Limits(1)
        backlog, read = one.batches(follow=False), 0
        with member(lake, "2/2") as two:
            while two.held != [2]:
                one.commit(next(backlog))
                assert (read := read + 1) < 10, "a batch takes a second here"
                lake.clock.move(seconds=1)
                for batch in two.batches(follow=False):
                    two.commit(batch)
                    break
            assert one.held == [1]


def test_a_request_that_a_member_left_behind_is_heard_once_at_most(lake: Lake, writer: Writes) -> None:
    request = f"{FOLDER}group-2of2{WANTED}"
    lake.put(request, b"host 4711 at some time\n")
    with member(lake, "1/2") as one:
        assert seconds_until(lake, lambda: one.held == [1, 2], one) <= 4
        assert [seconds_with(lake, one, [1, 2]) for _ in range(20)] == [10] * 20, "it was there before"
        lake.put(request, b"host 4712 at some other time\n")
        assert seconds_until(lake, lambda: one.held == [1], one) <= 3
        lake.put(request, b"host 4712 at a third time, before it died\n")
        assert seconds_until(lake, lambda: one.held == [1, 2], one) <= 3
        assert [seconds_with(lake, one, [1, 2]) for _ in range(20)] == [10] * 20


def seconds_with(lake: Lake, group: ConsumerGroup, held: list[int]) -> int:
    """In how many looks of one second the member holds these shares."""
    found = 0
    for _ in range(10):
        take(group)
        lake.clock.move(seconds=0.1)
        found += group.held == held
    return found


def test_a_request_is_withdrawn_by_a_member_that_ends_before_it_has_its_share(lake: Lake, writer: Writes) -> None:
    with member(lake, "1/2") as one:
        seconds_until(lake, lambda: one.held == [1, 2], one)
        with member(lake, "2/2") as two:
            take(two)
            assert lake.folder.store.read(f"{FOLDER}group-2of2{WANTED}") != b""
        assert lake.folder.store.read(f"{FOLDER}group-2of2{WANTED}") == b""


def test_a_member_that_hears_no_request_still_offers_a_share_back(
    lake: Lake, writer: Writes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Request, "ask", lambda request, now: None)  # a member of an earlier release
    with member(lake, "1/2") as one:
        seconds_until(lake, lambda: one.held == [1, 2], one)
        with member(lake, "2/2") as two:
            assert 50 < seconds_until(lake, lambda: two.held == [2], one, two) <= 65


def test_a_member_that_lost_its_share_unnoticed_commits_nothing(lake: Lake, writer: Writes, tmp_path: Path) -> None:
    wanted = commits(lake, writer, 0, 6)
    connections = [SqliteOutput(tmp_path).connect() for _ in range(2)]
    one, two = (member(lake, "1/1", lambda c=c: SqlitePlace(c), limits=Limits(4)) for c in connections)  # type: ignore[misc]
    zombie = next(one.batches(follow=False))
    one._leases[1].release()
    found = []
    for batch in two.batches(follow=False):
        with connections[1]:
            found += keys(batch)
            two.commit(batch)
    with pytest.raises(ConsumerFenced), connections[0]:
        connections[0].execute("INSERT INTO output VALUES ('zombie')")
        one.commit(zombie)
    two.close()
    assert found == wanted
    assert SqliteOutput(tmp_path).keys() == []
    for connection in connections:
        connection.close()


def test_a_group_keeps_its_number_of_shares(lake: Lake) -> None:
    member(lake, "1/2").close()
    with pytest.raises(NotPossible, match="2 shares, not 3"):
        member(lake, "1/3")
    with pytest.raises(ConfigInvalid, match="share"):
        member(lake, "3/2")


def test_a_share_that_is_opened_late_begins_where_the_group_began(lake: Lake, writer: Writes) -> None:
    with member(lake, "1/2", start="end") as one:
        wanted = commits(lake, writer, 0, 12)
        with member(lake, "2/2", start="end") as two:
            assert sorted(take(one) + take(two)) == sorted(wanted)


def test_a_group_of_which_a_crash_left_one_share_registered_begins_there(lake: Lake, writer: Writes) -> None:
    source = Source.of(settings_of(lake), None)
    registered_at(source.load, source.registration("group-1of2", lake.clock), "end")
    wanted = commits(lake, writer, 0, 12)
    with member(lake, "1/2", start="end") as one, member(lake, "2/2", start="end") as two:
        assert sorted(take(one) + take(two)) == sorted(wanted)


def test_an_overwrite_of_others_is_passed_over_on_demand(lake: Lake, writer: Writes) -> None:
    with member(lake, "1/1") as careful:
        assert take(careful) == []
    wanted = commits(lake, writer, 0, 3)
    overwritten = changed(lake, "overwrite")
    with member(lake, "1/1") as careful, pytest.raises(Overwritten):
        careful._source = replace(careful._source, load=overwritten)
        take(careful)
    with member(lake, "1/1", skip_overwrites=True) as group:
        group._source = replace(group._source, load=overwritten)
        assert take(group) == wanted[4:]


def test_after_a_rollback_each_member_goes_on_with_its_shares(lake: Lake, writer: Writes) -> None:
    before = commits(lake, writer, 0, 12)
    with member(lake, "1/2") as one, member(lake, "2/2") as two:
        assert sorted(take(one) + take(two)) == sorted(before)
    fourth = lake.table().metadata.snapshots[3].snapshot_id
    lake.table().manage_snapshots().rollback_to_snapshot(fourth).commit()
    after = [f"other-{number}" for number in range(12)]
    for key in after:
        append_by_others(lake, writer.file([key]))
    with member(lake, "1/2") as one, member(lake, "2/2") as two:
        for number, group in enumerate((one, two), start=1):
            with pytest.raises(RolledBack):
                take(group)
            moved = group.skip_lost()
            assert [*moved] == [number] and moved[number].place.snapshot == fourth
        parts = [take(one), take(two)]
        assert all(parts) and sorted(parts[0] + parts[1]) == sorted(after)


def test_a_group_restarts_all_its_shares_at_one_place(lake: Lake, writer: Writes, tmp_path: Path) -> None:
    """A rewrite between the restarts of two shares puts rows of one into a file of the other: lost, or double."""
    connection = sqlite3.connect(tmp_path / "group.db")

    def place() -> SqlitePlace:
        return SqlitePlace(connection)

    def taken(*groups: ConsumerGroup) -> list[str]:
        found = []
        for group in groups:
            for batch in group.batches(follow=False):
                found += keys(batch)
                with connection:
                    group.commit(batch)
        return sorted(found)

    wanted = commits(lake, writer, 0, 12)
    with member(lake, "1/2", place) as one:
        with member(lake, "2/2", place) as two:
            assert taken(one, two) == sorted(wanted)
            lake.clock.move(minutes=1)
            assert taken(one, two) == []  # the records follow
            expire(lake)
            with pytest.raises(NotPossible, match="share 2 of 2"):
                one.restart()
            assert taken(one, two) == []
        assert not one.take_all()  # it asks for the share that is free now
        lake.clock.move(seconds=4)
        assert one.take_all()
        with connection:
            first, second = one.restart().values()
        assert first == second and first.whole
        compactions.rewritten(lake)
        compactions.committed(lake)
        wanted += commits(lake, writer, 12, 1)
        assert taken(one) == sorted(wanted) and one.held == [1, 2]


class Members:
    """Members of a group of so many shares as processes, with their output in SQLite."""

    def __init__(self, lake: Lake, where: Path, shares: int) -> None:
        self.command = [sys.executable, "-m", "tests.consumers.endless_member", str(configured(lake))]
        self.where, self.shares = where, shares
        self.crew = Crew({}, where.parent)
        self.output = sqlite3.connect(where, timeout=30)
        with self.output:
            self.output.execute("PRAGMA journal_mode = WAL")
            self.output.execute("CREATE TABLE output (key TEXT, share TEXT, of TEXT)")

    def begin(self, number: int) -> Any:
        """The member with this share, once it is ready."""
        words = [*self.command, f"{number}/{self.shares}", str(self.where)]
        process = self.crew.start(str(number), words, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert process.stdout.readline() == b"ready\n"
        return process

    def asked(self, query: str) -> Any:
        ((found,),) = self.output.execute(query).fetchall()
        return found

    def until(self, is_done: Callable[[], bool], seconds: float = 120) -> float:
        """How long that took."""
        begun = time.monotonic()
        while not is_done():
            assert time.monotonic() - begun < seconds, self.output.execute("SELECT * FROM output").fetchall()
            time.sleep(0.1)
        return time.monotonic() - begun

    def end(self) -> list[int]:
        """What each ended with."""
        for process in self.crew.running.values():
            process.communicate()
        return [*self.crew.ended().values()]


@pytest.fixture
def members(lake: Lake, tmp_path: Path) -> Iterator[Callable[[int], Members]]:
    made = list[Members]()

    def begun(shares: int) -> Members:
        made.append(Members(lake, tmp_path / "output.db", shares))
        return made[-1]

    yield begun
    for group in made:
        group.end()
        group.output.close()


@pytest.mark.slow
def test_of_a_group_of_three_one_is_killed(lake: Lake, writer: Writes, members: Callable[[int], Members]) -> None:
    group = members(3)
    for number in (1, 2, 3):
        group.begin(number)
    commits(lake, writer, 0, 20)
    killed = group.crew.kill("2")
    commits(lake, writer, 20, 20)
    group.until(lambda: group.asked("SELECT count(*) FROM output") >= len(writer.keys))
    assert (killed, group.end()) == (-9, [0, 0])
    found = [key for (key,) in group.output.execute("SELECT key FROM output")]
    assert sorted(found) == sorted(writer.keys)


@pytest.mark.slow
def test_a_process_that_joins_has_its_share_within_ten_seconds(
    lake: Lake, writer: Writes, members: Callable[[int], Members]
) -> None:
    group = members(2)
    group.begin(1)
    commits(lake, writer, 0, 20)
    group.until(lambda: group.asked("SELECT count(*) FROM output") >= len(writer.keys))
    assert group.asked("SELECT count(DISTINCT of) FROM output") == 2, "it has borrowed the other share"
    group.begin(2)
    took = group.until(lambda: bool(_holder(lake, 2) == group.crew.running["2"].pid))
    commits(lake, writer, 20, 20)
    group.until(lambda: group.asked("SELECT count(*) FROM output") >= len(writer.keys))
    print(f"a process that joins has its share after {took:.1f} s")
    assert took <= 10
    assert group.asked("SELECT count(DISTINCT key) = count(*) FROM output")
    assert group.asked("SELECT count(*) FROM output WHERE share = '2/2'") > 0


def _holder(lake: Lake, number: int) -> int:
    return int(lake.folder.store.read(f"{FOLDER}group-{number}of2.lease").split()[1])


def test_of_a_member_that_is_stopped_it_is_said_that_its_rows_wait(
    lake: Lake, writer: Writes, members: Callable[[int], Members]
) -> None:
    asked = Queue(configured(lake), "").asked
    group = members(2)
    process = group.begin(1)
    assert asked("consumers")[0]["what"] is None and "stopped_consumers" not in asked("status")
    process.send_signal(signal.SIGSTOP)
    group.crew.until(lambda: Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T")
    commits(lake, writer, 0, 1)
    try:
        said = f"process {process.pid} of {socket.gethostname()}, which reads it, is stopped"
        first, second = asked("consumers")
        assert said in first["what"] and second["what"] is None
        assert said in asked("lag")[0]["what"]
        (line,) = asked("status")["stopped_consumers"]
        assert line.startswith("group-1of2: ") and said in line
    finally:
        process.send_signal(signal.SIGCONT)
    process.communicate()
    assert asked("consumers")[0]["what"] is None and "stopped_consumers" not in asked("status")


def test_only_a_stopped_process_of_this_host_that_has_the_lease_counts(lake: Lake, tmp_path: Path) -> None:
    host, proc, lease = socket.gethostname(), tmp_path / "proc", f"{FOLDER}a.lease"

    def said(text: str, state: str = "T", other: int = 0) -> str | None:
        lake.put(lease, text.encode("latin-1"))
        inode = os.stat(tmp_path / "demo/events/_bookkeeper" / lease).st_ino + other
        (proc / "7").mkdir(parents=True, exist_ok=True)
        (proc / "7" / "stat").write_text(f"7 (a) b) {state} 1 7")
        locks = [
            f"POSIX  ADVISORY  READ 7 fe:00:{inode} 1 1",
            "-> FLOCK  ADVISORY  WRITE",
            f"FLOCK ADVISORY WRITE 7 fe:00:{inode} 0 EOF",
        ]
        (proc / "locks").write_text("".join(f"{number}: {lock}\n" for number, lock in enumerate(locks)))
        return stopped_member(lake.folder.store, "a", host, proc)

    assert said(f"{host} 7 since then") and said(f"{host} 7 since then", "t")
    assert said(f"{host} 7 since then", "S") is None
    assert said(f"{host} 7 since then", other=1) is None, "it has let go"
    for text in (
        f"{host} 8 since then",
        "elsewhere 7 since then",
        "",
        "\xff" * 9,
        f"{host} {'9' * 99} since",
        f"{host} 7",
    ):
        assert said(text) is None
    assert stopped_member(lake.folder.store, "nosuch", host, proc) is None
