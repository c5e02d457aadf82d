"""What the simulation saves itself changes nothing of what happens in it."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.simulation import shortcuts, world
from tests.simulation.events import events
from tests.simulation.play import play


@contextmanager
def none() -> Iterator[None]:
    yield


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_world_takes_the_same_way_without_shortcuts(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = list(events(seed, 100))
    short = play(seed, steps)
    monkeypatch.setattr(world, "shortcuts", none)
    long = play(seed, steps)
    assert (short.digest, short.counts) == (long.digest, long.counts)
    assert short.wrong == long.wrong == ""


def test_what_a_decoder_raises_is_raised_each_time() -> None:
    asked = list[bytes]()

    def decode(data: bytes) -> list[bytes]:
        asked.append(data)
        if not data:
            raise ValueError("empty")
        return [data]

    kept = shortcuts._kept(decode, lambda data: data, list)
    for _ in range(2):
        with pytest.raises(ValueError, match="empty"):
            kept(b"")
    first, second = kept(b"a"), kept(b"a")
    assert first == second == [b"a"]
    assert first is not second
    assert asked == [b"", b"", b"a"]
