"""
What requests cost, by list prices: the one place where prices stand. Storage itself and traffic are not in it.

Dollars a million requests, taken down in November 2026: S3 Standard and SQS in us-east-1 as their price pages and
guides of 2026 say them; Azure Blob Storage hot, LRS, flat namespace, general purpose v2, East US. Prices differ by
region and change: put yours in.
"""

from collections.abc import Mapping

AS_OF = "List prices of November 2026"

#: kinds of requests, as `benchmarks.counting_proxy` counts them -> dollars a million
_OF_BOTH = {"PUT": 5.00, "LIST": 5.00, "GET": 0.40, "HEAD": 0.40, "DELETE": 0.0, "OTHER": 0.40}
S3 = {
    **_OF_BOTH,
    # SQS, standard: every request, S3's own that sends included
    "QUEUE": 0.40,
    "EVENT": 0.40,
}
AZURE = {
    **_OF_BOTH,
    # Storage Queue, class 2 (0.40 is the dearer one of the figures in circulation); Event Grid and its put
    "QUEUE": 0.40,
    "EVENT": 0.60 + 0.40,
}
FREE: dict[str, float] = {}


def dollars(requests: Mapping[str, float], prices: Mapping[str, float]) -> float:
    """
    What these requests cost.
    """
    return sum(count * prices.get(kind, 0.0) for kind, count in requests.items()) / 1_000_000


def shown(prices: Mapping[str, float]) -> str:
    """
    The prices in one line.
    """
    return ", ".join(f"{kind} {price:.2f}" for kind, price in prices.items())
