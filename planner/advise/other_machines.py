"""From the search: other machines for the same training, and everything free on the same one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from ...catalog.snapshot import Catalogue
from ...profiles.profile import Profile
from ..plan.layout import Layout
from ..plan.plan import Plan
from ..plan.question import Choices, Machine, Question, Work
from ..search.search import search
from ..software.versions import BF16_REDUCTION
from .changes import Proposal
from .printed_options import all_options
from .time_and_cost import cost_of, time_of
from .today.setting import Replanner, Setting, fits

SLOWEST = 2.0
"""A cheaper machine may take so many times as long."""
DEAREST = 2.0
"""A faster machine may cost so many times as much."""
CHEAPEST_SHOWN = 3
MORE_NODES = 2
"""Machines are tried up to so many times today's nodes."""


def other_machines(
    today: Setting, plan: Plan, replanner: Replanner, catalogue: Catalogue, machine: Machine
) -> Iterator[tuple[Proposal, Plan]]:
    """Yield machines that are cheaper, faster or smaller, with all but their number kept.

    Where today's setting does not fit, its micro-batch and its recompute are free on them: most
    machines hold such a model only in smaller pieces.

    Args:
        today: the setting.
        plan: its plan.
        replanner: with the model, the work and the way of buying.
        catalogue: offers and devices.
        machine: its providers, regions and jurisdictions are kept.
    """
    setup, is_kept = today.setup, fits(plan)
    anywhere = replace(machine, accelerators=(), instances=(), nodes=())
    choices = Choices(
        layouts=_layouts(today, fits_today=is_kept),
        micro_batches=(setup.micro_batch,) if is_kept else (),
        precisions=(setup.precision,),
        recomputes=(setup.recompute,) if is_kept else (),
        frozen_precisions=(setup.frozen_precision or "fp32",),
        reduce_dtype="bf16" if BF16_REDUCTION in setup.features else None,
        stack="megatron" if setup.stack == "megatron" else None,
        compile=setup.compile,
        optimizer=setup.optimizer,
        offload=tuple(setup.offload),
    )
    question = Question(
        work=_work(replanner.work, today),
        machine=replace(anywhere, max_nodes=max(1, MORE_NODES * today.nodes)),
        choices=choices,
        money=replanner.money,
        by="instance",
    )
    found = _search(question, replanner, catalogue, replanner.profile)
    others = [one for one in found if _place(one) != _place(plan)]
    if plan.runnable is not False:
        others = [one for one in others if one.runnable is not False] or others
    for other in _picked(others, plan):
        yield _proposal(other, today, not_run_risk(other, plan)), other


def everything_free(
    today: Setting, plan: Plan, replanner: Replanner, catalogue: Catalogue
) -> Plan | None:
    """Return the cheapest plan on the same machine with the same global batch and optimizer.

    Layout, micro-batch, precision, recompute (of the file too) and compilation are free; offload is
    tried where nothing else fits. What `gpuplan run` does not carry out is returned where it
    carries out nothing.
    """
    for runnable in (True, False):
        found = [*_free_plans(today, plan, replanner, catalogue, runnable=runnable)]
        if found:
            return min(found, key=_cost)
    return None


def _free_plans(
    today: Setting, plan: Plan, replanner: Replanner, catalogue: Catalogue, *, runnable: bool
) -> Iterator[Plan]:
    """Yield the plans on today's machine with everything free, compiled and not."""
    for compiles in (False, True):
        question = Question(
            work=_work(replanner.work, today),
            machine=Machine(
                providers=(plan.offer.provider,),
                regions=(plan.offer.region,),
                instances=(plan.offer.instance_type,),
                nodes=(today.nodes,),
            ),
            choices=Choices(compile=compiles, optimizer=today.setup.optimizer),
            money=replanner.money,
            runnable=runnable,
        )
        yield from _search(question, replanner, catalogue, replanner.freest)


def not_run_risk(plan: Plan, today: Plan) -> tuple[str, ...]:
    """Return that `gpuplan run` does not carry a plan out where it does today's, with why."""
    if plan.runnable is not False or today.runnable is False:
        return ()
    why = (plan.why_not_runnable or "").rstrip(".")
    return (f"`gpuplan run` does not carry it out{f': {why}' if why else ''}",)


def _search(
    question: Question, replanner: Replanner, catalogue: Catalogue, profile: Profile
) -> list[Plan]:
    """Return the plans that run without a port, and hardly ever out of memory."""
    found = search(
        question,
        profile,
        catalogue,
        curve_choice=replanner.curve_choice,
        own_stops=replanner.own_stops,
        on_progress=replanner.on_progress,
    )
    return [
        plan
        for plan in found.plans
        if not plan.needs_port and (plan.p_oom or 0.0) <= question.money.max_oom
    ]


def _work(work: Work, today: Setting) -> Work:
    return replace(work, global_batch=today.global_batch)


def _layouts(today: Setting, *, fits_today: bool) -> tuple[Layout, ...]:
    """Return today's layout on other numbers of ranks, which make the same global batch.

    Where today's setting does not fit, FSDP as well, which needs least memory.
    """
    layout = today.setup.layout
    if not layout.is_data_parallel_only or 1 < layout.shard < layout.data:
        return (layout,)
    most = today.global_batch // (today.setup.micro_batch if fits_today else 1)
    sizes = {2**i for i in range(most.bit_length()) if 2**i <= most} | {layout.data}
    stages = {layout.zero_stage} if fits_today else {layout.zero_stage, 3}
    # One rank shares with nobody; only its parameters on the host need FSDP.
    alone = 3 if "parameters" in today.setup.offload else 0
    found = {
        Layout(data=1, zero_stage=alone)
        if ranks == 1
        else Layout(data=ranks, shard=ranks if stage else 1, zero_stage=stage)
        for ranks in sorted(sizes)
        for stage in sorted(stages)
    }
    return tuple(sorted(found, key=lambda one: (one.accelerators, one.zero_stage)))


def _picked(others: Sequence[Plan], today: Plan) -> list[Plan]:
    """Return a few: the cheapest that are not much slower, the fastest, the smallest."""
    base = today if fits(today) else min(others, key=_cost, default=today)
    time, cost = time_of(base).value, _cost(base)
    by_device: dict[str, Plan] = {}
    for plan in sorted(others, key=_cost):
        if time_of(plan).value <= SLOWEST * time:
            by_device.setdefault(plan.offer.accelerator, plan)
    picked = list(by_device.values())[:CHEAPEST_SHOWN]
    for most in (cost, DEAREST * cost):
        within = [plan for plan in others if _cost(plan) <= most]
        picked += sorted(within, key=lambda plan: time_of(plan).value)[:1]
    smaller = [
        plan
        for plan in others
        if plan.accelerators < today.accelerators and time_of(plan).value <= SLOWEST * time
    ]
    picked += sorted(smaller, key=lambda plan: (plan.accelerators, _cost(plan)))[:1]
    return list({plan.id: plan for plan in picked}.values())


def _proposal(plan: Plan, today: Setting, not_run: tuple[str, ...]) -> Proposal:
    seller = today.choice.offer.provider
    risks = []
    if plan.offer.provider != seller:
        risks.append(f"another seller than {seller}: an account, its quota, and the data to move")
    if plan.offer.accelerator != today.choice.accelerator.name:
        risks.append("another device: run a few steps there before the whole job")
    return Proposal(
        kind="machine",
        text=", ".join([f"{plan.place} ({plan.devices})", *_also_changed(plan, today)]),
        setting=today,
        risks=(*risks, *not_run),
        lines=(all_options(plan, today),),
    )


def _also_changed(plan: Plan, today: Setting) -> Iterator[str]:
    """Yield what else than the machine differs: only where today's setting does not fit."""
    setup = today.setup
    if plan.micro_batch != setup.micro_batch:
        yield f"micro-batch {setup.micro_batch:,} → {plan.micro_batch:,}"
    if plan.recompute != setup.recompute:
        yield f"recompute {setup.recompute} → {plan.recompute_text}"


def _place(plan: Plan) -> tuple[str, str, int]:
    return plan.offer.provider, plan.offer.instance_type, plan.nodes


def _cost(plan: Plan) -> float:
    """Return dollars of the same work; infinite where no price is known."""
    found = cost_of(plan)
    return float("inf") if found is None else found.value
