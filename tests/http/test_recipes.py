"""docs/writers.md, "Recipes": programs of others send to `writer serve`, which is killed meanwhile."""

import json
import os
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import yaml

from tests.cli.commands import HTTP, commands
from tests.http.test_serve import DOOR, process
from tests.packaging.project import ROOT
from tests.servers.needed import needed
from tests.servers.process import Unavailable
from tests.support.crew import Crew
from tests.support.threads import again_and_again
from tests.support.writer_queue import Queue
from writers.http.body import MOST_ROWS, NDJSON

SOURCE, RECIPES = ROOT / "docs" / "go" / "producer.go", ROOT / "config" / "recipes"
TOKEN, CLIENT = "0123456789abcdef", "client"


@dataclass
class Served:
    """`writer serve`, a bookkeeper, and a client that sends to it."""

    lake: Queue
    port: int
    crew: Crew

    @property
    def url(self) -> str:
        """Where it takes rows."""
        return f"http://127.0.0.1:{self.port}"

    def send(self, *words: str) -> None:
        """Starts the client."""
        self.crew.start(CLIENT, words, env={**os.environ, "TOKEN": TOKEN})

    def until_in(self, rows: int) -> None:
        """Waits until so many keys are in the table."""
        self.crew.until(lambda: len(self.keys()) >= rows)

    def away_meanwhile(self) -> None:
        """The server is killed, comes back when the client has noticed, and the client then ends by itself."""
        self.crew.kill(DOOR)
        self.crew.until(lambda: b"connection refused" in self.crew.log(CLIENT).read_bytes())
        self.crew.log(DOOR).unlink()
        self.crew.start(DOOR)
        assert self.crew.wait(CLIENT) == 0, self.crew.log(CLIENT).read_text("utf-8")

    def keys(self) -> Counter[str]:
        return Counter(self.lake.keys())


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    lake = Queue(tmp_path / "lake")
    (tokens := tmp_path / "tokens.txt").write_text(f"events {TOKEN}")
    with again_and_again(lake.tick, 0.05), process(lake, "--tokens", str(tokens)) as (client, crew):
        yield Served(lake, client.port, crew)


@pytest.fixture(scope="module")
def producer(tmp_path_factory: pytest.TempPathFactory) -> str:
    """
    The program of docs/go, compiled.
    """
    with needed("Go"):
        go = shutil.which("go")
        if go is None:
            raise Unavailable("no Go on the PATH: install Go, https://go.dev/dl")
    built = tmp_path_factory.mktemp("go") / "producer"
    # Nothing is fetched: it imports the standard library alone.
    environ = {**os.environ, "CGO_ENABLED": "0", "GOPROXY": "off"}
    subprocess.run([go, "build", "-o", str(built), str(SOURCE)], env=environ, check=True)
    return str(built)


def lines_of(path: Path, keys: list[str], **named: str) -> None:
    """
    An NDJSON file of rows with these keys; `named` says what their fields are called.
    """
    row = {named.get("timestamp", "timestamp"): "2026-03-01T12:00:00Z", named.get("value", "value"): "ä"}
    path.write_text("".join(json.dumps({**row, named.get("key", "key"): key}) + "\n" for key in keys))


def test_the_producer_in_go_copies_each_line_once_though_server_and_producer_are_killed(
    producer: str, served: Served, tmp_path: Path
) -> None:
    keys = [f"k{number:04}" for number in range(600)]
    lines_of(tmp_path / "lines.ndjson", keys)
    words = [producer, f"{served.url}/v1/tables/events", "till-9", str(tmp_path / "lines.ndjson"), "40"]
    served.send(*words)
    served.until_in(100)
    served.crew.kill(CLIENT)
    served.send(*words)
    served.until_in(250)
    served.away_meanwhile()

    assert served.keys() == Counter(keys)


def test_the_producer_in_go_goes_on_from_next_waits_as_it_is_told_and_ends_at_rows_that_are_refused(
    producer: str, tmp_path: Path
) -> None:
    answers = [
        (200, {"committed": 2}, 0),
        (409, {"next": 2}, 0),
        (503, {}, 2),
        (200, {}, 0),
        (400, {"error": "row 1: it is none", "hint": "Mend it."}, 0),
    ]
    asked = list[tuple[str, str]]()

    class Scripted(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            asked.append((self.command, self.headers.get("Sequence") or self.path))
            status, body, after = answers[len(asked) - 1]
            self.send_response(status)
            if after:
                self.send_header("Retry-After", str(after))
            self.end_headers()
            self.wfile.write(json.dumps(body).encode())

        do_POST = do_GET

        def log_message(self, *given: Any) -> None:
            pass

    (lines := tmp_path / "lines").write_text("{}\n" * 3)
    with HTTPServer(("127.0.0.1", 0), Scripted) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        words = [producer, f"http://127.0.0.1:{server.server_port}/v1/tables/events", "till-9", str(lines), "1"]
        done = subprocess.run(words, capture_output=True, text=True, timeout=60)
        server.shutdown()

    first, *posts = asked
    assert first == ("GET", "/v1/tables/events/producers/till-9")
    assert posts == [("POST", "3"), ("POST", "2"), ("POST", "2"), ("POST", "3")]
    assert "status 503: again in 2 s" in done.stderr
    assert done.returncode == 1 and "request 3 is refused with 400: row 1: it is none. Mend it." in done.stderr


def test_redpanda_connect_loses_no_row_though_the_server_is_killed(served: Served, tmp_path: Path) -> None:
    with needed("Redpanda Connect", optional=True):
        program = shutil.which("redpanda-connect") or shutil.which("benthos")
        if program is None:
            raise Unavailable("neither redpanda-connect nor benthos is on the PATH")
    keys = [f"k{number:04}" for number in range(6000)]
    lines_of(tmp_path / "lines.ndjson", keys, timestamp="time", key="host", value="message")
    recipe = yaml.safe_load((RECIPES / "redpanda-connect.yaml").read_text("utf-8"))
    recipe["input"]["file"]["paths"] = [str(tmp_path / "*.ndjson")]
    sink = recipe["output"]["retry"]["output"]["http_client"]
    sink["url"] = sink["url"].replace("http://127.0.0.1:8080", served.url)
    sink["batching"]["count"] = 50
    recipe["http"] = {"enabled": False}
    (config := tmp_path / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    served.send(program, "-c", str(config))
    served.until_in(100)
    served.away_meanwhile()
    served.until_in(len(keys))

    assert {*served.keys()} == {*keys}


def test_recipes_send_lines_of_json_with_a_token_in_requests_that_the_server_takes() -> None:
    vector, fluent_bit, connect = (
        yaml.safe_load((RECIPES / f"{name}.yaml").read_text("utf-8"))
        for name in ("vector", "fluent-bit", "redpanda-connect")
    )
    sink, (output,) = vector["sinks"]["table"], fluent_bit["pipeline"]["outputs"]
    client = connect["output"]["retry"]["output"]["http_client"]
    place = f"http://{output['host']}:{output['port']}{output['uri']}"
    given = dict(commands())[HTTP[0]].make_context("serve", ["--name", "door"]).params

    assert sink["uri"] == client["url"] == place == f"http://{given['http']}/v1/tables/events/rows?partial=1"
    assert sink["auth"] == {"strategy": "bearer", "token": "${TOKEN}"}
    assert f"Authorization {client['headers']['Authorization']}" == output["header"] == "Authorization Bearer ${TOKEN}"
    assert (sink["encoding"]["codec"], sink["framing"]["method"]) == ("json", "newline_delimited")
    assert output["format"] == "json_lines" and client["headers"]["Content-Type"] in NDJSON
    batch, batching = sink["batch"], client["batching"]
    for size, rows in ((batch["max_bytes"], batch["max_events"]), (batching["byte_size"], batching["count"])):
        assert 2 * size < given["max_body"] and 2 * rows <= MOST_ROWS
