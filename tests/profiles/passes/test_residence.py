"""Steps whose storages are not on the device all the time, on a trace written by hand."""

import pytest

from gpuplan.profiles.analysis.replay import replay
from gpuplan.profiles.passes.residence import (
    LOSS_CHUNKS,
    ON_DEVICE,
    Residence,
    offloaded_activation_bytes,
    resident,
)
from gpuplan.profiles.profile import CATEGORIES, Affine, MemoryStream, Segment, StepTrace

MIB = 2**20
LAYERS = 4
TICKS = 10


def step(*, recomputes: bool = False) -> StepTrace:
    """Return four blocks that save 1 MiB a sample each, with 8 MiB of gradients each."""
    phases = ["forward", "backward", "recompute", "optimizer"]
    segments = tuple(
        Segment(name=phase, phase=phase, block="blocks", kernels=())  # pyright: ignore[reportArgumentType]
        for phase in phases
    )
    schedule, forward_of = [0] * LAYERS, [-1] * LAYERS
    backward: dict[int, int] = {}
    for layer in reversed(range(LAYERS)):
        if recomputes:
            schedule.append(2)
            forward_of.append(layer)
        backward[layer] = len(schedule)
        schedule.append(1)
        forward_of.append(layer)
    schedule.append(3)
    forward_of.append(-1)
    start = [TICKS * i for i in range(len(schedule))]
    end = TICKS * len(schedule)
    optimizer = len(schedule) - 1
    rows = [
        (-1, end, 32 * MIB, 0, "parameters", -1),
        (-1, end, 64 * MIB, 0, "optimizer", -1),
        (start[optimizer] + 1, end - 1, 16 * MIB, 0, "temporary", optimizer),
    ]
    for layer in range(LAYERS):
        back = backward[layer]
        rows.append((start[layer] + 5, start[back] + TICKS, 0, MIB, "activations", layer))
        rows.append((start[back] + 5, end - 1, 8 * MIB, 0, "gradients", back))
    rows.sort()
    columns = list(zip(*rows, strict=True))
    return StepTrace(
        numerics="fp32",
        recompute="none",
        segments=segments,
        schedule=schedule,
        start_tick=start,
        forward_of=forward_of,
        memory=MemoryStream(
            birth_tick=list(columns[0]),
            death_tick=list(columns[1]),
            bytes_base=list(columns[2]),
            bytes_per_sample=list(columns[3]),
            category=[CATEGORIES.index(name) for name in columns[4]],
            instance=list(columns[5]),
            end_tick=end,
        ),
    )


def alive(trace: StepTrace, tick: int, category: str) -> int:
    """Return bytes of one category at a tick, with one sample."""
    memory = trace.memory
    return sum(
        base + each
        for birth, death, base, each, kind in zip(
            memory.birth_tick,
            memory.death_tick,
            memory.bytes_base,
            memory.bytes_per_sample,
            memory.category,
            strict=True,
        )
        if birth <= tick < death and CATEGORIES[kind] == category
    )


def test_a_step_that_stays_is_the_same_step() -> None:
    whole = step()
    assert resident(whole, ON_DEVICE) is whole


def test_saved_activations_are_on_the_device_around_their_use_only() -> None:
    whole = step()
    trace = resident(whole, Residence(activations_on_host=True))
    turning = TICKS * LAYERS - 1
    assert alive(whole, turning, "activations") == LAYERS * MIB
    # The last block's are used next; those of the one before it are just leaving.
    assert alive(trace, turning, "activations") == 2 * MIB
    for layer in range(LAYERS):
        back = 2 * LAYERS - 1 - layer
        assert alive(trace, TICKS * back + 1, "activations") >= MIB
    assert trace.memory.birth_tick == sorted(trace.memory.birth_tick)
    assert replay(trace, 64).peak_allocated_bytes < replay(whole, 64).peak_allocated_bytes


def test_what_leaves_is_counted_once() -> None:
    # The last block's backward pass comes at once, and the one before it too soon as well.
    assert offloaded_activation_bytes(step()) == Affine(0, (LAYERS - 1) * MIB)
    assert offloaded_activation_bytes(step(recomputes=True)) == Affine(0, (LAYERS - 1) * MIB)


def test_an_activation_is_back_before_its_block_runs_again() -> None:
    trace = resident(step(recomputes=True), Residence(activations_on_host=True))
    first_rerun = TICKS * (LAYERS + 2 * (LAYERS - 1))
    assert trace.schedule[LAYERS + 2 * (LAYERS - 1)] == 2
    assert alive(trace, first_rerun, "activations") >= MIB
    assert alive(trace, first_rerun - 1, "activations") == MIB


def test_gradients_that_are_used_at_once_do_not_pile_up() -> None:
    whole = step()
    trace = resident(whole, Residence(gradients_used_at_once=True))
    ticks = range(trace.memory.end_tick)
    assert max(alive(whole, tick, "gradients") for tick in ticks) == LAYERS * 8 * MIB
    assert max(alive(trace, tick, "gradients") for tick in ticks) == 8 * MIB
    # The optimizer still needs its scratch, but for one parameter at a time.
    assert max(alive(trace, tick, "temporary") for tick in ticks) == pytest.approx(4 * MIB)
    assert alive(trace, 0, "optimizer") == 64 * MIB


def test_what_the_host_steps_is_not_there() -> None:
    trace = resident(step(), Residence(optimizer_on_host=True, parameters_on_host=True))
    ticks = range(trace.memory.end_tick)
    for category in ("optimizer", "temporary", "parameters"):
        assert max(alive(trace, tick, category) for tick in ticks) == 0


def decoder_head() -> StepTrace:
    """Return one block and a head with logits of 2 and 4 MiB a sample, as autocast makes them."""
    segments = tuple(
        Segment(name=name, phase=phase, block=block, kernels=())  # pyright: ignore[reportArgumentType]
        for name, phase, block in (
            ("block", "forward", "blocks"),
            ("head", "forward", None),
            ("head", "backward", None),
            ("block", "backward", "blocks"),
        )
    )
    rows = [
        (5, 40, MIB // 4, "activations", 0),
        (11, 13, 2 * MIB, "temporary", 1),
        (12, 15, 4 * MIB, "temporary", 1),
        (13, 25, 4 * MIB, "activations", 1),
        (21, 26, 4 * MIB, "temporary", 2),
        (25, 28, 2 * MIB, "temporary", 2),
        (31, 35, 8 * MIB, "temporary", 3),
    ]
    birth, death, size, category, instance = zip(*rows, strict=True)
    return StepTrace(
        numerics="amp16",
        recompute="none",
        segments=segments,
        schedule=[0, 1, 2, 3],
        start_tick=[0, 10, 20, 30],
        forward_of=[-1, -1, -1, 0],
        memory=MemoryStream(
            birth_tick=list(birth),
            death_tick=list(death),
            bytes_base=[0] * len(rows),
            bytes_per_sample=list(size),
            category=[CATEGORIES.index(name) for name in category],
            instance=list(instance),
            end_tick=40,
        ),
    )


def test_a_loss_in_chunks_keeps_its_logits_in_16_bits_only() -> None:
    whole, chunked = decoder_head(), resident(decoder_head(), Residence(loss="chunked"))
    assert alive(whole, 22, "activations") == 4 * MIB + MIB // 4
    assert alive(chunked, 22, "activations") == 2 * MIB + MIB // 4
    assert alive(chunked, 22, "temporary") == 4 * MIB // LOSS_CHUNKS
    assert alive(chunked, 27, "temporary") == 2 * MIB


def test_a_loss_fused_with_the_head_keeps_no_logits() -> None:
    fused = resident(decoder_head(), Residence(loss="fused"))
    assert alive(fused, 22, "activations") < MIB // 2
    assert max(alive(fused, tick, "temporary") for tick in range(30)) < MIB
    # What blocks need is as before, however large.
    assert alive(fused, 32, "temporary") == 8 * MIB
