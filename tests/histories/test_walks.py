"""The walks by which broken engines are caught (tests/rules) make no complaint of the engine as it is."""

import pytest

from tests.histories.walks import complaints


@pytest.mark.parametrize("rewrites", [True, False], ids=["with rewrites", "without"])
def test_the_engine_as_it_is_makes_no_complaint(rewrites: bool) -> None:
    assert complaints(rewrites) == []
