"""The scripts of two nodes, run by a real shell beside stand-ins that say what they were given."""

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
from answers import make_plan

from gpuplan.launcher.frameworks.launch import launch
from gpuplan.launcher.frameworks.shell import node_script

STAND_IN = """#!/bin/sh
printf '%s\\n' "$(basename "$0")" "$@"
printf 'MASTER_ADDR=%s TF_CONFIG=%s\\n' "${MASTER_ADDR:-}" "${TF_CONFIG:-}"
printf 'JAX=%s/%s' "${JAX_COORDINATOR_ADDRESS:-}" "${JAX_PROCESS_ID:-}"
printf '/%s\\n' "${JAX_NUM_PROCESSES:-}"
"""
ADDRESSES = "10.0.0.1\n10.0.0.2"


@dataclass(frozen=True)
class Node:
    """One node's PATH and folder for files."""

    folder: Path
    programs: tuple[str, ...] = ("torchrun", "accelerate", "deepspeed", "horovodrun", "python3")

    def run(self, framework: str, **variables: str) -> subprocess.CompletedProcess[str]:
        plan = make_plan(layout="dp16", nodes=2, global_batch=128)
        script = node_script(launch(plan, "train.py", framework))
        programs = self.folder / "programs"
        programs.mkdir(exist_ok=True)
        for name in self.programs:
            (programs / name).write_text(STAND_IN)
            (programs / name).chmod(0o755)
        path = f"{programs}:/usr/bin:/bin"
        variables = {"GPUPLAN_CONFIG_DIR": str(self.folder / "config"), **variables}
        return subprocess.run(
            ["sh", "-c", script], env={"PATH": path, **variables}, capture_output=True, text=True
        )

    def told(self, framework: str, rank: int = 1) -> list[str]:
        done = self.run(framework, SKYPILOT_NODE_RANK=str(rank), SKYPILOT_NODE_IPS=ADDRESSES)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()


@pytest.fixture
def node(tmp_path: Path, require) -> Node:
    require("posix", "the script is for sh")
    return Node(tmp_path)


def test_torchrun_is_told_its_rank_and_the_first_node(node: Node) -> None:
    told = node.told("torchrun")
    assert told[:6] == [
        "torchrun",
        "--nnodes=2",
        "--nproc-per-node=8",
        "--node-rank=1",
        "--master-addr=10.0.0.1",
        "--master-port=29500",
    ]


def test_deepspeed_finds_a_hostfile_and_the_config(node: Node) -> None:
    told = node.told("deepspeed")
    config = node.folder / "config"
    assert f"--hostfile={config}/hostfile" in told
    assert (config / "hostfile").read_text() == "10.0.0.1 slots=8\n10.0.0.2 slots=8\n"
    assert json.loads((config / "deepspeed.json").read_text())["train_batch_size"] == 128


def test_accelerate_is_told_its_rank_over_the_file(node: Node) -> None:
    told = node.told("accelerate")
    assert told[told.index("--machine_rank") + 1] == "1"
    assert told[told.index("--main_process_ip") + 1] == "10.0.0.1"
    assert "num_processes: 16" in (node.folder / "config" / "accelerate.yaml").read_text()


def test_only_the_first_node_starts_horovod(node: Node) -> None:
    assert node.told("horovod", rank=1) == []
    assert node.told("horovod", rank=0)[:5] == [
        "horovodrun",
        "-np",
        "16",
        "-H",
        "10.0.0.1:8,10.0.0.2:8",
    ]


def test_mpi_starts_horovod_where_horovodrun_is_missing(tmp_path: Path, require) -> None:
    require("posix", "the script is for sh")
    told = Node(tmp_path, programs=("mpirun",)).told("horovod", rank=0)
    assert told[:5] == ["mpirun", "-np", "16", "-H", "10.0.0.1:8,10.0.0.2:8"]
    assert told[told.index("GPUPLAN_PLAN_MICRO_BATCH") - 1] == "-x"


def test_tensorflow_reads_the_workers_as_json(node: Node) -> None:
    line = next(line for line in node.told("tensorflow") if "TF_CONFIG" in line)
    assert json.loads(line.partition("TF_CONFIG=")[2]) == {
        "cluster": {"worker": ["10.0.0.1:29500", "10.0.0.2:29500"]},
        "task": {"type": "worker", "index": 1},
    }


def test_jax_is_told_the_coordinator(node: Node) -> None:
    assert "JAX=10.0.0.1:29500/1/2" in node.told("jax")


def test_other_clusters_say_who_they_are_in_plain_variables(node: Node) -> None:
    done = node.run("none", NODE_RANK="1", NODE_IPS="10.0.0.7, 10.0.0.8", MASTER_PORT="12")
    assert done.returncode == 0, done.stderr
    assert "MASTER_ADDR=10.0.0.7" in done.stdout


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({}, "NODE_RANK: set it to the rank of this node"),
        ({"NODE_RANK": "0"}, "NODE_IPS: set it to the addresses of all nodes"),
        ({"NODE_RANK": "0", "NODE_IPS": "10.0.0.1"}, "This launch is for 2 nodes"),
    ],
)
def test_a_node_that_does_not_know_itself_stops(
    node: Node, variables: dict[str, str], said: str
) -> None:
    done = node.run("torchrun", **variables)
    assert done.returncode != 0
    assert said in done.stderr
    assert done.stdout == ""


def test_addresses_are_data_too(node: Node) -> None:
    evil = f"10.0.0.1$(touch${{IFS}}{node.folder}/seen)\n10.0.0.2"
    done = node.run("torchrun", SKYPILOT_NODE_RANK="0", SKYPILOT_NODE_IPS=evil)
    assert "--master-addr=10.0.0.1$(touch${IFS}" in done.stdout, done.stderr
    assert not os.path.exists(node.folder / "seen")
