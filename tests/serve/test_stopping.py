"""Requests that signals set: a signal may come between any two steps of the loop that takes one."""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from bookkeeper.console.readable import readable
from bookkeeper.console.signals import ReloadSignal


def interrupted(act: Callable[[], Any], signal: Callable[[], None], step: int) -> tuple[Any, bool]:
    """What `act` returned, and whether it had so many steps: before this one the signal's handler ran."""
    steps = 0

    def trace(frame: FrameType, event: str, given: Any) -> Any:
        nonlocal steps
        frame.f_trace_opcodes = True
        if event == "opcode" and frame.f_code is ReloadSignal.take.__code__:
            steps += 1
            if steps == step:
                signal()
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        done = act()
    finally:
        sys.settrace(before)
    return done, steps >= step


@pytest.mark.parametrize("asked", [True, False])
def test_a_signal_at_any_step_of_taking_is_heard_and_keeps_no_wait_from_sleeping(asked: bool) -> None:
    step, within = 0, True
    while within:
        wish, step = ReloadSignal(), step + 1
        if asked:
            wish.request()
        taken, within = interrupted(wish.take, wish.request, step)
        assert taken or wish.asked() or not within, f"lost at step {step}"
        assert wish.asked() or not readable(wish.wakes(), 0), f"awake for ever from step {step} on"
    assert step > 10


def test_what_was_asked_for_is_taken_once() -> None:
    wish = ReloadSignal()
    wish.request()
    wish.request()
    assert wish.take() and not wish.take() and not wish.asked() and not readable(wish.wakes(), 0)
