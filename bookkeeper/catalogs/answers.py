"""
What a REST catalog's refusals mean, in a sentence, and what to do about each.
"""

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any

from pyiceberg import exceptions as iceberg

from bookkeeper.stores.object_store import Transient

_RIGHTS = (
    "Give its role in the catalog the right to load the table, and to write its data if it commits: docs/stores.md."
)
_SECRET = "Correct credential, token, token-file or auth.* in [catalog], and see whether the principal is still there."
_ENDED = (
    "Let it be renewed: credential (client id and secret), auth.type = oauth2, or token-file instead of token in "
    "[catalog]."
)
_BUSY = "Nothing is lost; it is tried again, and not before the catalog allows it. Does another program ask too often?"
_DOWN = "Nothing is lost; it is tried again. See the log of the catalog's server, or of the proxy before it."
_CHANGED = "A proxy before the catalog may add conditions to requests; it is tried again."
#: by the class of pyiceberg's exception: what happened, and what to do
_MEANING: tuple[tuple[type[Exception], str, str], ...] = (
    (iceberg.UnauthorizedError, "the catalog does not know this program's credentials (401)", _SECRET),
    (iceberg.OAuthError, "the catalog's token endpoint gives this program no token", _SECRET),
    (iceberg.ForbiddenError, "this program's role in the catalog has no right to do that (403)", _RIGHTS),
    (iceberg.AuthorizationExpiredError, "this program's token has ended, and a new one too (419)", _ENDED),
    (iceberg.TooManyRequestsError, "the catalog takes no more requests for now (429)", _BUSY),
    (iceberg.ServiceUnavailableError, "the catalog is not available (503)", _DOWN),
    (
        iceberg.CommitStateUnknownException,
        "the catalog failed during the commit (5xx), which may be in the table",
        _DOWN,
    ),
    (iceberg.ServerError, "the catalog failed (5xx)", _DOWN),
)
#: what a later try may not meet; errors of connections, and limits of time, are an OSError
_PASSING = (iceberg.TooManyRequestsError, iceberg.ServiceUnavailableError, Transient, OSError)
_UNREAD = "Another program wrote it: take it back there. Nothing is lost; it is tried again."
#: how the words begin in which pyiceberg refuses what it parses; where that is and what is wrong are the next two lines
_INVALID = re.compile(r"\d+ validation errors? for .*")
#: characters of an answer that are shown
_MOST = 300
_LONGEST = timedelta(hours=1)
_LONGEST_DATE = 64


def meaning(exc: Exception) -> tuple[str, str]:
    """
    What an exception of a catalog's client says, and what to do about it; ("", "") where nothing better is known.
    """
    if _INVALID.match(str(exc)):
        return f"the catalog answers, with metadata of the table that pyiceberg does not read: {shown(exc)}", _UNREAD
    status = _status(exc)
    if status == 412:
        return (
            f"a condition of the request was not met (412), which is no conflict of a catalog: {shown(exc)}",
            _CHANGED,
        )
    for kind, what, hint in _MEANING:
        if isinstance(exc, kind):
            return f"{what}: {shown(exc)}", hint
    return "", ""


def shown(exc: Exception) -> str:
    """
    An exception's message in one line, without background and SQL, and no more of a page than fits there.
    """
    line, *more = str(exc).strip().split("\n")
    if _INVALID.match(line) and len(more) > 1:  # without the values, which follow in brackets
        line = f"{more[0].strip()}: {more[1].strip().partition(' [type=')[0]}"
    return f"{type(exc).__name__}: {line if len(line) <= _MOST else line[:_MOST] + '...'}"


def is_passing(exc: BaseException) -> bool:
    """
    Whether the catalog, or the storage of a metadata file, was busy or did not answer: nothing is wrong with the table.
    """
    return any(
        isinstance(cause, _PASSING) and not isinstance(cause, FileNotFoundError | PermissionError)
        for cause in _causes(exc)
    )


def retry_after(exc: BaseException) -> timedelta | None:
    """
    How long the answer behind this exception asks to wait, in seconds or until a date; None where it says nothing that
    can be read. It is an hour at most.
    """
    for response in _responses(exc):
        text = str(response.headers.get("Retry-After", "")).strip()
        if text.isascii() and text.isdecimal() and len(text) < 10:
            return min(timedelta(seconds=int(text)), _LONGEST)
        if (until := _date(text)) is not None:
            # By the server's own clock, which may differ from this machine's.
            now = _date(str(response.headers.get("Date", ""))) or _utc_now()
            return min(max(until - now, timedelta()), _LONGEST)
    return None


def _utc_now() -> datetime:
    return datetime.now(UTC)  # noqa: TID251 - the server says a time of day


def _date(text: str) -> datetime | None:
    """A date of HTTP; None where the text is none."""
    if not text.isascii() or len(text) > _LONGEST_DATE:
        return None
    try:
        found = parsedate_to_datetime(text)
    except (ValueError, OverflowError, IndexError):
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def _status(exc: BaseException) -> int | None:
    return next((int(response.status_code) for response in _responses(exc)), None)


def _responses(exc: BaseException) -> Iterator[Any]:
    """The HTTP answers that an exception and its causes came from."""
    for cause in _causes(exc):
        if (response := getattr(cause, "response", None)) is not None and hasattr(response, "headers"):
            yield response


def _causes(exc: BaseException) -> Iterator[BaseException]:
    cause: BaseException | None = exc
    for _ in range(5):
        if cause is None:
            return
        yield cause
        cause = cause.__cause__
