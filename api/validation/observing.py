"""One run predicted: its step time, its memory in the meaning that was measured, its verdict."""

from __future__ import annotations

from dataclasses import replace

from ...catalog.errors import GpuplanError
from ...catalog.units import GIB
from ...catalog.vocabulary import Stack
from ...planner.hardware.device import peak_flops
from ...planner.plan.plan import Estimated, EstimatedMemory
from ...planner.predict.interval import UNCHECKED_MEMORY_SIGMA, memory_interval
from ...planner.predict.kept.model_cache import ModelCache
from ...planner.predict.memory.peak_memory import memory_parts
from ...planner.predict.predict import Prediction, predict
from ...planner.software.versions import BUCKET_VIEWS, CHECKED_SOFTWARE
from ...planner.validation.errors import Observation, Verdict
from ...planner.validation.folds import Protocol
from ...planner.validation.record_defaults import StatedRun
from ...profiles.records import RunRecord
from .benches import Benches, configuration, held_out, on_bench
from .cases import Case, one_line

ROUNDING = 1.01
"""A measured peak may be rounded up to this much more than its device has: "80 GB" of 79.6."""


def observe(case: Case, benches: Benches, hold_out: Protocol | None) -> Observation:
    """Return the observation of a run, predicted under a protocol unless it is skipped."""
    record = case.record
    base = Observation(
        id=record.id,
        source_group=record.source_group,
        accelerator=case.accelerator,
        stack=case.run.setup.stack if case.run else record.stack or "unknown",
        configuration=configuration(record),
        assumed=tuple(case.assumed),
        skipped=case.skipped,
        measured_step_time_s=record.measured.step_time_s,
        measured_memory_bytes=record.measured.peak_memory_bytes,
        verdict_measured=_measured_verdict(record),
    )
    if case.run is None or case.setup is None or case.request is None:
        return base
    try:
        cache, setup = on_bench(case, benches)
        base = replace(base, assumed=tuple(case.assumed))
        cache = held_out(
            cache,
            hold_out,
            configuration=base.configuration,
            source=base.source_group,
            accelerator=base.accelerator,
        )
        if case.memory is None:
            case.memory = memory_parts(cache, setup)
        site = case.run.site
        prediction = predict(cache.profile, site, setup, cache=cache, memory=case.memory)
        ideal_s = _ideal_step_time_s(case.run, cache)
    except GpuplanError as error:
        return replace(base, skipped=one_line(error))
    timed = replace(base, predicted_step_time_s=prediction.step_time_s, ideal_step_time_s=ideal_s)
    unknown = _why_memory_is_unknown(case.run) or _more_than_there_is(record, case.run)
    if unknown is not None:
        return replace(timed, memory_skipped=unknown)
    memory, assumed = _memory_as_measured(record, prediction, case.run.setup.stack)
    parts = prediction.memory_breakdown_bytes
    return replace(
        timed,
        predicted_memory_bytes=memory,
        predicted_state_bytes=parts.parameters + parts.gradients + parts.optimizer,
        verdict_predicted="fits" if prediction.fits or case.fits_recomputed else "out_of_memory",
        assumed=(*base.assumed, *assumed),
    )


def _why_memory_is_unknown(run: StatedRun) -> str | None:
    if run.setup.stack == "xla":
        return "memory of XLA programs is not predicted yet"
    if "activation-offload" in run.setup.features and "activations" not in run.setup.offload:
        return "memory with activation-offload is predicted for data-parallel torch only"
    return None


def _more_than_there_is(record: RunRecord, run: StatedRun) -> str | None:
    """Return why a measured peak cannot be that of one device, or None."""
    device = run.site.accelerator
    peak_bytes = record.measured.peak_memory_bytes
    if peak_bytes is None or peak_bytes <= ROUNDING * device.memory_bytes:
        return None
    return (
        f"measured.peak_memory_gib is {peak_bytes / GIB:g}, more than the"
        f" {device.memory_bytes / GIB:g} GiB of {device.name}: state GiB of one accelerator"
    )


def _measured_verdict(record: RunRecord) -> Verdict | None:
    if record.measured.oom:
        return "out_of_memory"
    ran = record.measured.step_time_s or record.measured.peak_memory_gib
    said = "oom" in record.measured.model_fields_set
    return "fits" if ran or said else None


def _ideal_step_time_s(run: StatedRun, cache: ModelCache) -> float | None:
    """Return the step at 100 % of the device's peak, recomputed FLOPs counted, in seconds."""
    peak = peak_flops(run.site.accelerator, run.setup.precision)
    if not peak:
        return None
    layout = run.setup.layout
    flops = cache.steps.hardware_flops(
        run.setup.precision, run.setup.recompute, run.setup.micro_batch
    )
    return flops * run.setup.grad_accum / (layout.tensor * layout.pipeline * layout.context) / peak


def _is_unchecked(record: RunRecord) -> bool:
    """Return whether another's loop ran, whose software nobody compared with what is predicted.

    gpuplan's own writes that its buckets are views of gradients.
    """
    return not {CHECKED_SOFTWARE, BUCKET_VIEWS}.intersection(record.features)


def _of_others(prediction: Prediction, stack: Stack) -> EstimatedMemory:
    """Return the predicted peak of another's training loop, which nobody looked into."""
    peak = prediction.peak_memory_bytes
    framework = prediction.memory_breakdown_bytes.framework
    return memory_interval(
        peak.value - framework,
        framework,
        capacity_bytes=peak.capacity,
        stack=stack,
        least_sigma=UNCHECKED_MEMORY_SIGMA,
    )


def _memory_as_measured(
    record: RunRecord, prediction: Prediction, stack: Stack
) -> tuple[Estimated, tuple[str, ...]]:
    """Return the predicted peak in the meaning the record measured, and what was assumed."""
    peak = prediction.peak_memory_bytes
    if _is_unchecked(record):
        peak = _of_others(prediction, stack)
    meaning = record.measured.memory_meaning
    assumed: tuple[str, ...] = ()
    if meaning == "unknown" and record.measured.peak_memory_gib is not None:
        meaning, why = "allocated", "what logs print: max_memory_allocated"
        if record.stack == "megatron":
            # 4.5 GiB more than a model of 350 M parameters allocates (Sailor's runs).
            meaning, why = "whole-device", "small models hold what contexts and NCCL take"
        assumed = (f"measured.memory_meaning={meaning} ({why})",)
    values = {
        "allocated": prediction.peak_allocated_bytes,
        "reserved": prediction.peak_reserved_bytes,
    }
    value = values.get(meaning, peak.value)
    scale = value / peak.value
    scaled = Estimated(value=value, low=peak.low * scale, high=peak.high * scale, basis=peak.basis)
    return scaled, assumed
