"""A few seconds of tests/catalogs/kills.py, with keys that live for four seconds; and its account."""

from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from tests.catalogs.grounds import HOST, on_azure
from tests.catalogs.kills import _SECRET, played
from tests.servers.handing_out import Desk, Now
from tests.servers.needed import needed


def test_each_row_is_in_the_table_once_whatever_is_killed_across_renewals(tmp_path: Path) -> None:
    with needed("s3"):
        account = played(tmp_path, seconds=20, life=4, pause=4, seed=5)

    assert account.wrong == [], account.lines
    assert len(account.lines) > 15


@pytest.mark.parametrize(("life", "status", "noted"), [(60, 404, 0), (-5, 403, 1)])
def test_azurite_itself_looks_at_the_end_of_a_token(life: float, status: int, noted: int) -> None:
    with needed("azure"), on_azure(life) as ground:
        token = ground.desk.hand_out(f"{ground.lake}/w/demo/t")[f"adls.sas-token.{HOST}"]
        with pytest.raises(HTTPError) as answer:
            urlopen(f"{ground.governed[f'adls.connection-string.{HOST}']}/lake/w/demo/t/x?{token}")
        assert (answer.value.code, len(ground.desk.expired), len(ground.desk.refused)) == (status, noted, noted)
        assert _SECRET.search(token.encode())
        answer.value.close()


def test_what_is_looked_for_is_each_secret_of_the_catalog() -> None:
    desk = Desk(Now(0))
    for prefix in ("s3://lake/a", "abfss://c@a.dfs.core.windows.net/t", "gs://b/t"):
        desk.hand_out(prefix)
    assert all(_SECRET.search(text.encode()) for text in desk.secrets()) and len(desk.secrets()) == 9
