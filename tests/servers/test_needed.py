"""A run that is to prove everything leaves out nothing, and another one says what it left out."""

from collections.abc import Mapping

import pytest

from tests.servers import Unavailable
from tests.servers.needed import needed

CI = {"CI": "true"}


@pytest.mark.parametrize(
    ("environ", "optional", "outcome"),
    [
        ({}, False, pytest.skip.Exception),
        ({"CI": "false"}, False, pytest.skip.Exception),
        (CI, False, pytest.fail.Exception),
        (CI, True, pytest.skip.Exception),
    ],
)
def test_what_cannot_be_had_skips_a_test_and_fails_it_with_ci(
    environ: Mapping[str, str], optional: bool, outcome: type[BaseException]
) -> None:
    with pytest.raises(outcome, match="postgres: no such package"), needed("postgres", optional, environ):
        raise Unavailable("no such package")


def test_what_fails_for_another_reason_fails_everywhere() -> None:
    with pytest.raises(OSError, match="disk full"), needed("postgres", environ={}):
        raise OSError("disk full")
