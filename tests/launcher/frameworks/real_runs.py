"""torchrun, accelerate, Lightning and DeepSpeed really train, on two processes with gloo.

`make test-frameworks` runs this, in an environment that has them; `make test` does not collect it.
"""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from answers import make_plan

from gpuplan.launcher.frameworks import local
from gpuplan.launcher.frameworks.launch import launch
from gpuplan.launcher.frameworks.shell import node_script
from gpuplan.planner.plan.plan import Plan

SCRIPTS = Path(__file__).parent / "scripts"
NAME = 'it\'s a "name"; $(touch seen) *'
STEPS = 60


def planned(layout: str, *, nodes: int = 1, **changes: Any) -> Plan:
    plan = make_plan(layout=layout, nodes=nodes, **changes)
    return plan.model_copy(
        update={"global_batch": plan.layout.data * plan.micro_batch * plan.grad_accum}
    )


def command(framework: str, folder: Path, *more: str) -> str:
    script = SCRIPTS / f"train_{framework}.py"
    return shlex.join([str(script), str(folder / "told here"), "--name", NAME, *more])


def here(framework: str, plan: Plan, folder: Path, *more: str) -> int:
    launched = launch(plan, command(framework, folder, *more), framework, device="cpu")
    return local.run(launched, folder=folder / "some config", cwd=folder)


def on_two_nodes(framework: str, plan: Plan, folder: Path, ips: str, *more: str) -> list[int]:
    """Run the scripts of two nodes side by side on this machine, one process on each."""
    launched = launch(plan, command(framework, folder, *more), framework, device="cpu")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    port = local.free_port()
    nodes = [
        subprocess.Popen(
            ["sh", "-c", node_script(launched)],
            cwd=folder,
            env={
                **os.environ,
                "PATH": path,
                "SKYPILOT_NODE_RANK": str(rank),
                "SKYPILOT_NODE_IPS": ips,
                "MASTER_PORT": str(port),
            },
        )
        for rank in range(2)
    ]
    try:
        return [node.wait(timeout=120) for node in nodes]
    finally:
        for node in nodes:
            node.kill()


def told(folder: Path) -> list[dict[str, Any]]:
    """Return what the two ranks told, which must be ranks of one training that learned."""
    told = [json.loads(file.read_text()) for file in sorted((folder / "told here").iterdir())]
    assert [one["rank"] for one in told] == [0, 1]
    assert not (folder / "seen").exists()
    for one in told:
        assert one["world"] == 2
        assert one["arguments"][:2] == ["--name", NAME]
        assert one["last"] < 0.6 * one["first"], "it learned"
    assert told[0]["first"] != told[1]["first"], "each rank has samples of its own"
    assert told[0]["checksum"] == pytest.approx(told[1]["checksum"]), "the ranks agree"
    return told


def test_torchrun(tmp_path: Path) -> None:
    assert here("torchrun", planned("dp2", micro_batch=6), tmp_path) == 0
    assert [one["size"] for one in told(tmp_path)] == [6, 6]


def test_accelerate(tmp_path: Path) -> None:
    assert here("accelerate", planned("dp2", grad_accum=2), tmp_path) == 0
    for one in told(tmp_path):
        assert one["processes"] == 2
        assert one["kind"] == "DistributedDataParallel"
        assert one["precision"] == "bf16"
        assert one["steps"] == STEPS // 2


def test_lightning(tmp_path: Path) -> None:
    assert here("lightning", planned("dp2", grad_accum=2), tmp_path) == 0
    for one in told(tmp_path):
        # 120 samples are shared out to two ranks.
        assert (one["processes"], one["steps"]) == (2, 60 // 2)


def test_lightning_refuses_a_trainer_for_other_ranks(tmp_path: Path) -> None:
    assert here("lightning", planned("dp2"), tmp_path, "--wrong-devices") != 0
    assert not (tmp_path / "told here").exists()


@pytest.mark.parametrize(
    ("layout", "stage", "precision", "dtype"),
    [
        ("dp2", 0, "fp32", "float32"),
        ("dp2.zero1", 1, "bf16", "bfloat16"),
        ("dp2.zero2", 2, "bf16-amp", "bfloat16"),
    ],
)
def test_deepspeed(tmp_path: Path, layout: str, stage: int, precision: str, dtype: str) -> None:
    plan = planned(layout, precision=precision, micro_batch=8, grad_accum=2)
    assert here("deepspeed", plan, tmp_path, "--deepspeed_config", "{deepspeed_config}") == 0
    for one in told(tmp_path):
        assert one["stage"] == stage
        assert one["dtype"] == f"torch.{dtype}"
        assert (one["batch"], one["steps"]) == (2 * 8 * 2, STEPS // 2)


@pytest.mark.parametrize("framework", ["torchrun", "accelerate", "lightning"])
def test_two_nodes(tmp_path: Path, framework: str) -> None:
    plan = planned("dp2", nodes=2)
    assert on_two_nodes(framework, plan, tmp_path, "127.0.0.1\n127.0.0.1") == [0, 0]
    told(tmp_path)


def test_two_nodes_of_deepspeed(tmp_path: Path) -> None:
    plan = planned("dp2.zero2", nodes=2)
    more = ("--deepspeed_config", "{deepspeed_config}")
    # Its hostfile takes no address twice.
    assert on_two_nodes("deepspeed", plan, tmp_path, "127.0.0.1\nlocalhost", *more) == [0, 0]
    assert {one["stage"] for one in told(tmp_path)} == {2}
