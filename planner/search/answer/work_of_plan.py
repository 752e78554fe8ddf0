"""What the whole work takes and costs on the machines of a plan, with its stops and chances."""

from __future__ import annotations

from dataclasses import dataclass, replace
from decimal import Decimal

from ....catalog.units import SECONDS_PER_HOUR
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
from ...cost.whole_job import ROUNDED_USD, Job, whole_job
from ...goodput.expected_run import ExpectedRun
from ...goodput.stops import stops_of
from ...plan.parts import Stops
from ...plan.payment import DeadlineWay
from ...plan.plan import CommitmentUse, Estimated, RunCost, WholeJob
from ...plan.question import Money, Question, Work
from ..candidate import Candidate
from .on_demand_instead import on_demand_instead_usd


@dataclass(frozen=True, kw_only=True)
class WorkOfPlan:
    """The whole work on a plan; None and nothing where no amount of it was given."""

    run: RunCost | None
    job: WholeJob | None
    commitment: CommitmentUse | None
    stops: Stops
    deadline_ways: tuple[DeadlineWay, ...]


def work_of_plan(
    candidate: Candidate, step: Estimated, tokens_per_sample: float | None, question: Question
) -> WorkOfPlan:
    """Return what the whole work takes and costs on the machines of a candidate.

    Args:
        candidate: within the limits of the question.
        step: seconds of one optimizer step.
        tokens_per_sample: of the model; None where samples are not counted in tokens.
        question: the work and the limits.
    """
    run = _run(candidate, step, tokens_per_sample, question.work)
    stops = stops_of(candidate.rented, candidate.state, start_s=candidate.start_s)
    job = _whole_job(candidate, step, run, stops)
    return WorkOfPlan(
        run=None if run is None else _expected(run, job, candidate, question.money),
        job=None if job is None else _with_data(job.whole, candidate, question.work),
        commitment=_commitment(candidate, job),
        stops=stops,
        deadline_ways=_deadline_ways(candidate, step, run, question.money),
    )


def _run(
    candidate: Candidate, step: Estimated, tokens_per_sample: float | None, work: Work
) -> RunCost | None:
    """Return what the whole work takes and costs; None where no amount of it was given."""
    global_batch = global_batch_of(candidate)
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
        chance = found.chance_within(money.deadline_s - candidate.start_s)
    if money.budget_usd is not None and whole.usd:
        budget_chance = _budget_chance(money.budget_usd, candidate, found, whole)
    return run.model_copy(
        update={
            "expected_hours": whole.hours,
            "expected_usd": None if whole.usd is None else float(whole.usd),
            "goodput": found.training_s / (candidate.start_s + found.elapsed_s),
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
        return run.chance_within(seconds - candidate.start_s)

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
        return float(budget_usd / job_usd) * (candidate.start_s + run.elapsed_s)
    hourly_usd = choice.usd_per_hour * candidate.nodes * choice.taxed
    paid_hours = (budget_usd + Decimal(str(ROUNDED_USD))) / hourly_usd
    return candidate.paid_whole.usable_of_planned_s(
        float(paid_hours) * SECONDS_PER_HOUR, planned_s=candidate.start_s + run.elapsed_s
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
        is_own=candidate.choice.is_own,
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
    return stops_of(candidate.rented_on_spot, candidate.state, start_s=candidate.start_s)


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
        spot=stops_of(candidate.rented_on_spot, candidate.state, start_s=candidate.start_s),
        on_demand=stops_of(candidate.rented_on_demand, candidate.state, start_s=candidate.start_s),
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


def global_batch_of(candidate: Candidate) -> int:
    """Return the samples of one optimizer step on all ranks."""
    setup = candidate.setup
    return setup.micro_batch * setup.layout.data * setup.grad_accum
