"""A derived recompute equals a trace of the same model under torch.utils.checkpoint."""

import dataclasses
import functools
from collections import Counter
from itertools import product
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

from gpuplan.catalog.units import MIB
from gpuplan.profiles.analysis.replay import replay
from gpuplan.profiles.passes.recompute import recomputed
from gpuplan.profiles.profile import Profile, StepTrace
from gpuplan.profiles.trace.trace import trace_workload
from gpuplan.profiles.user_model.structure.blocks import find_blocks
from gpuplan.profiles.user_model.workload import Workload

pytestmark = pytest.mark.slow

ATEN = torch.ops.aten
KEPT_OPERATIONS = {
    ATEN.mm.default,
    ATEN.addmm.default,
    ATEN.bmm.default,
    ATEN.baddbmm.default,
    ATEN.convolution.default,
    ATEN._scaled_dot_product_flash_attention.default,
    ATEN._scaled_dot_product_efficient_attention.default,
}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "gpt2": ("gpt2", {"layers": 4, "seq_len": 256, "vocab": 1000}),
    "llama": (
        "decoder",
        {"layers": 4, "hidden": 512, "heads": 8, "kv_heads": 8, "ffn": 1024, "vocab": 1000,
         "seq_len": 512},
    ),
    "bert": ("bert", {"layers": 4}),
    "resnet50": ("resnet50", {}),
}  # fmt: skip


REPEATED = {
    ("gpt2", "selective"),
    ("llama", "full"),
    ("bert", "selective"),
    ("resnet50", "full"),
}
"""Each model and each policy is in another case."""


@pytest.mark.parametrize(
    ("model", "recompute"),
    [
        pytest.param(*case, marks=pytest.mark.repeats if case in REPEATED else ())
        for case in product(MODELS, ("full", "selective"))
    ],
)
def test_derived_equals_traced(model: str, recompute: Any, example_workload: Any) -> None:
    name, params = MODELS[model]
    workload = example_workload(name, **params)
    profile = trace_workload(workload)
    real = trace_workload(_with_checkpoints(workload, recompute))
    for step, traced in zip(profile.steps, real.steps, strict=True):
        derived = recomputed(step, profile, recompute)
        assert _kernels(derived) == _kernels(traced)
        for micro_batch in (2, 8):
            expected = replay(traced, micro_batch).peak_allocated_bytes
            found = replay(derived, micro_batch).peak_allocated_bytes
            # Where the allocator does not split off a rest below 1 MiB depends on all before.
            assert found == pytest.approx(expected, rel=0.01, abs=5 * MIB)


@pytest.mark.parametrize("recompute", ["full", "selective"])
def test_columns_stay_consistent(recompute: Any, example_workload: Any) -> None:
    profile = trace_workload(example_workload("gpt2", layers=3, seq_len=128, vocab=1000))
    for step in profile.steps:
        derived = recomputed(step, profile, recompute)
        memory = derived.memory
        assert memory.birth_tick == sorted(memory.birth_tick)
        assert all(b < d for b, d in zip(memory.birth_tick, memory.death_tick, strict=True))
        assert max(memory.death_tick) == memory.end_tick
        assert derived.start_tick == sorted(derived.start_tick)
        assert len({len(column) for column in _columns(memory) if column}) == 1
        for row, instance in enumerate(memory.instance):
            if instance >= 0:
                assert derived.start_tick[instance] <= memory.birth_tick[row]
        assert StepTrace.model_validate_json(derived.model_dump_json()) == derived


def test_full_needs_less_memory_than_selective_than_none(example_workload: Any) -> None:
    profile = trace_workload(example_workload("gpt2", layers=12, seq_len=512, vocab=1000))
    for step in profile.steps:
        none, selective, full = (
            replay(recomputed(step, profile, each), 16).peak_allocated_bytes
            for each in ("none", "selective", "full")
        )
        assert full < selective < none


def test_without_repeated_blocks_nothing_is_recomputed(example_workload: Any) -> None:
    profile: Profile = trace_workload(
        example_workload("lstm", hidden=64, vocab=100), numerics=["fp32"]
    )
    derived = recomputed(profile.steps[0], profile, "full")
    assert derived.segments == profile.steps[0].segments
    assert derived.recompute == "full"


def _with_checkpoints(workload: Workload, recompute: str) -> Workload:
    keywords: dict[str, Any] = {}
    if recompute == "selective":
        keywords["context_fn"] = functools.partial(
            create_selective_checkpoint_contexts, _policy, allow_cache_entry_mutation=True
        )

    def build_model() -> nn.Module:
        model = workload.build_model()
        for run in find_blocks(model):
            wrapped = _checkpointed(type(run.first), keywords)
            for block in run.modules:
                block.__class__ = wrapped
        return model

    return dataclasses.replace(workload, build_model=build_model)


def _checkpointed(block_class: type[nn.Module], keywords: dict[str, Any]) -> type[nn.Module]:
    def call(self: nn.Module, *args: Any) -> Any:
        run = functools.partial(block_class.__call__, self)
        return checkpoint(run, *args, use_reentrant=False, **keywords)

    return type(block_class.__name__, (block_class,), {"__call__": call})


def _policy(_context: Any, operation: Any, *_: Any, **__: Any) -> CheckpointPolicy:
    if operation in KEPT_OPERATIONS:
        return CheckpointPolicy.MUST_SAVE
    return CheckpointPolicy.PREFER_RECOMPUTE


def _kernels(step: StepTrace) -> Counter[tuple[Any, ...]]:
    """Return how often each kernel runs, in the phases that a recompute changes and beside."""
    return Counter(
        (
            segment.phase,
            segment.block,
            kernel.op,
            kernel.flops,
            kernel.bytes_read,
            kernel.bytes_written,
        )
        for index in step.schedule
        for segment in (step.segments[index],)
        for kernel in segment.kernels
    )


def _columns(memory: Any) -> list[list[int]]:
    return [value for _, value in memory if isinstance(value, list)]
