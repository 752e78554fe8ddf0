"""Trace one training step of a Workload on tensors without data: the Profile, with no GPU.

Each numerics class runs at two micro-batch sizes. Both runs must launch the same kernels and make
the same storages in the same order; every size is then the line through its two readings. A step
that compares samples with each other runs at larger sizes too, for their pairs.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from functools import partial
from typing import Any

import torch
from torch import nn

from ...catalog.errors import UserFileError
from ..missing_numerics import fails_without_fsdp
from ..passes.optimizers import with_optimizer
from ..profile import BatchTensor, Numerics, Profile
from ..user_model.assumptions import Assumption
from ..user_model.failures import describe_failure
from ..user_model.workload import Workload
from .assemble import PairedRuns, assemble_step
from .assumed import Assumed
from .busy_loops import BusyLoop, BusyLoops, unequal_loop
from .comparing import FIRST_SAMPLES, FIRST_SAMPLES_OF_SHARES, with_larger
from .draws import TORCH, draw_note, drawing_alike, drawn_since, states
from .machine import Machine
from .model.building import Built, Models, drop_gradients
from .model.gradient_kinds import found_kinds
from .model.held import gradients_noted, hold
from .on_device import (
    SIXTEEN_BIT,
    batch_tensors,
    map_tensors,
    on_device,
    tensors_of,
    to_sixteen_bit,
)
from .padding import hiding_masks
from .recorded import FileFacts, RecordedStep
from .recording.recorder import LOOKED_AT_EVERY, Recorder
from .step_checks import check_gradients, check_growth, check_loss
from .summary import make_profile, same_tensors
from .token_count import token_warnings
from .torch_private import check_torch, compiler_is_loaded

SIZES: tuple[tuple[int, int], ...] = ((2, 3), (4, 6), (8, 16))
"""Micro-batch sizes to trace at, in order of preference; 1 is avoided, it drops dimensions."""
SIZES_FOR_SHARES: tuple[tuple[int, int], ...] = ((20, 40), *SIZES)
"""The same where a size is stated as a share: of 2 samples, 30 % are not a number to be scaled."""
StepsDone = Callable[[Numerics, int], None]
"""Is told of a recorded step: its numerics class, and how many operations it has."""
AtWork = Callable[[int, BusyLoop | None], None]
"""Is told how many operations a step has so far, and which loop most of them come from."""
TOLD_EVERY = 16384
"""Operations: half a second of a trace."""


def trace_workload(
    workload: Workload,
    *,
    numerics: Sequence[Numerics] = ("fp32", "amp16"),
    optimizer: str | None = None,
    assumptions: Sequence[Assumption] = (),
    on_step: StepsDone | None = None,
    at_work: AtWork | None = None,
) -> Profile:
    """Return the Profile of a loaded model file, traced in these numerics classes.

    Args:
        workload: The file's functions with their params bound.
        numerics: Storage and compute dtypes to trace. A model whose parameters are mostly frozen
            is traced in "frozen16" beside "amp16", where a step runs so.
        optimizer: Replaces the file's optimizer by this one, by name (see `optimizers.py`).
        assumptions: What the user states of conditions and sizes that depend on values; each that
            was used is a note of the Profile.
        on_step: Is told of every step that was recorded.
        at_work: Is told every `TOLD_EVERY` operations of a step how far it is.

    Raises:
        UserFileError: the file's step cannot be traced; the message names the user's own line.
    """
    check_torch()
    tracer = _Tracer(workload, assumptions, on_step or _untold, at_work or _untold)
    with _steady():
        runs = [tracer.trace(each) for each in numerics]
        if "amp16" in numerics and "frozen16" not in numerics and tracer.models.is_mostly_frozen:
            # Nobody asked for it: a step that fails with 16-bit weights is planned without them.
            with suppress(Exception):
                runs.append(tracer.trace("frozen16"))
        facts = tracer.file_facts(same_tensors(runs[0]))
        steps = [assemble_step(each) for each in runs]
        profile = make_profile(workload, facts, runs, steps)
    return with_optimizer(profile, optimizer) if optimizer else profile


@contextmanager
def _inputs_cast(units: Sequence[nn.Module]) -> Iterator[None]:
    """Cast the floats that enter each of FSDP's units to 16 bits, as its mixed precision does."""

    def cast(_: nn.Module, args: Any, kwargs: Any) -> tuple[Any, Any]:
        return map_tensors(args, to_sixteen_bit), map_tensors(kwargs, to_sixteen_bit)

    hooks = [unit.register_forward_pre_hook(cast, with_kwargs=True) for unit in units]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _untold(*_: object) -> None:
    """Tell nobody."""


AUTOCAST: tuple[Numerics, ...] = ("amp16", "frozen16")


class _Tracer:
    """Builds the model once and runs steps of it."""

    def __init__(
        self,
        workload: Workload,
        assumptions: Sequence[Assumption],
        on_step: StepsDone,
        at_work: AtWork,
    ) -> None:
        self.workload = workload
        self._on_step = on_step
        self._at_work = at_work
        self.file_autocast: torch.dtype | None = None
        self._compiles = False
        self._loss_in_model = False
        self._returns_logits = False
        self._masks: dict[str, bool] | None = None
        self._casts_inputs = False
        self.notes: list[str] = []
        folder = workload.path.parent if workload.path else None
        self.assumed = Assumed(assumptions, folder=folder, notes=self.notes)
        self._machine = Machine(workload, self.assumed, self.notes, casts=False)
        self.models = Models(workload, self._machine)

    def file_facts(self, batch_tensors: tuple[BatchTensor, ...]) -> FileFacts:
        """Return what the file did in the steps that were traced.

        Args:
            batch_tensors: of its batches.

        Raises:
            UserFileError: the tokens that it states for a sample are those of other params.
        """
        warnings = token_warnings(self.workload, batch_tensors, self._usual_tensors)
        return FileFacts(
            autocast=self.file_autocast,
            compiles=self._compiles or self.models.compiles,
            loss_in_model=self._loss_in_model,
            returns_logits=self._returns_logits,
            notes=(*self.notes, *self.assumed.unused_notes()),
            warnings=tuple(warnings),
        )

    def trace(self, numerics: Numerics) -> PairedRuns:
        """Return the step of one numerics class at two sizes.

        A step of 16-bit layers that fails runs again with what FSDP does beside: it casts the
        floats that enter the model and its blocks (`cast_forward_inputs`, on by default).
        """
        try:
            return self._trace(numerics)
        except Exception as failure:
            if numerics != "pure16":
                raise
            self._casts_inputs = True
            runs = self._trace(numerics)
            self.notes.append(fails_without_fsdp(self._described(failure)))
            return runs

    def _described(self, failure: Exception) -> str:
        path = self.workload.path
        return str(failure) if path is None else describe_failure(failure, path).message

    def _trace(self, numerics: Numerics) -> PairedRuns:
        built = self.models.built(numerics)
        failure: Exception | None = None
        failed_at: list[int] = []
        difference, sizes = "", SIZES[0]
        for sizes in self._sizes():
            try:
                for _ in range(2):
                    # A second try: what a model makes at its first step and keeps is there now. An
                    # import of the compiler keeps frames, and with them tensors of that step.
                    knew_compiler = compiler_is_loaded()
                    small = self._step(built, numerics, sizes[0], optimize=True)
                    grows = bool(built.kinds.sparse)
                    large = self._step(built, numerics, sizes[1], optimize=grows)
                    check_growth(self.workload.name, small, large)
                    runs = PairedRuns(numerics, built, small, large)
                    difference = runs.difference()
                    if not difference and compiler_is_loaded() == knew_compiler:
                        if failure is not None:
                            self._say_failed(failed_at, sizes, failure)
                        return self._with_larger(runs)
            except UserFileError:
                raise
            except Exception as error:
                failure = failure or error
                failed_at += sizes
                drop_gradients(built.model)
        if difference or failure is None:
            loop = self._unequal_loop(built, numerics, sizes)
            at = f", in the loop at {loop}" if loop else ""
            raise UserFileError(
                f"{self.workload.name} does other operations at another batch size "
                f"({difference}{at}), so its cost cannot be told from two batches.",
                fix="let forward() and compute_loss() do the same for any number of samples: a"
                " Python loop over the samples of a batch becomes an operation on all of them"
                " (padded to one length, or torch.func.vmap).",
            )
        raise failure

    def _unequal_loop(self, built: Built, numerics: Numerics, sizes: tuple[int, int]) -> str | None:
        """Return the place of the loop whose turns depend on the batch size, if there is one."""
        small, large = BusyLoops(), BusyLoops()
        with suppress(Exception):
            for size, loops in zip(sizes, (small, large), strict=True):
                self._step(built, numerics, size, optimize=False, all_into=loops)
        drop_gradients(built.model)
        return unequal_loop(small, large)

    def _say_failed(
        self, failed_at: Sequence[int], traced_at: Sequence[int], failure: Exception
    ) -> None:
        """Note that a step of some sizes fails, which a plan may have as its micro-batch."""
        failed = ", ".join(map(str, failed_at))
        note = (
            f"a step of some micro-batches fails (of {failed}: {self._described(failure)}); it was"
            f" traced with {traced_at[0]} and {traced_at[1]} samples. Take a plan whose micro-batch"
            " is a multiple of what works"
        )
        if note not in self.notes:
            self.notes.append(note)

    def _say_drawn(self, generators: Sequence[str], *, reads_values: bool) -> None:
        """Note the generators of the host that a step draws from, if what it draws can decide."""
        for generator in generators:
            note = draw_note(self.workload.name, generator)
            if note not in self.notes and (generator != TORCH or reads_values):
                self.notes.append(note)

    def _with_larger(self, runs: PairedRuns) -> PairedRuns:
        step = partial(self._step, runs.built, runs.numerics)
        first = FIRST_SAMPLES_OF_SHARES if self.assumed.has_shares else FIRST_SAMPLES
        return with_larger(runs, step, first)

    def _sizes(self) -> Iterator[tuple[int, int]]:
        yield from SIZES_FOR_SHARES if self.assumed.has_shares else SIZES
        own = self.workload.default_micro_batch
        if own and own > 1:
            yield own, 2 * own

    def _batch(self, size: int) -> Any:
        return on_device(self.workload.make_batch(size))

    def _hiding_masks(self) -> dict[str, bool]:
        """Return of each mask in a batch whether it hides a token: looked at once."""
        if self._masks is None:
            self._masks = hiding_masks(self.workload, SIZES[0][0])
        return self._masks

    def _usual_tensors(self) -> tuple[BatchTensor, ...] | None:
        """Return what a batch is without the params that were given; None if it cannot be made."""
        make_batch = self.workload.make_usual_batch
        if make_batch is None:
            return None
        size = SIZES[0][0]
        with suppress(Exception), self._machine.running(paused=True):
            return batch_tensors(make_batch(size), size)
        return None

    def _watched(self, loops: BusyLoops) -> Callable[[Recorder], None]:
        """Return what a recorder calls now and then: it looks where the time goes, and tells."""

        def at_work(recorder: Recorder) -> None:
            if recorder.phase == "forward":
                loops.look()
            if recorder.tick % TOLD_EVERY == 0:
                self._at_work(recorder.tick, loops.busiest())

        return at_work

    def _step(
        self,
        built: Built,
        numerics: Numerics,
        size: int,
        *,
        optimize: bool,
        all_into: BusyLoops | None = None,
    ) -> RecordedStep:
        """Run and record one step.

        Args:
            built: the model.
            numerics: its storage and compute dtypes.
            size: samples of the batch.
            optimize: whether the optimizer runs.
            all_into: is shown every operation of the forward pass; None: now and then one.
        """
        self.assumed.batch_size = size
        machine = Machine(self.workload, self.assumed, self.notes, casts=numerics in AUTOCAST)
        machine.hiding_masks = self._hiding_masks
        wraps = numerics in AUTOCAST and self.file_autocast is None
        recorder = machine.recorder
        recorder.at_work = self._watched(all_into or BusyLoops())
        recorder.looked_at_every = 1 if all_into else LOOKED_AT_EVERY
        model = built.model
        blocks = [block for run in built.blocks for block in run.modules]
        with ExitStack() as stack:
            stack.enter_context(drawing_alike())
            target = stack.enter_context(machine.running())
            with recorder.paused():
                batch = self._batch(size)
                tensors = batch_tensors(batch, size)
                if numerics == "pure16":
                    batch = map_tensors(batch, to_sixteen_bit)
            hold(recorder, built, batch)
            stack.enter_context(gradients_noted(recorder, model))
            stack.enter_context(recorder.watching(model, blocks))
            if numerics == "pure16" and self._casts_inputs:
                stack.enter_context(_inputs_cast([model, *blocks]))
            with torch.autocast("cuda", SIXTEEN_BIT) if wraps else nullcontext():
                if wraps:
                    target.autocast_dtype = None
                drawn = states()
                loss = self.workload.compute_loss(model, batch)
            self._say_drawn(drawn_since(drawn), reads_values=target.reads_host_values)
            check_loss(self.workload.name, loss)
            if target.autocast_dtype is not None and self.file_autocast is None:
                self.file_autocast = target.autocast_dtype
                if wraps:
                    stack.close()
                    return self._step(built, numerics, size, optimize=optimize, all_into=all_into)
            self._compiles |= target.compiles
            self._loss_in_model |= recorder.loss_in_model
            self._returns_logits |= recorder.returns_logits
            forward_end_tick = recorder.tick
            recorder.start("backward")
            loss.backward()
            del loss
            check_gradients(self.workload.name, built.model)
            kinds = found_kinds(model)
            is_expected = kinds.is_same(built.kinds) and built.refusal is None
            if not (built.is_learnt or is_expected):
                stack.close()
                self.models.learn(built, kinds)
                return self._step(built, numerics, size, optimize=optimize, all_into=all_into)
            recorder.start("optimizer")
            optimizer_tick = recorder.tick
            if optimize:
                built.optimizer.step()
            built.optimizer.zero_grad(set_to_none=True)
            drop_gradients(model)
        batch_bytes = sum(t.numel() * t.element_size() for t in tensors_of(batch))
        self._on_step(numerics, recorder.tick)
        return RecordedStep(size, recorder, batch_bytes, tensors, forward_end_tick, optimizer_tick)


@contextmanager
def _steady() -> Iterator[None]:
    """Keep the garbage collector out: when a storage dies must not depend on when it runs.

    It would also look through millions of records several times, and find nothing.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
