"""
pyiceberg's client of a REST catalog, of which no answer is taken that is not a catalog's.

A redirect turns a commit into a load, whose answer looks like that of a commit that succeeded; a proxy's page with the
status 404 looks like a table that was dropped. Both are refused here, before pyiceberg reads them.
"""

import json
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.catalog.rest.auth import AuthManager, OAuth2AuthManager, OAuth2TokenProvider
from requests import Response, Session

from bookkeeper.errors import CatalogUnavailable, ConfigInvalid

TOKEN_FILE = "token-file"
_MOST_TOKEN_BYTES = 2**16
_AUTH = "auth."
_CREDENTIALS = ("client_id", "client_secret", "token_url")
_NUMBERS = ("refresh_margin", "expires_in")
_SECONDS = 30
_CLIENT = "Correct auth.oauth2.* in [catalog]; where the endpoint does not say how long tokens live: expires-in."
_URI = "Does catalog.uri name the catalog itself, with its path, and https where it wants that?"
_PROXY = f"A proxy or another server answers in its place. {_URI}"


class CheckedRestCatalog(RestCatalog):
    """The client whose sessions follow no redirect and take no page for an answer."""

    def _config_headers(self, session: Session) -> None:
        # The first that pyiceberg does with a new session, before that asks for a token.
        super()._config_headers(session)
        session.request = _checked(session.request)  # type: ignore[method-assign]


def rest_properties(properties: Mapping[str, str]) -> dict[str, Any]:
    """
    pyiceberg's properties of a REST catalog: `auth.TYPE.KEY` and `token-file` as it has them. Raises ConfigInvalid.
    """
    found: dict[str, Any] = {key: value for key, value in properties.items() if not key.startswith(_AUTH)}
    if path := found.pop(TOKEN_FILE, None):
        if "auth.type" in properties or "token" in properties or "credential" in properties:
            raise ConfigInvalid("catalog.token-file: it is expected alone, without auth.type, credential and token")
        found["auth"] = {"type": "custom", "impl": f"{__name__}.TokenFile", "custom": {"path": path}}
    elif kind := properties.get("auth.type"):
        begin = f"{_AUTH}{kind}."
        own = {key.removeprefix(begin): value for key, value in properties.items() if key.startswith(begin)}
        named = {key.replace("-", "_"): value for key, value in own.items()}
        if kind == "oauth2":
            found["auth"] = {"type": "custom", "impl": f"{__name__}.ClientCredentials", "custom": _oauth2(named)}
        else:
            found["auth"] = {"type": kind, kind: named}
            if impl := properties.get("auth.impl"):
                found["auth"]["impl"] = impl
    return found


def _oauth2(given: Mapping[str, str]) -> dict[str, str | int]:
    known = (*_CREDENTIALS, "scope", *_NUMBERS)
    missing, unknown = set(_CREDENTIALS) - given.keys(), given.keys() - set(known)
    for key in sorted(missing | unknown):
        spoken = key.replace("_", "-")
        what = "is missing" if key in missing else "is no key that is known"
        raise ConfigInvalid(f"catalog.auth.oauth2.{spoken} {what}", hint="docs/stores.md names the keys.")
    return {key: _number(key, value) for key, value in given.items()}


def _number(key: str, value: str) -> str | int:
    if key not in _NUMBERS:
        return value
    if not (value.isascii() and value.isdecimal() and len(value) < 10):
        raise ConfigInvalid(f"catalog auth {key} = {value[:30]!r}: a number of seconds is expected")
    return int(value)


class TokenFile(AuthManager):
    """A bearer token in a file, read for each request: whatever rotates it may replace it at any time."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)

    def auth_header(self) -> str:
        """The header; raises CatalogUnavailable where the file has no token."""
        try:
            with self._path.open("rb") as file:
                token = file.read(_MOST_TOKEN_BYTES + 1).decode("ascii").strip()
        except (OSError, UnicodeDecodeError) as exc:
            raise CatalogUnavailable(f"{self._path}: the token cannot be read ({type(exc).__name__})") from None
        if not token or len(token) > _MOST_TOKEN_BYTES or not token.isprintable():
            raise CatalogUnavailable(f"{self._path} holds no token", hint="It is one line, the token alone.")
        return f"Bearer {token}"


class ClientCredentials(OAuth2AuthManager):
    """pyiceberg's client credentials, renewed before they end, with a time limit and as careful with answers."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.token_provider = _Tokens(**given)


class _Tokens(OAuth2TokenProvider):
    def _refresh_token(self) -> None:
        data = {"grant_type": "client_credentials", **({"scope": self.scope} if self.scope else {})}
        with Session() as session:
            send = _checked(partial(session.request, timeout=_SECONDS))
            answer = send("POST", self.token_url, data=data, headers={"Authorization": self._client_secret_header})
        told = answer.json() if answer.ok else {}
        lives = told.get("expires_in", self.expires_in)
        if not told.get("access_token") or not isinstance(lives, int):
            what = f"answered {answer.status_code}" if not answer.ok else "names no token, or not how long it lives"
            raise CatalogUnavailable(f"the token endpoint {self.token_url} {what}", hint=_CLIENT)
        self._token, self._expires_at = str(told["access_token"]), int(time.monotonic() + lives - self.refresh_margin)


def _checked(send: Callable[..., Response]) -> Callable[..., Response]:
    def request(method: str, url: str, *given: Any, **named: Any) -> Response:
        answer = send(method, url, *given, **{**named, "allow_redirects": False})
        _check(method.upper(), url.partition("?")[0], answer)
        return answer

    return request


def _check(method: str, url: str, answer: Response) -> None:
    """Raises CatalogUnavailable for what no catalog answers: nothing is known of tables and commits then."""
    status = answer.status_code
    if 300 <= status < 400:
        where = answer.headers.get("Location", "").partition("?")[0][:200]
        raise CatalogUnavailable(
            f"{url} answered with a redirect ({status}) to {where!r}, which is not followed", hint=_URI
        )
    if method == "HEAD" or status == 204 or not (status < 300 or status == 404):
        return
    body = _json(answer)
    if not isinstance(body, dict) or (status == 404 and not isinstance(body.get("error"), dict)):
        kind = answer.headers.get("Content-Type", "nothing")[:60]
        raise CatalogUnavailable(f"{url} answered {status} with {kind}, which is no answer of a catalog", hint=_PROXY)


def _json(answer: Response) -> Any:
    if answer.status_code < 300 and not answer.content:
        return {}  # of a namespace or table that was dropped
    try:
        return json.loads(answer.content)
    except (ValueError, RecursionError):
        return None
