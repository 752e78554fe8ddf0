"""Does it fit on one kind of device: yes or no, how much is spare, and what would make it fit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Literal

from ...catalog.frozen import FrozenModel
from ...catalog.text.quantity import format_bytes
from ...catalog.types import Accelerator, Link
from ...catalog.vocabulary import FrozenPrecision, Offloaded, Precision, Recompute
from ...profiles.passes.fused_optimizer import can_be_fused, with_fused_optimizer
from ...profiles.passes.optimizers import with_optimizer
from ...profiles.profile import Profile
from ..hardware.cluster import Site
from ..hardware.device import memory_notes, supported_precisions
from ..offload.host_copies import NOTHING
from ..offload.host_memory import host_memory_note, ordered, steps_on_host
from ..plan.layout import Layout
from ..plan.plan import SCHEMA_VERSION, EstimatedHostMemory, EstimatedMemory, MemoryBreakdown
from ..plan.question import MOST_OOM
from ..plan.setup import Setup
from ..software.frozen_base import why_not_kept
from ..software.stack import casts_layers
from .kept.model_cache import ModelCache
from .largest_micro_batch import Largest, Tried, largest_below, largest_that_fits
from .predict import Prediction, predict

MicroBatchSource = Literal["option", "file", "default"]


class Remedy(FrozenModel):
    """One change that makes the model fit, and the peak it leads to."""

    text: str
    peak_bytes: float
    micro_batch: int


class FitsAnswer(FrozenModel):
    """Whether one training step fits on one device of a layout."""

    schema_version: str = SCHEMA_VERSION
    accelerator: str
    layout: Layout
    precision: Precision
    recompute: Recompute
    optimizer: str
    fits: bool
    micro_batch: int
    """The micro-batch that was asked for, else the default of the file's `make_batch`, else 1."""
    largest_micro_batch: int | None
    """Largest micro-batch found that fits as safely as a recommended plan must, else the largest
    that likely fits; None when not even one sample does."""
    largest_is_safe: bool = True
    """Whether that one fits as safely; False where no micro-batch does."""
    smaller_fit: bool = True
    """Whether all smaller ones that were tried fit too: what the allocator keeps beside what it has
    handed out does not grow evenly."""
    peak_memory_bytes: EstimatedMemory
    memory_breakdown_bytes: MemoryBreakdown
    spare_bytes: float
    """Negative when it does not fit."""
    remedies: tuple[Remedy, ...]
    notes: tuple[str, ...]
    offloaded: tuple[Offloaded, ...] = ()
    """What is kept in host memory."""
    host_memory_bytes: EstimatedHostMemory | None = None
    """For all ranks of the layout, taken as one node's; None where nothing is offloaded."""
    frozen_precision: FrozenPrecision | None = None
    """How parameters that are not trained are kept; None as `precision` keeps those that are."""
    micro_batch_source: MicroBatchSource = "option"
    """Where `micro_batch` is from; "default" is 1, where the file names none either."""
    p_oom: float = 0.0
    """Chance of running out of memory, from 0 to 1."""
    memory_is_short: bool = False
    """Whether the step runs only because the allocator gives free segments back when the device is
    full, which slows it: the peak is then all of the device."""
    least_memory_bytes: float | None = None
    """What the device must hold at the least, free segments given back whenever it is full; the
    peak itself where that is far from running out."""

    def __repr__(self) -> str:
        """Return the answer in one line: every field of it fills a screen."""
        took, capacity = self.peak_memory_bytes.value, self.peak_memory_bytes.capacity
        largest = self.largest_micro_batch
        most = "not even one sample fits" if largest is None else f"largest micro-batch {largest:,}"
        return (
            f"<Fits: {'yes' if self.fits else 'no'}, {format_bytes(took)} of"
            f" {format_bytes(capacity)} on {self.accelerator}, micro-batch {self.micro_batch:,},"
            f" {self.precision}; {most}>"
        )

    __str__ = __repr__

    @property
    def may_run_out(self) -> bool:
        """Whether it fits with a larger chance of running out than a recommended plan may have."""
        return self.fits and self.p_oom > MOST_OOM

    @property
    def is_doubtful(self) -> bool:
        """Whether it fits, but not as a recommended plan must: memory is short, or may run out."""
        return self.may_run_out or (self.fits and self.memory_is_short)


def fits(
    profile: Profile,
    accelerator: Accelerator,
    *,
    precision: Precision,
    micro_batch: int | None = None,
    recompute: Recompute = "none",
    layout: Layout | None = None,
    optimizer: str | None = None,
    offload: frozenset[Offloaded] = NOTHING,
    frozen_precision: FrozenPrecision | None = None,
) -> FitsAnswer:
    """Return whether a step fits, with the largest micro-batch and remedies when it does not.

    Args:
        profile: the traced model.
        accelerator: the device.
        precision: numerics of the run.
        micro_batch: samples per rank; None takes the default of the file's `make_batch`, else 1.
        recompute: activation recompute policy.
        layout: None is one device.
        optimizer: a what-if, or None for the file's own.
        offload: what is kept in host memory.
        frozen_precision: how parameters that are not trained are kept; None as the precision says.

    Raises:
        UnsupportedError: the device lacks the precision, or the layout cannot offload that, or
            keep frozen parameters so.
        UsageError: the model was not traced with 16-bit frozen parameters.
    """
    question = _Question(profile, accelerator, layout or Layout(), optimizer)
    setup = Setup(
        layout=question.layout,
        precision=precision,
        micro_batch=micro_batch or profile.default_micro_batch or 1,
        recompute=recompute,
        offload=offload,
        frozen_precision=frozen_precision,
    )
    prediction = question.ask(setup)
    peak = prediction.peak_memory_bytes
    largest, is_safe = question.largest(setup)
    return FitsAnswer(
        accelerator=accelerator.name,
        layout=question.layout,
        precision=precision,
        recompute=recompute,
        optimizer=question.profile.optimizer.name,
        fits=prediction.fits,
        micro_batch=setup.micro_batch,
        largest_micro_batch=None if largest is None else largest.size,
        largest_is_safe=is_safe,
        smaller_fit=largest is None or largest.smaller_fit,
        peak_memory_bytes=peak,
        memory_breakdown_bytes=prediction.memory_breakdown_bytes,
        spare_bytes=peak.capacity - peak.value,
        remedies=() if _is_safe(prediction) else tuple(_remedies(question, setup)),
        notes=(
            *memory_notes(accelerator, peak),
            *_host_notes(prediction, setup),
            *_accumulation_notes(question, setup, prediction),
        ),
        offloaded=ordered(offload),
        host_memory_bytes=prediction.host_memory_bytes,
        frozen_precision=frozen_precision,
        micro_batch_source=_micro_batch_source(profile, micro_batch),
        p_oom=prediction.p_oom,
        memory_is_short=prediction.tight,
        least_memory_bytes=prediction.least_memory_bytes,
    )


def _is_safe(prediction: Prediction) -> bool:
    return prediction.fits and prediction.p_oom <= MOST_OOM and not prediction.tight


def _micro_batch_source(profile: Profile, asked: int | None) -> MicroBatchSource:
    if asked is not None:
        return "option"
    return "file" if profile.default_micro_batch else "default"


def _host_notes(prediction: Prediction, setup: Setup) -> Iterator[str]:
    memory = prediction.host_memory_bytes
    if memory is not None:
        yield host_memory_note(setup.offload, memory)


def _accumulation_notes(question: _Question, setup: Setup, once: Prediction) -> Iterator[str]:
    """Yield that a step of several micro-batches is less sure to fit, where it is too much so."""
    if not _is_safe(once):
        return
    several = question.ask(replace(setup, grad_accum=2))
    if not _is_safe(several):
        taken = format_bytes(several.peak_memory_bytes.value)
        risk = f"runs out of memory with a chance of {several.p_oom * 100:.0f} %"
        slow = "is slowed by the allocator, which has to free segments and ask again"
        yield (
            "this is a step of one micro-batch: with gradient accumulation, which keeps gradients"
            f" from one to the next, it takes {taken} and"
            f" {risk if several.p_oom > MOST_OOM else slow}"
        )


class _Question:
    """One model on one device, asked several times."""

    def __init__(
        self, profile: Profile, accelerator: Accelerator, layout: Layout, optimizer: str | None
    ) -> None:
        self.profile = with_optimizer(profile, optimizer) if optimizer else profile
        self.original = profile
        self.accelerator = accelerator
        self.layout = layout
        self.cache = ModelCache(self.profile)
        self._largest: dict[Setup, tuple[Largest | None, bool]] = {}

    def ask(self, setup: Setup, *, cache: ModelCache | None = None) -> Prediction:
        cache = cache or self.cache
        autocast = casts_layers(setup.stack, setup.layout, setup.offload)
        setup = replace(setup, autocast=autocast)
        return predict(cache.profile, self._site(setup.layout), setup, cache=cache)

    def _site(self, layout: Layout) -> Site:
        # Memory does not depend on links; the ranks are taken as one node's.
        link = Link(name=None, bytes_per_s=self.accelerator.link_bytes_per_s)
        return Site(
            accelerator=self.accelerator,
            per_node=layout.accelerators,
            nodes=1,
            intra_link=link,
            inter_link=Link(name=None, bytes_per_s=None),
        )

    def largest(self, setup: Setup) -> tuple[Largest | None, bool]:
        """Return the largest micro-batch that fits safely, else likely, and whether it is safe."""
        if setup not in self._largest:
            safe = largest_that_fits(self._tried(setup, _is_safe), asked=setup.micro_batch)
            likely = safe or largest_that_fits(
                self._tried(setup, lambda one: one.fits), asked=setup.micro_batch
            )
            self._largest[setup] = likely, safe is not None
        return self._largest[setup]

    def smaller(self, setup: Setup) -> int | None:
        """Return the largest smaller micro-batch that fits safely, of a setup that does not."""
        largest, _ = self.largest(setup)
        if largest is not None and largest.size < setup.micro_batch:
            return largest.size
        return largest_below(self._tried(setup, _is_safe), setup.micro_batch)

    def _tried(self, setup: Setup, holds: Callable[[Prediction], bool]) -> Callable[[int], Tried]:
        def tried(size: int) -> Tried:
            prediction = self.ask(replace(setup, micro_batch=size))
            least = prediction.peak_allocated_bytes + prediction.memory_breakdown_bytes.framework
            is_beyond = least > prediction.peak_memory_bytes.capacity
            return Tried(holds(prediction), is_beyond)

        return tried


SHARDS_TRIED = (2, 4, 8, 16, 32, 64)
SHARDED = "--layout"
"""Begins the text of a remedy that takes more accelerators."""
FUSED = "fused=True in the file's optimizer"
"""The foreach step makes a temporary as large as the gradients; the fused one makes none."""
LIGHTER_OPTIMIZERS = ("adamw8bit", "adafactor")


def _remedies(question: _Question, setup: Setup) -> Iterator[Remedy]:
    """Yield changes that make it fit safely: each by itself, or the mildest combination of them."""
    single: list[Remedy] = []
    if can_be_fused(question.profile) and not steps_on_host(setup.offload):
        fused = question.cache.of(with_fused_optimizer(question.profile))
        remedy = _try(question, FUSED, setup, cache=fused)
        if remedy:
            single.append(remedy)
            yield remedy
    for text, changed in _changes(question, setup):
        if changed.layout != setup.layout and any(SHARDED in one.text for one in single):
            break  # The smallest number of accelerators says enough.
        remedy = _try(question, text, changed)
        if remedy:
            single.append(remedy)
            yield remedy
    # The rules for other optimizers are those of dense gradients.
    for name in () if question.profile.sparse_parameters else LIGHTER_OPTIMIZERS:
        if question.profile.optimizer.name != name:
            lighter = question.cache.of(with_optimizer(question.original, name))
            remedy = _try(question, f"--optimizer {name}", setup, cache=lighter)
            if remedy:
                single.append(remedy)
                yield remedy
    if not single:
        yield from _combined(question, setup)


def _try(
    question: _Question, text: str, setup: Setup, *, cache: ModelCache | None = None
) -> Remedy | None:
    autocast = casts_layers(setup.stack, setup.layout, setup.offload)
    if not question.cache.holds(setup.precision, autocast=autocast):
        return None
    if why_not_kept(setup, question.accelerator) is not None:
        return None
    prediction = question.ask(setup, cache=cache)
    if not _is_safe(prediction):
        return None
    peak_bytes = prediction.peak_memory_bytes.value
    return Remedy(text=text, peak_bytes=peak_bytes, micro_batch=setup.micro_batch)


def _changes(question: _Question, setup: Setup) -> Iterator[tuple[str, Setup]]:
    """Yield single changes, the least invasive first."""
    size = question.smaller(setup)
    if size is not None:
        yield f"--micro-batch {size}", replace(setup, micro_batch=size)
    policies: tuple[Recompute, ...] = ("selective", "full") if question.profile.blocks else ()
    for policy in policies:
        if setup.recompute != policy:
            yield f"--recompute {policy}", replace(setup, recompute=policy)
    half = _half_precision(question, setup)
    if half:
        yield f"--precision {half}", replace(setup, precision=half)
    yield from _frozen_changes(question, setup)
    if not setup.offload:
        yield "--offload optimizer", replace(setup, offload=frozenset({"optimizer"}))
    for ranks in _shards_of(question):
        if ranks > setup.layout.accelerators:
            layout = Layout(data=ranks, shard=ranks, zero_stage=3)
            yield _sharded_text(layout), replace(setup, layout=layout)


def _shards_of(question: _Question) -> tuple[int, ...]:
    """Return the numbers of ranks to shard among: none for sparse gradients, which FSDP refuses."""
    return () if question.profile.sparse_parameters else SHARDS_TRIED


def _combined(question: _Question, setup: Setup) -> Iterator[Remedy]:
    """Yield the first combination that fits: 16-bit layers, recompute, then sharding as well."""
    words: list[str] = []
    if setup.micro_batch > 1:
        setup = replace(setup, micro_batch=1)
        words.append("--micro-batch 1")
    half = _half_precision(question, setup)
    if half:
        setup = replace(setup, precision=half)
        words.append(f"--precision {half}")
    if question.profile.blocks and setup.recompute != "full":
        setup = replace(setup, recompute="full")
        words.append("--recompute full")
    for text, changed in _frozen_changes(question, setup):
        remedy = _try(question, " ".join([*words, text]), changed)
        if remedy:
            yield remedy
            return
    layouts = [Layout(data=n, shard=n, zero_stage=3) for n in _shards_of(question)]
    for layout in (None, *layouts):
        changed = setup if layout is None else replace(setup, layout=layout)
        text = [*words, *([] if layout is None else [_sharded_text(layout)])]
        remedy = _try(question, " ".join(text), changed)
        if remedy:
            yield remedy
            return


def _frozen_changes(question: _Question, setup: Setup) -> Iterator[tuple[str, Setup]]:
    """Yield the ways of keeping frozen parameters that the model and the device allow."""
    if setup.frozen_precision == "nf4" or "frozen16" not in question.profile.numerics():
        return
    half = _half_precision(question, setup)
    setup = replace(setup, precision=half or setup.precision)
    before = f"--precision {half} " if half else ""
    smaller: tuple[FrozenPrecision, ...] = ("nf4",) if setup.frozen_precision else ("bf16", "nf4")
    for frozen in smaller:
        changed = replace(setup, frozen_precision=frozen)
        if why_not_kept(changed, question.accelerator) is None:
            yield f"{before}--frozen-precision {frozen}", changed


def _half_precision(question: _Question, setup: Setup) -> Precision | None:
    """Return the device's 16-bit mixed precision, if the setup does not use 16 bits yet."""
    if setup.precision not in ("fp32", "tf32"):
        return None
    able = supported_precisions(question.accelerator)
    halves: tuple[Precision, ...] = ("bf16-amp", "fp16-amp")
    return next((precision for precision in halves if precision in able), None)


def _sharded_text(layout: Layout) -> str:
    return f"{SHARDED} {layout} ({layout.accelerators} accelerators)"
