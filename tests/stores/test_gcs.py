"""
What is asked of Google's JSON API, and what its answers mean. Against a server: the contract suites with GCS_TEST=1.
"""

import asyncio
import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest

from bookkeeper.config.settings import Table
from bookkeeper.discover.discovery import Listing
from bookkeeper.discover.open import open_discovery
from bookkeeper.errors import AlreadyExists, Changed, ConfigInvalid, Missing, StorageUnavailable, TooLarge, Unfit
from bookkeeper.stores.gcs import GcsRemote
from bookkeeper.stores.object_store import MOST_COPIED, ObjectStore, Transient
from bookkeeper.stores.open import open_store
from bookkeeper.stores.store import Head, ObjectVersion, Part, Range, create_once

NO_OBJECT = (404, b"No such object: b/root/a")
NO_BUCKET = (404, json.dumps({"error": {"code": 404, "message": "The specified bucket does not exist."}}).encode())
EMPTY = (200, b"{}")


@dataclass
class Google:
    """Answers what it is told to, and keeps what was asked: method, path, query, bytes."""

    answers: list[tuple[Any, ...]]
    asked: list[tuple[str, str, dict[str, str], Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    _location: str = "https://google"
    base: str = "https://google/storage/v1/"

    def _get_headers(self, headers: dict[str, str]) -> dict[str, str]:
        return headers

    def _get_params(self, given: dict[str, str]) -> dict[str, str]:
        return given

    async def _set_session(self) -> "Google":
        return self

    def request(self, method: str, url: str, params: Any, data: Any, headers: Any, **more: Any) -> "Reply":
        assert more["auto_decompress"] is False
        self.headers.append(headers)
        self.asked.append((method, url.removeprefix("https://google"), params, data))
        return Reply(*self.answers.pop(0))


@dataclass
class Reply:
    """What comes back."""

    status: int
    body: bytes
    headers: dict[str, str] = field(default_factory=lambda: {"X-Goog-Generation": "17"})

    async def __aenter__(self) -> "Reply":
        return self

    async def __aexit__(self, *_: object) -> None:
        return None

    async def read(self) -> bytes:
        return self.body

    @property
    def content(self) -> "Reply":
        return self

    async def readexactly(self, many: int) -> bytes:
        if len(self.body) < many:
            raise asyncio.IncompleteReadError(self.body, many)
        return self.body[:many]


def store(*answers: tuple[Any, ...]) -> tuple[ObjectStore, Google]:
    google = Google(list(answers))
    return ObjectStore("gs://b/root", "root", GcsRemote(google, "b"), pauses=()), google  # type: ignore[arg-type]


def test_a_create_is_guarded_by_generation_zero() -> None:
    made, google = store(EMPTY, (412, b""))
    made.create("a", b"1")
    assert google.asked == [
        (
            "POST",
            "/upload/storage/v1/b/b/o",
            {"uploadType": "media", "name": "root/a", "ifGenerationMatch": "0"},
            b"1",
        )
    ]
    with pytest.raises(AlreadyExists):
        made.create("a", b"1")


def test_a_replace_is_guarded_by_the_generation_that_was_read() -> None:
    made, google = store((200, b"old"), EMPTY, (412, b""), EMPTY, EMPTY)
    data, tag = made.read_tagged("a")
    assert data == b"old"
    made.replace("a", b"2", if_match=tag)
    with pytest.raises(Changed):
        made.replace("a", b"3", if_match=tag)
    made.replace("a", b"4", if_match="")
    made.replace("a", b"5")
    assert [asked[2].get("ifGenerationMatch") for asked in google.asked] == [None, "17", "17", "0", None]


def test_a_read_of_a_known_version_is_conditional_on_its_generation() -> None:
    dated = {"X-Goog-Generation": "18", "Last-Modified": "Sat, 21 Nov 2026 12:00:00 GMT"}
    made, google = store((304, b""), (200, b"new", dated), (200, b"more"))
    assert made.read_versions({"a": "17"}) == {"a": None}
    at = datetime(2026, 11, 21, 12, tzinfo=UTC)
    assert made.read_versions({"a": "17"}) == {"a": ObjectVersion(b"new", "18", at)}
    assert made.read_versions({"a": ""}) == {"a": ObjectVersion(b"more", "17", None)}
    asked = [asked[2] for asked in google.asked]
    assert asked == [{"alt": "media", "ifGenerationNotMatch": "17"}] * 2 + [{"alt": "media"}]


def test_a_create_whose_reply_was_lost_finds_its_own_bytes() -> None:
    made, _ = store((412, b""), (200, b"mine"), (412, b""), (200, b"theirs"))
    create_once(made, "a", b"mine")
    with pytest.raises(AlreadyExists):
        create_once(made, "a", b"mine")


@pytest.mark.parametrize("act", ["read", "size", "modified"])
def test_an_object_is_missing_when_the_answer_names_it_or_the_bucket_can_be_listed(act: str) -> None:
    for answers in ([NO_OBJECT], [(404, b""), EMPTY]):
        made, google = store(*answers)
        with pytest.raises(Missing):
            getattr(made, act)("a")
        assert not google.answers
    for last in (NO_BUCKET, (403, b"")):
        with pytest.raises(StorageUnavailable):
            getattr(store(NO_BUCKET, last)[0], act)("a")


def test_a_look_at_an_object_is_one_read_of_its_first_bytes() -> None:
    made, google = store((206, b"PAR1", {"Content-Range": "bytes 0-3/1234"}))
    assert made.heads(["a"]) == {"a": Head(1234, b"PAR1")}
    assert (google.asked[0][2], google.headers) == ({"alt": "media"}, [{"Range": "bytes=0-3"}])


def test_a_range_is_one_read_of_it() -> None:
    wanted = Range("a", 4, 9)
    made, google = store((206, b"12345", {"Content-Range": "bytes 4-8/1234"}))
    assert made.read_ranges([wanted]) == {wanted: Part(1234, b"12345")}
    assert (google.asked[0][2], google.headers) == ({"alt": "media"}, [{"Range": "bytes=4-8"}])


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        ((200, b"12345"), Unfit),  # no range
        ((200, b"123456"), TooLarge),  # the whole object
        ((206, b"12345", {"Content-Range": "bytes 0-4/1234"}), Unfit),  # others
        ((206, b"123", {"Content-Range": "bytes 4-8/1234"}), Transient),  # cut off
    ],
)
def test_an_answer_with_other_bytes_than_those_of_the_range_is_not_taken(answer: Any, error: type) -> None:
    wanted = Range("a", 4, 9)
    assert type(store(answer)[0].read_ranges([wanted])[wanted]) is error


def test_a_look_at_an_object_that_is_empty_or_missing() -> None:
    made, _ = store((416, b""), (200, b'{"size": "0"}'), NO_OBJECT)
    assert made.heads(["a"]) == {"a": Head(0, b"")}
    assert isinstance(made.heads(["a"])["a"], Missing)


def test_a_bounded_read_takes_no_more_than_it_may_whatever_length_was_announced() -> None:
    made, _ = store((200, b"12345"), (200, b"123456"))
    assert made.read("a", 5) == b"12345"
    with pytest.raises(TooLarge) as refused:
        made.read_tagged("a", 5)
    assert refused.value.tag == "17"


def test_moving_asks_google_to_copy_until_it_is_done_and_deletes_then() -> None:
    about, more = b'{"size": "5"}', b'{"done": false, "rewriteToken": "t"}'
    made, google = store((200, about), NO_OBJECT, (200, more), (200, b'{"done": true}'), (204, b""))
    made.move("a", "b/a")
    assert [asked[0] for asked in google.asked] == ["GET", "GET", "POST", "POST", "DELETE"]
    assert google.asked[2][1].endswith("/o/root%2Fa/rewriteTo/b/b/o/root%2Fb%2Fa")
    assert (google.asked[2][2], google.asked[3][2]) == ({}, {"rewriteToken": "t"})


def test_what_no_storage_copies_in_seconds_is_not_moved() -> None:
    made, google = store((200, b'{"size": "%d"}' % (MOST_COPIED + 1)))
    with pytest.raises(TooLarge):
        made.move("a", "b")
    assert len(google.asked) == 1


def test_deleting_passes_over_what_is_not_there_and_not_over_a_missing_bucket() -> None:
    assert store(NO_OBJECT, (204, b""))[0].delete_many(["a", "b"]) == 2
    with pytest.raises(StorageUnavailable):
        store(NO_BUCKET, NO_BUCKET)[0].delete_many(["a"])


def test_deleting_by_tag_names_the_generation() -> None:
    made, google = store((204, b""), NO_OBJECT, (412, b""), (200, b'{"size": "1"}'), (412, b""), NO_OBJECT)
    made.delete_if("a", "17")
    made.delete_if("a", "17")
    with pytest.raises(Changed):
        made.delete_if("a", "17")
    made.delete_if("a", "17")
    assert [(method, query) for method, _, query, _ in google.asked][:3] == [
        ("DELETE", {"ifGenerationMatch": "17"})
    ] * 3


def test_a_listing_goes_on_page_by_page_and_shows_no_folders() -> None:
    item = {"name": "root/a", "size": "3", "updated": "2026-11-21T20:00:00.123Z"}
    pages = [
        {"items": [item, {**item, "name": "root/f/"}], "nextPageToken": "t"},
        {"items": [{**item, "name": "root/b"}]},
    ]
    made, google = store(*[(200, json.dumps(page).encode()) for page in pages])
    assert [(found.key, found.size) for found in made.list("")] == [("a", 3), ("b", 3)]
    assert [asked[2].get("pageToken") for asked in google.asked] == [None, "t"]


def test_a_large_file_is_one_request() -> None:
    made, google = store(EMPTY)
    made.upload("data/x", bytes(20 * 2**20))
    assert [(asked[0], len(asked[3])) for asked in google.asked] == [("POST", 20 * 2**20)]


@pytest.mark.parametrize("status", [408, 429, 500, 503])
def test_a_busy_storage_is_asked_again_and_is_unavailable_in_the_end(status: int) -> None:
    made, google = store((status, b""), (200, b"1"))
    made.pauses, made.sleep = (0.1,), _at_once
    assert made.read("a") == b"1"
    google.answers += [(status, b"")] * 2
    with pytest.raises(StorageUnavailable):
        made.read("a")


async def _at_once(seconds: float) -> None:
    return None


@pytest.mark.parametrize("endpoint", ["https://storage.googleapis.com", "https://b.storage.googleapis.com"])
def test_google_is_refused_where_it_only_looks_like_s3(endpoint: str) -> None:
    given = {"s3.endpoint": endpoint, "s3.access-key-id": "x", "s3.secret-access-key": "y", "s3.region": "auto"}
    with pytest.raises(ConfigInvalid, match="ignores If-None-Match"):
        open_store("s3://b/x", given).create("a", b"1")


def test_no_queue_tells_of_its_objects_so_they_are_listed(caplog: pytest.LogCaptureFixture) -> None:
    found = open_discovery(Table(name="events", discover="notify", queue="q"), store()[0])
    assert isinstance(found, Listing)
    assert "no queue that is known" in caplog.records[0].cause  # type: ignore[attr-defined]
