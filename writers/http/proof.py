"""
Proofs: that a request which one instance forwards to another was allowed by a token, without the token.

A proof is made with the token's digest (HMAC-SHA256), of one request and for LIFE; any program that can write the
txlog folder may name the address it goes to. That program can send the same request again, which is recognised, and no
other.
"""

import hmac
import json
import re
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from hashlib import sha256

#: of a request that comes from another instance, which is not asked again; its value is a proof, or NONE
FORWARDED = "Bookkeeper-Forwarded"
#: the client gave no token
NONE = "1"
#: a proof counts for so long, and so far may the clocks of two instances differ
LIFE = timedelta(seconds=60)
_PROOF = re.compile(r"([0-9]{1,12}) ([0-9a-f]{64}) ([0-9a-f]{64})")
#: what of the head says which rows are taken, beside the target
_HEADERS = ("producer", "sequence", "content-type", "content-encoding")


def proof(key: bytes, method: str, target: str, headers: Mapping[str, str], body: bytes, now: datetime) -> str:
    """
    The proof for a request, by the key of its token; names of `headers` are in lower case.
    """
    seconds, digest = str(int(now.timestamp())), sha256(body).hexdigest()
    return f"{seconds} {digest} {_sealed(key, method, target, headers, seconds, digest).hex()}"


def proves(keys: Iterable[bytes], method: str, target: str, headers: Mapping[str, str], now: datetime) -> bool:
    """
    Whether a request has a proof by one of these keys; takes as long for any proof. Its body is `is_of`'s.
    """
    given = _PROOF.fullmatch(headers.get(FORWARDED.lower(), ""))
    if given is None:
        return False
    seconds, digest, seal = given[1], given[2], bytes.fromhex(given[3])
    found = False
    for key in keys:
        found |= hmac.compare_digest(seal, _sealed(key, method, target, headers, seconds, digest))
    return found and abs(now.timestamp() - int(seconds)) <= LIFE.total_seconds()


def is_of(headers: Mapping[str, str], body: bytes) -> bool:
    """
    Whether the proof of a request, if it has one, is of this body.
    """
    given = _PROOF.fullmatch(headers.get(FORWARDED.lower(), ""))
    return given is None or hmac.compare_digest(given[2], sha256(body).hexdigest())


def _sealed(key: bytes, method: str, target: str, headers: Mapping[str, str], seconds: str, digest: str) -> bytes:
    parts = [method, target, *(headers.get(name, "") for name in _HEADERS), seconds, digest]
    return hmac.digest(key, json.dumps(parts).encode(), "sha256")
