"""
The account of rows: what writers published against what a reader of the table sees, by key.
"""

from collections import Counter
from collections.abc import Iterable

from tests.chaos.tally import Tally


def account(
    published: Iterable[str], committed: Iterable[str], unsure: Iterable[str] = (), points: int = 1, where: str = ""
) -> Tally:
    """
    The tally of one round; keys `unsure` (their writer died before it knew) may be there once or not at all.

    A key that no writer published counts as double: it is one arrival too many.
    """
    wanted, there, maybe = Counter(published), Counter(committed), set(unsure)
    missing = wanted - there
    double = there - wanted
    for key in maybe & double.keys():
        double[key] -= 1
    double = +double
    wrong = [f"{where}: missing {_some(missing)}"] if missing and where else []
    wrong += [f"{where}: double {_some(double)}"] if double and where else []
    return Tally(points, 1, wanted.total(), missing.total(), double.total(), wrong)


def _some(keys: Counter[str]) -> str:
    return ", ".join(sorted(keys)[:5]) + (" ..." if len(keys) > 5 else "")
