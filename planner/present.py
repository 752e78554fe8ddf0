"""From a finished candidate to the Plan that is stored and shown."""

from __future__ import annotations

from ..catalog.units import SECONDS_PER_HOUR
from ..profiles.profile import Profile
from .cost import run_cost, samples_of
from .host_memory import ordered
from .ids import plan_id
from .plan import Plan
from .predict import Prediction
from .rank import Candidate
from .request import Question
from .runnable import why_not_runnable


def as_plan(
    candidate: Candidate, prediction: Prediction, profile: Profile, question: Question
) -> Plan:
    """Return the plan with throughput, dollars and its id; position is given when it is ranked."""
    setup, site, choice = candidate.setup, candidate.site, candidate.choice
    global_batch = setup.micro_batch * setup.layout.data * setup.grad_accum
    step = prediction.step_time_s
    samples_per_s = global_batch / step.value
    tokens = profile.tokens_per_sample
    usd = choice.usd_per_hour
    usd_per_hour = None if usd is None else float(usd) * site.nodes
    per_sample = None if usd_per_hour is None else usd_per_hour / SECONDS_PER_HOUR / samples_per_s
    samples = samples_of(question.work, tokens, global_batch)
    run = None
    if samples is not None:
        run = run_cost(
            step,
            samples=samples,
            global_batch=global_batch,
            nodes=site.nodes,
            usd_per_hour=usd,
            spot_usd_per_hour=choice.spot_usd_per_hour,
            tokens_per_sample=tokens,
        )
    plan = Plan(
        id="",
        position=0,
        string=plan_string(candidate),
        offer=choice.chosen(),
        nodes=site.nodes,
        accelerators=site.accelerators,
        layout=setup.layout,
        precision=setup.precision,
        micro_batch=setup.micro_batch,
        grad_accum=setup.grad_accum,
        global_batch=global_batch,
        recompute=setup.recompute,
        compile=setup.compile or setup.stack == "torch-compile",
        stack=setup.stack,
        optimizer=profile.optimizer.name,
        offload=bool(setup.offload),
        offloaded=ordered(setup.offload),
        host_memory_bytes=prediction.host_memory_bytes,
        step_time_s=step,
        breakdown_s=prediction.breakdown_s,
        peak_memory_bytes=prediction.peak_memory_bytes,
        memory_breakdown_bytes=prediction.memory_breakdown_bytes,
        samples_per_s=samples_per_s,
        tokens_per_s=None if tokens is None else samples_per_s * tokens,
        mfu=prediction.mfu,
        hfu=prediction.hfu,
        usd_per_hour=usd_per_hour,
        usd_per_million_samples=None if per_sample is None else per_sample * 1e6,
        usd_per_million_tokens=(
            None if per_sample is None or not tokens else per_sample / tokens * 1e6
        ),
        run=run,
        needs_port=site.accelerator.needs_xla,
        notes=prediction.notes,
    )
    reason = _why_not_run(plan, profile)
    return plan.model_copy(
        update={
            "id": plan_id(dict(plan)),
            "runnable": reason is None,
            "why_not_runnable": reason,
        }
    )


def _why_not_run(plan: Plan, profile: Profile) -> str | None:
    return why_not_runnable(
        plan.layout,
        precision=plan.precision,
        stack=plan.stack,
        grad_accum=plan.grad_accum,
        recompute=plan.recompute,
        offloaded=plan.offloaded,
        tensor_plan=profile.tensor_plan,
        blocks=max((group.count for group in profile.blocks), default=0),
        needs_port=plan.needs_port,
    )


def plan_string(candidate: Candidate) -> str:
    """Return the plan in one line: layout, batch, recompute, precision (DESIGN §5)."""
    setup = candidate.setup
    parts = [str(setup.layout), f"mb{setup.micro_batch}"]
    if setup.grad_accum > 1:
        parts.append(f"ga{setup.grad_accum}")
    if setup.recompute != "none":
        parts.append(f"rc={setup.recompute}")
    parts.append(setup.precision)
    if setup.offload:
        parts.append(f"offload={'+'.join(ordered(setup.offload))}")
    if setup.compile or setup.stack == "torch-compile":
        parts.append("compile")
    return " ".join(parts)
