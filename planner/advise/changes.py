"""Single changes of a setting on the same machine, each with its risk and the lines to write."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from ...catalog.vocabulary import OFFLOADABLE, OPTIMIZERS, Offloaded, Precision
from ...profiles.passes.fused_optimizer import can_be_fused
from ...profiles.passes.optimizers import with_optimizer
from ...profiles.profile import Profile
from ..hardware.device import supported_precisions
from ..offload.host_memory import ordered
from ..plan.layout import Layout
from ..software.compile_time import compiles_too_long
from ..software.frozen_base import why_not_kept
from ..software.stack import PADDED_WIDTHS
from ..step.kernels.odd_widths import wider_width
from . import snippets
from .answer import Kind
from .odd_width import widths_to_pad
from .offload_lines import offload_lines
from .today.masked_attention import takes_a_mask
from .today.memory_order import takes_images_in_plain_order
from .today.own_recompute import own_recompute, without_own_recompute
from .today.setting import Setting

FACTORS = (2, 4, 8, 16)
"""By how much micro-batches and accumulation are tried larger and smaller."""
WIDER: dict[Precision, tuple[Precision, ...]] = {
    "fp32": ("tf32", "bf16-amp", "fp16-amp", "bf16", "fp8"),
    "tf32": ("bf16-amp", "fp16-amp", "bf16", "fp8"),
    "fp16-amp": ("bf16-amp", "bf16", "fp8"),
    "bf16-amp": ("bf16", "fp8"),
    "bf16": ("bf16-amp", "fp8"),
    "fp8": ("bf16-amp",),
}
"""Precisions to try instead of another."""


@dataclass(frozen=True, kw_only=True)
class Proposal:
    """A changed setting, before it is planned."""

    kind: Kind
    text: str
    setting: Setting
    risks: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()
    alters_training: bool = False


def proposals(
    today: Setting, profile: Profile, *, fits: bool, waits: bool, causal_mask: str | None = None
) -> Iterator[Proposal]:
    """Yield the changes to try, of each kind the least invasive first.

    Args:
        today: the setting.
        profile: the traced model.
        fits: whether it fits in memory; a larger global batch makes nothing fit.
        waits: whether the step waits for its input.
        causal_mask: where the file makes the mask of its attention, if that is a causal one.
    """
    yield from _micro_batches(today, profile)
    if fits:
        yield from _global_batches(today)
    yield from _precisions(today)
    yield from _frozen_precisions(today, profile)
    yield from _recompute(today, profile)
    yield from _compile(today, profile)
    if causal_mask is not None and takes_a_mask(profile):
        yield causal_attention(today, causal_mask)
    # A compiler chooses the memory order itself.
    if today.setup.stack == "torch-eager" and takes_images_in_plain_order(profile):
        yield _channels_last(today)
    if widths := widths_to_pad(today.setup, profile):
        yield _padded(today, widths)
    yield from _sharding(today, profile)
    yield from _fused_optimizer(today, profile)
    yield from _optimizers(today, profile)
    if waits:
        yield _faster_input(today)
    yield from _offload(today, profile)


def _changed(today: Setting, **setup: object) -> Setting:
    return replace(today, setup=replace(today.setup, **setup))  # pyright: ignore[reportArgumentType]


def _micro_batches(today: Setting, profile: Profile) -> Iterator[Proposal]:
    """Yield other micro-batches of the same global batch."""
    setup = today.setup
    size, accum = setup.micro_batch, setup.grad_accum
    seen_by = seen_at_once(profile)
    pairs = [(size * f, accum // f) for f in FACTORS if accum % f == 0]
    pairs += [(size // f, accum * f) for f in FACTORS if size % f == 0]
    for micro_batch, grad_accum in pairs:
        yield Proposal(
            kind="micro_batch",
            text=(
                f"micro-batch {size:,} → {micro_batch:,}, accumulation {accum:,} → {grad_accum:,}"
            ),
            setting=_changed(today, micro_batch=micro_batch, grad_accum=grad_accum),
            risks=tuple(f"{what} {micro_batch:,} samples at a time" for what in seen_by),
            lines=(
                f"micro_batch, grad_accum = {micro_batch}, {grad_accum}",
                *snippets.accumulation_lines(setup.layout, grad_accum),
            ),
            alters_training=profile.mixes_samples,
        )


def seen_at_once(profile: Profile) -> list[str]:
    """Return what looks at a whole micro-batch: "batch norms see", "the loss compares"."""
    kernels = (kernel for segment in profile.steps[0].segments for kernel in segment.kernels)
    has_norms = any("batch_norm" in kernel.op for kernel in kernels)
    return [
        *(["batch norms see"] if has_norms else []),
        *(["the loss compares"] if profile.mixes_samples else []),
    ]


def _global_batches(today: Setting) -> Iterator[Proposal]:
    """Yield larger global batches: by a larger micro-batch, and by accumulation."""
    setup = today.setup
    for factor in FACTORS:
        for name in ("micro_batch", "grad_accum"):
            before = getattr(setup, name)
            word = "micro-batch" if name == "micro_batch" else "accumulation"
            setting = _changed(today, **{name: before * factor})
            batches = f"{today.global_batch:,} → {setting.global_batch:,}"
            yield Proposal(
                kind="global_batch",
                text=f"global batch {batches} by {word} {before:,} → {before * factor:,}",
                setting=setting,
                risks=(
                    f"{factor} times fewer updates for the same samples: tune the learning rate"
                    " anew, and compare the loss after the same samples",
                ),
                lines=(
                    f"{name} = {before * factor}",
                    *snippets.accumulation_lines(setup.layout, setting.setup.grad_accum),
                ),
                alters_training=True,
            )


def _precisions(today: Setting) -> Iterator[Proposal]:
    setup = today.setup
    able = supported_precisions(today.choice.accelerator)
    for precision in WIDER[setup.precision]:
        if precision in able and not (precision == "fp16-amp" and "bf16-amp" in able):
            yield Proposal(
                kind="precision",
                text=f"precision {setup.precision} → {precision}",
                setting=_changed(today, precision=precision),
                risks=(snippets.PRECISION_RISKS[precision],),
                lines=snippets.precision_lines(precision, setup.layout),
                alters_training=precision in ("bf16", "fp8"),
            )


def _frozen_precisions(today: Setting, profile: Profile) -> Iterator[Proposal]:
    """Yield smaller storages of the parameters that are not trained, where by far the most are."""
    if not profile.is_mostly_frozen or "frozen16" not in profile.numerics():
        return
    kept = today.setup.frozen_precision
    for frozen in snippets.FROZEN_RISKS:
        setting = _changed(today, frozen_precision=frozen)
        if frozen != kept and why_not_kept(setting.setup, today.choice.accelerator) is None:
            yield Proposal(
                kind="precision",
                text=f"frozen parameters {kept or 'fp32'} → {frozen}",
                setting=setting,
                risks=(snippets.FROZEN_RISKS[frozen],),
                lines=snippets.frozen_lines(frozen, today.setup.precision),
            )


def _recompute(today: Setting, profile: Profile) -> Iterator[Proposal]:
    """Yield other policies; where the file itself recomputes, what comes in place of that."""
    if not profile.blocks:
        return
    own, now = own_recompute(profile), today.setup.recompute
    can_leave_out = own is not None and without_own_recompute(profile) is not None
    for policy in snippets.RECOMPUTE_LINES:
        setting = _changed(today, recompute=policy, recompute_share=1.0)
        text = f"recompute {now} → {policy}"
        if own is not None:
            stays = policy == "full"
            if (stays and own.is_everywhere) or not (stays or can_leave_out):
                continue
            setting = replace(setting, keeps_own_recompute=stays)
            beside = "" if now == "none" else f"{now} beside "
            text = f"recompute {beside}{own} → {policy}"
        if setting != today:
            yield Proposal(
                kind="recompute",
                text=text,
                setting=setting,
                lines=snippets.RECOMPUTE_LINES[policy],
            )


def compiled_today(today: Setting) -> Setting:
    """Return the setting with the whole model compiled."""
    return _changed(today, stack="torch-compile", compile=True)


def _compile(today: Setting, profile: Profile) -> Iterator[Proposal]:
    if today.setup.stack == "torch-eager" and today.choice.accelerator.can_compile:
        compiled = compiled_today(today)
        if compiles_too_long(profile, compiled.setup):
            return
        yield Proposal(
            kind="compile",
            text="torch.compile",
            setting=compiled,
            risks=("the first step compiles, and so does every new shape of the input",),
            lines=("model = torch.compile(model)",),
        )
    elif today.setup.stack == "torch-compile":
        yield Proposal(
            kind="compile",
            text="without torch.compile",
            setting=_changed(today, stack="torch-eager", compile=False),
            lines=("# leave out: model = torch.compile(model)",),
        )


def causal_attention(today: Setting, made_at: str) -> Proposal:
    """Return causal attention in place of a causal mask: the same sums, by a faster kernel.

    Args:
        today: the setting.
        made_at: where the mask is made, such as "model.py:12".
    """
    return Proposal(
        kind="attention",
        text=f"attention with the causal mask of {made_at} → is_causal=True",
        setting=replace(today, causal_attention=True),
        risks=(
            "none for the training where queries and keys are the same positions: the kernel leaves"
            " out what that mask hides",
        ),
        lines=("F.scaled_dot_product_attention(q, k, v, is_causal=True)  # no attn_mask",),
    )


def _channels_last(today: Setting) -> Proposal:
    return Proposal(
        kind="memory_order",
        text="images and weights → channels-last order",
        setting=replace(today, channels_last=True),
        risks=(
            "none for the training: products add up in another order; layers between convolutions"
            " that reshape or permute copy what they get",
        ),
        lines=(
            "model = model.to(memory_format=torch.channels_last)",
            "images = images.contiguous(memory_format=torch.channels_last)  # [N, C, H, W]",
        ),
    )


def _padded(today: Setting, widths: Sequence[int]) -> Proposal:
    """Return the model with these odd widths padded to the next that every kernel takes."""
    changed = ", ".join(f"{one:,} → {wider_width(one):,}" for one in widths)
    return Proposal(
        kind="odd_width",
        text=f"odd width {changed}",
        setting=_changed(today, features=today.setup.features | {PADDED_WIDTHS}),
        risks=(
            "none that is known for the training of a padded vocabulary: no text has the entries"
            " that are added; weights of the old width need as many rows more",
        ),
        lines=(
            *(f"width = {wider_width(one)}  # where the file has {one}" for one in widths),
            "# a vocabulary: in the embedding and the output layer; tokens stay as they are",
            "# transformers: model.resize_token_embeddings(pad_to_multiple_of=64)",
        ),
    )


def _sharding(today: Setting, profile: Profile) -> Iterator[Proposal]:
    """Yield the other ways to share the state among the same ranks."""
    steps = today.setup.optimizer or profile.optimizer.name
    layout, per_node = today.setup.layout, today.choice.one_node.per_node
    ranks = layout.data
    if ranks == 1 or not layout.is_data_parallel_only or today.setup.stack == "megatron":
        return
    others = [
        Layout(data=ranks),
        *(Layout(data=ranks, shard=ranks, zero_stage=stage) for stage in (1, 2, 3)),
    ]
    if today.nodes > 1 and per_node > 1:
        others.append(Layout(data=ranks, shard=per_node, zero_stage=3))
    for other in others:
        if other != layout:
            yield Proposal(
                kind="sharding",
                text=f"layout {layout} → {other}",
                setting=_changed(today, layout=other),
                risks=_sharding_risks(today, other),
                lines=snippets.sharding_lines(replace(today.setup, layout=other), steps),
            )


def _sharding_risks(today: Setting, layout: Layout) -> tuple[str, ...]:
    found = []
    if layout.zero_stage == 3 and layout.shard == layout.data and today.nodes > 1:
        found.append("more traffic between nodes: a network slower than its data sheet costs more")
    casts = snippets.sharded_precision_lines(today.setup.precision)
    if casts and snippets.is_sharded(layout) and not snippets.is_sharded(today.setup.layout):
        found.append(snippets.CAST_RISK)
    return tuple(found)


def _fused_optimizer(today: Setting, profile: Profile) -> Iterator[Proposal]:
    """Yield torch's fused Adam in place of its foreach one, where the device steps that."""
    setup = today.setup
    if setup.stack not in ("torch-eager", "torch-compile") or "optimizer" in setup.offload:
        return
    own = profile if setup.optimizer is None else with_optimizer(profile, setup.optimizer)
    if can_be_fused(own):
        name = own.optimizer.name
        yield Proposal(
            kind="fused_optimizer",
            text=f"optimizer {name}, foreach → fused",
            setting=replace(today, fused_optimizer=True),
            risks=(snippets.FUSED_RISK,),
            lines=(snippets.FUSED_LINES[name],),
        )


def _optimizers(today: Setting, profile: Profile) -> Iterator[Proposal]:
    current = today.setup.optimizer or profile.optimizer.name
    for name in OPTIMIZERS:
        if name != current:
            yield Proposal(
                kind="optimizer",
                text=f"optimizer {current} → {name}",
                setting=_changed(today, optimizer=name),
                risks=(
                    "another optimizer wants its own learning rate, and may need more steps:"
                    " compare the loss",
                ),
                lines=snippets.OPTIMIZER_LINES[name],
                alters_training=True,
            )


def _faster_input(today: Setting) -> Proposal:
    one = today.choice.one_node
    workers = int((one.vcpus or one.per_node) // one.per_node)
    return Proposal(
        kind="input",
        text="an input that never makes the step wait",
        setting=replace(today, input_is_fast=True),
        risks=("the most that is to be had: how far a faster input gets must be measured",),
        lines=(
            f"DataLoader(…, num_workers={max(1, workers)}, pin_memory=True,"
            " persistent_workers=True)",
            "# and decode on the GPU (torchvision.io.decode_jpeg), or store decoded samples",
        ),
    )


def _offload(today: Setting, profile: Profile) -> Iterator[Proposal]:
    now = today.setup.offload
    own = today.setup.optimizer in (None, profile.optimizer.name)
    stateless = own and not profile.optimizer.state_bytes_per_parameter
    wanted: list[frozenset[Offloaded]] = [
        frozenset({one}) for one in OFFLOADABLE if not (one == "optimizer" and stateless)
    ]
    for offload in ([frozenset()] if now else []) + wanted:
        if offload != now:
            words = "+".join(ordered(offload)) or "none"
            yield Proposal(
                kind="offload",
                text=f"offload {'+'.join(ordered(now)) or 'none'} → {words}",
                setting=_changed(today, offload=offload),
                risks=("the step waits for the host's memory and its link",) if offload else (),
                lines=offload_lines(offload, now, today.setup.layout),
            )
