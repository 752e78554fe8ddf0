"""What the guard sees: lines of metrics, heartbeats, devices, when the machine came up."""

import json
import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuplan.launcher.guard.node.readings import (
    DEVICES_EVERY_S,
    Devices,
    Heartbeats,
    Metrics,
    boot_s,
    setup_s,
)
from gpuplan.launcher.guard.orders import Busy


def append(path: Path, *lines: object) -> None:
    with path.open("a") as stream:
        for line in lines:
            stream.write(json.dumps(line) + "\n")


def step(number: int, **facts: object) -> dict[str, object]:
    return {"step": number, "step_time_s": number / 10, "loss": 1.0, **facts}


def test_only_the_lines_of_this_attempt_count(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    append(path, *(step(number) for number in range(1, 50)))
    metrics = Metrics(path, steps=3, settled=2)
    metrics.read(1.0)
    assert (metrics.step, metrics.trained, metrics.new_at_s) == (None, 0, None)

    append(path, *(step(number) for number in range(41, 48)))
    metrics.read(2.0)
    assert (metrics.step, metrics.trained, metrics.settled) == (47, 7, 5)
    assert list(metrics.times_s) == [4.5, 4.6, 4.7]
    assert metrics.new_at_s == 2.0


@given(st.lists(st.integers(1, 40), max_size=30))
def test_a_line_that_is_still_being_written_waits(cuts: list[int]) -> None:
    text = "".join(json.dumps(step(number)) + "\n" for number in range(1, 11)).encode()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "metrics.jsonl"
        metrics = Metrics(path, steps=30, settled=0)
        at = 0
        for cut in [*cuts, len(text)]:
            with path.open("ab") as stream:
                stream.write(text[at : at + cut])
            at += cut
            metrics.read(0.0)
    assert metrics.trained == metrics.settled == 10
    assert metrics.step == 10


def test_what_is_no_line_of_metrics_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    metrics = Metrics(path, steps=30, settled=0)
    metrics.read(0.0)
    path.write_bytes(b'\xff\xfe\n{"step"\n[1]\nnull\n{"step": "x"}\n{"step": true}\n{"step": 4}\n')
    metrics.read(1.0)
    assert (metrics.step, metrics.trained, metrics.settled) == (4, 1, 0)


def test_a_file_that_begins_anew_is_read_from_its_start(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    append(path, *(step(number) for number in range(1, 20)))
    metrics = Metrics(path, steps=30, settled=0)
    path.write_text("")
    append(path, step(1))
    metrics.read(0.0)
    assert metrics.step == 1


def test_the_loss_is_bad_while_every_line_says_so(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    metrics = Metrics(path, steps=30, settled=0)
    since = []
    for at_s, loss in enumerate([1.0, None, None, 1.0, None]):
        append(path, step(at_s + 1, loss=loss))
        metrics.read(float(at_s))
        since.append(metrics.loss_bad_since_s)
    append(path, {"step": 6})
    metrics.read(9.0)
    assert [*since, metrics.loss_bad_since_s] == [None, 1.0, 1.0, None, 4.0, 4.0]


def test_the_longest_checkpoint_is_known(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    metrics = Metrics(path, steps=30, settled=0)
    append(path, step(1, checkpoint_write_s=None), step(2, checkpoint_write_s=40.0))
    append(path, step(3, checkpoint_write_s=30.0))
    metrics.read(0.0)
    assert metrics.checkpoint_s == 40.0


def test_a_heartbeat_is_one_that_changes(tmp_path: Path) -> None:
    (tmp_path / "rank-00000").write_text("old")
    beats = Heartbeats(tmp_path)
    beats.read(1.0)
    assert beats.new_at_s is None
    (tmp_path / "rank-00001").write_text("new")
    beats.read(2.0)
    beats.read(3.0)
    assert beats.new_at_s == 2.0
    (tmp_path / "rank-00000").write_text("again")
    beats.read(4.0)
    assert beats.new_at_s == 4.0


def test_there_may_be_no_heartbeats_yet(tmp_path: Path) -> None:
    beats = Heartbeats(tmp_path / "heartbeats")
    beats.read(0.0)
    assert beats.new_at_s is None


def test_devices_are_judged_over_the_whole_time_that_is_asked_for() -> None:
    shares = iter([0.9, 0.9, *[0.1] * 100])
    devices = Devices(Busy(0.5, 60.0), lambda: next(shares))
    found = [devices.read(at_s * DEVICES_EVERY_S) for at_s in range(8)]
    assert found[:4] == [None] * 4
    assert found[4] == pytest.approx((0.9 + 0.9 + 3 * 0.1) / 5)
    assert found[7] == pytest.approx(0.1)


def test_devices_that_nobody_can_ask_are_not_judged() -> None:
    devices = Devices(Busy(0.5, 60.0), lambda: None)
    assert [devices.read(float(at_s)) for at_s in range(0, 3600, 15)] == [None] * 240


def test_when_the_machine_came_up(tmp_path: Path) -> None:
    (tmp_path / "stat").write_text("cpu 1 2\nbtime 1795312373\nprocesses 4\n")
    assert boot_s(tmp_path / "stat") == 1795312373.0
    (tmp_path / "stat").write_text("cpu 1 2\n")
    assert boot_s(tmp_path / "stat") is None
    assert boot_s(tmp_path / "missing") is None


def test_when_set_up_began(tmp_path: Path) -> None:
    assert setup_s(tmp_path) is None
    state = tmp_path / "state.json"
    state.write_text('{"used_s": 7300.5}')
    os.utime(state, (1795312373.0, 1795312373.0))
    assert setup_s(tmp_path) == 1795312373.0 - 7300.5
    state.write_text('{"used_s": null}')
    assert setup_s(tmp_path) is None
