"""From a finished candidate to the Plan that is stored and shown."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from ....catalog.units import SECONDS_PER_HOUR
from ....profiles.profile import Profile
from ...goodput.expected_run import mean_training_s
from ...offload.host_memory import ordered
from ...parallelism.fsdp import gathered_parameters
from ...plan.ids import plan_id
from ...plan.plan import Plan
from ...plan.question import Question
from ...predict.predict import Prediction
from ...software.torch_builds import BuildVerdict, capacity_note
from ...software.versions import BF16_REDUCTION
from ..candidate import Candidate
from ..layouts.some_layers import equal_layers, recomputed_layers
from ..machines.electricity import with_energy
from ..machines.many_at_once import many_at_once
from ..machines.runs_here import torch_build_of, why_not_run
from ..machines.tpu_slice import slice_note
from .work_of_plan import global_batch_of, work_of_plan


def as_plan(
    candidate: Candidate, prediction: Prediction, profile: Profile, question: Question
) -> Plan:
    """Return the plan with throughput, dollars and its id; position is given when it is ranked."""
    why_not = why_not_run(candidate.setup, candidate.site.accelerator, profile)
    candidate = replace(candidate, saves_at_notice=why_not is None)
    if question.asks_for_work:
        step = prediction.step_time_s
        over_likely = mean_training_s(step) / step.value
        candidate = replace(candidate, step_s=step.value, over_likely=over_likely)
        candidate = candidate.within(question.money)
    plan = _stated(candidate, prediction, profile, question)
    return _named(with_energy(plan, candidate.choice.electricity), why_not)


def _stated(
    candidate: Candidate, prediction: Prediction, profile: Profile, question: Question
) -> Plan:
    """Return the plan without its id, and without what it draws."""
    setup, site, choice = candidate.setup, candidate.site, candidate.choice
    global_batch = global_batch_of(candidate)
    step = prediction.step_time_s
    rates = _rates(candidate, global_batch / step.value, profile.tokens_per_sample)
    work = work_of_plan(candidate, step, profile.tokens_per_sample, question)
    remarks = _remarks(candidate, profile)
    return Plan(
        id="",
        position=0,
        string=plan_string(candidate, profile),
        offer=choice.chosen(),
        nodes=site.nodes,
        accelerators=site.accelerators,
        layout=setup.layout,
        precision=setup.precision,
        micro_batch=setup.micro_batch,
        grad_accum=setup.grad_accum,
        global_batch=global_batch,
        recompute=setup.recompute,
        recompute_layers=recomputed_layers(setup, profile),
        compile=setup.compile or setup.stack == "torch-compile",
        stack=setup.stack,
        optimizer=profile.optimizer.name,
        frozen_precision=setup.frozen_precision,
        reduce_dtype="bf16" if BF16_REDUCTION in setup.features else None,
        offload=bool(setup.offload),
        offloaded=ordered(setup.offload),
        host_memory_bytes=prediction.host_memory_bytes,
        step_time_s=step,
        breakdown_s=prediction.breakdown_s,
        peak_memory_bytes=prediction.peak_memory_bytes,
        memory_breakdown_bytes=prediction.memory_breakdown_bytes,
        mfu=prediction.mfu,
        hfu=prediction.hfu,
        bandwidth_share=prediction.bandwidth_share,
        p_oom=prediction.p_oom,
        gathered_parameters=gathered_parameters(profile, setup.layout),
        samples_per_s=rates.samples_per_s,
        tokens_per_s=rates.tokens_per_s,
        usd_per_hour=rates.usd_per_hour,
        usd_per_million_samples=rates.usd_per_million_samples,
        usd_per_million_tokens=rates.usd_per_million_tokens,
        run=work.run,
        whole_job=work.job,
        commitment=work.commitment,
        stops=work.stops,
        deadline_ways=work.deadline_ways,
        needs_build=remarks.needs_build,
        usually_reserved=remarks.usually_reserved,
        needs_port=site.accelerator.port_to is not None,
        notes=(*prediction.notes, *remarks.notes),
    )


@dataclass(frozen=True, kw_only=True)
class _Rates:
    """What a plan trains per second, and for how much money; None where that is not known."""

    samples_per_s: float
    tokens_per_s: float | None
    usd_per_hour: float | None
    """All nodes."""
    usd_per_million_samples: float | None
    usd_per_million_tokens: float | None


def _rates(candidate: Candidate, samples_per_s: float, tokens_per_sample: float | None) -> _Rates:
    node_usd_per_hour = candidate.choice.usd_per_hour
    usd_per_hour = usd_per_sample = None
    if node_usd_per_hour is not None:
        usd_per_hour = float(node_usd_per_hour) * candidate.site.nodes
        usd_per_sample = usd_per_hour / SECONDS_PER_HOUR / samples_per_s
    usd_per_token = None
    if usd_per_sample is not None and tokens_per_sample:
        usd_per_token = usd_per_sample / tokens_per_sample
    return _Rates(
        samples_per_s=samples_per_s,
        tokens_per_s=None if tokens_per_sample is None else samples_per_s * tokens_per_sample,
        usd_per_hour=usd_per_hour,
        usd_per_million_samples=None if usd_per_sample is None else usd_per_sample * 1e6,
        usd_per_million_tokens=None if usd_per_token is None else usd_per_token * 1e6,
    )


@dataclass(frozen=True, kw_only=True)
class _Remarks:
    """What is to know of a plan's machines."""

    notes: tuple[str, ...]
    needs_build: Literal["other", "older", "none"] | None
    usually_reserved: bool


def _remarks(candidate: Candidate, profile: Profile) -> _Remarks:
    site, choice = candidate.site, candidate.choice
    build = torch_build_of(site.accelerator, profile)
    reserved = capacity_note(choice.instance, choice.purchase)
    notes = (build.note, reserved, slice_note(site), many_at_once(choice, site.nodes))
    return _Remarks(
        notes=tuple(note for note in notes if note is not None),
        needs_build=_needs_build(build),
        usually_reserved=reserved is not None,
    )


def _needs_build(verdict: BuildVerdict) -> Literal["other", "older", "none"] | None:
    if verdict.why_not is not None:
        return "none"
    if verdict.note is None:
        return None
    return "older" if verdict.is_older else "other"


def _named(plan: Plan, reason: str | None) -> Plan:
    """Return the plan with its id, and with whether gpuplan's runner runs it."""
    return plan.model_copy(
        update={
            "id": plan_id(dict(plan)),
            "runnable": reason is None,
            "why_not_runnable": reason,
        }
    )


def plan_string(candidate: Candidate, profile: Profile) -> str:
    """Return the plan in one line: layout, batch, recompute, precision."""
    setup = candidate.setup
    parts = [str(setup.layout), f"mb{setup.micro_batch}"]
    if setup.grad_accum > 1:
        parts.append(f"ga{setup.grad_accum}")
    if setup.recompute != "none":
        layers = recomputed_layers(setup, profile)
        of = "" if layers is None else f":{layers}/{equal_layers(profile)}"
        parts.append(f"rc={setup.recompute}{of}")
    parts.append(setup.precision)
    if setup.frozen_precision is not None:
        parts.append(f"frozen={setup.frozen_precision}")
    if BF16_REDUCTION in setup.features:
        parts.append("reduce=bf16")
    if setup.offload:
        parts.append(f"offload={'+'.join(ordered(setup.offload))}")
    if setup.compile or setup.stack == "torch-compile":
        parts.append("compile")
    return " ".join(parts)
