"""What is found out about txlogs takes no more memory than it must."""

import gc
import tracemalloc
from types import SimpleNamespace

import pytest

from bookkeeper.format import avro
from bookkeeper.tick.intake import Intake
from tests.support.txlogs import NAME, txlog


@pytest.mark.parametrize("end", [b"no Avro file", txlog()[:-40], txlog()[:-100] + b"x" * 100])
def test_the_bytes_of_a_refused_txlog_are_free_at_once(end: bytes) -> None:
    """Without waiting for a collection of garbage: there is none before the daemon has settled."""
    large = SimpleNamespace(read=lambda names, sizes, most: {NAME: end + bytes(2**22)})
    intake = Intake(large, 2**24)  # type: ignore[arg-type]
    gc.disable()
    tracemalloc.start()
    try:
        intake.read([NAME])
        assert NAME in intake.bad and tracemalloc.get_traced_memory()[0] < 2**20
    finally:
        tracemalloc.stop()
        gc.enable()


def test_the_cause_of_a_refusal_keeps_no_frames_either() -> None:
    found = avro.decode(txlog(), 2**20)
    broken = avro.encode(found.meta, [avro.Block(1, b"", b"\xff\xff\xff")])
    intake = Intake(SimpleNamespace(read=lambda names, sizes, most: {NAME: broken}), 2**20)  # type: ignore[arg-type]
    intake.read([NAME])
    error: BaseException | None = intake.bad[NAME]
    assert error is not None and error.__cause__ is not None
    assert error.__traceback__ is None and error.__cause__.__traceback__ is None
