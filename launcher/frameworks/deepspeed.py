"""DeepSpeed: its launcher on every node without SSH, and its JSON from the plan.

What is refused and what the JSON may say follows DeepSpeed 0.19: MiCS, its form of HSDP, is gone,
and pipelines go with ZeRO 0 and 1 only.
"""

from __future__ import annotations

import json
from typing import Any

from ...catalog.errors import UsageError
from ...planner.plan.plan import Plan
from . import facts
from .refusals import refuse
from .types import Parts, Program, ScriptJob, Way
from .words import Fact, Word

DEEPSPEED = Program(command=("deepspeed",), module="deepspeed.launcher.runner", package="deepspeed")
CONFIG_FILE = "deepspeed.json"
CONFIG_VARIABLE = "GPUPLAN_DEEPSPEED_CONFIG"
PLACEHOLDER = "{deepspeed_config}"
BUCKET_ELEMENTS = 50_000_000
"""Gradients that are reduced together. DeepSpeed takes memory for so many at once, whatever the
model's size, and by default for ten times as many (zero/config.py): 1 to 2 GB that no plan has."""

MOST_GATHERED = 1_000_000_000
"""Parameters that DeepSpeed's ZeRO-3 has gathered at most by default (zero/config.py): 2 GB in 16
bits."""


def parts(job: ScriptJob) -> Parts:
    """Return the launch of a DeepSpeed script.

    Raises:
        UsageError: DeepSpeed cannot lay the job out so.
    """
    variables: dict[str, Word] = {}
    files: dict[str, Word] = {}
    if job.plan is not None:
        files[CONFIG_FILE] = json.dumps(deepspeed_config(job.plan), indent=2) + "\n"
        variables[CONFIG_VARIABLE] = (Fact.CONFIG, "/" + CONFIG_FILE)
    if job.nodes > 1:
        files["hostfile"] = (Fact.HOSTFILE, "\n")
    if job.device == "cpu":
        variables["DS_ACCELERATOR"] = "cpu"
    way = Way(DEEPSPEED, _words(job))
    return Parts(ways=(way,), environment=variables, files=files, notes=_notes(job))


def _words(job: ScriptJob) -> tuple[Word, ...]:
    """Return the arguments of the launcher; each node starts its own processes."""
    where: tuple[Word, ...] = (f"--num_gpus={job.per_node}", ("--master_port=", Fact.PORT))
    if job.nodes > 1:
        where = (
            ("--hostfile=", Fact.CONFIG, "/hostfile"),
            "--no_ssh",
            ("--node_rank=", Fact.NODE_RANK),
            ("--master_addr=", Fact.MAIN_ADDRESS),
            ("--master_port=", Fact.PORT),
        )
    # A program that is no Python takes no --local_rank; LOCAL_RANK is in its environment.
    quiet: tuple[Word, ...] = ("--no_local_rank",) if job.target.kind == "program" else ()
    words = job.target.words(module="--module", program="--no_python")
    return (*where, *quiet, *(_with_config(word, job.plan) for word in words))


def deepspeed_config(plan: Plan) -> dict[str, Any]:
    """Return DeepSpeed's configuration of the plan; optimizer and schedule stay the script's.

    Raises:
        UsageError: DeepSpeed cannot lay the job out so.
    """
    refuse_layout(plan)
    config: dict[str, Any] = {
        "train_micro_batch_size_per_gpu": plan.micro_batch,
        "gradient_accumulation_steps": plan.grad_accum,
    }
    if not _counts_ranks_otherwise(plan):
        config["train_batch_size"] = plan.global_batch
    config["zero_optimization"] = _zero(plan)
    if plan.layout.zero_stage:
        config["zero_allow_untested_optimizer"] = True
    if "optimizer" in plan.offloaded or "parameters" in plan.offloaded:
        # Else DeepSpeed insists on its own Adam, compiled on the spot.
        config["zero_force_ds_cpu_optimizer"] = False
    config |= _numerics(plan)
    if plan.layout.tensor > 1:
        config["tensor_parallel"] = {"autotp_size": plan.layout.tensor}
    if plan.recompute != "none" or "activations" in plan.offloaded:
        config["activation_checkpointing"] = {
            "partition_activations": False,
            "cpu_checkpointing": "activations" in plan.offloaded,
        }
    return config


def refuse_layout(plan: Plan) -> None:
    """Refuse a layout that no DeepSpeed configuration gives."""
    layout = plan.layout
    refuse(
        "DeepSpeed",
        plan,
        (
            layout.zero_stage > 0 and layout.replicas > 1,
            f"shards over {layout.shard} of {layout.data * layout.context} ranks",
            "shard over all ranks, or take --framework accelerate or torchrun.",
        ),
        (
            layout.pipeline > 1 and layout.zero_stage > 1,
            f"has pipeline stages and ZeRO {layout.zero_stage}",
            "take ZeRO 0 or 1 with a pipeline, or --framework torchrun.",
        ),
        (
            "parameters" in plan.offloaded and layout.zero_stage < 3,
            f"offloads parameters at ZeRO {layout.zero_stage}",
            "offload the optimizer only, or shard the parameters too (fsdp…).",
        ),
        (
            "optimizer" in plan.offloaded and layout.zero_stage < 1,
            "offloads the optimizer without ZeRO",
            "take ZeRO 1, 2 or 3, or --framework torchrun.",
        ),
        (
            plan.precision == "bf16" and layout.zero_stage < 1,
            "keeps everything in bf16 without ZeRO",
            "take ZeRO 1, 2 or 3, or bf16-amp, or --framework torchrun.",
        ),
    )


def _notes(job: ScriptJob) -> tuple[str, ...]:
    """Return what the script does itself under DeepSpeed."""
    plan, target = job.plan, job.target
    passes = facts.present(
        f"{target.name} is given --local_rank, as DeepSpeed does"
        if target.kind != "program"
        else None,
        "have a C++ compiler: on processors DeepSpeed builds an all-reduce at its first start"
        if job.device == "cpu"
        else None,
    )
    if plan is None:
        return passes
    reads = any(PLACEHOLDER in word for word in target.arguments)
    where = (
        f"give deepspeed.initialize the file that {CONFIG_VARIABLE} names, or write"
        f" {PLACEHOLDER} in the command where its path belongs"
    )
    return facts.present(
        *passes,
        None if reads else where,
        facts.micro_batch_words(plan),
        "let DeepSpeed split a model it knows (Hugging Face), or add"
        " tensor_parallel.partition_config for your own"
        if plan.layout.tensor > 1
        else None,
        *facts.parallel_notes(plan, tensor=False),
        facts.frozen_note(plan),
        "run the linear layers in fp8 (Transformer Engine)" if plan.precision == "fp8" else None,
        "make the optimizer DeepSpeedCPUAdam(…, fp32_optimizer_states=False)"
        if plan.precision == "bf16" and plan.offload
        else None,
        facts.tf32_note(plan),
        _checkpoint_note(plan),
        "where memory is short, lower stage3_max_live_parameters and stage3_max_reuse_distance of"
        " deepspeed.json: DeepSpeed keeps up to 1e9 parameters gathered (2 GB in 16 bits), the plan"
        " counts those of two blocks"
        if plan.layout.zero_stage >= 3 and plan.gathered_parameters is None
        else None,
        "compile it: engine.compile()" if plan.compile else None,
        *facts.sync_notes(plan),
    )


def _checkpoint_note(plan: Plan) -> str | None:
    """Return which blocks are recomputed, or kept in host memory, and what DeepSpeed has for it."""
    if plan.recompute == "selective":
        return facts.recompute_note(plan)
    if plan.recompute == "none" and "activations" not in plan.offloaded:
        return None
    blocks = facts.recomputed_blocks(plan)
    return f"wrap {blocks} with deepspeed.checkpointing.checkpoint"


def _counts_ranks_otherwise(plan: Plan) -> bool:
    # With AutoTP it checks the batch against all ranks, and with a pipeline or split sequences it
    # depends on the groups that the script makes: the two sizes that it takes as they are do.
    layout = plan.layout
    return max(layout.tensor, layout.pipeline, layout.context) > 1


def _zero(plan: Plan) -> dict[str, Any]:
    stage = plan.layout.zero_stage
    zero: dict[str, Any] = {"stage": stage}
    if stage:
        zero["reduce_bucket_size"] = BUCKET_ELEMENTS
    if stage in (1, 2) and plan.layout.pipeline == 1:
        # As a plan counts it, and as DeepSpeed does for ZeRO-3 alone unless it is told to.
        zero["overlap_comm"] = True
    if stage == 3 and plan.gathered_parameters is not None:
        # It gathers ahead up to the first, and keeps what it uses again within the second
        # (zero/partitioned_param_coordinator.py).
        most = min(plan.gathered_parameters, MOST_GATHERED)
        zero["stage3_max_live_parameters"] = zero["stage3_max_reuse_distance"] = most
    if "optimizer" in plan.offloaded or "parameters" in plan.offloaded:
        zero["offload_optimizer"] = {"device": "cpu", "pin_memory": True}
    if "parameters" in plan.offloaded:
        zero["offload_param"] = {"device": "cpu", "pin_memory": True}
    return zero


def _numerics(plan: Plan) -> dict[str, Any]:
    if plan.precision in ("bf16-amp", "fp8"):
        return {"bf16": {"enabled": True}}
    if plan.precision == "fp16-amp":
        return {"fp16": {"enabled": True}}
    if plan.precision == "bf16":
        everything = {"bf16_master_weights_and_grads": True, "bf16_optimizer_states": True}
        return {"bf16": {"enabled": True, **everything}}
    return {}


def _with_config(word: Word, plan: Plan | None) -> Word:
    """Put the path of the configuration where the user wrote its placeholder."""
    if not isinstance(word, str) or PLACEHOLDER not in word:
        return word
    if plan is None:
        raise UsageError(
            f"The command asks for {PLACEHOLDER}, and without a plan there is none.",
            fix="name your own file, or run with a plan.",
        )
    parts: list[str | Fact] = []
    for index, piece in enumerate(word.split(PLACEHOLDER)):
        parts += [Fact.CONFIG, "/" + CONFIG_FILE] if index else []
        parts += [piece] if piece else []
    return tuple(parts)
