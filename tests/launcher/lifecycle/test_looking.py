"""A thread that looks while its block waits: until it has found it, or the block ends."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from gpuplan.launcher.lifecycle.engine import EngineError
from gpuplan.launcher.lifecycle.looking import Looking

WITHIN_S = 60.0


def looking(look: Callable[[], bool], is_wanted: bool = True) -> Looking:
    return Looking(look, every_s=0.001, join_s=WITHIN_S, is_wanted=is_wanted)


def test_it_looks_until_it_has_found_it_whatever_a_look_raises() -> None:
    answers = iter([False, EngineError("no answer"), True])
    found, looks = threading.Event(), []

    def look() -> bool:
        looks.append(1)
        answer = next(answers)
        if isinstance(answer, EngineError):
            raise answer
        if answer:
            found.set()
        return answer

    with looking(look) as made:
        assert found.wait(WITHIN_S)
        made._thread.join(WITHIN_S)
        assert not made._thread.is_alive()
    assert len(looks) == 3


def test_it_ends_with_its_block_and_waits_for_a_look_that_is_under_way() -> None:
    began, may_end, ended = threading.Event(), threading.Event(), threading.Event()

    def look() -> bool:
        began.set()
        may_end.wait(WITHIN_S)
        ended.set()
        return False

    with looking(look) as made:
        assert began.wait(WITHIN_S)
        may_end.set()
    assert ended.is_set() and not made._thread.is_alive()


def test_after_an_error_it_waits_for_nothing() -> None:
    began, may_end = threading.Event(), threading.Event()

    def look() -> bool:
        began.set()
        return may_end.wait(WITHIN_S)

    with pytest.raises(KeyboardInterrupt), looking(look) as made:
        assert began.wait(WITHIN_S)
        raise KeyboardInterrupt
    assert made._thread.is_alive(), "Ctrl-C is not held up by a question to the cloud"
    may_end.set()
    made._thread.join(WITHIN_S)


def test_what_is_not_wanted_is_not_looked_for() -> None:
    def look() -> bool:
        raise AssertionError

    with looking(look, is_wanted=False) as made:
        assert not made._thread.is_alive()
