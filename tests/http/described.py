"""Whether an answer is one that the document of `GET /v1/openapi.json` describes."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from writers.http.front import OPENAPI

DOCUMENT: Mapping[str, Any] = json.loads(OPENAPI.read_text("utf-8"))
#: headers of any answer
_OF_HTTP = {"content-type", "content-length", "date", "connection"}
_TYPES: Mapping[str, type] = {"object": dict, "array": list, "string": str, "integer": int, "boolean": bool}


def resolved(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """
    What a part of the document says, also by its name.
    """
    found: Any = given
    while "$ref" in found:
        names, found = found["$ref"].split("/")[1:], DOCUMENT
        for name in names:
            found = found[name]
    return found  # type: ignore[no-any-return]


def operation(method: str, path: str) -> tuple[str, Mapping[str, Any] | None]:
    """
    The path in the document, "" where there is none, and the operation, None where the path does not have the method.
    """
    for template, item in DOCUMENT["paths"].items():
        if re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", template), path.partition("?")[0]):
            return template, item.get(method.lower())
    return "", None


def check(method: str, path: str, status: int, headers: Mapping[str, str], body: bytes) -> None:
    """
    Fails for an answer that the document does not describe; names of `headers` are in lower case.
    """
    template, found = operation(method, path)
    own = headers.keys() - _OF_HTTP
    if found is None:
        assert status in ((405,) if template else (404,)), f"{method} {path}: {status}"
        assert own == ({"allow"} if template else set())
        assert not template or headers["allow"].lower() in DOCUMENT["paths"][template]
        return
    assert str(status) in found["responses"], f"{method} {template} does not say {status}: {body!r}"
    answer = resolved(found["responses"][str(status)])
    described = {name.lower(): resolved(value) for name, value in answer.get("headers", {}).items()}
    assert own <= described.keys(), f"{status}: {own}"
    assert {name for name, value in described.items() if value.get("required")} <= own
    if "content" not in answer:
        assert not body
        return
    ((kind, content),) = answer["content"].items()
    assert headers["content-type"] == kind
    wrong = wrong_in(json.loads(body), content["schema"])
    assert not wrong, f"{method} {template} {status}: {wrong}: {body!r}"


def wrong_in(value: Any, schema: Mapping[str, Any]) -> str:
    """
    Where a value is not as the schema says, "" where it is.
    """
    schema = resolved(schema)
    if "oneOf" in schema:
        tried = [wrong_in(value, item) for item in schema["oneOf"]]
        return "" if tried.count("") == 1 else f"one of: {tried}"
    kind = _TYPES[schema["type"]]
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        return f"{value!r} is no {schema['type']}"
    return _WRONG.get(kind, lambda *_: "")(value, schema)


def _wrong_in_number(value: int, schema: Mapping[str, Any]) -> str:
    is_within = schema.get("minimum", value) <= value <= schema.get("maximum", value)
    return "" if is_within else f"{value} is out of bounds"


def _wrong_in_array(value: Sequence[Any], schema: Mapping[str, Any]) -> str:
    if len(value) > schema.get("maxItems", len(value)):
        return f"{len(value)} items"
    return next(filter(None, (wrong_in(item, schema["items"]) for item in value)), "")


def _wrong_in_object(value: Mapping[str, Any], schema: Mapping[str, Any]) -> str:
    known = schema.get("properties", {})
    if lacking := [name for name in schema.get("required", ()) if name not in value]:
        return f"{lacking} is missing"
    if schema.get("additionalProperties") is False and (unknown := value.keys() - known.keys()):
        return f"{unknown} is not described"
    wrong = ((name, wrong_in(item, known[name])) for name, item in value.items() if name in known)
    return next((f"{name}: {what}" for name, what in wrong if what), "")


_WRONG: Mapping[type, Callable[[Any, Mapping[str, Any]], str]] = {
    dict: _wrong_in_object,
    list: _wrong_in_array,
    int: _wrong_in_number,
}
