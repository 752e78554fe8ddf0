"""Two nodes of one process each look at their network before the first step."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from guards import make_orders, told
from runner_jobs import PORTS, REPOSITORY, TIMEOUT_S, environment, make_job, plan_of, run

from gpuplan.launcher.bundle import GUARD, ORDERS_FILE, write_guard, write_orders
from gpuplan.launcher.guard.orders import NetworkOrders, ProjectionOrders
from gpuplan.launcher.runner.processes.network_check import network_used

MODEL = REPOSITORY / "tests" / "support" / "models" / "failing_model.py"
FAR_ABOVE = 1e15
"""Bytes a second that no machine reaches."""
BOTH_NODES = """
export WORLD_SIZE=2 LOCAL_WORLD_SIZE=1 LOCAL_RANK=0 MASTER_ADDR=127.0.0.1
RANK=1 "$0" -m gpuplan_job "$1" &
RANK=0 "$0" -m gpuplan_job "$1"
code=$?
wait
exit $code
"""


@pytest.mark.slow
@pytest.mark.spread
def test_the_verdict_is_network_where_it_is_not_the_planned_one(tmp_path: Path) -> None:
    job = make_job(
        tmp_path,
        MODEL,
        plan=plan_of({"data": 2}),
        steps=100_000,
        network_bytes_per_s=FAR_ABOVE,
        network_check_s=0.1,
        run_id="net-1",
    )
    projection = ProjectionOrders(
        total_steps=100_000, expected_usd=1e-6, low_usd=1e-7, high_usd=1e-5, steps=5, settled=1
    )
    write_guard(job)
    write_orders(
        job,
        make_orders(
            own_runner=True,
            poll_s=0.1,
            stop_file=str(tmp_path / "stop"),
            projection=projection,
            network=NetworkOrders(bytes_per_s=FAR_ABOVE),
        ),
    )
    guard = ["python3", "-E", "-S", str(job / GUARD), str(job / ORDERS_FILE), "--"]
    port = str(PORTS[(os.getpid() * 101 + 7) % len(PORTS)])
    done = subprocess.run(
        [*guard, "sh", "-c", BOTH_NODES, sys.executable, str(job)],
        env={**environment(job), "GPUPLAN_OUT": str(tmp_path), "MASTER_PORT": port},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )

    verdict = told(done.stdout)["verdict"]
    assert (done.returncode, verdict["why"]) == (4, "network"), done.stdout + done.stderr
    assert "an all-reduce reaches" in verdict["text"] and "of 1e+06 GB/s" in verdict["text"]
    measured = json.loads((tmp_path / "network.json").read_text())
    assert 0 < measured["all_reduce_bytes_per_s"] < FAR_ABOVE
    record = json.loads((tmp_path / "record.json").read_text())
    assert record["network"]["planned_bytes_per_s"] == FAR_ABOVE


@pytest.mark.slow
def test_processes_of_one_machine_look_at_no_network(tmp_path: Path) -> None:
    job = make_job(
        tmp_path, MODEL, plan=plan_of({"data": 2}), steps=2, network_bytes_per_s=FAR_ABOVE
    )
    assert run(job, 2).returncode == 0
    assert not (tmp_path / "network.json").exists()


@pytest.mark.parametrize(
    ("log", "used"),
    [
        ("a:1:2 [0] NCCL INFO NET/OFI Selected provider is efa, fabric is efa-direct", "OFI"),
        ("a:1:2 [0] NCCL INFO NET/IB : No device found.\nNCCL INFO Using network Socket", "Socket"),
        ("a:1:2 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB eth0:10.0.0.1<0>", "IB"),
        ("a:1:2 [0] NCCL INFO NET/Plugin: Could not find libnccl-net.so", None),
        ("", None),
    ],
)
def test_what_nccl_sends_over_is_read_from_its_log(log: str, used: str | None) -> None:
    assert network_used(log) == used
