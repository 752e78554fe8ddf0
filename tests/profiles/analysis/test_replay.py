"""Steps replayed on the caching allocator: peaks, what waits, and what breaks blocks up."""

import pytest

from gpuplan.catalog.units import MIB
from gpuplan.profiles.analysis.caching_allocator import CachingAllocator, PoolExhaustedError
from gpuplan.profiles.analysis.replay import replay
from gpuplan.profiles.profile import CATEGORIES, Affine, Kernel, MemoryStream, Segment, StepTrace


def test_peak_is_that_of_live_rows_and_its_breakdown_sums_up() -> None:
    # weight | activation ticks 0-2 | temporary 1-2 | gradient 2-end (the others are dead by then)
    step = _step(
        births=[-1, 0, 1, 2],
        deaths=[4, 2, 2, 4],
        base=[1024, 0, 0, 1024],
        per_sample=[0, 512, 2048, 0],
        categories=["parameters", "activations", "temporary", "gradients"],
    )
    one, two = replay(step, 1), replay(step, 2)
    assert one.peak_allocated_bytes == 1024 + 512 + 2048
    assert two.peak_allocated_bytes == 1024 + 2 * (512 + 2048)
    assert one.peak_tick == 1
    assert {k: v for k, v in two.breakdown_bytes.items() if v} == {
        "parameters": 1024,
        "activations": 1024,
        "temporary": 4096,
    }


def test_a_death_frees_before_a_birth_of_the_same_tick() -> None:
    step = _step(
        births=[0, 1], deaths=[1, 2], base=[30 * MIB, 30 * MIB], per_sample=[0, 0],
        categories=["temporary", "temporary"],
    )  # fmt: skip
    assert replay(step, 1).peak_reserved_bytes == 30 * MIB


def _step(
    *,
    births: list[int],
    deaths: list[int],
    base: list[int],
    per_sample: list[int],
    categories: list[str],
) -> StepTrace:
    numbers = {name: index for index, name in enumerate(CATEGORIES)}
    memory = MemoryStream(
        birth_tick=births,
        death_tick=deaths,
        bytes_base=base,
        bytes_per_sample=per_sample,
        category=[numbers[name] for name in categories],
        instance=[-1] * len(births),
        end_tick=max(deaths),
    )
    return StepTrace(
        numerics="fp32", recompute="none", segments=(), schedule=[], start_tick=[], memory=memory
    )


def test_free_segments_are_given_back_when_the_device_is_full() -> None:
    allocator = CachingAllocator(limit_bytes=100 * MIB)
    allocator.free(allocator.allocate(60 * MIB))
    assert allocator.reserved_bytes == 60 * MIB
    allocator.allocate(80 * MIB)
    assert allocator.reserved_bytes == 80 * MIB


def test_a_full_device_is_out_of_memory() -> None:
    allocator = CachingAllocator(limit_bytes=100 * MIB)
    allocator.allocate(60 * MIB)
    with pytest.raises(PoolExhaustedError):
        allocator.allocate(50 * MIB)


def test_the_optimizers_state_is_made_in_what_the_first_backward_pass_freed() -> None:
    """Then no block is left whole for the second forward pass: a segment more than the peak."""
    step = _step(
        births=[-1, 0, 2],
        deaths=[4, 2, 4],
        base=[40 * MIB, 100 * MIB, 2 * MIB],
        per_sample=[0, 0, 0],
        categories=["optimizer", "activations", "temporary"],
    )
    optimizer = Segment(name="step", phase="optimizer", block=None, kernels=())
    step = step.model_copy(update={"segments": (optimizer,), "schedule": [0], "start_tick": [3]})
    found = replay(step, 1)
    assert found.peak_allocated_bytes == 140 * MIB
    assert found.peak_reserved_bytes == 200 * MIB


def test_gradients_that_are_kept_stand_beside_the_next_forward_pass() -> None:
    """activation ticks 0-2 | gradient 1-5 | the optimizer reads it at 4."""
    step = _step(
        births=[0, 1],
        deaths=[2, 5],
        base=[100 * MIB, 30 * MIB],
        per_sample=[0, 0],
        categories=["activations", "gradients"],
    )
    optimizer = Segment(name="step", phase="optimizer", block=None, kernels=())
    step = step.model_copy(update={"segments": (optimizer,), "schedule": [0], "start_tick": [4]})
    assert replay(step, 1).peak_allocated_bytes == 130 * MIB
    kept = replay(step, 1, keeps_gradients=True)
    # That of the step before, and the new one until it is added.
    assert kept.peak_allocated_bytes == 160 * MIB
    assert kept.breakdown_bytes["gradients"] == 30 * MIB
    used_at_once = step.model_copy(
        update={"memory": step.memory.model_copy(update={"death_tick": [2, 3]})}
    )
    assert replay(used_at_once, 1, keeps_gradients=True).peak_allocated_bytes == 130 * MIB


def _with_passes(step: StepTrace, *, product_at: dict[str, int]) -> StepTrace:
    """Return a step whose passes multiply once each, at these ticks."""
    one = Affine(1)
    kernel = Kernel(
        kind="gemm", op="mm", dims={"batch": one, "m": one, "n": one, "k": one}, dtype="fp32",
        flops=one, bytes_read=one, bytes_written=one,
    )  # fmt: skip
    segments = tuple(
        Segment(name=phase, phase=phase, block=None, kernels=(kernel,), offsets=(0,))  # pyright: ignore[reportArgumentType]
        for phase in product_at
    )
    return step.model_copy(
        update={
            "segments": segments,
            "schedule": list(range(len(segments))),
            "start_tick": list(product_at.values()),
        }
    )


def test_a_workspace_is_cut_out_of_a_block_that_is_free_when_a_thread_first_multiplies() -> None:
    """activation ticks 0-1 | another 3-4: the second does not find the first one's block whole."""
    step = _step(
        births=[0, 3],
        deaths=[1, 4],
        base=[100 * MIB, 100 * MIB],
        per_sample=[0, 0],
        categories=["temporary", "temporary"],
    )
    step = _with_passes(step, product_at={"forward": 0, "backward": 2})
    assert replay(step, 1).peak_reserved_bytes == 100 * MIB
    found = replay(step, 1, workspace_bytes=32 * MIB)
    # Forward's has a segment of its own, backward's lies in the first activation's.
    assert found.peak_reserved_bytes == (32 + 100 + 100) * MIB
    assert found.workspace_bytes == 2 * 32 * MIB
    assert found.peak_allocated_bytes == (100 + 64) * MIB


def test_a_step_that_multiplies_in_one_pass_or_none_has_fewer_workspaces() -> None:
    step = _step(
        births=[0], deaths=[1], base=[MIB], per_sample=[0], categories=["temporary"]
    )  # fmt: skip
    assert replay(step, 1, workspace_bytes=32 * MIB).workspace_bytes == 0
    one = _with_passes(step, product_at={"forward": 0})
    assert replay(one, 1, workspace_bytes=32 * MIB).workspace_bytes == 32 * MIB
    optimizer = _with_passes(step, product_at={"optimizer": 0})
    assert replay(optimizer, 1, workspace_bytes=32 * MIB).workspace_bytes == 0


def test_a_model_that_was_cast_on_the_device_leaves_the_pool_it_was_built_in() -> None:
    step = _step(
        births=[-1, -1],
        deaths=[1, 1],
        base=[40 * MIB, 40 * MIB],
        per_sample=[0, 0],
        categories=["parameters", "parameters"],
    )
    found = replay(step, 1, built_in_fp32=True)
    assert found.peak_allocated_bytes == 80 * MIB
    # Two of 80 in fp32, and the first cast beside them: the second has room in what is freed.
    assert found.peak_reserved_bytes == (2 * 80 + 40) * MIB
