"""Garbage is collected again whatever the start was like."""

import gc

from bookkeeper.console.garbage import freeze, paused


def test_garbage_is_collected_again_once_memory_has_settled() -> None:
    gc.disable()
    try:
        freeze()
        assert gc.isenabled() and gc.get_freeze_count()
    finally:
        gc.unfreeze()
        gc.enable()


def test_it_is_collected_again_also_when_the_daemon_ends_before_that() -> None:
    with paused():
        assert not gc.isenabled()
    assert gc.isenabled()
