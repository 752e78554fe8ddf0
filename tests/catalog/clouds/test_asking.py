"""Many regions are asked at once; one that refuses, hangs or fails costs the others nothing.

The places and answers here are made up; what clouds send when they refuse is in `real_*.py` and in
tests/support/clouds, each with its address.
"""

import signal
import subprocess
import sys
import threading

import pytest

from gpuplan.catalog.clouds.asking import Patience, ask_everywhere, one_at_a_time
from gpuplan.catalog.clouds.connect import known_clouds
from gpuplan.catalog.clouds.interface import CloudError, Unanswered
from gpuplan.catalog.errors import UsageError


def ask(places, answer, *, regions_timeout_s: float = 30.0, tell=lambda *_: None):
    patience = Patience(regions_timeout_s=regions_timeout_s)
    return ask_everywhere(
        places, answer, question="quota", what="quotas", patience=patience, tell=tell
    )


def test_answers_are_in_the_order_of_the_places_and_counted() -> None:
    told: list[tuple[int | None, int | None]] = []
    answers, silent = ask(
        ["b", "a", "b"], str.upper, tell=lambda _what, done, total: told.append((done, total))
    )
    assert list(answers.items()) == [("b", "B"), ("a", "A")] and silent == []
    assert sorted(told) == [(1, 2), (2, 2)]


def test_a_refusal_of_one_place_leaves_the_others() -> None:
    def answer(place: str) -> str:
        if place == "b":
            raise CloudError("not permitted", permission="x:Read")
        return place

    answers, silent = ask(["a", "b", "c"], answer)
    assert list(answers) == ["a", "c"]
    assert silent == [
        Unanswered(question="quota", region="b", why="not permitted", permission="x:Read")
    ]
    assert silent[0].text == "not permitted: needs x:Read"


def test_a_place_that_hangs_is_named_and_not_waited_for() -> None:
    released = threading.Event()

    def answer(place: str) -> str:
        if place == "b":
            released.wait(60)
        return place

    try:
        answers, silent = ask(["a", "b"], answer, regions_timeout_s=0.3)
    finally:
        released.set()
    assert "b" not in answers
    assert silent[-1].region == "b" and silent[-1].why == "no answer within 0.3 s"


def test_a_fault_of_our_own_is_not_taken_for_a_refusal() -> None:
    def answer(_place: str) -> str:
        raise KeyError("ours")

    with pytest.raises(KeyError):
        ask(["a"], answer)


def test_a_progress_bar_takes_one_call_at_a_time() -> None:
    busy = threading.Lock()

    def tell(_what: str, _done: int | None, _total: int | None) -> None:
        assert busy.acquire(blocking=False)
        busy.release()

    shown = one_at_a_time(tell)
    answers, _ = ask(map(str, range(50)), str, tell=shown)
    assert len(answers) == 50


def test_a_misspelt_provider_is_answered_with_the_closest() -> None:
    assert known_clouds() == ("aws", "gcp", "azure")
    with pytest.raises(UsageError, match="Did you mean azure"):
        known_clouds(["asure"])


ONE_HANGS = """
import sys, threading
from gpuplan.catalog.clouds.asking import Patience, ask_everywhere

def answer(place):
    if place == "b":
        print("asked", flush=True)
        threading.Event().wait(60)
    return place

answers, silent = ask_everywhere(
    ["a", "b"], answer, question="quota", what="quotas",
    patience=Patience(regions_timeout_s=float(sys.argv[1])), tell=lambda *_: None,
)
print(sorted(answers), [one.region for one in silent])
"""


def test_a_place_that_hangs_does_not_keep_the_process() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", ONE_HANGS, "0.5"], capture_output=True, text=True, timeout=30
    )
    assert ran.stdout.splitlines() == ["asked", "['a'] ['b']"] and ran.stderr == ""


def test_ctrl_c_ends_the_process_while_a_place_hangs(require) -> None:
    require("posix", "SIGINT is sent")
    command = [sys.executable, "-c", ONE_HANGS, "60"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"asked\n"
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=30)
    assert said.rstrip().endswith(b"KeyboardInterrupt")
    assert b"ignored" not in said
