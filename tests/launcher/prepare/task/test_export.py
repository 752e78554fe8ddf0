"""Plans as files of other tools: what the tools' parsers read, and what is refused."""

import json
import re
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from answers import make_offer, make_plan

from gpuplan.catalog.errors import UsageError
from gpuplan.catalog.snapshot import load_catalogue
from gpuplan.catalog.vocabulary import EXPORT_TOOLS
from gpuplan.launcher.frameworks.launch import launch
from gpuplan.launcher.prepare.project import Project
from gpuplan.launcher.prepare.task.export import Exported, ExportJob, export
from gpuplan.launcher.prepare.task.node_setup import Environment
from gpuplan.planner.plan.plan import Plan

GOLDEN = Path(__file__).parents[1] / "golden"


def job_of(plan: Plan, command: str = "train.py") -> ExportJob:
    environment = Environment(found=None, torch_version="2.13.0", python_version="3.12")
    project = Project(workdir=Path("/code"), owner="me", environment=environment)
    return ExportJob(plan=plan, command=command, project=project, catalogue=load_catalogue())


def exported(tool: str, layout: str = "fsdp8", **changes: Any) -> Exported:
    return export(job_of(make_plan(layout=layout, **changes)), tool)


@pytest.mark.parametrize("tool", EXPORT_TOOLS)
def test_every_tool_has_a_file_and_says_how_it_is_used(tool: str) -> None:
    found = exported(tool)
    assert found.tool == tool
    assert found.text.endswith("\n")
    assert found.notes[0].startswith(("start it", "run it"))


def test_skypilot_gets_a_whole_task(golden: Callable[[Path, str], None]) -> None:
    found = exported("skypilot", "hsdp2x8", nodes=2)
    golden(GOLDEN / "export-skypilot.yaml", found.text)
    task = yaml.safe_load(found.text)
    assert task["num_nodes"] == 2
    assert task["resources"]["infra"] == "aws/us-east-1"
    assert task["resources"]["instance_type"] == "p4d.24xlarge"
    assert "use_spot" not in task["resources"]
    assert "torchrun --nnodes=2 --nproc-per-node=8" in task["run"]
    assert "gpuplan-job" not in found.text, "nothing of gpuplan is needed on the nodes"


def test_a_spot_plan_is_a_spot_task() -> None:
    found = exported("skypilot", offer=make_offer(purchase="spot"))
    assert yaml.safe_load(found.text)["resources"]["use_spot"] is True


def test_torchrun_gets_a_script_that_a_shell_reads() -> None:
    found = exported("torchrun")
    subprocess.run(["sh", "-n"], input=found.text, text=True, check=True)
    assert found.text.startswith("#!/bin/sh\n# gpuplan ")
    assert "exec torchrun --standalone --nproc-per-node=8 train.py" in found.text
    assert "GPUPLAN_PLAN_GRAD_ACCUM=2" in found.text


@pytest.mark.parametrize(("layout", "nodes"), [("fsdp8", 1), ("hsdp2x8", 2)])
def test_torch_reads_what_a_script_starts(layout: str, nodes: int) -> None:
    """With the parser of torchrun itself."""
    from torch.distributed.run import get_args_parser

    text = export(
        job_of(make_plan(layout=layout, nodes=nodes), "-m pkg.train --lr 3e-4"), "torchrun"
    ).text
    (line,) = (
        one for one in text.replace("\\\n", "").splitlines() if one.startswith("exec torchrun ")
    )
    # As a shell leaves them: the node's own number, the port, the first node's address.
    words = shlex.split(re.sub(r"\$\{?\w+\}?", "1", line))
    read = get_args_parser().parse_args(words[words.index("torchrun") + 1 :])
    assert read.nproc_per_node == "8"
    assert (read.nnodes, read.standalone) == (("2", False) if nodes > 1 else ("1:1", True))
    assert (read.module, read.training_script) == (True, "pkg.train")
    assert read.training_script_args == ["--lr", "3e-4"]


def test_accelerate_gets_the_configuration_of_its_launch() -> None:
    plan = make_plan(layout="fsdp16", nodes=2)
    found = export(job_of(plan, "train.py --lr 3e-4"), "accelerate")
    launched = launch(plan, "train.py", "accelerate")
    # launcher/frameworks' own tests give this very file to accelerate's parser.
    assert yaml.safe_load(found.text) == yaml.safe_load(str(launched.files["accelerate.yaml"]))
    assert found.notes[0] == (
        "start it on each of the 2 nodes with: ACCELERATE_GRADIENT_ACCUMULATION_STEPS=2 accelerate"
        " launch --config_file accelerate.yaml --machine_rank RANK --main_process_ip ADDRESS"
        " --main_process_port 29500 train.py --lr 3e-4"
    )


def test_deepspeed_gets_batches_that_multiply() -> None:
    config = json.loads(exported("deepspeed", "dp8.zero2").text)
    assert config["train_batch_size"] == 64
    assert config["train_micro_batch_size_per_gpu"] * config["gradient_accumulation_steps"] == 8
    assert config["zero_optimization"]["stage"] == 2
    assert config["bf16"] == {"enabled": True}


def test_deepspeed_on_many_nodes_is_started_from_the_first() -> None:
    found = exported("deepspeed", "fsdp16", nodes=2)
    assert "hostfile" in found.notes[0] and "slots=8" in found.notes[0]
    assert not any("deepspeed.initialize" in note for note in found.notes)


@pytest.mark.parametrize(
    ("tool", "layout", "why", "able"),
    [
        ("accelerate", "dp4.tp2", "without sharding", "skypilot, torchrun, deepspeed"),
        ("accelerate", "dp4.pp2", "pipeline", "skypilot, torchrun, deepspeed"),
        ("deepspeed", "hsdp2x4", "shards over", "skypilot, torchrun, accelerate"),
    ],
)
def test_what_a_tool_cannot_say_is_refused_with_the_tools_that_can(
    tool: str, layout: str, why: str, able: str
) -> None:
    with pytest.raises(UsageError, match=why) as caught:
        exported(tool, layout)
    assert f"--to {able}" in str(caught.value)
    assert "--framework" not in str(caught.value)


def test_a_plan_that_needs_a_port_is_refused() -> None:
    with pytest.raises(UsageError, match="only after a port"):
        exported("torchrun", needs_port=True)


def test_an_unknown_tool_is_refused() -> None:
    with pytest.raises(UsageError, match="Did you mean"):
        exported("torchrum")


def test_a_command_that_cannot_be_read_is_said_so() -> None:
    with pytest.raises(UsageError, match="leaves a quote open"):
        export(job_of(make_plan(), "train.py 'x"), "accelerate")
