"""How long to wait after failures."""

from datetime import timedelta

from bookkeeper.config.settings import Daemon
from bookkeeper.serve.loop import backoff

SETTINGS = Daemon(every=timedelta(seconds=1), backoff_most=timedelta(seconds=30))


def test_the_pause_doubles_with_each_failure_in_a_row_up_to_its_limit() -> None:
    pauses = [backoff(failures, SETTINGS).total_seconds() for failures in range(1, 9)]
    assert pauses == [1, 2, 4, 8, 16, 30, 30, 30]


def test_a_thousand_failures_do_not_overflow() -> None:
    assert backoff(100_000, SETTINGS) == timedelta(seconds=30)
