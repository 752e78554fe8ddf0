"""From a finished candidate to the Plan that is stored and shown."""

from __future__ import annotations

from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Literal

from ....catalog.units import SECONDS_PER_HOUR
from ....profiles.profile import Profile
from ...cost.beside_machines.beside import (
    RACK_ACCELERATORS,
    beside_lines,
    beside_tax_line,
    is_lower_bound,
    spares_line,
    total_usd,
)
from ...cost.beside_machines.dataset_cost import dataset_lines, known_usd
from ...cost.commitment import commitment_use
from ...cost.deadline_ways import deadline_ways
from ...cost.run_cost import run_cost, samples_of
from ...cost.spot_moves import chance_while_moving, spot_price_range, with_moving_price
from ...cost.start_up import start_up_s
from ...cost.whole_job import ROUNDED_USD, Job, whole_job
from ...goodput.expected_run import ExpectedRun, mean_training_s
from ...goodput.stops import stops_of
from ...offload.host_memory import ordered
from ...plan.ids import plan_id
from ...plan.parts import Stops
from ...plan.payment import DeadlineWay
from ...plan.plan import CommitmentUse, Estimated, Plan, RunCost, WholeJob
from ...plan.question import Money, Question, Work
from ...predict.predict import Prediction
from ...software.torch_builds import BuildVerdict, capacity_note
from ...software.versions import BF16_REDUCTION
from ..candidate import Candidate
from ..layouts.some_layers import equal_layers, recomputed_layers
from ..machines.electricity import with_energy
from ..machines.many_at_once import many_at_once
from ..machines.runs_here import torch_build_of, why_not_run
from ..machines.tpu_slice import slice_note
from .on_demand_instead import on_demand_instead_usd


def as_plan(
    candidate: Candidate, prediction: Prediction, profile: Profile, question: Question
) -> Plan:
    """Return the plan with throughput, dollars and its id; position is given when it is ranked."""
    setup, site, choice = candidate.setup, candidate.site, candidate.choice
    global_batch = setup.micro_batch * setup.layout.data * setup.grad_accum
    step = prediction.step_time_s
    why_not = why_not_run(setup, site.accelerator, profile)
    candidate = replace(candidate, saves_at_notice=why_not is None)
    torch_build = torch_build_of(site.accelerator, profile)
    reserved = capacity_note(choice.instance, choice.purchase)
    told = (torch_build.note, reserved, slice_note(site), many_at_once(choice, site.nodes))
    rates = _rates(candidate, global_batch / step.value, profile.tokens_per_sample)
    if question.asks_for_work:
        over_likely = mean_training_s(step) / step.value
        candidate = replace(candidate, step_s=step.value, over_likely=over_likely)
        candidate = candidate.within(question.money)
    run = _run(candidate, step, global_batch, profile.tokens_per_sample, question.work)
    stops = stops_of(candidate.rented, candidate.state, start_s=start_up_s())
    job = _whole_job(candidate, step, run, stops)
    plan = Plan(
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
        samples_per_s=rates.samples_per_s,
        tokens_per_s=rates.tokens_per_s,
        mfu=prediction.mfu,
        hfu=prediction.hfu,
        bandwidth_share=prediction.bandwidth_share,
        usd_per_hour=rates.usd_per_hour,
        usd_per_million_samples=rates.usd_per_million_samples,
        usd_per_million_tokens=rates.usd_per_million_tokens,
        run=None if run is None else _expected(run, job, candidate, question.money),
        whole_job=None if job is None else _with_data(job.whole, candidate, question.work),
        commitment=_commitment(candidate, job),
        stops=stops,
        deadline_ways=_deadline_ways(candidate, step, run, question.money),
        p_oom=prediction.p_oom,
        needs_build=_needs_build(torch_build),
        usually_reserved=reserved is not None,
        needs_port=site.accelerator.port_to is not None,
        notes=(*prediction.notes, *(note for note in told if note is not None)),
    )
    plan = with_energy(plan, choice.electricity)
    return _named(plan, why_not)


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


def _run(
    candidate: Candidate,
    step: Estimated,
    global_batch: int,
    tokens_per_sample: float | None,
    work: Work,
) -> RunCost | None:
    """Return what the whole work takes and costs; None where no amount of it was given."""
    samples = samples_of(work, tokens_per_sample, global_batch)
    if candidate.limited_by is not None and candidate.steps:
        samples = candidate.steps * global_batch
    if samples is None:
        return None
    run = run_cost(
        step,
        samples=samples,
        global_batch=global_batch,
        nodes=candidate.site.nodes,
        usd_per_hour=candidate.choice.usd_per_hour,
        spot_usd_per_hour=candidate.choice.spot_usd_per_hour,
        tokens_per_sample=tokens_per_sample,
    )
    return run.model_copy(update={"limited_by": candidate.limited_by})


def _expected(run: RunCost, job: Job | None, candidate: Candidate, money: Money) -> RunCost:
    """Return the run with what it is expected to take with its stops, and its chances."""
    found = None if job is None else job.run
    if job is None or found is None:
        return run
    whole = job.whole
    chance = budget_chance = None
    if money.deadline_s is not None:
        chance = found.chance_within(money.deadline_s - start_up_s())
    if money.budget_usd is not None and whole.usd:
        budget_chance = _budget_chance(money.budget_usd, candidate, found, whole)
    return run.model_copy(
        update={
            "expected_hours": whole.hours,
            "expected_usd": None if whole.usd is None else float(whole.usd),
            "goodput": found.training_s / (start_up_s() + found.elapsed_s),
            "checkpoint_interval_s": found.interval_s,
            "deadline_probability": chance,
            "budget_probability": budget_chance,
        }
    )


def _budget_chance(
    budget_usd: Decimal, candidate: Candidate, run: ExpectedRun, whole: WholeJob
) -> float:
    """Return the chance that a job costs no more than a budget, with its moving price.

    What is paid beside the machines hardly depends on how long the steps take.
    """
    beside_usd = candidate.beside.of(whole.hours)
    assert whole.usd is not None
    paid_s = _paid_within_s(budget_usd - Decimal(beside_usd), candidate, run, whole.usd)

    def chance_of(seconds: float) -> float:
        return run.chance_within(seconds - start_up_s())

    if whole.spot_price is None:
        return chance_of(paid_s)
    return chance_while_moving(chance_of, paid_s, whole.spot_price)


def _paid_within_s(
    budget_usd: Decimal, candidate: Candidate, run: ExpectedRun, job_usd: Decimal
) -> float:
    """Return for how long the machines may run, start included, at the cost of a budget.

    By the hour that is so many times the expected hours; of a term that is paid whole, as long as
    the whole terms that the budget buys, those that are expected to be needed first.
    """
    choice = candidate.choice
    if candidate.paid_whole is None or choice.usd_per_hour is None:
        return float(budget_usd / job_usd) * (start_up_s() + run.elapsed_s)
    hourly_usd = choice.usd_per_hour * candidate.nodes * choice.taxed
    paid_hours = (budget_usd + Decimal(str(ROUNDED_USD))) / hourly_usd
    return candidate.paid_whole.usable_of_planned_s(
        float(paid_hours) * SECONDS_PER_HOUR, planned_s=start_up_s() + run.elapsed_s
    )


def _whole_job(
    candidate: Candidate, step: Estimated, run: RunCost | None, stops: Stops
) -> Job | None:
    """Return the run with its start and its bill; None where no amount of work was given."""
    if run is None:
        return None
    job = whole_job(
        _training_s(run, step),
        nodes=candidate.site.nodes,
        usd_per_hour=candidate.choice.usd_per_hour,
        spot_usd_per_hour=candidate.choice.spot_usd_per_hour,
        billing=candidate.choice.billing,
        stops=stops,
        spot_stops=_on_spot(candidate),
        paid_whole=candidate.paid_whole,
        tax_percent=candidate.choice.tax_percent,
    )
    moves = spot_price_range(candidate.choice.spot_prices or {}, job.whole.hours)
    return job if moves is None else job._replace(whole=with_moving_price(job.whole, moves))


def _with_data(whole: WholeJob, candidate: Candidate, work: Work) -> WholeJob:
    """Return the job with what is paid beside its machines."""
    choice = candidate.choice
    provider, region = choice.offer.provider, choice.offer.region
    is_owned = choice.purchase == "owned"
    lines = beside_lines(
        candidate.machines,
        hours=whole.hours,
        usd_per_hour=choice.usd_per_hour,
        own=choice.own_stops,
    )
    lines += dataset_lines(work, provider, region, hours=whole.hours, is_owned=is_owned)
    if choice.instance.link_domain_accelerators == RACK_ACCELERATORS:
        spares = spares_line(candidate.nodes, whole.hours, choice.usd_per_hour)
        lines += () if spares is None else (spares,)
    tax = beside_tax_line(lines, choice.tax_percent)
    lines += () if tax is None else (tax,)
    priced = whole.usd is not None
    return whole.model_copy(
        update={
            "spot_total_usd": _on_spot_in_all(whole, candidate, work),
            "on_demand_usd": on_demand_instead_usd(candidate),
            "data_lines": lines,
            "dataset_usd": known_usd(lines, choice.tax_percent),
            "total_usd": total_usd(whole.cost_lines, lines) if priced else None,
            "lower_bound": whole.usd is not None and is_lower_bound(whole.usd, lines),
        }
    )


def _on_spot_in_all(whole: WholeJob, candidate: Candidate, work: Work) -> Decimal | None:
    """Return the cost on spot machines of the same place with what is surely paid beside them."""
    choice = candidate.choice
    if whole.spot_usd is None:
        return None
    offer = choice.offer
    machines = replace(
        candidate.machines,
        is_managed=offer.launchable,
        is_owned=False,
        is_paid_whole=False,
    )
    lines = beside_lines(machines, hours=whole.hours, usd_per_hour=choice.spot_usd_per_hour)
    lines += dataset_lines(work, offer.provider, offer.region, hours=whole.hours)
    tax = beside_tax_line(lines, choice.tax_percent)
    lines += () if tax is None else (tax,)
    return whole.spot_usd + total_usd((), lines)


def _on_spot(candidate: Candidate) -> Stops | None:
    """Return what stops a run on the same machines of the spot market; None without a price."""
    if candidate.choice.spot_usd_per_hour is None:
        return None
    return stops_of(candidate.rented_on_spot, candidate.state, start_s=start_up_s())


def _training_s(run: RunCost, step: Estimated) -> Estimated:
    """Return what all steps take, without stops."""
    value, low, high = (run.steps * one for one in (step.value, step.low, step.high))
    return Estimated(value=value, low=low, high=high, basis=step.basis)


def _deadline_ways(
    candidate: Candidate, step: Estimated, run: RunCost | None, money: Money
) -> tuple[DeadlineWay, ...]:
    """Return the ways of buying its machines beside a deadline; none without spot machines."""
    choice = candidate.choice
    spot, on_demand = choice.spot_usd_per_hour, choice.offer.on_demand_usd_per_hour
    is_hourly = choice.purchase in ("on-demand", "spot")
    if run is None or money.deadline_s is None or spot is None or not is_hourly:
        return ()
    return deadline_ways(
        _training_s(run, step),
        deadline_s=money.deadline_s,
        nodes=candidate.nodes,
        spot=stops_of(candidate.rented_on_spot, candidate.state, start_s=start_up_s()),
        on_demand=stops_of(candidate.rented_on_demand, candidate.state, start_s=start_up_s()),
        spot_usd_per_hour=spot * choice.taxed,
        on_demand_usd_per_hour=None if on_demand is None else on_demand * choice.taxed,
        billing=choice.billing,
    )


def _commitment(candidate: Candidate, job: Job | None) -> CommitmentUse | None:
    choice = candidate.choice
    if choice.term is None:
        return None
    return commitment_use(
        choice.term,
        None if job is None else job.whole,
        nodes=candidate.nodes,
        tax_percent=choice.tax_percent,
        paid_whole=candidate.paid_whole,
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
