"""Memory outside the model: contexts, communicators, engines' buffers."""

from dataclasses import replace

import pytest

from gpuplan.catalog.snapshot import load_catalogue
from gpuplan.catalog.units import GIB
from gpuplan.planner.memory.framework_memory import communicators, context_bytes, framework_bytes
from gpuplan.planner.plan.layout import Layout
from gpuplan.planner.plan.setup import Setup
from gpuplan.planner.predict.kept.model_cache import ModelCache
from gpuplan.planner.predict.memory.peak_memory import memory_parts
from gpuplan.planner.software.deepspeed_engine import engine_bytes, runs_deepspeed
from gpuplan.planner.software.state_bytes import state_scale
from gpuplan.profiles.profile import Profile

ZERO_1 = Layout(data=8, shard=8, zero_stage=1)


def test_every_dimension_opens_a_communicator() -> None:
    assert communicators(Layout()) == 0
    assert communicators(Layout(data=8)) == 1
    assert communicators(Layout(data=8, shard=4, zero_stage=3)) == 2
    assert communicators(Layout(data=2, tensor=4)) == 2
    # Pipelines of Megatron: their own group, a neighbour, the tied embeddings, the whole model.
    assert communicators(Layout(data=2, tensor=4, pipeline=2), "megatron") == 6


@pytest.mark.parametrize(
    ("accelerator", "date", "context_gib"),
    [
        ("Titan-RTX", (2020, 3), 0.55),
        ("V100-32GB-SXM2", (2021, 6), 1.085),
        ("A100-80GB-SXM", (2022, 2), 1.3),
        ("A100-80GB-SXM", (2023, 6), 0.45),
        ("A100-80GB-SXM", None, 0.45),
        ("H100-80GB-SXM", None, 0.9),
        ("MI325X", None, 2.0),
    ],
)
def test_the_context_depends_on_device_and_age(
    accelerator: str, date: tuple[int, int] | None, context_gib: float
) -> None:
    device = load_catalogue().accelerators[accelerator]
    assert context_bytes(device, date) == pytest.approx(context_gib * GIB, rel=1e-3)
    assert framework_bytes(device, communicators=1, date=date) > context_bytes(device, date)


def test_deepspeed_is_the_engine_of_zero_beside_megatron_until_2022_or_where_stated() -> None:
    assert runs_deepspeed("megatron", (2022, 2), (), ZERO_1)
    assert not runs_deepspeed("megatron", (2023, 2), (), ZERO_1)
    assert runs_deepspeed("megatron", (2023, 2), ("deepspeed",), ZERO_1)
    assert not runs_deepspeed("megatron", (2022, 2), (), Layout(data=8))
    assert not runs_deepspeed("torch-eager", (2022, 2), (), ZERO_1)
    assert runs_deepspeed("torch-eager", None, ("deepspeed",), ZERO_1)
    assert not runs_deepspeed("torch-eager", None, ("deepspeed",), Layout(data=8))


def test_its_buffers_are_a_bucket_and_the_largest_tensor(toy: Profile) -> None:
    trainable = 4e9
    alone = engine_bytes(toy, Layout(zero_stage=1), in_fp32=False, trainable=trainable)
    with_bucket = engine_bytes(toy, ZERO_1, in_fp32=False, trainable=trainable)
    assert with_bucket - alone == pytest.approx(2 * 5e8)


def test_state_of_deepspeed(toy: Profile) -> None:
    fp16 = state_scale("fp16-amp", "megatron", sixteen_bit_layers=True, deepspeed=True)
    bf16 = state_scale("bf16-amp", "megatron", sixteen_bit_layers=True, deepspeed=True)
    # Of 2 traced bytes a parameter each: gradients, and the master with fp32 gradients.
    assert (2 * fp16.gradients, fp16.master_bytes) == (2, 8)
    assert (2 * bf16.gradients, bf16.master_bytes) == (6, 4)
    alone = state_scale("bf16-amp", "torch-eager", sixteen_bit_layers=True, deepspeed=True)
    assert (alone.gradients, alone.master_bytes, alone.optimizer_temporary) == (1, 4, 2)


def test_a_fused_optimizer_needs_no_temporaries(toy: Profile) -> None:
    cache = ModelCache(toy)
    plain = Setup(layout=Layout(), precision="bf16-amp", micro_batch=1)
    fused = replace(plain, features=frozenset({"fused-optimizer"}))
    peaks = [memory_parts(cache, setup).peak_bytes.item() for setup in (fused, plain)]
    assert peaks[0] <= peaks[1]
