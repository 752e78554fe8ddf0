"""The forms of one Profile's step, each made once: recomputed, divided over ranks, in plateaus."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

import numpy as np

from ....catalog.errors import UsageError
from ....catalog.vocabulary import Precision, Recompute, Stack
from ....profiles.missing_numerics import AUTOCAST_FAILS, FAILS, FSDP_CASTS
from ....profiles.passes.fp8_operands import with_kept_operands
from ....profiles.passes.fused_kernels import Fused, with_fused_kernels
from ....profiles.passes.loss_kernel import with_loss_kernel
from ....profiles.passes.megatron_blocks import with_megatron_blocks
from ....profiles.passes.recompute import recomputed
from ....profiles.passes.residence import ON_DEVICE, Residence, resident
from ....profiles.profile import (
    CATEGORIES,
    NUMERICS_OF_PRECISION,
    Affine,
    Kernel,
    Numerics,
    OptimizerFacts,
    Profile,
    StepTrace,
)
from ...memory.chunked_head import with_chunked_head
from ...memory.plateaus import Envelope, envelope
from ...memory.rank_memory import RankMemory, rank_memory
from ...parallelism.column_row_parallel import is_expert_product
from ...parallelism.fsdp import Unit, units_of
from ...parallelism.rank_trace import Split, SplitTrace, split_trace
from ...plan.layout import Layout
from ...software.fusion import Outliving, outliving_shares
from ...software.state_bytes import StateScale
from ...step.kernels.kernel_times import MATMUL_KINDS, kernel_dtype
from ...step.kernels.kernel_totals import running_segments
from ...step.new_kernels import new_kernel_share
from .kept_tables import profile_digest

Array = np.ndarray
_PARAMETERS = CATEGORIES.index("parameters")


def running_numerics(precision: Precision, *, autocast: bool) -> Numerics:
    """Return the trace that runs: 16-bit layers where nothing is cast around them."""
    numerics = NUMERICS_OF_PRECISION[precision]
    return "pure16" if numerics == "amp16" and not autocast else numerics


class KeptSteps:
    """What follows from a Profile alone; everything it returns is immutable."""

    def __init__(self, profile: Profile) -> None:
        self.profile = profile
        self._traces: dict[tuple[Numerics, Recompute, bool, Residence], StepTrace] = {}
        self._envelopes: dict[tuple[Numerics, Recompute, tuple[int, ...], Residence], Envelope] = {}
        self._product_dtypes: dict[Precision, frozenset[str]] = {}
        self._flops: dict[tuple[Numerics, Recompute], Affine] = {}
        self._double_shares: dict[Numerics, float] = {}
        self._moved: dict[tuple[Numerics, Recompute, bool, bool], Affine] = {}
        self._fused_steps: dict[tuple[Numerics, Fused, bool], StepTrace] = {}
        self._outliving: dict[tuple[Numerics, Recompute, bool, bool], Outliving] = {}
        self._splits: dict[tuple[object, ...], SplitTrace] = {}
        self._optimizers: dict[Precision, OptimizerFacts] = {}
        self._rank_memories: dict[tuple[object, ...], RankMemory] = {}

    @cached_property
    def needs_fsdp_casts(self) -> bool:
        """Whether the step runs in 16-bit layers only where FSDP casts what enters the model."""
        return any(note.startswith(FSDP_CASTS) for note in self.profile.notes)

    @cached_property
    def units(self) -> tuple[Unit, ...]:
        """FSDP units of the model."""
        return units_of(self.profile)

    @cached_property
    def profile_digest(self) -> str:
        """What is equal for equal Profiles (`kept_tables.profile_digest`)."""
        return profile_digest(self.profile)

    @cached_property
    def _flat_units(self) -> tuple[Unit, ...]:
        return tuple(replace(unit, tensors=()) for unit in self.units)

    @cached_property
    def kinds(self) -> frozenset[str]:
        """Kinds of kernels in the step, and "experts" where some are products of experts."""
        kernels = self._some_kernels
        routed = {"experts"} if any(map(is_expert_product, kernels)) else set()
        return frozenset({kernel.kind for kernel in kernels} | routed)

    @cached_property
    def new_kernel_share(self) -> float:
        """Which part of the step is in kernels that hardly any published run has."""
        return new_kernel_share(self._some_step)

    @cached_property
    def _some_step(self) -> StepTrace:
        return self.profile.step(self.profile.numerics()[0])

    @cached_property
    def _some_kernels(self) -> list[Kernel]:
        return [kernel for segment in self._some_step.segments for kernel in segment.kernels]

    def product_dtypes(self, precision: Precision) -> frozenset[str]:
        """Return the dtypes that the step multiplies in, of each trace that may run."""
        if precision not in self._product_dtypes:
            tried = {running_numerics(precision, autocast=one) for one in (True, False)}
            self._product_dtypes[precision] = frozenset(
                kernel_dtype(kernel, precision)
                for numerics in tried
                if numerics in self.profile.numerics()
                for segment in self.profile.step(numerics).segments
                for kernel in segment.kernels
                if kernel.kind in MATMUL_KINDS
            )
        return self._product_dtypes[precision]

    def optimizer(self, precision: Precision) -> OptimizerFacts:
        """Return what the optimizer moves under a precision: less where all state is in 16 bits.

        The Profile states it of the first step that was traced, which is of fp32 state but for
        models that are in 16 bits themselves. Mixed precision keeps that state, also where it runs
        the trace of 16-bit layers.
        """
        if precision not in self._optimizers:
            self._optimizers[precision] = self._optimizer(NUMERICS_OF_PRECISION[precision])
        return self._optimizers[precision]

    def _optimizer(self, numerics: Numerics) -> OptimizerFacts:
        facts, steps = self.profile.optimizer, self.profile.steps
        if numerics != "pure16" or numerics not in self.profile.numerics():
            return facts
        first, own = (_optimizer_bytes(step) for step in (steps[0], self.profile.step(numerics)))
        if not first.base and not first.per_sample:
            return facts
        return facts.model_copy(
            update={
                "step_bytes_per_parameter": facts.step_bytes_per_parameter
                * (own.base / first.base if first.base else 1),
                "step_bytes_per_sample": facts.step_bytes_per_sample
                * (own.per_sample / first.per_sample if first.per_sample else 1),
            }
        )

    def units_in(self, stack: Stack) -> tuple[Unit, ...]:
        """Return the units as a stack shards them: only torch pads every parameter by its rows."""
        return self.units if stack.startswith("torch") else self._flat_units

    def trace(self, precision: Precision, recompute: Recompute) -> StepTrace:
        """Return the step in the numerics of `precision` under this recompute policy.

        Raises:
            UsageError: the Profile was made without those numerics.
        """
        return self.trace_in(NUMERICS_OF_PRECISION[precision], recompute)

    def trace_in(
        self,
        numerics: Numerics,
        recompute: Recompute,
        *,
        early_stop: bool = True,
        residence: Residence = ON_DEVICE,
    ) -> StepTrace:
        """Return the step in these numerics under this recompute policy (`recomputed`, `resident`).

        Raises:
            UsageError: the Profile was made without those numerics.
        """
        traces = self._traces
        key = (numerics, recompute, early_stop, residence)
        home = residence.at_home
        if key not in traces and residence != home:
            whole = self.trace_in(numerics, recompute, early_stop=early_stop, residence=home)
            found = resident(whole, residence)
            traces[key] = with_chunked_head(found) if residence.loss == "chunked" else found
        if key not in traces:
            try:
                plain = self._fused(numerics, residence)
            except KeyError:
                raise self.untraced(numerics) from None
            plain = with_megatron_blocks(plain, residence.blocks)
            plain = with_kept_operands(plain, residence.operands)
            traces[key] = recomputed(plain, self.profile, recompute, early_stop=early_stop)
        return traces[key]

    def _fused(self, numerics: Numerics, residence: Residence) -> StepTrace:
        """Return that step without recompute as fused kernels keep it: passes start from it."""
        casts_again = residence.operands == "made again"
        key = (numerics, residence.fuses, casts_again)
        if key not in self._fused_steps:
            plain = self.profile.step(numerics)
            self._fused_steps[key] = with_fused_kernels(
                plain, residence.fuses, casts_again=casts_again
            )
        return self._fused_steps[key]

    def outliving(
        self,
        numerics: Numerics,
        recompute: Recompute,
        *,
        early_stop: bool = True,
        fuses_loss: bool = False,
    ) -> Outliving:
        """Return what outlives the fused kernels of that step (`outliving_shares`).

        It decides what they move. Megatron's are priced as a compiler's, though they keep more:
        its constants were fitted so.

        Args:
            numerics: of the traced step.
            recompute: policy.
            early_stop: as `trace_in` has it.
            fuses_loss: whether the model's own loss is among them.
        """
        key = (numerics, recompute, early_stop, fuses_loss)
        if key not in self._outliving:
            loss = "one kernel" if fuses_loss else "whole"
            fused = replace(ON_DEVICE, fuses="blocks", loss=loss)
            trace = self.trace_in(numerics, recompute, early_stop=early_stop, residence=fused)
            self._outliving[key] = outliving_shares(
                with_loss_kernel(trace) if fuses_loss else trace
            )
        return self._outliving[key]

    def untraced(self, numerics: Numerics) -> UsageError:
        """Return the error for numerics that the Profile was made without, with why."""
        fails = next((note for note in self.profile.notes if note.startswith(FAILS)), None)
        autocast = next((n for n in self.profile.notes if n.startswith(AUTOCAST_FAILS)), None)
        if autocast:
            return UsageError(f"{autocast}.", fix="correct that line, or give --precision fp32.")
        if numerics == "pure16" and fails:
            return UsageError(
                f"{fails}.", fix="give a layout that runs under autocast, such as dp8 or dp8.zero1."
            )
        if numerics == "frozen16":
            return UsageError(
                "The parameters of this model are not mostly frozen, or a step of it fails with"
                " 16-bit ones.",
                fix="leave out --frozen-precision.",
            )
        return UsageError(
            f"This profile holds no {numerics} trace; it holds"
            f" {', '.join(self.profile.numerics())}.",
            fix="profile the model again with that precision.",
        )

    def envelope(
        self,
        precision: Precision,
        recompute: Recompute,
        micro_batches: Array,
        *,
        autocast: bool = True,
        residence: Residence = ON_DEVICE,
    ) -> Envelope:
        """Return the memory plateaus of that step."""
        numerics = running_numerics(precision, autocast=autocast)
        key = (numerics, recompute, tuple(int(b) for b in micro_batches), residence)
        if key not in self._envelopes:
            trace = self.trace_in(numerics, recompute, residence=residence)
            self._envelopes[key] = envelope(trace, micro_batches)
        return self._envelopes[key]

    def rank_memory(
        self,
        shape: Envelope,
        layout: Layout,
        *,
        gather_bytes: int,
        grad_accum: int,
        state: StateScale,
        reduces_once: bool,
    ) -> RankMemory:
        """Return memory of a rank that runs the whole model (`rank_memory`).

        Precisions that differ on the matrix units alone, as TF32 and FP32 do, take the same bytes.
        """
        key = (shape, layout, gather_bytes, grad_accum, state, reduces_once)
        if key not in self._rank_memories:
            self._rank_memories[key] = rank_memory(
                shape,
                self.profile,
                layout,
                compute_bytes=gather_bytes,
                grad_accum=grad_accum,
                state=state,
                units=self.units,
                reduces_once=reduces_once,
            )
        return self._rank_memories[key]

    def split_in(
        self,
        numerics: Numerics,
        recompute: Recompute,
        split: Split,
        *,
        early_stop: bool = True,
        home: Residence = ON_DEVICE,
    ) -> SplitTrace:
        """Return one rank's share of the step in these numerics under this policy.

        Args:
            numerics: of the step.
            recompute: policy.
            split: how ranks divide it.
            early_stop: whether a block runs again only up to its last saved tensor.
            home: what is kept for the backward pass (`Residence.at_home`).

        Raises:
            UnsupportedError: the model cannot be split that way.
        """
        key = (numerics, recompute, split, early_stop, home)
        if key not in self._splits:
            trace = self.trace_in(numerics, recompute, early_stop=early_stop, residence=home)
            self._splits[key] = split_trace(trace, split)
        return self._splits[key]

    def double_share(self, precision: Precision) -> float:
        """Return which part of the parameters is in 8 bytes each, in fp64 or complex.

        No precision casts them. Found by the bytes that all of them take.
        """
        numerics = NUMERICS_OF_PRECISION[precision]
        if numerics not in self._double_shares:
            memory = self.profile.step(numerics).memory
            rows = zip(memory.birth_tick, memory.category, memory.bytes_base, strict=True)
            held = sum(size for birth, kind, size in rows if birth < 0 and kind == _PARAMETERS)
            usual = 2 if numerics == "pure16" else 4
            more = held / max(1, self.profile.parameters) - usual
            self._double_shares[numerics] = max(0.0, more / (8 - usual))
        return self._double_shares[numerics]

    def hardware_flops(
        self, precision: Precision, recompute: Recompute, micro_batch: float
    ) -> float:
        """Return FLOPs of one micro-batch with all that is recomputed, by the file itself too.

        What a fused attention kernel recomputes inside is not counted, as in Megatron's HFU.
        """
        key = (NUMERICS_OF_PRECISION[precision], recompute)
        if key not in self._flops:
            trace = self.trace(precision, recompute)
            again = [trace.segments[i] for i in trace.schedule]
            kernels = [k for s in again for k in s.kernels if s.phase == "recompute" or k.rerun]
            self._flops[key] = Affine.total(k.flops for k in kernels)
        return self.profile.flops.at(micro_batch) + self._flops[key].at(micro_batch)

    def moved_bytes(
        self, numerics: Numerics, recompute: Recompute, *, fused: bool, fuses_loss: bool = False
    ) -> Affine:
        """Return the bytes that the kernels of both passes over one micro-batch read and write.

        Args:
            numerics: of the traced step.
            recompute: policy.
            fused: whether runs of memory-bound kernels are one.
            fuses_loss: whether the model's own loss is one kernel a pass.
        """
        key = (numerics, recompute, fused, fuses_loss)
        if key not in self._moved:
            trace = self.trace_in(numerics, recompute)
            trace = with_loss_kernel(trace) if fuses_loss else trace
            shares = self.outliving(numerics, recompute, fuses_loss=fuses_loss) if fused else None
            runs = running_segments(trace, shares)
            kernels = [kernel for i in trace.schedule for kernel in runs[i].kernels]
            moved = [amount for k in kernels for amount in (k.bytes_read, k.bytes_written)]
            self._moved[key] = Affine.total(moved)
        return self._moved[key]


def _optimizer_bytes(step: StepTrace) -> Affine:
    """Return the bytes that the optimizer's kernels read and write in a step."""
    run = [step.segments[number] for number in step.schedule]
    kernels = [kernel for one in run if one.phase == "optimizer" for kernel in one.kernels]
    return Affine.total(size for k in kernels for size in (k.bytes_read, k.bytes_written))
