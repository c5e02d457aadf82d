"""
Reads which objects were created from the events of storages.

Knows S3 (plain, through SNS, through EventBridge) and Azure Event Grid (its own schema and CloudEvents). A message of
another kind names no object.
"""

import base64
import binascii
import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote_plus, urlsplit

Place = tuple[str, str]  # bucket or container, and the object's key


def places(message: str | bytes) -> list[Place]:
    """
    The objects that a message reports as created, in its order; empty for a message of another kind.
    """
    try:
        return list(_places(_decoded(message)))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return []


def _decoded(message: str | bytes) -> Any:
    text = message.decode() if isinstance(message, bytes) else message
    try:
        return json.loads(text)
    except ValueError:
        pass
    try:
        return json.loads(base64.b64decode(text, validate=True))  # as Event Grid puts it into a queue
    except binascii.Error as exc:
        raise ValueError("neither JSON nor base64") from exc


def _places(event: Any) -> Iterator[Place]:
    if isinstance(event, list):
        for item in event:
            yield from _places(item)
    elif isinstance(event.get("Message"), str):
        yield from _places(json.loads(event["Message"]))  # SNS
    elif "Records" in event:
        for record in event["Records"]:
            yield from _s3(record)
    elif event.get("detail-type") == "Object Created":
        yield event["detail"]["bucket"]["name"], event["detail"]["object"]["key"]
    elif (event.get("eventType") or event.get("type")) == "Microsoft.Storage.BlobCreated":
        yield _azure(event)


def _s3(record: Any) -> Iterator[Place]:
    if str(record.get("eventName", "")).startswith("ObjectCreated:"):
        yield record["s3"]["bucket"]["name"], unquote_plus(record["s3"]["object"]["key"])


def _azure(event: Any) -> Place:
    _, _, rest = str(event.get("subject", "")).partition("/containers/")
    container, blobs, key = rest.partition("/blobs/")
    if blobs:
        return container, key
    container, _, key = urlsplit(event["data"]["url"]).path.lstrip("/").partition("/")
    return container, key
