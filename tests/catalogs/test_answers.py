"""What a REST catalog may answer: each is said in a sentence with what to do, and none is taken for another."""

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal
from urllib.parse import parse_qs

import pytest
from pyiceberg.catalog.rest import auth
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import new_table_metadata
from pyiceberg.table.sorting import SortOrder
from pyiceberg.types import LongType, NestedField
from requests import HTTPError, Response

from bookkeeper.catalogs import rest
from bookkeeper.catalogs.answers import retry_after, shown
from bookkeeper.catalogs.commit import commit, load_table
from bookkeeper.catalogs.open import open_catalog
from bookkeeper.catalogs.statistics_kinds import take_kinds
from bookkeeper.commands.recover_catalog import recoverable
from bookkeeper.config.settings import Catalog, Daemon
from bookkeeper.contract.known_table import known_table
from bookkeeper.errors import (
    BookkeeperError,
    CatalogUnavailable,
    CommitConflict,
    CommitUnknown,
    ConfigInvalid,
    TableMissing,
)
from bookkeeper.serve.loop import TableLoop, tick_once
from bookkeeper.stores.open import stores_with
from tests.servers.handing_out import Now, _signature
from tests.servers.proxy import Proxy, Reply, Request, proxy
from tests.support.lake import Lake, Writes

JSON = ("Content-Type", "application/json")
PAGE = b"<html><body>" + b"Sign in to continue. " * 100 + b"</body></html>"


def metadata() -> dict[str, Any]:
    schema = Schema(NestedField(1, "n", LongType(), required=False))
    made = new_table_metadata(schema, PartitionSpec(), SortOrder(), "file:///nowhere/t", {"format-version": "2"})
    found: dict[str, Any] = json.loads(made.model_dump_json())
    return found


LOADED = json.dumps({"metadata-location": "file:///nowhere/t/metadata/1.json", "metadata": metadata()}).encode()
#: of a table whose metadata no program can read
UNREAD = json.dumps(
    {
        "metadata-location": "file:///nowhere/t/metadata/1.json",
        "metadata": metadata() | {"schemas": 7},
        "config": {"token": "secret"},
    }
).encode()
#: and of one with statistics of a kind that pyiceberg does not know
STATISTICS = {"snapshot-id": 1, "statistics-path": "file:///s", "file-size-in-bytes": 1, "file-footer-size-in-bytes": 1}
BLOB = {"type": "presto-sum-data-size-bytes-v1", "snapshot-id": 1, "sequence-number": 1, "fields": [1]}
ANALYZED = json.dumps(
    json.loads(LOADED) | {"metadata": metadata() | {"statistics": [STATISTICS | {"blob-metadata": [BLOB]}]}}
).encode()


def error(status: int, kind: str, *headers: tuple[str, str], text: str = "no") -> Reply:
    body = {"error": {"message": text, "type": kind, "code": status}}
    return Reply(status, [JSON, *headers], json.dumps(body).encode())


@dataclass
class Answering(Proxy):
    """A catalog with one table, of which a test says how it answers."""

    load: Reply = field(default_factory=lambda: Reply(200, [JSON], LOADED))
    commit: Reply = field(default_factory=lambda: Reply(200, [JSON], LOADED))
    tokens: int = 0
    #: seconds that a token lives; requests with an older one are answered 401
    lives: int | None = None
    now: Now = field(default_factory=lambda: Now(datetime.now(UTC).timestamp()))

    def answer(self, request: Request) -> Reply:
        self.seen.append(request)
        path = request.path.partition("?")[0]
        if path.endswith("/config"):
            return Reply(200, [JSON], b'{"defaults": {}, "overrides": {}}')
        if path.endswith("/token"):
            self.tokens += 1
            told = {"access_token": f"t{self.tokens}-{self.now.seconds:.0f}", "token_type": "bearer"}
            return Reply(200, [JSON], json.dumps({**told, "expires_in": self.lives}).encode())
        if self.lives is not None:
            made = request.headers.get("Authorization", "").rpartition("-")[2]
            if not made.isdecimal() or int(made) + self.lives <= self.now.seconds:
                return error(401, "NotAuthorizedException")
        return self.load if request.method == "GET" else self.commit


@pytest.fixture
def server() -> Iterator[Answering]:
    with proxy(0, Answering) as made:
        assert isinstance(made, Answering)
        yield made


def opened(server: Answering, **more: str) -> Any:
    return open_catalog(Catalog("lake", {"type": "rest", "uri": server.uri, **more}), patience=timedelta(seconds=20))


ANSWERS = {
    "401": (error(401, "NotAuthorizedException"), "credentials", "Correct credential"),
    "403": (error(403, "ForbiddenException"), "no right", "role in the catalog"),
    "419": (error(419, "AuthenticationTimeoutException"), "ended", "renewed"),
    "429": (error(429, "SlowDown", ("Retry-After", "17")), "no more requests", "Nothing is lost"),
    "503": (error(503, "SlowDown", ("Retry-After", "17")), "not available", "Nothing is lost"),
    "500": (error(500, "InternalServerError"), "5xx", "Nothing is lost"),
    "412": (error(412, "PreconditionFailed"), "condition", "proxy"),
    "page": (Reply(200, [("Content-Type", "text/html")], PAGE), "no answer of a catalog", "proxy"),
    "page-404": (Reply(404, [("Content-Type", "text/html")], PAGE), "no answer of a catalog", "proxy"),
    "empty-404": (Reply(404, [], b""), "no answer of a catalog", "proxy"),
    "json-404": (Reply(404, [JSON], b'{"detail": "no route"}'), "no answer of a catalog", "proxy"),
    "page-502": (Reply(502, [("Content-Type", "text/html")], PAGE), "5xx", "Nothing is lost"),
    "torn": (Reply(200, [JSON], LOADED[:100]), "no answer of a catalog", "proxy"),
    "redirect": (Reply(302, [("Location", "/v1/login?x=secret")], b""), "redirect", "catalog.uri"),
    "unread": (Reply(200, [JSON], UNREAD), "schemas: Input should be a valid array", "take it back there"),
    "moved": (Reply(308, [("Location", "https://other/v1")], b""), "redirect", "https"),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_a_load_says_what_was_answered_and_what_to_do(server: Answering, name: str) -> None:
    server.load, what, hint = ANSWERS[name]
    with pytest.raises(BookkeeperError) as raised:
        load_table(opened(server), "demo.t")
    _check(raised.value, CatalogUnavailable, what, hint)


def forget_kinds() -> None:
    """As in a process that has met no such statistics yet."""
    take_kinds(Literal["apache-datasketches-theta-v1", "deletion-vector-v1"])


def test_statistics_of_a_kind_of_another_engine_are_read_over(server: Answering) -> None:
    server.load = Reply(200, [JSON], ANALYZED)
    forget_kinds()
    table = load_table(opened(server), "demo.t")
    assert [blob.type for item in table.metadata.statistics for blob in item.blob_metadata] == [BLOB["type"]]
    assert json.loads(table.metadata.model_dump_json())["statistics"] == [STATISTICS | {"blob-metadata": [BLOB]}]


@pytest.mark.parametrize("stock", [True, False])
def test_a_queue_goes_on_with_them_and_is_recovered_with_them(tmp_path: Path, stock: bool) -> None:
    lake = Lake(tmp_path / "lake", stock=stock)
    writer = Writes(lake)
    writer.publish("a")
    lake.tick()
    newest = Path(lake.table().metadata_location.removeprefix("file://"))
    analyzed = newest.with_name(f"99999-{newest.name.partition('-')[2]}")
    statistics = {"statistics": json.loads(ANALYZED)["metadata"]["statistics"]}
    analyzed.write_text(json.dumps(json.loads(newest.read_text()) | statistics))
    take_kinds(str)
    lake.catalog.drop_table("demo.events")
    lake.catalog.register_table("demo.events", f"file://{analyzed}")
    lake.catalog = lake.opened()  # which remembers no metadata
    forget_kinds()

    writer.publish("b")
    lake.tick()

    assert (lake.keys(), len(lake.table().metadata.statistics)) == (["a", "b"], 1)
    forget_kinds()
    known = known_table(lake.catalog_settings.properties, lake.settings)
    assert known is not None
    assert recoverable(known, lake.settings, None, stores_with({})).newest.metadata.statistics


@pytest.mark.parametrize("name", ANSWERS)
def test_after_a_commit_the_marks_decide_whatever_was_answered(server: Answering, name: str) -> None:
    table = load_table(opened(server), "demo.t")
    server.commit, what, hint = ANSWERS[name]
    # What a client that follows a redirect gets looks like a commit that succeeded.
    with pytest.raises(BookkeeperError) as raised:
        commit(table, (), ())
    _check(raised.value, CommitUnknown, what, hint)


def _check(found: BookkeeperError, kind: type[BookkeeperError], what: str, hint: str) -> None:
    text = str(found)
    assert type(found) is kind and what in text and hint in found.hint, (text, found.hint)
    assert len(text) < 600 and "\n" not in text and "secret" not in text


def test_a_conflict_and_a_table_that_is_not_there_are_told_apart_from_all_these(server: Answering) -> None:
    table = load_table(opened(server), "demo.t")
    server.commit = error(409, "CommitFailedException")
    with pytest.raises(CommitConflict):
        commit(table, (), ())
    for kind, text in (("NoSuchTableException", "Table does not exist"), ("NoSuchNamespaceException", "Namespace")):
        server.load = error(404, kind, text=text)
        with pytest.raises(TableMissing, match=f"{kind}: {text}"):
            load_table(opened(server), "demo.t")


def test_a_redirect_is_never_followed_nor_a_secret_sent_there(server: Answering) -> None:
    server.load = Reply(307, [("Location", f"{server.uri}/elsewhere")], b"")
    with pytest.raises(CatalogUnavailable, match="redirect"):
        load_table(opened(server, credential="id:secret", **{"oauth2-server-uri": f"{server.uri}/token"}), "demo.t")
    assert not [request for request in server.seen if "elsewhere" in request.path]


@pytest.mark.parametrize(
    "said, pause",
    [("17", 17), ("0", 1), ("999999", 30), ("soon", 1), ("-1", 1), ("", 1), ("Fri, 31 Jan 2099 12:00:00 GMT", 30)],
)
def test_the_loop_waits_as_long_as_the_catalog_asks_and_no_longer_than_backoff_most(
    server: Answering, said: str, pause: int
) -> None:
    server.load = error(429, "SlowDown", ("Retry-After", said))
    now = datetime.now(UTC)
    slot = TableLoop("t", lambda: load_table(opened(server), "demo.t"))
    assert tick_once(slot, Daemon(), now) is None
    assert slot.next_at == now + timedelta(seconds=pause)


@pytest.mark.parametrize(
    "said, at, pause",
    [
        ("Sat, 31 Jan 2026 12:00:17 GMT", "Sat, 31 Jan 2026 12:00:00 GMT", 17),
        ("Saturday, 31-Jan-26 12:00:17 GMT", "Sat, 31 Jan 2026 12:00:00 GMT", 17),
        ("Sat Jan 31 12:00:17 2026", "Sat, 31 Jan 2026 12:00:00 GMT", 17),
        ("Sat, 31 Jan 2026 11:00:00 GMT", "Sat, 31 Jan 2026 12:00:00 GMT", 0),
        ("Fri, 31 Jan 2099 12:00:00 GMT", "Sat, 31 Jan 2026 12:00:00 GMT", 3600),
        ("Fri, 31 Jan 2099 12:00:00 GMT", "no date", 3600),
        ("Sat, 31 Jan 2026 12:00:00 GMT", "", 0),
        ("Sat, 31 Jan 99999999999 12:00:00 GMT", "", None),
        ("Sat, 31 Jan 2026 12:00:00 GMT" + " " * 64 + "x", "", None),
        ("17.5", "", None),
    ],
)
def test_a_date_to_come_back_at_is_read_by_the_servers_clock(said: str, at: str, pause: int | None) -> None:
    error = HTTPError(response=Response())
    error.response.headers.update({"Retry-After": said, "Date": at})
    expected = None if pause is None else timedelta(seconds=pause)
    assert retry_after(error) == expected


def test_oauth2_tokens_are_renewed_before_they_end(server: Answering, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auth, "time", server.now)
    monkeypatch.setattr(rest, "time", server.now)
    server.lives = 300
    given = {"client-id": "id", "client-secret": "s3cret", "token-url": f"{server.uri}/token", "scope": "catalog"}
    catalog = opened(server, **{"auth.type": "oauth2", **{f"auth.oauth2.{key}": text for key, text in given.items()}})
    asked = server.tokens
    for _ in range(8):
        load_table(catalog, "demo.t")
        server.now.seconds += 120
    assert 3 <= server.tokens - asked <= 4
    refused = [r for r in server.seen if "/tables/" in r.path and int(r.headers["Authorization"].rpartition("-")[2])]
    assert len(refused) == 8  # each load was sent once: none was answered 401
    (first, *_) = (request for request in server.seen if request.path.endswith("/token"))
    assert parse_qs(first.body.decode()) == {"grant_type": ["client_credentials"], "scope": ["catalog"]}


OAUTH2 = {"client-id": "id", "client-secret": "s3cret", "scope": "catalog"}


@pytest.mark.parametrize(
    "answer, what",
    [
        (error(401, "invalid_client"), "answered 401"),
        (Reply(302, [("Location", "/elsewhere")], b""), "redirect"),
        (Reply(200, [("Content-Type", "text/html")], PAGE), "no answer of a catalog"),
        (Reply(200, [JSON], b'{"access_token": "t"}'), "how long it lives"),
        (Reply(200, [JSON], b'{"expires_in": 60}'), "names no token"),
    ],
)
def test_a_token_endpoint_that_gives_no_token_is_named(server: Answering, answer: Reply, what: str) -> None:
    given = {"auth.type": "oauth2", **{f"auth.oauth2.{key}": text for key, text in OAUTH2.items()}}
    server.commit = answer
    with pytest.raises(CatalogUnavailable, match=what) as raised:
        opened(server, **given, **{"auth.oauth2.token-url": f"{server.uri}/others"})
    assert raised.value.hint and "s3cret" not in str(raised.value)
    assert not [request for request in server.seen if "elsewhere" in request.path]


def test_a_credential_is_renewed_once_a_token_has_ended(server: Answering) -> None:
    server.lives = 300
    catalog = opened(server, credential="id:s3cret", **{"oauth2-server-uri": f"{server.uri}/token"})
    for _ in range(3):
        load_table(catalog, "demo.t")
        server.now.seconds += 400
    assert server.tokens <= 5


def test_a_token_in_a_file_is_read_for_each_request(server: Answering, tmp_path: Path) -> None:
    server.lives, file = 300, tmp_path / "token"
    file.write_text(f"a-{server.now.seconds:.0f}\n")
    catalog = opened(server, **{"token-file": str(file)})
    load_table(catalog, "demo.t")
    server.now.seconds += 400
    with pytest.raises(CatalogUnavailable, match="401"):
        load_table(catalog, "demo.t")
    file.write_text(f"b-{server.now.seconds:.0f}\n")
    load_table(catalog, "demo.t")
    for bad in (b"", b"\xff\xfe", b"two\nlines", b"x" * 70_000):
        file.write_bytes(bad)
        with pytest.raises(CatalogUnavailable, match="token") as raised:
            load_table(catalog, "demo.t")
        assert "lines" not in str(raised.value)
    file.unlink()
    with pytest.raises(CatalogUnavailable, match="cannot be read"):
        load_table(catalog, "demo.t")


@pytest.mark.parametrize(
    "given",
    [
        {"token-file": "/t", "credential": "a:b"},
        {"token-file": "/t", "token": "a"},
        {
            "auth.type": "oauth2",
            **{f"auth.oauth2.{key}": "x" for key in (*OAUTH2, "token-url")},
            "auth.oauth2.expires-in": "soon",
        },
        {"auth.type": "oauth2", **{f"auth.oauth2.{key}": "x" for key in OAUTH2}},
        {"auth.type": "oauth2", **{f"auth.oauth2.{key}": "x" for key in (*OAUTH2, "token-url", "realm")}},
    ],
)
def test_what_contradicts_is_refused_by_name(server: Answering, given: dict[str, str]) -> None:
    with pytest.raises(ConfigInvalid, match="catalog"):
        opened(server, **given)


def test_requests_are_signed_and_our_sessions_keep_that(server: Answering) -> None:
    keys = {"client.access-key-id": "AKEY", "client.secret-access-key": "s3cret", "client.region": "eu-central-1"}
    signing = {"rest.sigv4-enabled": "true", "rest.signing-name": "s3tables", "rest.signing-region": "eu-central-1"}
    table = load_table(opened(server, **keys, **signing), "demo.t")
    commit(table, (), ())
    sent = [request for request in server.seen if "/tables/" in request.path]
    assert [request.method for request in sent] == ["GET", "POST"]
    for request in sent:
        found = re.fullmatch(
            r"AWS4-HMAC-SHA256 Credential=AKEY/(\d{8}/eu-central-1/s3tables/aws4_request), "
            r"SignedHeaders=([^,]+), Signature=(\w+)",
            request.headers["Authorization"],
        )
        assert found is not None
        headers = {key.lower(): text for key, text in request.headers.items()}
        headers["x-amz-content-sha256"] = hashlib.sha256(request.body).hexdigest()
        assert _signature(request, headers, found[2].split(";"), found[1], "s3cret") == found[3]


def test_no_more_of_a_page_is_shown_than_a_line() -> None:
    assert len(shown(ValueError("x" * 10_000))) < 400 and shown(ValueError("a\nb")) == "ValueError: a"
