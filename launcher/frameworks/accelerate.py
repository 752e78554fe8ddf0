"""accelerate: its YAML from the plan; FSDP2 for what is sharded, DeepSpeed for ZeRO 1.

`accelerate launch` starts processes as torchrun does. What its files may say follows version 1.15.
"""

from __future__ import annotations

import json
from typing import Any

import yaml

from ...planner.plan.plan import Plan
from . import deepspeed, facts
from .refusals import refuse
from .types import Parts, Program, ScriptJob, Way
from .words import Fact, Word

ACCELERATE = Program(
    command=("accelerate", "launch"), module="accelerate.commands.launch", package="accelerate"
)
CONFIG_FILE = "accelerate.yaml"
MIXED_PRECISION = {
    "fp32": "no",
    "tf32": "no",
    "fp16-amp": "fp16",
    "bf16-amp": "bf16",
    "bf16": "no",
    "fp8": "fp8",
}


def parts(job: ScriptJob) -> Parts:
    """Return the launch of a script that uses accelerate.

    Raises:
        UsageError: accelerate cannot lay the job out so.
    """
    words: tuple[Word, ...] = ("--config_file", (Fact.CONFIG, "/" + CONFIG_FILE))
    if job.nodes > 1:
        words += ("--machine_rank", Fact.NODE_RANK, "--main_process_ip", Fact.MAIN_ADDRESS)
    words += ("--main_process_port", Fact.PORT, *precision_words(job))
    words += job.target.words(module="--module", program="--no_python")
    text = yaml.safe_dump(accelerate_config(job), sort_keys=False, width=10_000)
    return Parts(
        ways=(Way(ACCELERATE, words),),
        environment=_variables(job),
        files={CONFIG_FILE: text},
        notes=_notes(job),
    )


def precision_words(job: ScriptJob) -> tuple[str, ...]:
    """Return the option that names fp8 beside DeepSpeed, whose own file has no word for it."""
    plan = job.plan
    if plan is None or job.device == "cpu" or plan.precision != "fp8" or not _by_deepspeed(plan):
        return ()
    return "--mixed_precision", MIXED_PRECISION[plan.precision]


def _variables(job: ScriptJob) -> dict[str, Word]:
    """Return the variables that accelerate reads beside its file."""
    variables: dict[str, Word] = {}
    if job.plan is not None and job.plan.grad_accum > 1:
        variables["ACCELERATE_GRADIENT_ACCUMULATION_STEPS"] = str(job.plan.grad_accum)
    if job.device == "cpu":
        # Its own MULTI_CPU starts one process and leaves the rest to mpirun; with MULTI_GPU it
        # starts them all, and this keeps them off the accelerators.
        variables["ACCELERATE_USE_CPU"] = "true"
    return variables


def accelerate_config(job: ScriptJob) -> dict[str, Any]:
    """Return accelerate's configuration; addresses and the rank of a node come as options.

    Raises:
        UsageError: accelerate cannot lay the job out so.
    """
    plan, device = job.plan, job.device
    if plan is not None:
        refuse_layout(plan)
    plain = "MULTI_GPU" if job.processes > 1 else "NO"
    config: dict[str, Any] = {
        "compute_environment": "LOCAL_MACHINE",
        "distributed_type": plain if plan is None or device == "cpu" else _kind(plan, plain),
        "num_machines": job.nodes,
        "machine_rank": 0,
        "num_processes": job.processes,
        "mixed_precision": MIXED_PRECISION[plan.precision] if plan else "no",
        "use_cpu": device == "cpu",
        "same_network": True,
        "rdzv_backend": "static",
        "main_training_function": "main",
    }
    if plan is None:
        return config
    if config["distributed_type"] == "FSDP":
        config["fsdp_config"] = _fsdp(plan)
        config |= _parallelism(plan)
    if config["distributed_type"] == "DEEPSPEED":
        config["deepspeed_config"] = _deepspeed(plan)
        del config["mixed_precision"]  # Refused beside DeepSpeed's own file, which says it.
    if plan.precision == "fp8":
        config["fp8_config"] = {"backend": "AO"}
    if plan.compile:
        config["dynamo_config"] = {"dynamo_backend": "INDUCTOR"}
    return config


def refuse_layout(plan: Plan) -> None:
    """Refuse a plan that no configuration of accelerate gives.

    Raises:
        UsageError: accelerate cannot lay the job out so.
    """
    layout = plan.layout
    split = layout.tensor > 1 or layout.context > 1
    sharded = layout.zero_stage > 1
    refuse(
        "accelerate",
        plan,
        (
            layout.pipeline > 1,
            "has pipeline stages",
            "take --framework deepspeed or torchrun, or a layout of fsdp, tp and cp.",
        ),
        (
            layout.expert > 1,
            "spreads experts",
            "take --framework deepspeed or torchrun, or a layout of fsdp, tp and cp.",
        ),
        (
            split and not sharded,
            "splits tensors or sequences without sharding parameters",
            "take fsdp or hsdp with it, or --framework torchrun.",
        ),
        (
            layout.zero_stage == 1 and layout.replicas > 1,
            f"shards over {layout.shard} of {layout.data} ranks at ZeRO 1",
            "shard over all ranks, or take --framework torchrun.",
        ),
        (
            sharded and layout.data % layout.replicas > 0,
            f"has {layout.replicas} copies of {layout.data} data-parallel ranks",
            "take a number of copies that divides the ranks.",
        ),
        (
            layout.zero_stage == 0 and bool({"optimizer", "parameters"} & set(plan.offloaded)),
            "offloads without sharding",
            "take ZeRO 1, 2 or 3, or --framework torchrun.",
        ),
        (
            _by_deepspeed(plan) and (split or layout.replicas > 1 or plan.precision == "bf16"),
            "needs DeepSpeed for the optimizer, which does not go with the rest of it",
            "take --framework deepspeed or torchrun.",
        ),
    )


def _notes(job: ScriptJob) -> tuple[str, ...]:
    """Return what the script does itself under accelerate."""
    plan, device = job.plan, job.device
    if plan is None:
        return ()
    layout = plan.layout
    sharded = layout.zero_stage > 0
    kind = _kind(plan, "") if device == "gpu" else ""
    fsdp = kind == "FSDP"
    full = fsdp and _recomputes_all(plan)
    left = tuple(kind for kind in plan.offloaded if kind == "activations" and not full)
    return facts.present(
        "on processors accelerate trains with plain DDP: its FSDP and DeepSpeed need accelerators"
        if device == "cpu" and sharded
        else None,
        "install deepspeed: accelerate uses it for this layout" if kind == "DEEPSPEED" else None,
        facts.micro_batch_words(plan)
        + (", inside `with accelerator.accumulate(model)`" if plan.grad_accum > 1 else ""),
        f"accumulate by GradientAccumulationPlugin(num_steps={plan.grad_accum},"
        " sync_each_batch=True): without it every rank keeps whole gradients between micro-batches"
        if fsdp and plan.grad_accum > 1
        else None,
        *(facts.accumulation_notes(plan, syncs=True) if fsdp or not sharded else ()),
        facts.tf32_note(plan),
        "name the class of your blocks in fsdp_config.fsdp_transformer_layer_cls_to_wrap, unless"
        " the model is of Hugging Face"
        if fsdp
        else None,
        f"load the model split over {layout.tensor} ranks (tp_plan of transformers)"
        if layout.tensor > 1
        else None,
        "put each batch under accelerator.maybe_context_parallel(…)"
        if layout.context > 1
        else None,
        "cast the model: model.to(torch.bfloat16)" if plan.precision == "bf16" else None,
        "install torchao: accelerate's fp8 uses it" if plan.precision == "fp8" else None,
        facts.frozen_note(plan),
        None if full else facts.recompute_note(plan),
        *facts.offload_notes(plan.model_copy(update={"offloaded": left})),
        *facts.sync_notes(plan),
    )


def _recomputes_all(plan: Plan) -> bool:
    """Return whether every block is recomputed, which accelerate's FSDP does itself."""
    return plan.recompute == "full" and plan.recompute_layers is None


def _by_deepspeed(plan: Plan) -> bool:
    only_optimizer = "optimizer" in plan.offloaded and "parameters" not in plan.offloaded
    return plan.layout.zero_stage == 1 or (plan.layout.zero_stage > 1 and only_optimizer)


def _kind(plan: Plan, plain: str) -> str:
    if _by_deepspeed(plan):
        return "DEEPSPEED"
    return "FSDP" if plan.layout.zero_stage > 1 else plain


def _fsdp(plan: Plan) -> dict[str, Any]:
    checkpoint = _recomputes_all(plan)
    config: dict[str, Any] = {
        "fsdp_version": 2,
        # Kept until the backward pass it is ZeRO 2, gathered again it is ZeRO 3.
        "fsdp_reshard_after_forward": plan.layout.zero_stage == 3,
        "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
        "fsdp_state_dict_type": "SHARDED_STATE_DICT",
        "fsdp_offload_params": "parameters" in plan.offloaded,
        "fsdp_activation_checkpointing": checkpoint,
    }
    if checkpoint and "activations" in plan.offloaded:
        config["fsdp_activation_checkpointing_offload"] = True
    return config


def _parallelism(plan: Plan) -> dict[str, Any]:
    layout = plan.layout
    if layout.replicas == layout.tensor == layout.context == 1:
        return {}
    # It shards over dp_shard x cp, as `shard` counts the context ranks too.
    sizes = {
        "dp_replicate_size": layout.replicas,
        "dp_shard_size": layout.data // layout.replicas,
        "tp_size": layout.tensor,
        "cp_size": layout.context,
    }
    return {"parallelism_config": {f"parallelism_config_{key}": n for key, n in sizes.items()}}


def _deepspeed(plan: Plan) -> dict[str, Any]:
    """Return what names DeepSpeed's own configuration: its text, which accelerate takes for a file.

    The fields that accelerate has for DeepSpeed leave its buckets, and what it keeps gathered, as
    they are, which is more than a plan counts.
    """
    return {
        "deepspeed_multinode_launcher": "standard",
        "deepspeed_config_file": json.dumps(deepspeed.deepspeed_config(plan)),
        "zero3_init_flag": False,
    }
