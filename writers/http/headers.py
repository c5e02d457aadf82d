"""
The head of a request: what a proxy before this server may read in another way is refused.
"""

from starlette.datastructures import Headers

from writers.http.requests import Refused, refused

#: of a head with its line; `protocol.py` answers 431 to a longer one
MOST_HEAD_BYTES = 16_384
_ONCE = (
    "authorization",
    "bookkeeper-forwarded",
    "content-encoding",
    "content-length",
    "content-type",
    "expect",
    "host",
    "producer",
    "sequence",
    "transfer-encoding",
)


def check_headers(headers: Headers) -> None:
    """
    Raises Refused for a head without Host, for a header that is there twice, and for a body with two lengths.
    """
    if "host" not in headers:
        raise Refused(refused(400, "there is no header Host"))
    names = [name for name, _ in headers.raw]  # in lower case
    if len({*names}) < len(names) and (twice := [name for name in _ONCE if names.count(name.encode()) > 1]):
        raise Refused(refused(400, f"the header {twice[0]} is there twice", "Send it once."))
    if _has_two_lengths(headers):
        hint = "Send one of them: some proxies take the one, some the other."
        raise Refused(refused(400, "there are Content-Length and Transfer-Encoding", hint))
    if headers.get("expect", "100-continue").lower() != "100-continue":
        raise Refused(refused(417, "Expect: 100-continue alone is known here"))


def ends_connection(headers: Headers) -> bool:
    """
    Whether what comes behind a refused request may be anything: where its end is in doubt, or its body is never sent.
    """
    return _has_two_lengths(headers) or "expect" in headers


def _has_two_lengths(headers: Headers) -> bool:
    return "content-length" in headers and "transfer-encoding" in headers
