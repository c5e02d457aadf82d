"""A few seconds of tests/http/kills.py, and its account."""

from pathlib import Path

from tests.http.kills import EVIL, Account, Size, played


def test_each_row_is_in_the_table_once_whatever_is_killed(tmp_path: Path) -> None:
    account = played(tmp_path, Size(producers=20, requests=6, rows=5, unnamed=2, pause=1), seed=5)

    assert account.right, account
    assert len(account.named) == 600 and account.unnamed and account.kills.total() >= 2
    assert any(status.startswith(EVIL) for status in account.statuses)


def test_what_is_wrong_is_counted() -> None:
    account = Account(named={1, 2, 3}, unnamed={10**13})
    account.compare([1, 2, 2, 4, 10**12])

    assert (account.missing, account.double, account.lost) == (1, 2, 1)
    assert not account.right
