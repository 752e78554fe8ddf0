"""What each optimizer keeps, moves and launches per step: the rules behind `--optimizer`.

Sources stand beside each rule; those of torch's own optimizers are what a trace of them shows
(torch 2.13, the foreach implementation that CUDA takes by default), which a test repeats.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil
from typing import NamedTuple

from ..profile import CATEGORIES, Affine, Kernel, Profile, StepTrace

TENSORS_PER_LAUNCH = (110, 64, 48, 36, 30)
CHUNK_ELEMENTS = 65536
BLOCKS_PER_LAUNCH = 320
"""Limits of one multi-tensor launch, by number of tensor lists (torch
aten/src/ATen/native/cuda/MultiTensorApply.cuh)."""
QUANTIZED_BLOCK = 256
"""Elements that share one scale in bitsandbytes' 8-bit optimizers (docs, "8-bit optimizers")."""
NEWTON_SCHULZ_STEPS = 5
_GRADIENTS = CATEGORIES.index("gradients")


def multi_tensor_launches(elements: list[int], lists: int) -> int:
    """Return the launches of one multi-tensor kernel over tensors of these sizes.

    Args:
        elements: Elements of every tensor of one list.
        lists: How many lists it reads or writes.
    """
    per_launch = TENSORS_PER_LAUNCH[min(lists, len(TENSORS_PER_LAUNCH)) - 1]
    chunks = sum(ceil(each / CHUNK_ELEMENTS) for each in elements)
    return max(1, ceil(len(elements) / per_launch), ceil(chunks / BLOCKS_PER_LAUNCH))


class _Matrix(NamedTuple):
    rows: int
    columns: int

    @property
    def elements(self) -> int:
        return self.rows * self.columns


@dataclass(frozen=True)
class Weights:
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
        """All of their elements."""
        return sum(self.elements)

    @classmethod
    def of(cls, profile: Profile, step: StepTrace) -> Weights:
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
class Work:
    """One optimizer over these weights."""

    weights: Weights
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


def _adam(passes: tuple[_Pass, ...]) -> Callable[[Weights], Work]:
    """Two moments in the dtype of the parameter; the root of the second is a temporary list.

    Source: Kingma & Ba 2015 (arXiv:1412.6980); Loshchilov & Hutter 2019 (arXiv:1711.05101);
    torch.optim.adam._multi_tensor_adam.
    """

    def work(weights: Weights) -> Work:
        width = weights.width_bytes
        return Work(weights, (width, width), _foreach(weights, passes), temporary_bytes=width)

    return work


def _sgd(weights: Weights) -> Work:
    """One momentum buffer. Source: torch.optim.sgd._multi_tensor_sgd, momentum without decay."""
    return Work(weights, (weights.width_bytes,), _foreach(weights, _SGD))


def _adamw8bit(weights: Weights) -> Work:
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
    return Work(weights, (1.0, 1.0, scales), (kernel,))


def _adafactor(weights: Weights) -> Work:
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
    return Work(weights, (state,), (kernel,), scratch_bytes=largest)


def _muon(weights: Weights) -> Work:
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
    rest = Weights(width, [m.elements for m in weights.others], [], weights.others)
    if others and rest.elements:
        kernels.extend(_foreach(rest, _ADAMW))
    largest = max((m.elements for m in weights.hidden), default=0) * (width + 2 * 2)
    state = width * (hidden + 2 * others) / max(1, weights.total)
    return Work(weights, (state,), tuple(kernels), scratch_bytes=largest)


RULES: dict[str, Callable[[Weights], Work]] = {
    "adamw": _adam(_ADAMW),
    "adam": _adam(_ADAM),
    "adamw8bit": _adamw8bit,
    "adafactor": _adafactor,
    "sgd": _sgd,
    "muon": _muon,
}


def _foreach(weights: Weights, passes: tuple[_Pass, ...]) -> tuple[Kernel, ...]:
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


def _kernel(op: str, weights: Weights, *, reads: float, writes: float, launches: int) -> Kernel:
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
