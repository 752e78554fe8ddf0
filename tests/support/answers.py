"""Plans and estimates made by hand, for tests of what is done with an answer."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Any

from gpuplan.catalog.units import GIB
from gpuplan.planner.plan.answer.answer_parts import (
    CatalogueFacts,
    Headlines,
    Hidden,
    PriceDates,
    Recommended,
    Rejected,
    WorkloadFacts,
)
from gpuplan.planner.plan.answer.asked import (
    AskedBatch,
    AskedMachine,
    AskedQuestion,
    AskedWork,
    Limits,
)
from gpuplan.planner.plan.answer.estimate import Estimate
from gpuplan.planner.plan.ids import plan_id
from gpuplan.planner.plan.layout import Layout, parse_layout
from gpuplan.planner.plan.plan import (
    Breakdown,
    ChosenOffer,
    CostLine,
    Estimated,
    EstimatedMemory,
    MemoryBreakdown,
    Plan,
    RunCost,
    Stops,
    WholeJob,
)


def make_offer(**changes: Any) -> ChosenOffer:
    fields: dict[str, Any] = {
        "provider": "aws",
        "region": "us-east-1",
        "instance_type": "p4d.24xlarge",
        "accelerator": "A100-40GB-SXM",
        "accelerators_per_node": 8,
        "purchase": "on-demand",
        "usd_per_hour": 21.96,
        "spot_usd_per_hour": 9.71,
        "price_basis": "list",
        "price_date": date(2026, 8, 20),
    }
    return ChosenOffer(**{**fields, **changes})


def make_stops(**changes: Any) -> Stops:
    """Return what stops a run once in 1,000 hours, with a rate known to a factor of about 3."""
    fields: dict[str, Any] = {
        "per_hour": 1e-3,
        "per_hour_low": 3e-4,
        "per_hour_high": 3e-3,
        "checkpoint_bytes": 1e10,
        "stall_s": 8.0,
        "restart_s": 1000.0,
        "wait_s": 0.0,
    }
    return Stops(**{**fields, **changes})


def make_run(**changes: Any) -> RunCost:
    fields: dict[str, Any] = {
        "steps": 19_073,
        "hours": 158.6,
        "hours_low": 140.2,
        "hours_high": 181.9,
        "usd": 3480.1,
        "usd_low": 3087.4,
        "usd_high": 3961.0,
        "spot_usd": 1539.0,
        "usd_per_million_samples": 356.4,
        "usd_per_million_tokens": 0.348,
        "cost_lines": (
            CostLine(
                name="aws p4d.24xlarge us-east-1, on-demand",
                quantity=158.6,
                unit="instance-hour",
                unit_usd=Decimal("21.96"),
                usd=Decimal("3482.86"),
            ),
        ),
    }
    return RunCost(**{**fields, **changes})


def make_asked(**changes: Any) -> AskedQuestion:
    fields: dict[str, Any] = {
        "model": "gpt2",
        "work": AskedWork(
            kind="tokens", amount=10e9, samples=9_765_625.0, tokens=10e9, steps=19_074
        ),
        "global_batch": AskedBatch(
            samples=512,
            tokens=524_288.0,
            source="rule",
            rule="0.5M tokens at 0.12B parameters",
            rule_source="Brown et al. 2020",
        ),
        "limits": Limits(deadline_s=864_000.0, budget_usd=Decimal(5000), max_oom=0.02),
        "machine": AskedMachine(providers=("aws", "gcp"), max_nodes=64),
        "purchase": "on-demand",
    }
    return AskedQuestion(**{**fields, **changes})


def make_job(run: RunCost) -> WholeJob:
    """Return the whole job of a run: ten minutes more, and its dollars to the cent."""

    def usd(amount: float | None) -> Decimal | None:
        return None if amount is None else Decimal(str(amount)).quantize(Decimal("0.01"))

    return WholeJob(
        hours=run.hours + 1 / 6,
        hours_low=run.hours_low + 1 / 6,
        hours_high=run.hours_high + 1 / 6,
        usd=usd(run.usd),
        usd_low=usd(run.usd_low),
        usd_high=usd(run.usd_high),
        spot_usd=usd(run.spot_usd),
        cost_lines=run.cost_lines,
    )


def make_plan(position: int = 1, *, layout: str = "fsdp8", **changes: Any) -> Plan:
    """Return a plan whose step is 0.4 s and whose parts add up; `changes` replace its fields."""
    parsed: Layout = parse_layout(layout)
    fields: dict[str, Any] = {
        "string": f"{layout} mb4 ga2 bf16-amp",
        "offer": make_offer(),
        "nodes": 1,
        "accelerators": parsed.accelerators,
        "layout": parsed,
        "precision": "bf16-amp",
        "micro_batch": 4,
        "grad_accum": 2,
        "global_batch": 64,
        "recompute": "none",
        "compile": False,
        "stack": "torch-eager",
        "optimizer": "adamw",
        "step_time_s": Estimated(value=0.412, low=0.374, high=0.451, basis="calibrated"),
        "breakdown_s": Breakdown(
            compute=0.251,
            memory_bound=0.094,
            launch=0.012,
            optimizer=0.021,
            data_comm_exposed=0.034,
        ),
        "peak_memory_bytes": EstimatedMemory(
            value=31.2 * GIB, low=29.9 * GIB, high=32.8 * GIB, basis="analytic", capacity=39.4 * GIB
        ),
        "memory_breakdown_bytes": MemoryBreakdown(
            parameters=2.0 * GIB,
            gradients=2.0 * GIB,
            optimizer=4.0 * GIB,
            activations=20.5 * GIB,
            temporary=1.5 * GIB,
            framework=1.2 * GIB,
        ),
        "samples_per_s": 155.3,
        "tokens_per_s": 159_068.0,
        "mfu": 0.414,
        "hfu": 0.414,
        "usd_per_hour": 21.96,
        "usd_per_million_samples": 39.28,
        "usd_per_million_tokens": 0.03836,
        "run": None,
        "p_oom": 0.001,
        "needs_port": False,
    }
    fields |= changes
    if fields["run"] is not None:
        fields.setdefault("whole_job", make_job(fields["run"]))
    return named(Plan(id="", position=position, **fields))


def named(plan: Plan) -> Plan:
    """Return the plan with the id that its content has."""
    return plan.model_copy(update={"id": plan_id(dict(plan))})


def make_estimate(*plans: Plan, **changes: Any) -> Estimate:
    fields: dict[str, Any] = {
        "gpuplan_version": "0.1.0",
        "generated_at": "2026-11-20T10:00:00+00:00",
        "catalog": CatalogueFacts(snapshot_date=date(2026, 8, 21), offers=10_093),
        "workload": WorkloadFacts(
            name="gpt2",
            parameters=124_439_808,
            trainable_parameters=124_439_808,
            flops_per_sample=8.6e11,
            tokens_per_sample=1024,
        ),
        "plans": plans,
        "feasible": 2930 if plans else 0,
        "rejected": Rejected(out_of_memory=41_204, no_price=610),
    }
    return Estimate(**{**fields, **changes})


def make_ranked_estimate() -> Estimate:
    """Return an estimate with an amount of work; one is a tie, one unpriced, one to be ported."""
    h100 = make_offer(
        provider="lambda",
        instance_type="gpu_8x_h100_sxm5",
        accelerator="H100-80GB-SXM",
        usd_per_hour=31.92,
        spot_usd_per_hour=None,
    )
    l4 = make_offer(
        provider="gcp",
        region="europe-west4",
        instance_type="g2-standard-8",
        accelerator="L4",
        accelerators_per_node=1,
        usd_per_hour=0.8536,
        spot_usd_per_hour=0.3414,
    )
    tpu = make_offer(
        provider="gcp",
        region="us-central2",
        instance_type="ct4p-hightpu-4t",
        accelerator="TPU-v4",
        accelerators_per_node=4,
        usd_per_hour=12.88,
        spot_usd_per_hour=None,
    )
    unpriced = make_offer(
        provider="oci",
        region="us-ashburn-1",
        instance_type="BM.GPU.MI300X.8",
        accelerator="MI300X",
        usd_per_hour=None,
        spot_usd_per_hour=None,
        price_date=None,
    )
    slow = Estimated(value=3.9, low=3.3, high=4.6, basis="analytic")
    no_price = {"usd": None, "usd_low": None, "usd_high": None, "spot_usd": None}
    no_price |= {"usd_per_million_samples": None, "usd_per_million_tokens": None}
    plans = (
        make_plan(1, run=make_run()),
        make_plan(
            2,
            offer=h100,
            usd_per_hour=31.92,
            tie_with_previous=True,
            step_time_s=Estimated(value=0.2, low=0.19, high=0.22, basis="measured"),
            run=make_run(
                hours=111.0,
                hours_low=104.1,
                hours_high=119.2,
                usd=3543.0,
                usd_low=3323.0,
                usd_high=3805.0,
                spot_usd=None,
            ),
        ),
        make_plan(
            3,
            layout="dp1",
            offer=l4,
            p_oom=0.12,
            usd_per_hour=0.8536,
            step_time_s=slow,
            peak_memory_bytes=EstimatedMemory(
                value=19.1 * GIB,
                low=18.0 * GIB,
                high=20.3 * GIB,
                basis="analytic",
                capacity=22.0 * GIB,
            ),
            run=make_run(
                hours=5200.0,
                hours_low=4400.0,
                hours_high=6140.0,
                usd=4439.0,
                usd_low=3755.0,
                usd_high=5241.0,
                spot_usd=1775.0,
            ),
        ),
        make_plan(
            4,
            layout="hsdp2x8.tp4.sp",
            nodes=8,
            offer=unpriced,
            usd_per_hour=None,
            recompute="selective",
            run=make_run(**no_price),
            usd_per_million_samples=None,
            usd_per_million_tokens=None,
        ),
        make_plan(
            5,
            layout="dp4",
            offer=tpu,
            usd_per_hour=12.88,
            needs_port=True,
            mfu=None,
            stack="xla",
            run=make_run(
                hours=301.0,
                hours_low=240.0,
                hours_high=380.0,
                usd=3876.0,
                usd_low=3091.0,
                usd_high=4894.0,
                spot_usd=None,
            ),
        ),
    )
    cheapest, fastest, smallest = (plans[index].id for index in (0, 1, 2))
    picks = Headlines(cheapest=cheapest, fastest=fastest, smallest=smallest)
    best = Recommended(
        id=fastest,
        position=2,
        reason="2 % above the cheapest, 1.4 times as fast; 99.9 % sure to fit",
        gap_to_cheapest=0.018,
    )
    return make_estimate(
        *plans,
        headlines=picks,
        recommended=best,
        question=make_asked(),
        prices=PriceDates(oldest=date(2026, 1, 1), newest=date(2026, 8, 20), by_year=True),
        hidden=Hidden(above_cost=2870),
    )


def make_unworked_estimate() -> Estimate:
    """Return the same accelerators without an amount of work: prices per hour and per million."""
    ranked = make_ranked_estimate()
    no_work = {"run": None, "whole_job": None}
    plans = tuple(named(plan.model_copy(update=no_work)) for plan in ranked.plans)
    cheapest, fastest, smallest = (plans[index].id for index in (0, 1, 2))
    picks = Headlines(cheapest=cheapest, fastest=fastest, smallest=smallest)
    asked = make_asked(work=AskedWork(), limits=Limits(max_oom=0.02))
    return ranked.model_copy(
        update={"plans": plans, "headlines": picks, "recommended": None, "question": asked}
    )
