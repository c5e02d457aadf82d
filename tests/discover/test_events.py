"""What is read out of a storage's events, and that everything else says nothing."""

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as some

from bookkeeper.contract.names import TxlogName, new_incarnation
from bookkeeper.discover.events import txlogs
from bookkeeper.stores.events import places

NAME = TxlogName("w1", new_incarnation(1, bytes(10)), 7)
KEY = f"lake/queue of=us/pending/{NAME}"
CODED = KEY.replace(" ", "+").replace("=", "%3D")
S3 = {"eventName": "ObjectCreated:Put", "s3": {"bucket": {"name": "lake"}, "object": {"key": CODED}}}
GRID = {"eventType": "Microsoft.Storage.BlobCreated", "subject": f"/blobServices/default/containers/lake/blobs/{KEY}"}
CLOUD = {"type": "Microsoft.Storage.BlobCreated", "data": {"url": f"https://a.blob.core.windows.net/lake/{KEY}"}}
TOLD = {
    "S3": {"Records": [S3]},
    "multipart": {"Records": [{**S3, "eventName": "ObjectCreated:CompleteMultipartUpload"}]},
    "SNS": {"Type": "Notification", "Message": json.dumps({"Records": [S3]})},
    "EventBridge": {"detail-type": "Object Created", "detail": {"bucket": {"name": "lake"}, "object": {"key": KEY}}},
    "Event Grid": GRID,
    "Event Grid, several": [GRID],
    "CloudEvents": CLOUD,
}
NOTHING = {
    "test": {"Service": "Amazon S3", "Event": "s3:TestEvent", "Bucket": "lake"},
    "removed": {"Records": [{**S3, "eventName": "ObjectRemoved:Delete"}]},
    "deleted": {**GRID, "eventType": "Microsoft.Storage.BlobDeleted"},
    "half": {"Records": [{"eventName": "ObjectCreated:Put", "s3": {}}]},
    "list": [[[]]],
    "number": 7,
    "null": None,
}


@pytest.mark.parametrize("kind", TOLD)
def test_an_event_tells_of_its_object(kind: str) -> None:
    text = json.dumps(TOLD[kind])
    assert places(text) == [("lake", KEY)]
    assert places(base64.b64encode(text.encode())) == [("lake", KEY)]
    assert txlogs(text, "lake", "lake/queue of=us/pending") == [NAME]


@pytest.mark.parametrize("kind", NOTHING)
def test_another_message_tells_of_nothing(kind: str) -> None:
    assert places(json.dumps(NOTHING[kind])) == []


@pytest.mark.parametrize(("bucket", "pending"), [("other", "lake/queue of=us/pending"), ("lake", "lake/pending")])
def test_an_object_elsewhere_is_no_txlog_of_ours(bucket: str, pending: str) -> None:
    assert txlogs(json.dumps(TOLD["S3"]), bucket, pending) == []


@given(some.text() | some.binary())
def test_rubbish_names_no_txlog_and_raises_nothing(message: str | bytes) -> None:
    assert places(message) == []
