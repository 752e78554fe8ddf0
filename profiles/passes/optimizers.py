"""What another optimizer would keep, move and launch: the rules behind `--optimizer`.

No torch is needed: a traced step is rewritten. Its optimizer segment becomes the kernels of the
other optimizer; its state and its temporaries are replaced in the memory stream. Sources stand
beside each rule; those of torch's own optimizers are what a trace of them shows (torch 2.13, the
foreach implementation that CUDA takes by default), which a test repeats.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil
from typing import Any, NamedTuple

from ...catalog.errors import UsageError, did_you_mean
from ..profile import (
    CATEGORIES,
    KERNEL_KINDS,
    Affine,
    Kernel,
    MemoryStream,
    OptimizerFacts,
    Profile,
    Segment,
    StepTrace,
)
from .storages import GROWTH, Storage, storages_of

TENSORS_PER_LAUNCH = (110, 64, 48, 36, 30)
CHUNK_ELEMENTS = 65536
BLOCKS_PER_LAUNCH = 320
"""Limits of one multi-tensor launch, by number of tensor lists (torch
aten/src/ATen/native/cuda/MultiTensorApply.cuh)."""
QUANTIZED_BLOCK = 256
"""Elements that share one scale in bitsandbytes' 8-bit optimizers (docs, "8-bit optimizers")."""
NEWTON_SCHULZ_STEPS = 5
_GRADIENTS, _OPTIMIZER = CATEGORIES.index("gradients"), CATEGORIES.index("optimizer")
_TEMPORARY = CATEGORIES.index("temporary")
_KIND = KERNEL_KINDS.index("optimizer")


def multi_tensor_launches(elements: list[int], lists: int) -> int:
    """Return the launches of one multi-tensor kernel over tensors of these sizes.

    Args:
        elements: Elements of every tensor of one list.
        lists: How many lists it reads or writes.
    """
    per_launch = TENSORS_PER_LAUNCH[min(lists, len(TENSORS_PER_LAUNCH)) - 1]
    chunks = sum(ceil(each / CHUNK_ELEMENTS) for each in elements)
    return max(1, ceil(len(elements) / per_launch), ceil(chunks / BLOCKS_PER_LAUNCH))


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
    rule = _RULES.get(name)
    if rule is None:
        raise UsageError(
            f"unknown optimizer {name!r}; known: {', '.join(_RULES)}.{did_you_mean(name, _RULES)}",
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
        work = rule(_Weights.of(profile, step))
        steps.append(_rewritten(step, work))
        facts.append(_facts(name, work))
    return profile.model_copy(update={"steps": tuple(steps), "optimizer": facts[0]})


class _Matrix(NamedTuple):
    rows: int
    columns: int

    @property
    def elements(self) -> int:
        return self.rows * self.columns


@dataclass(frozen=True)
class _Weights:
    """What the optimizer steps over."""

    width_bytes: int
    """Bytes of one element of a parameter, and of its gradient."""
    elements: list[int]
    """Elements of every tensor that is trained, known from its gradient."""
    hidden: list[_Matrix]
    """The matrices of the repeated blocks."""
    others: list[_Matrix]
    """Embeddings, heads, convolution stems; a vector has one column."""

    @property
    def total(self) -> int:
        return sum(self.elements)

    @classmethod
    def of(cls, profile: Profile, step: StepTrace) -> _Weights:
        """Return the tensors of a step that are trained."""
        memory = step.memory
        sizes = [
            memory.bytes_base[row]
            for row, category in enumerate(memory.category)
            if category == _GRADIENTS
        ]
        width = max(1, round(sum(sizes) / profile.trained_parameters)) if sizes else 4
        hidden: list[_Matrix] = []
        others = [_Matrix(t.rows, t.row_elements) for t in profile.root_tensors if t.trainable]
        for group in profile.blocks:
            for tensor in group.tensors:
                if not tensor.trainable:
                    continue
                matrix = _Matrix(tensor.rows, tensor.row_elements)
                target = hidden if tensor.row_elements > 1 else others
                target.extend([matrix] * group.count)
        return cls(width, [size // width for size in sizes], hidden, others)


@dataclass(frozen=True)
class _Work:
    """One optimizer over these weights."""

    weights: _Weights
    state_bytes: tuple[float, ...]
    """Per element, one entry per state tensor."""
    kernels: tuple[Kernel, ...]
    temporary_bytes: float = 0.0
    """Per element, all tensors at once (foreach)."""
    scratch_bytes: int = 0
    """Bytes for the largest tensor alone, where the step is a loop over tensors."""


class _Pass(NamedTuple):
    """One foreach operation: lists it takes, and tensors read and written per parameter."""

    op: str
    lists: int
    reads: int
    writes: int


_ADAM = (
    _Pass("_foreach_lerp", 2, 2, 1),
    _Pass("_foreach_mul", 1, 1, 1),
    _Pass("_foreach_addcmul", 3, 3, 1),
    _Pass("_foreach_sqrt", 2, 1, 1),
    _Pass("_foreach_div", 1, 1, 1),
    _Pass("_foreach_add", 1, 1, 1),
    _Pass("_foreach_addcdiv", 3, 3, 1),
)
_ADAMW = (_Pass("_foreach_mul", 1, 1, 1), *_ADAM)
_SGD = (
    _Pass("_foreach_mul", 1, 1, 1),
    _Pass("_foreach_add", 2, 2, 1),
    _Pass("_foreach_add", 2, 2, 1),
)


def _adam(passes: tuple[_Pass, ...]) -> Callable[[_Weights], _Work]:
    """Two moments in the dtype of the parameter; the root of the second is a temporary list.

    Source: Kingma & Ba 2015 (arXiv:1412.6980); Loshchilov & Hutter 2019 (arXiv:1711.05101);
    torch.optim.adam._multi_tensor_adam.
    """

    def work(weights: _Weights) -> _Work:
        width = weights.width_bytes
        return _Work(weights, (width, width), _foreach(weights, passes), temporary_bytes=width)

    return work


def _sgd(weights: _Weights) -> _Work:
    """One momentum buffer. Source: torch.optim.sgd._multi_tensor_sgd, momentum without decay."""
    return _Work(weights, (weights.width_bytes,), _foreach(weights, _SGD))


def _adamw8bit(weights: _Weights) -> _Work:
    """Two moments of one byte and one fp32 scale per block each; one fused kernel per tensor.

    Source: Dettmers et al. 2022 (arXiv:2110.02861); bitsandbytes `AdamW8bit`.
    """
    scales = 2 * 4 / QUANTIZED_BLOCK
    width = weights.width_bytes
    kernel = _kernel(
        "adamw8bit",
        weights,
        reads=2 * width + 2 + scales,
        writes=width + 2 + scales,
        launches=len(weights.elements),
    )
    return _Work(weights, (1.0, 1.0, scales), (kernel,))


def _adafactor(weights: _Weights) -> _Work:
    """Row and column sums instead of a second moment; a loop over tensors.

    Source: Shazeer & Stern 2018 (arXiv:1804.04235); torch.optim.Adafactor (foreach off by
    default): 18 kernels per matrix, 9 per vector, 10 reads and 7 writes per parameter.
    """
    width = weights.width_bytes
    tensors = [*weights.hidden, *weights.others]
    kept = sum(t.rows + t.columns if t.columns > 1 else t.rows for t in tensors)
    launches = sum(18 if t.columns > 1 else 9 for t in tensors) or 18 * len(weights.elements)
    kernel = _kernel("adafactor", weights, reads=10 * width, writes=7 * width, launches=launches)
    largest = max(weights.elements, default=0) * width
    state = kept * width / max(1, weights.total)
    return _Work(weights, (state,), (kernel,), scratch_bytes=largest)


def _muon(weights: _Weights) -> _Work:
    """One momentum buffer for the matrices of the blocks, AdamW for all other parameters.

    Each update is made orthogonal by five Newton-Schulz steps in bf16. Source: Jordan et al. 2024
    (https://kellerjordan.github.io/posts/muon/); torch.optim.Muon (a loop over tensors).
    """
    width = weights.width_bytes
    hidden = sum(matrix.elements for matrix in weights.hidden)
    others = max(0, weights.total - hidden)
    shapes: dict[_Matrix, int] = {}
    for matrix in weights.hidden:
        shapes[matrix] = shapes.get(matrix, 0) + 1
    kernels = [kernel for shape, count in shapes.items() for kernel in _orthogonal(shape, count)]
    kernels.append(
        _kernel(
            "muon",
            weights,
            reads=7 * width * hidden / max(1, weights.total),
            writes=5 * width * hidden / max(1, weights.total),
            launches=8 * len(weights.hidden),
        )
    )
    rest = _Weights(width, [m.elements for m in weights.others], [], weights.others)
    if others and rest.elements:
        kernels.extend(_foreach(rest, _ADAMW))
    largest = max((m.elements for m in weights.hidden), default=0) * (width + 2 * 2)
    state = width * (hidden + 2 * others) / max(1, weights.total)
    return _Work(weights, (state,), tuple(kernels), scratch_bytes=largest)


_RULES: dict[str, Callable[[_Weights], _Work]] = {
    "adamw": _adam(_ADAMW),
    "adam": _adam(_ADAM),
    "adamw8bit": _adamw8bit,
    "adafactor": _adafactor,
    "sgd": _sgd,
    "muon": _muon,
}


def _foreach(weights: _Weights, passes: tuple[_Pass, ...]) -> tuple[Kernel, ...]:
    width = weights.width_bytes
    return tuple(
        _kernel(
            each.op,
            weights,
            reads=each.reads * width,
            writes=each.writes * width,
            launches=multi_tensor_launches(weights.elements, each.lists),
        )
        for each in passes
    )


def _kernel(op: str, weights: _Weights, *, reads: float, writes: float, launches: int) -> Kernel:
    """Return an optimizer kernel that moves this many bytes per parameter."""
    total = weights.total
    return Kernel(
        kind="optimizer",
        op=op,
        dims={"elements": Affine(max(weights.elements, default=0))},
        dtype="fp32" if weights.width_bytes > 2 else "16bit",
        flops=Affine(0),
        bytes_read=Affine(round(reads * total)),
        bytes_written=Affine(round(writes * total)),
        launches=launches,
    )


def _orthogonal(shape: _Matrix, count: int) -> list[Kernel]:
    """Return the products of the Newton-Schulz steps: X Xᵀ, A A and B X, for each matrix."""
    small, large = sorted(shape)
    products = ((small, small, large), (small, small, small), (small, large, small))
    return [
        Kernel(
            kind="gemm",
            op="newton_schulz",
            dims={"batch": Affine(1), "m": Affine(m), "n": Affine(n), "k": Affine(k)},
            dtype="16bit",
            flops=Affine(2 * m * n * k),
            bytes_read=Affine(2 * (m * k + k * n)),
            bytes_written=Affine(2 * m * n),
        )
        for m, n, k in products
        for _ in range(count * NEWTON_SCHULZ_STEPS)
    ]


def _facts(name: str, work: _Work) -> OptimizerFacts:
    total = max(1, work.weights.total)
    moved = sum(k.bytes_read.base + k.bytes_written.base for k in work.kernels)
    return OptimizerFacts(
        name=name,
        state_bytes_per_parameter=sum(work.state_bytes),
        step_bytes_per_parameter=moved / total,
        temporary_bytes_per_parameter=work.temporary_bytes + work.scratch_bytes / total,
        launches=sum(kernel.launches for kernel in work.kernels),
    )


def _rewritten(step: StepTrace, work: _Work) -> StepTrace:
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


def _memory(step: StepTrace, work: _Work, start: int, instance: int) -> MemoryStream:
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
