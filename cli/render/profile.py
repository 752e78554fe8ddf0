"""A Profile as text for a terminal: the model, work and memory of one step, and where most goes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.text import Text

from ...api.models.double_precision import fp64_share
from ...api.models.step import StepSummary
from ...catalog.text.quantity import format_bytes, format_count, format_part, format_seconds
from ...profiles.analysis.costliest_kernels import KernelCost
from ...profiles.analysis.replay import MemoryReplay
from ...profiles.profile import CATEGORIES, BlockGroup, Profile
from .text.columns import Align, aligned, column_widths, total_width
from .text.notes import joined_notes

LABEL_WIDTH = 13
BAR_WIDTH = 40
_FLOP_PREFIXES = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_SHORT_PHASES = {
    "forward": "forward",
    "backward": "backward",
    "recompute": "recompute",
    "optimizer": "step",
}
_COLUMNS: tuple[tuple[str, Align], ...] = (
    ("kernel", "left"),
    ("in", "left"),
    ("pass", "left"),
    ("shape", "left"),
    ("runs", "right"),
    ("FLOPs", "right"),
    ("traffic", "right"),
    ("share", "right"),
)
LEAVE_FIRST = ("traffic", "FLOPs", "pass", "kernel", "runs")
"""Columns that leave a narrow screen, in this order."""
FEWEST_FACTS = 2
"""Of a group of blocks."""
MARGIN = "  "
LONGEST_MODULE = 30
_WHEN = {
    "forward": "in the forward pass",
    "recompute": "while recomputing",
    "backward": "in the backward pass",
    "optimizer": "in the optimizer step",
}


def render_profile(profile: Profile, step: StepSummary, *, width: int) -> list[Text]:
    """Return the lines of `gpuplan profile`: the model, and one step of it.

    Tables leave columns out that a screen of this width has no room for.
    """
    asked = f"micro-batch {step.micro_batch} · {step.precision}"
    asked += f" · frozen {step.frozen_precision}" if step.frozen_precision else ""
    asked += f" · recompute {step.recompute}" if step.recompute != "none" else ""
    lines = [*_model(profile), Text()]
    lines += [*_blocks(profile.blocks, width), Text()] if profile.blocks else []
    lines += [Text(f"Memory of one step · {asked}", "bold")]
    lines += [*_memory(step.memory, step.peak_phase), Text()]
    lines += [Text(f"Costliest kernels of one step · {asked}", "bold")]
    lines += [Text(_order(step), "dim")]
    lines += _kernels(step.kernels, step.device_s, width)
    notes = [Text(f"Note: {note}", "dim") for note in joined_notes(profile.notes)]
    return [*lines, Text(), *notes] if notes else lines


def format_flops(flops: float) -> str:
    """Return a number of operations with its SI prefix: "817 G", "35.2 T", "0 "."""
    for size, prefix in _FLOP_PREFIXES:
        if flops >= size:
            value = flops / size
            digits = 0 if value >= 99.95 else 1 if value >= 9.995 else 2
            return f"{value:,.{digits}f} {prefix}"
    return f"{flops:,.0f} "


def _model(profile: Profile) -> Iterable[Text]:
    params = " ".join(f"{key}={value}" for key, value in profile.params.items())
    yield Text.assemble((profile.name, "bold"), f" {params}" if params else "")
    yield _labelled("parameters", f"{profile.parameters:,}{_trainable(profile)}")
    tokens = profile.tokens_per_sample
    work = f"{format_flops(profile.flops_per_sample)}FLOP per sample"
    if tokens:
        per_token = format_flops(profile.flops_per_sample / tokens)
        work += f" of {tokens:,.0f} tokens · {per_token}FLOP per token"
    yield _labelled("work", f"{work}, forward and backward")
    facts = profile.optimizer
    yield _labelled(
        "optimizer",
        f"{facts.name} · {facts.state_bytes_per_parameter:.3g} bytes of state per parameter",
    )
    yield _labelled("precision", _own_precision(profile))
    yield _labelled("batch", f"{format_bytes(profile.batch_bytes.per_sample)} per sample")


def _labelled(label: str, text: str) -> Text:
    return Text.assemble(f"  {label:<{LABEL_WIDTH}}{text}")


def _own_precision(profile: Profile) -> str:
    own = profile.file_precision
    usual = "fp64 where its tensors are, else fp32" if fp64_share(profile) else "fp32 then"
    text = f"{own}, set by the file" if own else f"the file sets none ({usual})"
    return f"{text} · torch.compile" if profile.file_compiles else text


def _trainable(profile: Profile) -> str:
    if profile.trainable_parameters == profile.parameters:
        return f" in {profile.parameter_tensors:,} tensors, all trainable"
    share = profile.trainable_parameters / profile.parameters
    shown = f"{share:.2%}" if share < 0.1 else f"{share:.0%}"
    return f" · {profile.trainable_parameters:,} trainable ({shown})"


def _blocks(blocks: Sequence[BlockGroup], width: int) -> Iterable[Text]:
    yield Text("Blocks that repeat", "bold")
    rows: list[tuple[str, ...]] = [
        (
            f"{block.count} × {block.class_name}",
            block.name,
            f"{block.parameters:,} parameters each",
            f"{format_bytes(block.boundary_bytes.per_sample)} per sample between them",
        )
        for block in blocks
    ]
    aligns: tuple[Align, ...] = ("left", "left", "right", "right")
    while len(MARGIN) + total_width(column_widths(rows)) > width and len(rows[0]) > FEWEST_FACTS:
        rows = [row[:-1] for row in rows]
    widths = column_widths(rows)
    for row in rows:
        yield Text(f"{MARGIN}{aligned(row, widths, aligns[: len(row)])}")


def _memory(memory: MemoryReplay, peak_phase: str | None) -> Iterable[Text]:
    for name in CATEGORIES:
        size_bytes = memory.breakdown_bytes.get(name, 0)
        if not size_bytes:
            continue
        share = size_bytes / memory.peak_allocated_bytes
        bar = "█" * round(share * BAR_WIDTH) or "▏"
        yield Text.assemble(
            f"  {name:<{LABEL_WIDTH}}{format_bytes(size_bytes):>11}  ",
            (f"{format_part(share):>5}", "dim"),
            "  ",
            (bar, "cyan"),
        )
    yield Text.assemble(
        f"  {'peak':<{LABEL_WIDTH}}{format_bytes(memory.peak_allocated_bytes):>11}",
        (
            f"  allocated, {_WHEN.get(peak_phase or '', 'before the step')} ·"
            f" {format_bytes(memory.peak_reserved_bytes)} reserved, without CUDA's own",
            "dim",
        ),
    )


def _order(step: StepSummary) -> str:
    """Return what the kernels are in the order of, and what their shares add up to."""
    return (
        f"by their share of the {format_seconds(step.device_s)} predicted on one"
        f" {step.accelerator}, without launches"
    )


def _kernels(kernels: Sequence[KernelCost], step_s: float, width: int) -> Iterable[Text]:
    every = [[heading for heading, _ in _COLUMNS]]
    every += [_kernel_row(kernel, step_s) for kernel in kernels]
    widths = column_widths(every)
    shown = list(range(len(_COLUMNS)))
    for heading in LEAVE_FIRST:
        if len(MARGIN) + total_width([widths[i] for i in shown]) <= width:
            break
        shown = [i for i in shown if _COLUMNS[i][0] != heading]
    aligns: list[Align] = [_COLUMNS[i][1] for i in shown]
    for place, row in enumerate(every):
        cells = aligned([row[i] for i in shown], [widths[i] for i in shown], aligns)
        yield Text(f"{MARGIN}{cells}", "" if place else "dim")


def _kernel_row(kernel: KernelCost, step_s: float) -> list[str]:
    return [
        kernel.kind,
        _shortened(kernel.module) or "(root)",
        _SHORT_PHASES[kernel.phase],
        _shape(kernel),
        f"{kernel.times:,}",
        format_flops(kernel.flops).rstrip(),
        format_bytes(kernel.traffic_bytes),
        f"{kernel.device_s / step_s:.1%}",
    ]


def _shortened(module: str) -> str:
    return module if len(module) <= LONGEST_MODULE else f"…{module[1 - LONGEST_MODULE :]}"


def _shape(kernel: KernelCost) -> str:
    dims = {name: f"{size:.0f}" for name, size in kernel.dims.items()}
    if kernel.kind == "gemm":
        batch = f"{dims['batch']} of " if dims["batch"] != "1" else ""
        return f"{batch}{dims['m']}×{dims['n']}×{dims['k']}"
    if kernel.kind == "attention":
        return f"{dims['batch']}×{dims['heads']} heads, {dims['seq_q']}×{dims['head_dim']}"
    if kernel.kind == "convolution":
        channels = f"{dims['in_channels']}→{dims['out_channels']}"
        return (
            f"{dims['batch']}×{channels}, {dims['kernel_elements']} taps, {dims['out_pixels']} px"
        )
    if kernel.kind == "rnn":
        return f"{dims['batch']}×{dims['steps']}, {dims['input']}→{dims['hidden']}"
    return f"{format_count(kernel.dims.get('elements', 0))} elements"
