"""Gradients that stay whole until a step's last micro-batch: published peaks, and laws."""

import numpy as np
import pytest

from gpuplan.planner.memory.no_sync import NO_SYNC, kept_gradient_bytes, unsynced_buffer_bytes
from gpuplan.planner.parallelism.fsdp import Made, Moment, Sharding, Unit
from gpuplan.planner.plan.layout import Layout
from gpuplan.planner.plan.setup import Setup
from gpuplan.planner.predict.kept.model_cache import ModelCache
from gpuplan.planner.predict.memory.peak_memory import memory_parts
from gpuplan.profiles.profile import CATEGORIES, Profile

TEMPORARY = CATEGORIES.index("temporary")
FSDP4 = Layout(data=4, shard=4, zero_stage=3)
STEADY = Moment(phase="backward", unit="blocks", previous="blocks", following="blocks")
LAST = Moment(phase="backward", unit=None, previous="blocks", following=None, final=True)


@pytest.mark.parametrize(
    ("layers", "block", "root", "shard", "published"),
    [
        # litgpt 84a73fd0, config_hub/finetune/README.md, in GB of 1e9 bytes. 16-bit weights,
        # gradients and AdamW; four micro-batches a step, checkpointed blocks.
        (18, 110_104_576, 2 * 256_000 * 2048, 4, 17.43e9),  # gemma-2b
        (16, 201_379_840, 2 * 50_688 * 4096, 2, 21.23e9),  # stablelm-base-alpha-3b
        (32, 202_383_360, 2 * 32_000 * 4096, 4, 26.81e9),  # llama-2-7b, on A100
    ],
)
def test_published_peaks(layers: int, block: int, root: int, shard: int, published: float) -> None:
    units: dict[str | None, Unit] = {
        "blocks": Unit(name="blocks", count=layers, parameters=block, trainable=block, tensors=()),
        None: Unit(name=None, count=1, parameters=root, trainable=root, tensors=()),
    }
    sharding = Sharding(units=units, shard=shard, gather_bytes=2)
    whole = layers * block + root
    buffers = max(
        unsynced_buffer_bytes(moment, sharding, Made(root=0.5)) for moment in (STEADY, LAST)
    )
    # Activations of a step and its logits are not in this sum.
    assert 0.94 < (6 * whole / shard + 2 * whole + buffers) / published < 1.0


def peak(cache: ModelCache, grad_accum: int, *features: str, layout: Layout = FSDP4) -> float:
    setup = Setup(
        layout=layout,
        precision="bf16-amp",
        micro_batch=1,
        grad_accum=grad_accum,
        features=frozenset(features),
    )
    return memory_parts(cache, setup).peak_bytes.item()


def test_whole_gradients_cost_more_than_shards(toy: Profile) -> None:
    cache = ModelCache(toy)
    assert peak(cache, 4, NO_SYNC) > peak(cache, 4)
    assert peak(cache, 4, NO_SYNC) >= peak(cache, 2, NO_SYNC)


def test_one_micro_batch_and_data_parallel_runs_have_nothing_to_leave_out(toy: Profile) -> None:
    cache = ModelCache(toy)
    assert peak(cache, 1, NO_SYNC) == peak(cache, 1)
    plain = Layout(data=4)
    assert peak(cache, 4, NO_SYNC, layout=plain) == peak(cache, 4, layout=plain)


def test_the_second_of_two_micro_batches_reduces_as_it_goes(toy: Profile) -> None:
    cache = ModelCache(toy)
    shape = cache.steps.envelope("bf16-amp", "none", np.array([1]))
    units = {unit.name: unit for unit in cache.units}
    more, two = (kept_gradient_bytes(shape, units, shard=4, width=2, grad_accum=n) for n in (3, 2))
    assert set(more.tolist()) == {2.0 * toy.trainable_parameters}
    assert (two <= more).all() and two.min() < more.min()
    assert two.min() > more.min() / 4


def test_kept_logits_are_on_every_rank_whole(toy: Profile) -> None:
    """The optimizer's temporaries are divided by the ranks, what a variable holds is not."""
    step = toy.steps[0]
    stream = step.memory
    row = max(
        (i for i, at in enumerate(stream.instance) if stream.bytes_per_sample[i] and at >= 0),
        key=lambda i: stream.birth_tick[i],
    )
    held = stream.model_copy(
        update={
            "death_tick": [
                stream.end_tick if i == row else tick for i, tick in enumerate(stream.death_tick)
            ],
            "category": [TEMPORARY if i == row else c for i, c in enumerate(stream.category)],
        }
    )
    shape = ModelCache(
        toy.model_copy(update={"steps": (step.model_copy(update={"memory": held}),)})
    ).steps.envelope("bf16-amp", "none", np.array([3]))
    stepping = [i for i, moment in enumerate(shape.moments) if moment.phase == "optimizer"]
    assert shape.activation_bytes[stepping, 0].max() >= 3 * stream.bytes_per_sample[row]
    assert shape.temporary_bytes[stepping, 0].max() < 3 * stream.bytes_per_sample[row]
