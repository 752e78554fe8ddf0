"""gpuplan's own runner in the guard's care: it ends in good order, and goes on where it was."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from guards import make_orders, told
from runner_jobs import REPOSITORY, TIMEOUT_S, command, environment, make_job, metrics, plan_of

from gpuplan.launcher.bundle import GUARD, ORDERS_FILE, write_guard, write_orders
from gpuplan.launcher.guard.node.processes import descendants, kill, started_with
from gpuplan.launcher.guard.orders import Orders, ProjectionOrders, TimerOrders
from gpuplan.launcher.runner.job import CheckpointPolicy

pytestmark = [pytest.mark.slow, pytest.mark.spread]

GPT2 = REPOSITORY / "examples" / "gpt2.py"
SIZE = {"layers": 2, "hidden": 32, "heads": 4, "vocab": 101, "seq_len": 16}
EVERY = CheckpointPolicy(every_steps=50)
PACED = """

_compute_loss = compute_loss


def compute_loss(model, batch):
    import time

    time.sleep(0.05)
    return _compute_loss(model, batch)
"""
"""Leaves the processors to other tests until the cap is reached."""
NAN = """
import torch

class Net(torch.nn.Linear):
    calls = 0

    def forward(self, x):
        Net.calls += 1
        return super().forward(x) * (float("nan") if Net.calls > 4 else 1.0)

def build_model():
    return Net(4, 1)

def make_batch(batch_size):
    return (torch.randn(batch_size, 4),)

def compute_loss(model, batch):
    return model(*batch).square().mean()
"""


def guarded(out: Path, orders: Orders, model: Path = GPT2, *, processes: int, steps: int):
    """Start a guarded job of the runner."""
    params = SIZE if model.name == GPT2.name else None
    job = make_job(
        out, model, plan=plan_of({"data": processes}), params=params, steps=steps, checkpoint=EVERY
    )
    write_guard(job)
    write_orders(job, orders)
    guard = ["python3", "-E", "-S", str(job / GUARD), str(job / ORDERS_FILE), "--"]
    return subprocess.Popen(
        [*guard, *command(job, processes)],
        env={**environment(job), "GPUPLAN_OUT": str(out)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def runner_orders(out: Path, **changes: object) -> Orders:
    facts = {"own_runner": True, "poll_s": 0.1, "state_every_s": 0.1}
    stop_file = str(out / "stop")
    return make_orders(**{**facts, "stop_file": stop_file, **changes})


def newest_checkpoint(out: Path) -> dict:
    newest = sorted((out / "checkpoints").glob("step-*/run.json"))[-1]
    return json.loads(newest.read_text())


def test_two_processes_stop_at_the_cap_with_a_whole_checkpoint(tmp_path: Path, require) -> None:
    require("linux", "nodes are")
    model = tmp_path / "gpt2.py"
    model.write_text(GPT2.read_text() + PACED)
    # On a machine with much other work a cap may be reached before the first step.
    for cap_usd in (14.0, 40.0, 150.0):
        out_dir = tmp_path / f"{cap_usd:.0f}"
        out_dir.mkdir()
        orders = runner_orders(out_dir, requested_at_s=time.time(), max_cost_usd=cap_usd)
        process = guarded(out_dir, orders, model, processes=2, steps=1_000_000)
        out, err = process.communicate(timeout=TIMEOUT_S)
        last = told(out)
        if last["step"]:
            break
    tmp_path = out_dir

    assert process.returncode == 4, err
    assert last["verdict"]["why"] == "max-cost"
    assert last["command_code"] == 0, "torchrun was not told, so that it gave them time"
    done = metrics(tmp_path)[-1]["step"]
    assert newest_checkpoint(tmp_path)["step"] == last["step"] == done
    record = json.loads((tmp_path / "record.json").read_text())
    assert (record["stopped"], record["steps"]) == (True, done)
    assert not (tmp_path / "failure.json").exists()


def test_a_machine_that_ends_itself_first_asks_the_run_for_a_checkpoint(
    tmp_path: Path, require
) -> None:
    require("linux", "nodes are")
    off, steps = tmp_path / "off", 1_000_000
    stubs = tmp_path / "bin"
    stubs.mkdir()
    (stubs / "crontab").write_text("#!/bin/sh\nexec cat\n")
    (stubs / "off").write_text(f"#!/bin/sh\ntouch {off}\n")
    for one in stubs.iterdir():
        one.chmod(0o755)
    # Its limits are used up as soon as the timer begins, and the guard has none.
    timer = TimerOrders(
        setup_s=9e3,
        unowned_s=9e3,
        margin_s=0.0,
        default_end_s=0.0,
        poll_s=0.1,
        power_off=(str(stubs / "off"),),
        power_off_on=("aws",),
    )
    projection = ProjectionOrders(total_steps=steps, action="stop")
    orders = runner_orders(
        tmp_path, requested_at_s=time.time(), timer=timer, projection=projection, grace_s=60.0
    )
    process = guarded(tmp_path, orders, processes=1, steps=steps)
    _wait_for_steps(tmp_path, 5, process)
    (path,) = tmp_path.rglob(ORDERS_FILE)
    words = ["python3", "-E", "-S", str(path.with_name(GUARD)), "timer", str(path), str(1 << 30)]
    place = json.dumps({"cloud": "AWS", "region": "us-east-1", "zone": None})
    known = {"PATH": f"{stubs}:{os.environ['PATH']}", "HOME": str(tmp_path)}
    subprocess.run(words, env={**known, "SKYPILOT_CLUSTER_INFO": place}, check=True)
    out, err = process.communicate(timeout=TIMEOUT_S)
    last = told(out)
    until_s = time.monotonic() + TIMEOUT_S
    while not off.exists() and time.monotonic() < until_s:
        time.sleep(0.05)
    for pid in started_with("timer", str(path)):
        kill(pid, signal.SIGKILL)

    assert off.exists(), "it was not powered off"
    assert last["verdict"]["why"] == "signal", err
    whole = tmp_path / "checkpoints" / f"step-{last['step']:08d}" / "run.json"
    assert newest_checkpoint(tmp_path)["step"] == last["step"] == metrics(tmp_path)[-1]["step"]
    assert whole.stat().st_mtime <= off.stat().st_mtime, "it ended before its checkpoint was whole"


def test_a_run_that_another_node_stops_is_to_go_on(tmp_path: Path, require) -> None:
    require("linux", "nodes are")
    process = guarded(tmp_path, runner_orders(tmp_path), processes=1, steps=1_000_000)
    _wait_for_steps(tmp_path, 5, process)
    # The process that trains alone, as if one of another node had been told to stop.
    os.kill(max(descendants(process.pid)), signal.SIGTERM)
    out, err = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 143, err
    assert (told(out)["verdict"]["why"], told(out)["command_code"]) == ("signal", 0)
    assert newest_checkpoint(tmp_path)["step"] == metrics(tmp_path)[-1]["step"]


def test_a_signal_that_reaches_every_process_leaves_a_whole_checkpoint(
    tmp_path: Path, require
) -> None:
    require("linux", "nodes are")
    process = guarded(tmp_path, runner_orders(tmp_path), processes=1, steps=1_000_000)
    _wait_for_steps(tmp_path, 5, process)
    for pid in descendants(process.pid):
        os.kill(pid, signal.SIGTERM)  # As a machine that shuts down does.
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 143, err
    assert told(out)["command_code"] == 0
    assert newest_checkpoint(tmp_path)["step"] == metrics(tmp_path)[-1]["step"]


def test_a_smoke_run_projects_the_whole_from_a_few_steps(tmp_path: Path, require) -> None:
    require("linux", "nodes are")
    projection = ProjectionOrders(total_steps=1000, low_usd=0.0, high_usd=1e6)
    orders = runner_orders(tmp_path, requested_at_s=time.time(), projection=projection, smoke=True)
    process = guarded(tmp_path, orders, processes=1, steps=33)
    out, err = process.communicate(timeout=TIMEOUT_S)
    last = told(out)
    assert process.returncode == 0, err
    assert last["verdict"]["why"] == "smoke"
    steps_s = last["projection"]["steps_left"] * last["projection"]["step_time_s"]
    assert last["projection"]["steps_left"] == 1000 - last["projection"]["step"] >= 967
    assert last["projection"]["total_usd"] == pytest.approx(last["spent_usd"] + steps_s, abs=5)


def test_a_loss_that_is_no_number_is_told(tmp_path: Path, require) -> None:
    require("linux", "nodes are")
    model = tmp_path / "nan.py"
    model.write_text(NAN)
    for attempt in (1, 2):
        process = guarded(tmp_path, runner_orders(tmp_path), model, processes=1, steps=50)
        out, err = process.communicate(timeout=TIMEOUT_S)
        last = told(out)
        assert process.returncode == 1, err
        assert "loss of step" in err, "each attempt says why it failed"
        assert (last["verdict"]["why"], last["verdict"]["exit_code"]) == ("loss", 1)
        assert last["attempt"] == attempt


def _wait_for_steps(out: Path, count: int, process: subprocess.Popen[str]) -> None:
    until_s = time.monotonic() + TIMEOUT_S
    while not (out / "metrics.jsonl").exists() or len(metrics(out)) < count:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until_s
        time.sleep(0.05)
