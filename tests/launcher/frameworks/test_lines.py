"""The exact script for every node under every framework, and the exact words on this machine."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from answers import make_plan

from gpuplan.launcher.frameworks import facts, local, torchrun
from gpuplan.launcher.frameworks.launch import launch
from gpuplan.launcher.frameworks.shell import node_script
from gpuplan.launcher.frameworks.types import FRAMEWORKS, Framework
from gpuplan.launcher.frameworks.words import fill
from gpuplan.planner.plan.plan import Plan

GOLDEN = Path(__file__).parent / "golden"
LAYOUTS: dict[Framework, str] = {
    "torchrun": "fsdp{n}",
    "accelerate": "fsdp{n}",
    "deepspeed": "dp{n}.zero2",
    "lightning": "fsdp{n}",
    "horovod": "dp{n}",
    "jax": "fsdp{n}",
    "tensorflow": "dp{n}",
    "none": "dp{n}",
}


def plan_for(framework: Framework, nodes: int) -> Plan:
    accelerators = 8 * nodes
    return make_plan(
        layout=LAYOUTS[framework].format(n=accelerators),
        nodes=nodes,
        global_batch=accelerators * 4 * 2,
    )


@pytest.mark.parametrize("nodes", [1, 2])
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_the_script_of_a_node(
    framework: Framework, nodes: int, golden: Callable[[Path, str], None]
) -> None:
    launched = launch(plan_for(framework, nodes), "train.py --lr 3e-4", framework)
    notes = "".join(f"# note: {note}\n" for note in launched.notes)
    golden(GOLDEN / f"{framework}-{nodes}.sh", node_script(launched) + notes)


@pytest.mark.parametrize(
    ("layout", "precision", "said"),
    [
        ("dp8", "bf16-amp", 'torch.autocast("cuda", torch.bfloat16)'),
        ("dp8.zero1", "bf16-amp", 'torch.autocast("cuda", torch.bfloat16)'),
        ("dp8.zero2", "bf16-amp", "mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16"),
        ("fsdp8", "fp16-amp", "param_dtype=torch.float16"),
        ("hsdp4x2", "bf16-amp", "without autocast"),
        ("fsdp8", "bf16", "model.to(torch.bfloat16)"),
    ],
)
def test_fsdp_casts_itself_and_the_others_by_autocast(
    layout: str, precision: str, said: str
) -> None:
    plan = make_plan(layout=layout, precision=precision, micro_batch=1)
    note = facts.precision_note(plan)
    assert note is not None and said in note
    assert ("autocast(" in note) == ("MixedPrecisionPolicy" not in note and precision != "bf16")
    assert ("GradScaler" in note) == (precision == "fp16-amp")
    assert facts.batch_note(plan).startswith("take micro-batches of 1 sample on each")


def test_one_policy_says_what_fsdp_reduces_in() -> None:
    plan = make_plan(layout="fsdp8", precision="bf16-amp", reduce_dtype="bf16")
    notes = [note for note in torchrun.torch_notes(plan) if "reduce_dtype" in note]
    assert len(notes) == 1 and "reduce_dtype=torch.bfloat16" in notes[0]
    plan = make_plan(layout="fsdp8", precision="fp8", reduce_dtype="bf16")
    assert any("reduce_dtype=torch.bfloat16" in note for note in torchrun.torch_notes(plan))


HERE = {
    "torchrun": "@python -m torch.distributed.run --standalone --nproc-per-node=2 train.py --lr 3",
    "accelerate": "@python -m accelerate.commands.launch --config_file /out/accelerate.yaml"
    " --main_process_port 29500 train.py --lr 3",
    "deepspeed": "@python -m deepspeed.launcher.runner --num_gpus=2 --master_port=29500 train.py"
    " --lr 3",
    "lightning": "@python -m torch.distributed.run --standalone --nproc-per-node=2 train.py --lr 3",
    "horovod": "horovodrun -np 2 -H localhost:2 @python train.py --lr 3",
    "jax": "@python train.py --lr 3",
    "tensorflow": "@python train.py --lr 3",
    "none": "@python train.py --lr 3",
}


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_the_words_on_this_machine(framework: Framework) -> None:
    launched = launch(None, "train.py --lr 3", framework, per_node=2, device="cpu")
    values = local.values_here(launched, Path("/out"), port=29500)
    assert local.argv_here(launched.ways[0], values) == [
        sys.executable if word == "@python" else word for word in HERE[framework].split(" ")
    ]


def test_on_processors_every_framework_keeps_off_accelerators() -> None:
    def variables(framework: str) -> dict[str, str]:
        launched = launch(None, "train.py", framework, per_node=2, device="cpu")
        values = local.values_here(launched, Path("/out"), port=29500)
        return {name: fill(word, values) for name, word in launched.environment.items()}

    for framework in FRAMEWORKS:
        assert variables(framework)["CUDA_VISIBLE_DEVICES"] == ""
    assert variables("accelerate")["ACCELERATE_USE_CPU"] == "true"
    assert variables("deepspeed")["DS_ACCELERATOR"] == "cpu"
    assert variables("jax")["JAX_PLATFORMS"] == "cpu"


@pytest.mark.parametrize(
    ("command", "torchrun", "accelerate", "deepspeed", "none"),
    [
        ("python3 a.py x", "a.py x", "a.py x", "a.py x", "python3 a.py x"),
        ("-m pkg.go x", "--module pkg.go x", "--module pkg.go x", "--module pkg.go x", None),
        ("python -m pkg.go x", "--module pkg.go x", "--module pkg.go x", None, None),
        ("go --x", "--no-python go --x", "--no_python go --x", "--no_python go --x", "go --x"),
        ("python -u a.py", "--no-python python -u a.py", None, None, "python -u a.py"),
    ],
)
def test_scripts_modules_and_programs(
    command: str,
    torchrun: str,
    accelerate: str | None,
    deepspeed: str | None,
    none: str | None,
) -> None:
    expected = {
        "torchrun": torchrun,
        "accelerate": accelerate,
        "deepspeed": deepspeed,
        "none": none,
    }
    for framework, words in expected.items():
        if words is not None:
            line = node_script(launch(None, command, framework)).splitlines()[-1]
            assert line.endswith(f" {words}"), line


def test_a_program_under_deepspeed_takes_no_local_rank() -> None:
    assert "--no_local_rank" in node_script(launch(None, "go", "deepspeed"))
    assert "--no_local_rank" not in node_script(launch(None, "go.py", "deepspeed"))
