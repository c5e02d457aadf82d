"""A few seconds of tests/catalogs/kills.py, with keys that live for four seconds; and its account."""

from pathlib import Path

from tests.catalogs.kills import _SECRET, played
from tests.servers.handing_out import Desk, Now
from tests.servers.needed import needed


def test_each_row_is_in_the_table_once_whatever_is_killed_across_renewals(tmp_path: Path) -> None:
    with needed("s3"):
        account = played(tmp_path, seconds=20, life=4, pause=4, seed=5)

    assert account.wrong == [], account.lines
    assert len(account.lines) > 15


def test_what_is_looked_for_is_each_secret_of_the_catalog() -> None:
    desk = Desk(Now(0))
    for prefix in ("s3://lake/a", "abfss://c@a.dfs.core.windows.net/t", "gs://b/t"):
        desk.hand_out(prefix)
    assert all(_SECRET.search(text.encode()) for text in desk.secrets()) and len(desk.secrets()) == 9
