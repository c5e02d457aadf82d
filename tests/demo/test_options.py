"""
The environment's options are read, and refused in one line that says what is allowed.
"""

from pathlib import Path

import pytest

from bookkeeper.errors import ConfigInvalid
from demo.options import DemoOptions, read_options


def test_an_empty_environment_asks_for_the_defaults() -> None:
    assert read_options({"DEMO_SECONDS": "", "CHAOS": ""}, seed=9) == DemoOptions(40, 5, False, 9, Path(".demo"))


def test_every_wish_is_read() -> None:
    environ = {"DEMO_SECONDS": "8", "WRITERS": "2", "CHAOS": "1", "SEED": "3", "DEMO_FOLDER": "/tmp/x"}
    assert read_options(environ, seed=9) == DemoOptions(8, 2, True, 3, Path("/tmp/x"))
    assert read_options({"WRITERS": "2"}, seed=0).names == ["writer-1", "writer-2"]


@pytest.mark.parametrize(
    "key, value",
    [("DEMO_SECONDS", "0"), ("DEMO_SECONDS", "1m"), ("WRITERS", "0"), ("WRITERS", "²"), ("CHAOS", "maybe")],
)
def test_a_bad_wish_is_refused_with_its_name_and_value(key: str, value: str) -> None:
    with pytest.raises(ConfigInvalid, match=f"^{key}={value}: .* allowed$"):
        read_options({key: value}, seed=0)
