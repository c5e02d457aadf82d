"""
What a test does where a server that it needs cannot be had.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pytest

from tests.servers.process import Unavailable


@contextmanager
def needed(what: str, optional: bool = False, environ: Mapping[str, str] = os.environ) -> Iterator[None]:
    """
    The test is skipped when this is Unavailable; with CI=true it fails, unless a run without it is whole.
    """
    try:
        yield
    except Unavailable as exc:
        if environ.get("CI") == "true" and not optional:
            pytest.fail(f"{what}: {exc}")
        pytest.skip(f"{what}: {exc}")
