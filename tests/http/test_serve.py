"""The process: tokens, probes, SIGTERM, kills, and what is wrong with its options."""

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from urllib.request import urlopen

import pytest
from click.testing import CliRunner

from tests.http.served import Client, door, ndjson, numbers, queue, until
from tests.servers.process import free_port
from tests.support.crew import Crew
from tests.support.threads import again_and_again
from tests.support.writer_queue import Queue
from writers.cli import main
from writers.http import tokens

DOOR = "door"
ONE, TWO = "1" * 16, "2" * 16


@pytest.fixture
def lake(tmp_path: Path) -> Queue:
    return queue(tmp_path)


@contextmanager
def process(lake: Queue, *options: str) -> Iterator[tuple[Client, Crew]]:
    port = free_port()
    words = ["serve", "--name", "door", "--folder", lake.made.folder, "--http", f"127.0.0.1:{port}", "--slots", "1"]
    with Crew({DOOR: [sys.executable, "-m", "writers", *words, *(options or ("--no-tokens",))]}, lake.root) as crew:
        crew.log(DOOR).unlink(missing_ok=True)  # of the process before
        crew.start(DOOR)
        crew.until(lambda: "rows are taken at" in crew.log(DOOR).read_text("utf-8"))
        yield Client(port), crew


def sent(client: Client, *given: object) -> int:
    """The status; 0 where the process was killed before it answered."""
    try:
        return client.rows(*given).status  # type: ignore[arg-type]
    except OSError:
        return 0


def is_closed(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


def test_each_request_counts_once_though_the_process_is_killed_between_publish_and_answer(lake: Queue) -> None:
    for turn in range(1, 4):
        with process(lake) as (client, crew), ThreadPoolExecutor(2) as pool:
            replies = [pool.submit(sent, client, ndjson(turn), name, turn) for name in ("p", "q")]
            until(lake.pending)
            crew.kill(DOOR)
            assert {reply.result() for reply in replies} == {0}
        if turn == 2:
            lake.tick()
        with process(lake) as (client, _), again_and_again(lake.tick, 0.05):
            for name in ("p", "q"):
                assert client.rows(ndjson(turn), name, turn).status == 200

    assert numbers(lake) == [1, 1, 2, 2, 3, 3]
    assert not lake.rejected()


def test_sigterm_answers_what_it_has_and_ends(lake: Queue) -> None:
    with process(lake) as (client, crew), ThreadPoolExecutor(2) as pool:
        waits = pool.submit(client.rows, ndjson(1), "p", 1)
        until(lake.pending)
        crew.signal(DOOR, signal.SIGTERM)
        until(lambda: is_closed(client.port))
        assert not waits.done()

        lake.tick()

        assert waits.result().status == 200
        assert crew.wait(DOOR, 20) == 0
    assert numbers(lake) == [1]


def test_it_ends_within_its_grace_and_answers_503(lake: Queue) -> None:
    with process(lake, "--no-tokens", "--grace", "2s") as (client, crew), ThreadPoolExecutor(1) as pool:
        waits = pool.submit(client.rows, ndjson(1), "p", 1)
        until(lake.pending)
        crew.signal(DOOR, signal.SIGTERM)
        assert waits.result().status == 503
        assert crew.wait(DOOR, 5) == 0


def test_probe_and_metrics(lake: Queue) -> None:
    small = free_port()
    with process(lake, "--no-tokens", "--listen", f"127.0.0.1:{small}") as (client, _):
        assert client.rows(ndjson(1, 2)).status == 200
        assert urlopen(f"http://127.0.0.1:{small}/healthz").read() == b"ok\n"
        found = urlopen(f"http://127.0.0.1:{small}/metrics").read().decode()
        assert 'writer_rows_published_total{table="demo.events",writer="door-rows"} 2.0' in found
        assert 'writer_http_requests_total{status="200",table="events"} 1.0' in found
        assert client.send("POST", "/v1/tables/none/rows", b"").status == 404
        found = urlopen(f"http://127.0.0.1:{small}/metrics").read().decode()
        assert 'writer_http_requests_total{status="404",table=""} 1.0' in found


def test_tokens_are_of_a_table_and_read_again(lake: Queue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "_EVERY", tokens.timedelta(0))
    file = tmp_path / "tokens"
    file.write_text(f"# of the shop\n\nevents {ONE}\nother {TWO}\n")
    with door(lake, tokens=file) as served:
        status = lambda text: served.rows(ndjson(1), Authorization=text).status  # noqa: E731
        assert served.rows(ndjson(1)).headers["www-authenticate"] == "Bearer"
        assert status(f"Bearer {ONE}") == 200
        for wrong in (f"Bearer {TWO}", f"Basic {ONE}", "Bearer ", "Bearer", ONE, f"Bearer {ONE}x", "Bearer é"):
            assert status(wrong) == 401
        assert served.send("POST", "/v1/tables/none/rows", b"", Authorization=f"Bearer {ONE}").status == 401

        file.write_text(f"* {TWO}")
        assert (status(f"Bearer {ONE}"), status(f"Bearer {TWO}")) == (401, 200)
        file.write_text("events short")
        assert (status("Bearer short"), status(f"Bearer {TWO}")) == (401, 200)


def test_a_byte_order_mark_is_not_of_the_first_tables_name(tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text(f"events {ONE}", "utf-8-sig")
    assert tokens.Tokens(tmp_path / "tokens", lambda: datetime(2026, 1, 31, tzinfo=UTC)).allow(
        "events", f"Bearer {ONE}"
    )


def allows(known: tokens.Tokens, file: Path, now: list[datetime], token: str, text: str, seconds: int) -> bool:
    """Whether the token counts so many seconds after the file was written in place."""
    file.write_text(text)
    now[0] += timedelta(seconds=seconds)
    return known.allow("events", f"Bearer {token}")


def test_while_the_file_is_written_tokens_are_those_of_before(tmp_path: Path) -> None:
    file, now = tmp_path / "tokens", [datetime(2026, 1, 31, tzinfo=UTC)]
    file.write_text(f"events {ONE}")
    allowed = partial(allows, tokens.Tokens(file, lambda: now[0]), file, now, ONE)

    assert allowed("", 1) and allowed("", 9)
    assert not allowed(f"events {TWO}", 1)
    assert allowed(f"events {ONE}", 1) and allowed("", 5)
    assert not allowed("", 10)  # whoever empties it means it
    assert not allowed("", 3600)
    assert allowed(f"events {ONE}", 1)


def test_while_the_file_is_cut_behind_a_line_tokens_are_those_of_before(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file, now = tmp_path / "tokens", [datetime(2026, 1, 31, tzinfo=UTC)]
    file.write_text(f"events {ONE}\nevents {TWO}\n")
    known = tokens.Tokens(file, lambda: now[0])
    allowed = partial(allows, known, file, now, TWO)

    assert allowed(f"events {ONE}\n", 1) and allowed(f"events {ONE}\n", 9)
    assert allowed(f"events {ONE}\nevents {TWO}\nevents {TWO}{ONE}\n", 1)  # it was written
    assert allowed(f"events {ONE}\n", 1)
    assert not allowed(f"events {ONE}\n", 10)
    assert [record.getMessage() for record in caplog.records][-1] == "tokens count no more"
    assert allowed(f"events {ONE}\nevents {TWO}\n", 1)
    (tmp_path / "new").write_text(f"events {ONE}\n")
    os.rename(tmp_path / "new", file)  # it is whole
    now[0] += timedelta(seconds=1)
    assert not known.allow("events", f"Bearer {TWO}")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("events", "line 1"),
        (f"events {ONE} x", "line 1"),
        (f"# x\nevents {ONE[1:]}", "line 2"),
        ("\xff", "cannot be read"),
    ],
)
def test_a_file_that_is_no_tokens_is_refused_and_not_shown(tmp_path: Path, text: str, told: str) -> None:
    file = tmp_path / "tokens"
    file.write_bytes(text.encode("latin-1"))
    with pytest.raises(tokens.ConfigInvalid, match=told) as found:
        tokens.Tokens(file, tokens.datetime.now)
    assert ONE[1:] not in str(found.value)


def test_what_is_wrong_with_its_options(lake: Queue, tmp_path: Path) -> None:
    def told(*options: str) -> str:
        done = CliRunner().invoke(main, ["serve", "--name", "door", *options])
        assert done.exit_code == 1, (done.output, done.exception)
        return done.output

    folder = ["--folder", lake.made.folder]
    assert "--no-tokens is expected" in told(*folder)
    assert "no card.json" in told("--no-tokens", "--folder", str(tmp_path))
    other = queue(tmp_path / "other").made.folder
    assert "two tables are named events" in told("--no-tokens", *folder, "--folder", other)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        at = f"127.0.0.1:{taken.getsockname()[1]}"
        assert "cannot listen on" in told("--no-tokens", *folder, "--http", at)


def test_a_request_is_counted_before_its_answer_is_sent(lake: Queue) -> None:
    counted = list[object]()
    with door(lake) as served:

        async def send(_: object) -> None:
            counted.append(dict(served.front.figures[""].answered))

        scope = {"type": "http", "method": "GET", "path": "/none", "query_string": b"", "headers": [(b"host", b"here")]}
        asyncio.run(served.front(scope, lambda: asyncio.sleep(0, {}), send))
    assert counted[0] == {("404",): 1}
