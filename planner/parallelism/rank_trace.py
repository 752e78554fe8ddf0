"""What one rank runs when tensor, context and expert parallelism split a traced step.

Every kernel keeps its place; its sizes are those of the rank's share:

- tensor: column- and row-parallel layers (`column_row_parallel`), attention by heads, everything
  between a column layer and its row layer by the same share (Shoeybi et al. 2019,
  arXiv:1909.08053, section 3);
- sequence parallel: the residual stream and its norms by tokens (Korthikanti et al. 2022,
  arXiv:2205.05198, section 4.2.2);
- context: every token-wise kernel by tokens; attention by queries against all keys, which are
  passed round a ring (Liu et al. 2023, arXiv:2310.01889), balanced under a causal mask;
- expert: experts over ranks, the tokens of all ranks exchanged (Lepikhin et al. 2020,
  arXiv:2006.16668, section 3).
"""

from __future__ import annotations

from dataclasses import dataclass

from ...profiles.profile import Affine, Kernel, Segment, StepTrace
from ..plan.errors import UnsupportedError
from .column_row_parallel import (
    GATHERED_RANKS,
    SPLIT_EXPERTS,
    ParallelStyles,
    is_dense_linear,
    is_expert_product,
    parallel_styles,
)
from .degrees import Split as Split
from .model_parallel_comm import Exchange as Exchange
from .model_parallel_comm import exchanges_of, is_table
from .sequence_parallel import Gathered, gathered_of


@dataclass(frozen=True, eq=False)
class SplitTrace:
    """One rank's share of a step; compared by identity, so that it is a cheap key of caches."""

    trace: StepTrace
    exchanges: tuple[tuple[Exchange, ...], ...]
    """Collectives of each segment."""
    output_shares: tuple[tuple[tuple[float, float], ...], ...]
    """Share of what a kernel writes that the rank holds, as (constant part, part that grows with
    the micro-batch), by segment and kernel."""
    gathered: tuple[tuple[Gathered, ...], ...]
    """Tensors of each segment that are gathered whole for a moment."""


def split_trace(trace: StepTrace, split: Split) -> SplitTrace:
    """Return one rank's share of a traced step.

    Raises:
        UnsupportedError: the model cannot be split that way.
    """
    styles = parallel_styles(trace, splits_head=split.splits_vocabulary)
    check_divisible(trace, styles, split)
    splitter = _Splitter(split, styles, trace)
    parts = [splitter.segment(segment) for segment in trace.segments]
    return SplitTrace(
        trace=trace.model_copy(update={"segments": tuple(part[0] for part in parts)}),
        exchanges=tuple(part[1] for part in parts),
        output_shares=tuple(part[2] for part in parts),
        gathered=tuple(gathered_of(s, styles.get(s.block), split) for s in trace.segments),
    )


def check_divisible(
    trace: StepTrace, styles: dict[str | None, ParallelStyles], split: Split
) -> None:
    """Raise UnsupportedError where a degree does not divide what it splits."""
    t, name = split.tensor, "tensor"
    if t > 1:
        for block, found in styles.items():
            if block is not None and "row" not in found.style.values():
                raise UnsupportedError(
                    f"Block {block} has no pair of linear layers that tensor parallelism splits.",
                    fix="use data parallelism (dp, fsdp) or pipeline stages for this model.",
                )
            for module, style in found.style.items():
                shape = found.shapes[module]
                width = {"column": shape.width_out, "row": shape.width_in, "whole": 0}[style]
                held = width * found.share(module, t)
                if block is not None and abs(held - round(held)) > 1e-6:
                    _refuse_indivisible(name, t, f"width {width:g} of {module}")
    for segment in trace.segments:
        for kernel in segment.kernels:
            if kernel.kind == "attention":
                heads = kernel.dims["heads"].base
                if heads % t:
                    _refuse_indivisible(name, t, f"{heads:g} attention heads")
            elif is_expert_product(kernel) and kernel.dims["batch"].base % split.expert:
                experts = kernel.dims["batch"].base
                _refuse_indivisible("expert", split.expert, f"{experts:g} experts")
            elif kernel.kind == "gemm" and not kernel.linear and split.context > 1:
                raise UnsupportedError(
                    "Context parallelism is predicted for fused attention only; this model writes"
                    " its attention out.",
                    fix="use scaled_dot_product_attention.",
                )
    if split.expert > 1 and not any(
        is_expert_product(k) for s in trace.segments for k in s.kernels
    ):
        raise UnsupportedError(
            "The model has no experts that expert parallelism could spread.",
            fix="leave expert parallelism out.",
        )


def _refuse_indivisible(degree: str, size: int, what: str) -> None:
    raise UnsupportedError(
        f"{degree} {size} does not divide the {what}.", fix=f"choose another {degree} degree."
    )


class _Splitter:
    """Splits the segments of one trace; equal kernels stay equal, so that they are timed once."""

    def __init__(
        self, split: Split, styles: dict[str | None, ParallelStyles], trace: StepTrace
    ) -> None:
        self.split = split
        self.styles = styles
        tables = [
            kernel
            for segment in trace.segments
            if segment.block is None and segment.phase == "forward"
            for kernel in segment.kernels
            if kernel.kind == "embedding" and kernel.module and "elements" in kernel.dims
        ]
        self.table = max(tables, key=lambda kernel: kernel.dims["elements"].base, default=None)
        self._known: dict[tuple[int, bool, bool], tuple[Kernel, tuple[float, float]]] = {}

    def segment(
        self, segment: Segment
    ) -> tuple[Segment, tuple[Exchange, ...], tuple[tuple[float, float], ...]]:
        """Return the rank's kernels, its exchanges and its share of each kernel's output."""
        if segment.phase == "optimizer":
            return segment, (), tuple((1.0, 1.0) for _ in segment.kernels)
        styles = self.styles.get(segment.block) or ParallelStyles({}, {}, {}, 0)
        backward = segment.phase == "backward"
        walk = _Walk(styles, segment, loss_inside=not self.split.gathers_logits)
        kernels, shares = [], []
        for kernel in segment.kernels:
            was_inside, inside = walk.inside, walk.step(kernel)
            if self.split.keeps_gathered and inside and not was_inside and shares and not backward:
                # Kept is what was gathered of the kernel's result.
                shares[-1] = (shares[-1][0], shares[-1][1] * self.split.tensor)
            key = (id(kernel), inside, backward)
            if key not in self._known:
                self._known[key] = self._kernel(kernel, styles, inside, backward)
            part, share = self._known[key]
            kernels.append(part)
            gathered = self.split.gathers_logits and segment.block is None and not backward
            shares.append((1.0, 1.0) if gathered and is_split(kernel, styles) else share)
        if self.split.copies_logits and backward and segment.block is None and kernels:
            at = max(range(len(kernels)), key=lambda i: segment.kernels[i].bytes_written.per_sample)
            shares[at] = (shares[at][0], 2 * shares[at][1])
        return (
            segment.model_copy(update={"kernels": tuple(kernels)}),
            tuple(exchanges_of(segment, styles, self.split, self.table)),
            tuple(shares),
        )

    def _kernel(
        self, kernel: Kernel, styles: ParallelStyles, inside: bool, backward: bool
    ) -> tuple[Kernel, tuple[float, float]]:
        split = self.split
        if is_expert_product(kernel):
            return _expert_product(kernel, split, styles.hidden)
        style = styles.style.get(kernel.module, "whole")
        if is_dense_linear(kernel) and style != "whole":
            return _linear(kernel, style, styles, split, backward)
        if kernel.kind == "attention":
            return _attention(kernel, styles, split)
        if kernel.kind == "gemm" and not kernel.linear:
            return _batched(kernel, split, inside)
        tokens = 1 / split.context
        if inside or split.sequence_parallel:
            tokens /= split.tensor
        weights = 1.0
        # Casts and gradients of a layer's own parameters.
        if style != "whole":
            weights = styles.share(kernel.module, split.tensor)
        elif split.splits_vocabulary and is_table(kernel, self.table):
            weights = 1 / split.tensor
        return _scaled(kernel, weights, tokens), (weights, tokens)


def is_split(kernel: Kernel, styles: ParallelStyles) -> bool:
    """Return whether a kernel is the product of a layer that tensor parallelism splits."""
    return is_dense_linear(kernel) and styles.style.get(kernel.module, "whole") != "whole"


class _Walk:
    """Follows a segment's kernels: between a column layer and its row layer they are split too.

    The loss is behind a column layer, the head, that no row layer follows.
    """

    def __init__(self, styles: ParallelStyles, segment: Segment, *, loss_inside: bool) -> None:
        self.styles = styles
        self.loss_inside = loss_inside
        self.backward = segment.phase == "backward"
        self.pending: set[str] = set()
        self.inside = False
        first = next((s for k in segment.kernels if (s := self._style(k)) != "whole"), "whole")
        if self.backward and first == "column" and loss_inside:
            self.inside = True
            self.pending = {m for m, s in styles.style.items() if s == "column"}

    def step(self, kernel: Kernel) -> bool:
        """Return whether this kernel works on split activations, and go on behind it."""
        style = self._style(kernel)
        if style == "whole":
            bias = self.styles.style.get(kernel.module)
            return self.inside if bias in (None, "whole") else bias == "column"
        if self.backward:
            self._step_back(kernel.module, style)
        else:
            self.inside = style == "column" and (self.loss_inside or not self._is_head(kernel))
        return self.inside

    def _is_head(self, kernel: Kernel) -> bool:
        return "row" not in self.styles.style.values()

    def _step_back(self, module: str, style: str) -> None:
        if style == "row":
            self.inside = True
            group = self.styles.group[module]
            self.pending = {
                m
                for m, g in self.styles.group.items()
                if g == group and self.styles.style[m] == "column"
            }
        else:
            self.pending.discard(module)
            self.inside = bool(self.pending)

    def _style(self, kernel: Kernel) -> str:
        return self.styles.style.get(kernel.module, "whole") if is_dense_linear(kernel) else "whole"


def _linear(
    kernel: Kernel, style: str, styles: ParallelStyles, split: Split, backward: bool
) -> tuple[Kernel, tuple[float, float]]:
    """Return a split layer's product: forward (m,n,k), input gradient and weight gradient."""
    shape = styles.shapes[kernel.module]
    divided = shape.width_out if style == "column" else shape.width_in
    other = shape.width_in if style == "column" else shape.width_out
    free = [name for name in ("m", "n", "k") if not kernel.dims[name].grows]
    candidates = [name for name in free if kernel.dims[name].base == divided]
    if divided == other and len(candidates) == 2:
        candidates = [_square_axis(kernel, style, backward)]
    factors: dict[str, float] = dict.fromkeys(("m", "n", "k"), 1.0)
    if candidates:
        factors[candidates[0]] = styles.share(kernel.module, split.tensor)
    for name in ("m", "n", "k"):
        if kernel.dims[name].grows:
            factors[name] = 1 / split.context
    part, shares = _product(kernel, factors)
    if split.gathered.is_cast_before and (style == "column") != backward:
        dims = {**part.dims, GATHERED_RANKS: Affine(split.tensor)}
        part = part.model_copy(update={"dims": dims})
    return part, shares


def _square_axis(kernel: Kernel, style: str, backward: bool) -> str:
    """Return the axis of the split width where input and output are equally wide.

    Forward is (tokens, out, in), the input's gradient (tokens, in, out), the weight's (out, in,
    tokens).
    """
    if kernel.dims["k"].grows:
        return "m" if style == "column" else "n"
    return "n" if (style == "column") != backward else "k"


def _expert_product(
    kernel: Kernel, split: Split, hidden: float
) -> tuple[Kernel, tuple[float, float]]:
    """Return the products of a rank's experts: fewer of them, with the tokens of all ranks.

    The `tensor` ranks of a micro-batch hold its tokens in equal parts. Where they split each
    expert's inner width, all of them take the tokens of all.
    """
    tokens = split.expert * split.expert_tensor / (split.tensor * split.context)
    factors = {name: tokens if kernel.dims[name].grows else 1.0 for name in ("m", "n", "k")}
    factors["batch"] = 1 / split.expert
    if split.expert_tensor > 1:
        factors[_inner_axis(kernel, hidden)] /= split.expert_tensor
    part, shares = _product(kernel, factors)
    dims = {**part.dims, SPLIT_EXPERTS: kernel.dims["batch"]}
    return part.model_copy(update={"dims": dims}), shares


def _inner_axis(kernel: Kernel, hidden: float) -> str:
    """Return the axis of an expert's product that is its inner width, not the residual stream's."""
    free = [name for name in ("m", "n", "k") if not kernel.dims[name].grows]
    inner = [name for name in free if kernel.dims[name].base != hidden]
    return (inner or free)[0]


def _batched(kernel: Kernel, split: Split, inside: bool) -> tuple[Kernel, tuple[float, float]]:
    factors: dict[str, float] = dict.fromkeys(("m", "n", "k"), 1.0)
    factors["batch"] = 1 / split.tensor if inside else 1.0
    return _product(kernel, factors)


def _product(kernel: Kernel, factors: dict[str, float]) -> tuple[Kernel, tuple[float, float]]:
    """Return a product with scaled dimensions, and the share of its result."""
    batch = factors.get("batch", 1.0)
    m, n, k = (factors[name] for name in ("m", "n", "k"))
    dims = {name: size.times(factors.get(name, 1.0)) for name, size in kernel.dims.items()}
    written = batch * m * n
    read = batch * (m * k + k * n) / 2
    part = kernel.model_copy(
        update={
            "dims": dims,
            "flops": kernel.flops.times(batch * m * n * k),
            "bytes_read": kernel.bytes_read.times(read),
            "bytes_written": kernel.bytes_written.times(written),
        }
    )
    return part, (written, written)


def _attention(
    kernel: Kernel, styles: ParallelStyles, split: Split
) -> tuple[Kernel, tuple[float, float]]:
    share = 1 / (split.tensor * split.context)
    dims = dict(kernel.dims)
    dims["heads"] = dims["heads"].times(1 / split.tensor)
    if styles.heads:
        dims["kv_heads"] = Affine(styles.heads.keys_of_rank(split.tensor))
    dims["seq_q"] = dims["seq_q"].times(1 / split.context)
    part = _scaled(kernel, 1.0, share)
    return part.model_copy(update={"dims": dims, "flops": kernel.flops.times(share)}), (1, share)


def _scaled(kernel: Kernel, weights: float, tokens: float) -> Kernel:
    """Return a kernel with its constant sizes times `weights`, the growing ones times `tokens`."""
    if weights == tokens == 1:
        return kernel

    def scale(size: Affine) -> Affine:
        return Affine(size.base * weights, *(part * tokens for part in size[1:]))

    return kernel.model_copy(
        update={
            "dims": {name: scale(size) for name, size in kernel.dims.items()},
            "flops": scale(kernel.flops),
            "bytes_read": scale(kernel.bytes_read),
            "bytes_written": scale(kernel.bytes_written),
        }
    )
