"""A traced step with another optimizer, by the rules of `optimizer_rules`: `--optimizer`.

No torch is needed: the step is rewritten. Its optimizer segment becomes the kernels of the other
optimizer; its state and its temporaries are replaced in the memory stream.
"""

from __future__ import annotations

from typing import Any

from ...catalog.errors import UsageError, did_you_mean
from ..profile import (
    CATEGORIES,
    KERNEL_KINDS,
    MemoryStream,
    OptimizerFacts,
    Profile,
    Segment,
    StepTrace,
)
from .optimizer_rules import RULES, Weights, Work
from .storages import GROWTH, Storage, storages_of

_GRADIENTS, _OPTIMIZER = CATEGORIES.index("gradients"), CATEGORIES.index("optimizer")
_TEMPORARY = CATEGORIES.index("temporary")
_KIND = KERNEL_KINDS.index("optimizer")


def with_optimizer(profile: Profile, name: str) -> Profile:
    """Return the Profile as it would be with another optimizer.

    Args:
        profile: A traced Profile.
        name: adamw, adam, adamw8bit, adafactor, sgd (with momentum) or muon.

    Raises:
        UsageError: no rule for this name, or the gradients are sparse.
    """
    if name == profile.optimizer.name:
        return profile
    rule = RULES.get(name)
    if rule is None:
        raise UsageError(
            f"unknown optimizer {name!r}; known: {', '.join(RULES)}.{did_you_mean(name, RULES)}",
            fix="give one of these, or build your own in build_optimizer() of the model file.",
        )
    if profile.sparse_parameters:
        raise UsageError(
            f"--optimizer {name}: {profile.name} has sparse gradients, and the rules"
            " for optimizers are those of dense ones.",
            fix="leave sparse=True out of the embeddings, or return the optimizer from"
            " build_optimizer().",
        )
    steps, facts = [], []
    for step in profile.steps:
        work = rule(Weights.of(profile, step))
        steps.append(_rewritten(step, work))
        facts.append(_facts(name, work))
    return profile.model_copy(update={"steps": tuple(steps), "optimizer": facts[0]})


def _facts(name: str, work: Work) -> OptimizerFacts:
    total = max(1, work.weights.total)
    moved = sum(k.bytes_read.base + k.bytes_written.base for k in work.kernels)
    return OptimizerFacts(
        name=name,
        state_bytes_per_parameter=sum(work.state_bytes),
        step_bytes_per_parameter=moved / total,
        temporary_bytes_per_parameter=work.temporary_bytes + work.scratch_bytes / total,
        launches=sum(kernel.launches for kernel in work.kernels),
    )


def _rewritten(step: StepTrace, work: Work) -> StepTrace:
    """Return a step with another optimizer segment, state and temporaries."""
    place = [i for i, n in enumerate(step.schedule) if step.segments[n].phase == "optimizer"]
    start = step.start_tick[place[0]] if place else step.memory.end_tick - 1
    segment = Segment(
        name="root optimizer",
        phase="optimizer",
        block=None,
        kernels=work.kernels,
        offsets=tuple(range(len(work.kernels))),
    )
    kept = [i for i in range(len(step.schedule)) if i not in place]
    columns = {
        name: [getattr(step, name)[i] for i in kept]
        for name in ("schedule", "start_tick", "forward_of", "rerun_end_tick", "release_tick")
        if getattr(step, name)
    }
    added = {"schedule": len(step.segments), "start_tick": start, "forward_of": -1}
    return step.model_copy(
        update={
            "segments": (*step.segments, segment),
            **{
                name: [*values, added.get(name, -1 if name == "release_tick" else start)]
                for name, values in columns.items()
            },
            "memory": _memory(step, work, start, len(kept)),
        }
    )


def _memory(step: StepTrace, work: Work, start: int, instance: int) -> MemoryStream:
    """Return the storages with the new optimizer's instead of the old one's."""
    old = step.memory
    end = start + len(work.kernels) + 1
    columns = [name for name, value in old if isinstance(value, list) and value]
    rows: list[Storage] = []
    gradients: list[int] = []
    for values in storages_of(old):
        if values["birth_tick"] >= start or values["category"] == _OPTIMIZER:
            continue
        death = values["death_tick"]
        if death > start:
            values["death_tick"] = end if death >= old.end_tick else end - 1
        if values["category"] == _GRADIENTS:
            gradients.append(values["bytes_base"])
        rows.append(values)

    def new(size: float, birth: int, death: int, category: int, born_in: int) -> Storage:
        values: dict[str, Any] = dict.fromkeys(columns, -1)
        values |= {name: 0 for name in ("kept", *GROWTH) if name in values}
        return values | {
            "birth_tick": birth,
            "death_tick": death,
            "bytes_base": round(size),
            "category": category,
            "instance": born_in,
            **({"producer": _KIND} if "producer" in values and born_in >= 0 else {}),
        }

    width = work.weights.width_bytes
    before = sum(1 for values in rows if values["birth_tick"] < 0)
    rows[before:before] = [
        new(size / width * per_element, -1, end, _OPTIMIZER, -1)
        for per_element in work.state_bytes
        for size in gradients
        if round(size / width * per_element) > 0
    ]
    if work.temporary_bytes:
        rows.extend(
            new(size / width * work.temporary_bytes, start, end - 1, _TEMPORARY, instance)
            for size in gradients
        )
    if work.scratch_bytes:
        rows.append(new(work.scratch_bytes, start, end - 1, _TEMPORARY, instance))
    return MemoryStream(
        end_tick=end, **{name: [values[name] for values in rows] for name in columns}
    )
