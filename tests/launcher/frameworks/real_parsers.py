"""DeepSpeed and accelerate read the configs that plans become, with their own parsers.

`make test-frameworks` runs this, in an environment that has them; `make test` does not collect it.
"""
# pyright: reportMissingImports=false

import json
import os
from pathlib import Path
from typing import Any

import pytest
from answers import make_plan

from gpuplan.launcher.frameworks.accelerate import MIXED_PRECISION
from gpuplan.launcher.frameworks.launch import launch
from gpuplan.launcher.frameworks.words import Fact, fill
from gpuplan.planner.plan.plan import Plan

os.environ["DS_ACCELERATOR"] = "cpu"


def read_by_deepspeed(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the JSON of a plan as DeepSpeed reads it in a job of so many ranks."""
    import deepspeed.comm
    from deepspeed.runtime.config import DeepSpeedConfig

    monkeypatch.setattr(deepspeed.comm, "get_rank", lambda: 0)
    monkeypatch.setattr(deepspeed.comm, "get_world_size", lambda: plan.accelerators)
    text = launch(plan, "train.py", "deepspeed").files["deepspeed.json"]
    assert isinstance(text, str)
    return DeepSpeedConfig(json.loads(text))


def plan_of(layout: str, **changes: Any) -> Plan:
    nodes = 2 if make_plan(layout=layout).accelerators == 16 else 1
    plan = make_plan(layout=layout, nodes=nodes, **changes)
    return plan.model_copy(
        update={"global_batch": plan.layout.data * plan.micro_batch * plan.grad_accum}
    )


@pytest.mark.parametrize("precision", ["fp32", "tf32", "fp16-amp", "bf16-amp", "bf16", "fp8"])
@pytest.mark.parametrize("layout", ["dp8", "dp16.zero1", "dp8.zero2", "fsdp16", "dp4.tp2.zero2"])
def test_deepspeed_reads_what_a_plan_becomes(
    layout: str, precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if (layout, precision) == ("dp8", "bf16"):
        return  # Refused: see test_configs.
    plan = plan_of(layout, precision=precision, recompute="full")
    read = read_by_deepspeed(plan, monkeypatch)
    assert read.zero_optimization_stage == plan.layout.zero_stage
    # With AutoTP it counts every rank as one of data: see launcher/frameworks/deepspeed.py.
    assert read.train_batch_size == plan.global_batch * plan.layout.tensor
    assert read.train_micro_batch_size_per_gpu == plan.micro_batch
    assert read.gradient_accumulation_steps == plan.grad_accum
    assert read.bfloat16_config.enabled == (precision in ("bf16-amp", "bf16", "fp8"))
    assert read.float16_config.enabled == (precision == "fp16-amp")
    assert read.tensor_parallel_config.autotp_size == (2 if plan.layout.tensor > 1 else 0)


@pytest.mark.parametrize(
    ("layout", "offloaded"),
    [("dp8.zero1", ("optimizer",)), ("fsdp8", ("optimizer",)), ("fsdp8", ("parameters",))],
)
def test_deepspeed_reads_what_is_offloaded(
    layout: str, offloaded: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_of(layout, offload=True, offloaded=(*offloaded, "activations"))
    read = read_by_deepspeed(plan, monkeypatch)
    assert read.zero_config.offload_optimizer.device == "cpu"
    assert (read.zero_config.offload_param is not None) == ("parameters" in offloaded)
    assert read.zero_force_ds_cpu_optimizer is False
    assert read.activation_checkpointing_config.cpu_checkpointing is True


LAYOUTS = ["dp8", "dp8.zero1", "dp8.zero2", "fsdp8", "fsdp16", "hsdp2x8", "fsdp4.tp2", "fsdp4.cp2"]


@pytest.mark.parametrize("precision", ["fp32", "fp16-amp", "bf16-amp", "fp8"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_accelerate_reads_what_a_plan_becomes(layout: str, precision: str, tmp_path: Path) -> None:
    from accelerate.utils import DistributedType

    plan = plan_of(layout, precision=precision, compile=True)
    arguments, defaults = read_by_accelerate(plan, tmp_path)
    kinds = {0: "MULTI_GPU", 1: "DEEPSPEED", 2: "FSDP", 3: "FSDP"}
    assert defaults.distributed_type == DistributedType(kinds[plan.layout.zero_stage])
    assert arguments.num_processes == plan.accelerators
    assert arguments.num_machines == plan.nodes
    expected = {"fp32": "no", "fp16-amp": "fp16", "bf16-amp": "bf16", "fp8": "fp8"}
    # DeepSpeed's own settings say the others.
    own = kinds[plan.layout.zero_stage] == "DEEPSPEED" and precision != "fp8"
    assert arguments.mixed_precision == ("no" if own else expected[precision])
    assert arguments.dynamo_backend == "INDUCTOR"
    assert arguments.main_process_port == 29500
    if plan.nodes > 1:
        assert (arguments.machine_rank, arguments.main_process_ip) == (1, "10.0.0.1")


@pytest.mark.parametrize("precision", ["fp32", "fp16-amp", "bf16-amp", "fp8"])
@pytest.mark.parametrize("layout", ["dp8.zero1", "fsdp8"])
def test_accelerate_takes_deepspeed_s_settings_from_its_own_file(
    layout: str, precision: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from accelerate.utils import DeepSpeedPlugin
    from accelerate.utils.launch import prepare_deepspeed_cmd_env

    plan = plan_of(
        layout,
        precision=precision,
        offload=layout == "fsdp8",
        offloaded=("optimizer",) if layout == "fsdp8" else (),
        gathered_parameters=486_000_000 if layout == "fsdp8" else None,
    )
    arguments, defaults = read_by_accelerate(plan, tmp_path)
    assert arguments.use_deepspeed
    # As `accelerate launch` does it.
    arguments.deepspeed_fields_from_accelerate_config = ",".join(defaults.deepspeed_config)
    arguments.mixed_precision = "no" if precision == "fp8" else arguments.mixed_precision
    _, environment = prepare_deepspeed_cmd_env(arguments)
    for name, value in environment.items():
        if name.startswith("ACCELERATE_"):
            monkeypatch.setenv(name, value)
    plugin = DeepSpeedPlugin()
    plugin.set_mixed_precision(MIXED_PRECISION[precision])
    read = plugin.deepspeed_config
    zero = read["zero_optimization"]
    assert (zero["stage"], zero["reduce_bucket_size"]) == (plan.layout.zero_stage, 50_000_000)
    assert read["train_micro_batch_size_per_gpu"] == plan.micro_batch
    assert read["gradient_accumulation_steps"] == plan.grad_accum
    assert read["bf16"]["enabled"] == (precision in ("bf16-amp", "fp8"))
    assert read["fp16"]["enabled"] == (precision == "fp16-amp")
    if layout == "fsdp8":
        assert zero["stage3_max_live_parameters"] == 486_000_000
        assert plugin.offload_optimizer_device == "cpu"


@pytest.mark.parametrize(
    ("layout", "sizes"),
    [
        ("fsdp8", None),
        ("hsdp2x8", (2, 8, 1, 1)),
        ("fsdp4.tp2", (1, 4, 2, 1)),
        ("fsdp4.cp2", (1, 4, 1, 2)),
    ],
)
def test_accelerate_shards_as_the_plan_says(
    layout: str, sizes: tuple[int, ...] | None, tmp_path: Path, monkeypatch
) -> None:
    from accelerate import FullyShardedDataParallelPlugin
    from accelerate.parallelism_config import ParallelismConfig
    from accelerate.utils.launch import prepare_multi_gpu_env

    plan = plan_of(layout, recompute="full", offload=True, offloaded=("parameters",))
    arguments, _ = read_by_accelerate(plan, tmp_path)
    arguments.main_process_port = 0
    for name, value in prepare_multi_gpu_env(arguments).items():
        monkeypatch.setenv(name, value)
    plugin = FullyShardedDataParallelPlugin()
    assert plugin.fsdp_version == 2
    assert plugin.reshard_after_forward is True
    assert plugin.activation_checkpointing is True
    assert plugin.cpu_offload
    assert (os.environ.get("ACCELERATE_USE_PARALLELISM_CONFIG") == "true") == (sizes is not None)
    if sizes is not None and plan.layout.tensor > 1:
        # Its ParallelismConfig looks for transformers as soon as tensors are split.
        assert os.environ["PARALLELISM_CONFIG_TP_SIZE"] == "2"
    elif sizes is not None:
        read = ParallelismConfig()
        assert (read.dp_replicate_size, read.dp_shard_size, read.tp_size, read.cp_size) == sizes


def read_by_accelerate(plan: Plan, folder: Path) -> tuple[Any, Any]:
    """Return the options that `accelerate launch` ends up with, and the file as it read it."""
    from accelerate.commands.launch import _validate_launch_command, launch_command_parser

    launched = launch(plan, "train.py --flag", "accelerate")
    (folder / "accelerate.yaml").write_text(str(launched.files["accelerate.yaml"]))
    values = {
        Fact.CONFIG: str(folder),
        Fact.PORT: "29500",
        Fact.NODE_RANK: "1",
        Fact.MAIN_ADDRESS: "10.0.0.1",
    }
    words = [fill(word, values) for word in launched.ways[0].arguments]
    arguments, defaults, _ = _validate_launch_command(launch_command_parser().parse_args(words))
    assert arguments.training_script == "train.py"
    assert arguments.training_script_args == ["--flag"]
    return arguments, defaults


@pytest.mark.parametrize(
    ("layout", "changes"),
    [
        ("dp8", {}),
        ("dp8.zero1", {"precision": "fp16-amp"}),
        ("dp8.zero2", {"offloaded": ("optimizer",), "precision": "bf16"}),
        ("fsdp8", {"precision": "fp32"}),
        ("fsdp8", {"offloaded": ("parameters",)}),
        ("fsdp8", {"offloaded": ("optimizer",)}),
        ("hsdp2x8", {}),
        ("fsdp4.tp2", {}),
    ],
)
def test_lightning_has_the_strategy_and_precision_of_the_note(
    layout: str, changes: dict[str, Any]
) -> None:
    from typing import get_args

    from lightning.fabric.plugins.precision.precision import _PRECISION_INPUT_STR
    from lightning.pytorch.strategies import (
        FSDPStrategy,
        ModelParallelStrategy,
        StrategyRegistry,
    )

    note = launch(plan_of(layout, **changes), "train.py", "lightning").notes[0]
    names = {"FSDPStrategy": FSDPStrategy, "ModelParallelStrategy": ModelParallelStrategy}
    made = eval(note.removeprefix("make the "), {**names, "Trainer": dict})  # noqa: S307
    assert made["precision"] in get_args(_PRECISION_INPUT_STR)
    strategy = made["strategy"]
    assert strategy == "ddp" or not isinstance(strategy, str) or strategy in StrategyRegistry
