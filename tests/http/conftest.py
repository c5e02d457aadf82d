"""No request waits long for others, or for its turn."""

from datetime import timedelta

import pytest

from writers.http import command, lane, slot


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lane, "LINGER", timedelta(milliseconds=20))
    monkeypatch.setattr(lane, "_PAUSE_SECONDS", 0.02)
    monkeypatch.setattr(slot, "LOOK_SECONDS", 0.02)
    monkeypatch.setattr(slot, "LEASE_SECONDS", 0.05)
    monkeypatch.setattr(slot, "AHEAD", timedelta(seconds=1))
    monkeypatch.setattr(command, "PATIENCE", timedelta(milliseconds=100))
