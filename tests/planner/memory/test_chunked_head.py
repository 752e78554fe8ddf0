"""Gradients of a head that is applied chunk by chunk."""

from gpuplan.planner.memory.chunked_head import with_chunked_head
from gpuplan.profiles.passes.residence import LOSS_CHUNKS
from gpuplan.profiles.profile import CATEGORIES, MemoryStream, Profile, StepTrace


def live(step: StepTrace, tick: int) -> int:
    stream = step.memory
    return sum(
        base + each
        for birth, death, base, each in zip(
            stream.birth_tick,
            stream.death_tick,
            stream.bytes_base,
            stream.bytes_per_sample,
            strict=True,
        )
        if birth <= tick < death
    )


def with_gradient_of_logits(step: StepTrace, size: int) -> tuple[StepTrace, int]:
    """Return the step with a gradient of its logits, and the tick that makes the head's."""
    head = next(
        at
        for at, index in enumerate(step.schedule)
        if step.segments[index].phase == "backward" and step.segments[index].block is None
    )
    row = {
        "birth_tick": step.start_tick[head],
        "death_tick": step.start_tick[head] + 3,
        "bytes_base": 0,
        "bytes_per_sample": size,
        "category": CATEGORIES.index("temporary"),
        "instance": head,
    }
    names = list(row)
    rows = [
        *zip(*(getattr(step.memory, name) for name in names), strict=True),
        tuple(row.values()),
    ]
    rows.sort(key=lambda values: values[0])
    columns = dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))
    stream = MemoryStream(end_tick=step.memory.end_tick, **columns)
    return step.model_copy(update={"memory": stream}), step.start_tick[head] + 1


def test_a_second_gradient_of_the_weight_stands_beside_the_sum(toy: Profile) -> None:
    logits = 2 * 1024 * 4096
    step, made = with_gradient_of_logits(toy.steps[0], logits)
    weight = 4 * 4096 * 512
    found = with_chunked_head(step)
    assert live(found, made) - live(step, made) == weight - logits // LOSS_CHUNKS
    # Before and after the head's backward nothing changes.
    assert live(found, made - 1) == live(step, made - 1)
    assert live(found, made + 2) == live(step, made + 2)
    assert found.memory.birth_tick == sorted(found.memory.birth_tick)


def test_a_step_without_backward_stays_as_it_is(toy: Profile) -> None:
    step = toy.steps[0]
    forward = step.model_copy(
        update={"schedule": step.schedule[:2], "start_tick": step.start_tick[:2]}
    )
    assert with_chunked_head(forward) is forward
