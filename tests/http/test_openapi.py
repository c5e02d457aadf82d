"""
The document of `GET /v1/openapi.json` says what the server does: its paths, statuses, headers, bodies and bounds.

That no answer goes beyond it is checked of each answer that a test here gets (`served.Client.send`); this says that
each part of it is so, and that the code has no status or header beside it.
"""

import ast
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from bookkeeper.leases.slot_lease import slot_lease
from bookkeeper.stores.open import open_store
from tests.http import described
from tests.http.described import DOCUMENT, resolved
from tests.http.served import Client, Door, door, ndjson, queue
from tests.packaging.project import ROOT
from writers.http import arrow_body, body, front, headers, lane, protocol, requests
from writers.timing import utc_now

TOKEN = "1" * 16
AUTH = {"Authorization": f"Bearer {TOKEN}"}
BY_CLIENT = {"client.py", "spool.py"}
ROWS, PRODUCER, OWN = "/v1/tables/{table}/rows", "/v1/tables/{table}/producers/{producer}", "/v1/openapi.json"


def operations() -> dict[str, dict[str, Any]]:
    return {path: item for path, items in DOCUMENT["paths"].items() for item in items.values()}


def parameters(path: str, place: str) -> dict[str, Any]:
    return {item["name"]: item["schema"] for item in operations()[path].get("parameters", ()) if item["in"] == place}


def calls() -> Iterator[ast.Call]:
    """Each call of the server's code."""
    for file in (ROOT / "writers" / "http").glob("*.py"):
        if file.name not in BY_CLIENT:
            yield from (node for node in ast.walk(ast.parse(file.read_text("utf-8"))) if isinstance(node, ast.Call))


def name_of(call: ast.Call) -> str:
    return getattr(call.func, "attr", getattr(call.func, "id", ""))


def constants(node: ast.AST, kind: type) -> set[Any]:
    return {item.value for item in ast.walk(node) if isinstance(item, ast.Constant) and type(item.value) is kind}


def test_anyone_gets_it(tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text(f"events {TOKEN}")
    with door(queue(tmp_path / "lake"), tokens=tmp_path / "tokens") as served:
        assert served.send("GET", OWN).body == DOCUMENT
        assert served.send("POST", OWN).headers["allow"] == "GET"


def test_its_paths_and_methods_are_those_of_the_server() -> None:
    methods = {path: [name.upper() for name in items] for path, items in DOCUMENT["paths"].items()}
    assert methods == {path: [method] for path, method in front.ROUTES.items()}
    assert {path for path, item in operations().items() if item.get("security") == []} == {OWN}
    for path in DOCUMENT["paths"]:
        assert [*parameters(path, "path")] == re.findall(r"\{(\w+)\}", path)


def test_what_it_says_of_requests_is_what_is_read() -> None:
    query = parameters(ROWS, "query")
    assert {name: (item["default"], set(item["enum"])) for name, item in query.items()} == {
        name: (values[0], set(values)) for name, values in front.QUERY.items()
    }
    kinds = operations()[ROWS]["requestBody"]["content"].keys()
    assert kinds == {*body.NDJSON, body.JSON, arrow_body.ARROW}
    given = parameters(ROWS, "header")
    assert {*given["Content-Encoding"]["enum"], ""} == {*body.ENCODINGS}
    assert given["Producer"]["pattern"] == parameters(PRODUCER, "path")["producer"]["pattern"]
    assert given["Producer"]["pattern"] == f"^{requests.PRODUCER.pattern}$"
    assert given["Sequence"]["pattern"] == f"^{front._SEQUENCE.pattern}$"
    of_http = {"authorization", "bookkeeper-forwarded", "content-length", "content-type", "host", "transfer-encoding"}
    assert {name.lower() for name in given} == set(headers._ONCE) - of_http
    assert DOCUMENT["components"]["schemas"]["Taken"]["properties"]["sequence"]["maximum"] == requests.MOST_SEQUENCE
    assert resolved(DOCUMENT["components"]["schemas"]["Error"])["properties"]["bad_rows"]["maxItems"] == (
        requests.MOST_NAMED
    )
    assert (
        f"{headers.MOST_HEAD_BYTES // 2**10} KiB" in DOCUMENT["components"]["responses"]["HeadTooLarge"]["description"]
    )


def test_it_says_each_status_and_header_of_the_code() -> None:
    answers = [call for call in calls() if name_of(call) in ("refused", "Answer") and call.args]
    firsts = [call.args[0].value for call in answers if isinstance(call.args[0], ast.Constant)]
    found = {item for item in firsts if isinstance(item, int)} | {int(protocol._TOO_LARGE[0].split()[1])}
    said = {int(status) for item in operations().values() for status in item["responses"]}
    assert said == found - {405}
    assert "405" in DOCUMENT["info"]["description"]
    given = {
        name
        for call in answers
        for item in [*call.args, *(word.value for word in call.keywords)]
        for name in constants(item, str)
        if re.fullmatch(r"(WWW|Allow|Retry|Connection)(-[A-Z][a-z]+)*", name)
    }
    known = {name for answer in DOCUMENT["components"]["responses"].values() for name in answer.get("headers", {})}
    assert known >= given - {"Allow", "Connection"}


def test_all_its_parts_are_used() -> None:
    text = front.OPENAPI.read_text("utf-8")
    for kind, parts in DOCUMENT["components"].items():
        for name in parts:
            assert kind == "securitySchemes" or f'"#/components/{kind}/{name}"' in text, name


def test_each_status_of_it_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = set[tuple[str, int]]()
    check = described.check

    def kept(method: str, path: str, status: int, *more: Any) -> None:
        check(method, path, status, *more)
        seen.add((described.operation(method, path)[0], status))

    monkeypatch.setattr("tests.http.served.check", kept)
    (tmp_path / "tokens").write_text(f"events {TOKEN}\nnone {TOKEN}")
    lake = queue(tmp_path / "lake", pending_limit=3)
    given: dict[str, Any] = {"tokens": tmp_path / "tokens", "max_body": 1000}
    with door(lake, **given) as served:
        scenes_of_heads(served)
        scenes_of_rows(served, lake.tick)
        full, number = list[int](), 2
        while 429 not in full:
            full.append(served.rows(ndjson(1), "p", number, "?wait=published", **AUTH).status)
            number += full[-1] == 202
            assert len(full) < 10
        # What comes together with a request that waits in vain for the bookkeeper is answered as it is.
        monkeypatch.setattr(lane, "LINGER", timedelta(seconds=0.5))
        with ThreadPoolExecutor(1) as pool:
            while (PRODUCER, 429) not in seen:
                pool.submit(served.rows, ndjson(1), "p", number, "?wait=published", **AUTH)
                producer(served, "p")
        lake.drain()
    lease = slot_lease(open_store(lake.made.folder), "door-00", "http://127.0.0.1:1")
    assert lease.hold(utc_now())
    with door(lake, **given) as served:
        assert producer(served, "p").status == served.rows(ndjson(1), "p", 9, **AUTH).status == 503
    lease.release()

    said = {(path, int(status)) for path, item in operations().items() for status in item["responses"]}
    assert seen - {("", 404)} == said


def producer(served: Client, name: str) -> Any:
    return served.send("GET", PRODUCER.format(table="events", producer=name), **AUTH)


def scenes_of_heads(served: Door) -> None:
    """What any path answers by its head."""
    for path, method in front.ROUTES.items():
        at = path.format(table="events", producer="p")
        served.send(method, at, **AUTH, Expect="money")
        served.send(method, at, **AUTH, X="x" * 20_000)
        served.send(method, at, None, ("Expect", "100-continue"), ("Expect", "100-continue"))
        if path != OWN:
            served.send(method, at)
            served.send(method, path.format(table="none", producer="p"), **AUTH)
    served.send("GET", OWN)


def scenes_of_rows(served: Door, tick: Callable[[], object]) -> None:
    assert served.rows(ndjson(1), "p", 1, "?wait=published", **AUTH).status == 202
    tick()
    assert producer(served, "p").body["committed"] == 1
    assert served.rows(ndjson(1), "p", 1, **AUTH).body["duplicate"]
    assert served.rows(b"{}\n" + ndjson(1), query="?partial=1", **AUTH).status == 200
    for status, sent, more in (
        (400, b"{", {}),
        (409, ndjson(1), {"producer": "p", "sequence": 9}),
        (413, b"x" * 1001, {}),
        (415, b"x", {"Content_Type": "text/csv"}),
        (422, b"{}", {"query": "?partial=1"}),
    ):
        assert served.rows(sent, **more, **AUTH).status == status  # type: ignore[arg-type]
    tick()
