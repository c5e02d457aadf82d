"""
A schema registry, as Confluent's, Karapace and Apicurio answer: the schema of an id, asked for once.

What it answers is bounded in time and size. It is asked by HTTP alone: a redirect is not followed, for the credentials
would go with it.
"""

import json
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from time import monotonic
from typing import Any
from urllib.parse import quote, urlsplit

import requests
from urllib3.exceptions import HTTPError

from bookkeeper.errors import ConfigInvalid, NotPossible, SourceUnavailable
from writers.kafka.avro_schema import SCHEMA_BYTES, AvroRefused, AvroSchema
from writers.loader.records import BadLine

PREFIX = "schema.registry."
#: for one answer in all, and for each wait
_SECONDS, _WAIT_SECONDS = 20.0, 10.0
#: JSON in JSON: each quote is two bytes
_ANSWER_BYTES = 2 * SCHEMA_BYTES
#: an id that there was not, or what its schema refers to, is asked for again after this: a registry may be behind
_UNKNOWN_SECONDS = 30.0
_MOST_IDS, _MOST_REFERENCES = 1000, 100
#: error codes of the registry's API
_NO_SCHEMA, _NO_SUBJECT, _NO_VERSION = 40403, 40401, 40402
_USER, _TOKEN = "basic.auth.user.info", "bearer.auth.token"
_CA, _CERTIFICATE, _KEY = "ssl.ca.location", "ssl.certificate.location", "ssl.key.location"
_KEYS = (_USER, _TOKEN, _CA, _CERTIFICATE, _KEY)
_RIGHTS = f"Look at {PREFIX}{_USER} or {PREFIX}{_TOKEN} in the --client file; then start it again."


@dataclass(frozen=True)
class Access:
    """Where the registry is, and how it is asked; `verify` and `cert` as requests takes them."""

    url: str
    verify: str | bool = True
    cert: tuple[str, str] | None = None
    user: tuple[str, str] | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)

    def __call__(self, request: Any) -> Any:
        """Signs a request (requests.auth.AuthBase); without credentials ~/.netrc is not asked for some either."""
        if self.user is not None:
            return requests.auth.HTTPBasicAuth(*(part.encode() for part in self.user))(request)
        if self.token is not None:
            request.headers["Authorization"] = f"Bearer {self.token}"
        return request


def access_to(url: str, properties: Mapping[str, str]) -> Access:
    """
    What `--registry` and the settings `schema.registry.*` say; raises ConfigInvalid.
    """
    given = {key.removeprefix(PREFIX): value for key, value in properties.items() if key.startswith(PREFIX)}
    if "url" in given:
        raise ConfigInvalid(f"--client: {PREFIX}url is given as --registry, not in the file")
    if unknown := given.keys() - {*_KEYS}:
        known = ", ".join(PREFIX + key for key in _KEYS)
        raise ConfigInvalid(f"--client: {PREFIX}{min(unknown)} is not known; {known} are")
    _check_url(url)
    user, token = given.get(_USER), given.get(_TOKEN)
    if user is not None and token is not None:
        raise ConfigInvalid(f"--client: both {PREFIX}{_USER} and {PREFIX}{_TOKEN} are given, one is expected")
    if user is not None and ":" not in user:
        raise ConfigInvalid(f"--client: {PREFIX}{_USER} is not of the form USER:PASSWORD")
    if token is not None and not (token.isascii() and token.isprintable()):
        raise ConfigInvalid(f"--client: {PREFIX}{_TOKEN} is no token: it has other characters than ASCII's")
    ca, cert = given.get(_CA), None
    if _CERTIFICATE in given or _KEY in given:
        certificate = given.get(_CERTIFICATE, "")
        cert = certificate, given.get(_KEY, certificate)
    _check_files(ca, cert)
    name, _, password = (user or "").partition(":")
    return Access(url.rstrip("/"), ca or True, cert, None if user is None else (name, password), token)


def _check_url(url: str) -> None:
    try:
        parts = urlsplit(url)
        fits = parts.scheme in ("http", "https") and parts.hostname and not (parts.query or parts.fragment)
        fits = fits and parts.port != 0 and "," not in url
    except ValueError:
        fits, parts = False, urlsplit("")
    if parts.username is not None or parts.password is not None:
        raise ConfigInvalid(f"--registry: no credentials in the address; {PREFIX}{_USER} in the --client file has them")
    if not fits:
        raise ConfigInvalid(f"--registry {url}: http://HOST:PORT or https://HOST:PORT is expected")


def _check_files(ca: str | None, cert: tuple[str, str] | None) -> None:
    try:
        context = ssl.create_default_context(cafile=ca)
        if cert is not None:
            context.load_cert_chain(*cert, password=_no_password)
    except (OSError, ValueError) as exc:
        names = " or ".join(PREFIX + key for key in (_CA, _CERTIFICATE, _KEY))
        raise ConfigInvalid(f"--client: a file of {names} cannot be used: {exc}") from exc


def _no_password() -> str:
    raise ValueError("the key has a password; one without is expected")


class _NotThere(AvroRefused):
    """What a schema refers to is not in the registry, or not yet."""


class Registry:
    """
    The schemas of a registry by id. To be used by many threads.
    """

    def __init__(self, access: Access, now: Callable[[], float] = monotonic) -> None:
        self._access, self._now = access, now
        #: by id: the schema, or why it is none of Avro
        self._schemas = dict[int, AvroSchema | str]()
        #: by id: until when it is not asked for again, and the reason
        self._unknown = dict[int, tuple[float, str]]()

    def schema(self, number: int) -> AvroSchema:
        """
        The schema of an id.

        Raises BadLine where there is none, or not one of Avro; SourceUnavailable; NotPossible where the registry
        refuses to answer.
        """
        found = self._schemas.get(number)
        if found is None:
            found = self._asked(number)
            while len(self._schemas) >= _MOST_IDS:
                self._schemas.pop(next(iter(self._schemas)), None)
            self._schemas[number] = found
        if isinstance(found, str):
            raise BadLine(_refused(number, found))
        return found

    def _asked(self, number: int) -> AvroSchema | str:
        until, why = self._unknown.get(number, (float("-inf"), ""))
        if self._now() < until:
            raise BadLine(why)
        answer = self._get(f"/schemas/ids/{number}")
        if answer is None:
            raise self._later(number, f"the registry has no schema of id {number}")
        try:
            return AvroSchema(_text(answer), self._references(answer))
        except _NotThere as exc:
            raise self._later(number, _refused(number, str(exc))) from exc
        except AvroRefused as exc:
            return str(exc)

    def _later(self, number: int, why: str) -> BadLine:
        """Why an id is not known, which stands for a while."""
        if len(self._unknown) >= _MOST_IDS:
            self._unknown.clear()
        self._unknown[number] = self._now() + _UNKNOWN_SECONDS, why
        return BadLine(why)

    def _references(self, answer: Mapping[str, Any]) -> list[str]:
        """The schemas that one refers to, each behind those that it refers to itself; raises AvroRefused."""
        found = dict[tuple[str, int], str]()
        self._follow(answer, found, ())
        return [*found.values()]

    def _follow(
        self, answer: Mapping[str, Any], found: dict[tuple[str, int], str], inside: tuple[tuple[str, int], ...]
    ) -> None:
        given = answer.get("references") or []
        for item in given if isinstance(given, list) else [given]:
            subject, version = (item.get("subject"), item.get("version")) if isinstance(item, dict) else (None, None)
            if not isinstance(subject, str) or not isinstance(version, int):
                raise AvroRefused("its references have no subject and version")
            key = subject, version
            if key in inside or len(inside) + len(found) >= _MOST_REFERENCES:
                raise AvroRefused(f"its references go round, or are more than {_MOST_REFERENCES}")
            if key in found:
                continue
            other = self._get(f"/subjects/{quote(subject, safe='')}/versions/{version}")
            if other is None:
                raise _NotThere(f"it refers to version {version} of {subject!r:.80}, which the registry does not have")
            self._follow(other, found, (*inside, key))
            found[key] = _text(other)

    def _get(self, path: str) -> dict[str, Any] | None:
        """The JSON object there; None where the registry says that there is none."""
        status, body = self._answer(path)
        if status in (401, 403):
            raise NotPossible(f"the schema registry refused the credentials: {status} of {path}", hint=_RIGHTS)
        if 300 <= status < 400:
            hint = "Give the address that it redirects to as --registry."
            raise NotPossible(f"the schema registry redirects {path} ({status}), and that is not followed", hint=hint)
        try:
            found = json.loads(body)
        except (ValueError, RecursionError):
            found = None
        code = found.get("error_code") if isinstance(found, dict) else None
        if status == 404 and code in (_NO_SCHEMA, _NO_SUBJECT, _NO_VERSION):
            return None
        if status == 404:
            hint = f"Look at --registry {self._access.url}: it is the address before /schemas/ids."
            raise NotPossible(f"there is no schema registry: {path} is answered by 404 without its code", hint=hint)
        if status != 200:
            raise SourceUnavailable(f"the schema registry answered {path} by {status}")
        if not isinstance(found, dict):
            raise SourceUnavailable(f"the schema registry answered {path} by no JSON object")
        return found

    def _answer(self, path: str) -> tuple[int, bytes]:
        """Status and body."""
        access, end = self._access, self._now() + _SECONDS
        try:
            with (
                requests.Session() as session,
                session.get(
                    access.url + path,
                    auth=access,
                    verify=access.verify,
                    cert=access.cert,
                    timeout=_WAIT_SECONDS,
                    stream=True,
                    allow_redirects=False,
                    headers={"Accept": "application/vnd.schemaregistry.v1+json", "Accept-Encoding": "identity"},
                ) as reply,
            ):
                return reply.status_code, self._body(reply, path, end)
        except (requests.RequestException, HTTPError, OSError, ValueError) as exc:
            raise SourceUnavailable(f"the schema registry {_trouble(exc)}: {access.url}{path}") from exc

    def _body(self, reply: requests.Response, path: str, end: float) -> bytes:
        body = bytearray()
        while part := reply.raw.read1(2**16, decode_content=False):
            body += part
            if len(body) > _ANSWER_BYTES:
                raise SourceUnavailable(f"the schema registry answered {path} by more than {_ANSWER_BYTES} bytes")
            if self._now() > end:
                raise SourceUnavailable(f"the schema registry took more than {_SECONDS:.0f} seconds for {path}")
        return bytes(body)


def _trouble(exc: Exception) -> str:
    if isinstance(exc, requests.exceptions.SSLError):
        return "cannot be trusted (TLS)"
    if isinstance(exc, (requests.Timeout, HTTPError)):
        return "did not answer in time, or not to the end"
    return (
        "cannot be reached" if isinstance(exc, requests.ConnectionError) else f"did not answer ({type(exc).__name__})"
    )


def _refused(number: int, why: str) -> str:
    return f"the schema of id {number} cannot be used: {why}"


def _text(answer: Mapping[str, Any]) -> str:
    """Raises AvroRefused."""
    kind, text = answer.get("schemaType", "AVRO"), answer.get("schema")
    if kind != "AVRO" or not isinstance(text, str):
        raise AvroRefused(f"it is of type {kind!r:.40}, AVRO is expected")
    return text
