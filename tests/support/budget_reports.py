"""Budget reports made by hand: a small one, a large one, and one whose names attack."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import date
from decimal import Decimal

from budget_rows import (
    START,
    cents,
    cumulative_ranges,
    experiment_entries,
    experiment_row,
    general_entries,
    monthly_sums,
    option_rows,
    sensitivity_rows,
    spread,
    sums_of,
    uses_of,
)
from capacity_reports import capacity_of

from gpuplan.planner.budget.report.actual_rows import SpentRow
from gpuplan.planner.budget.report.limit_rows import LimitCheck
from gpuplan.planner.budget.report.report import BudgetReport
from gpuplan.planner.budget.report.rows import (
    AssumptionRow,
    FundingRow,
    ProjectFacts,
    WayRow,
)
from gpuplan.planner.budget.sums import NO_EXPERIMENT, NO_OWNER, NO_PROVIDER
from gpuplan.planner.plan.payment import BuyingWay, OwnCurrency, UseCost

HOSTILE_NAMES = (
    "<script>alert(1)</script>",
    '=HYPERLINK("https://example.org","x")',
    "'; DROP TABLE ledger; --",
    "שלום \u202egnp.exe",
    "🚀 | `run` **bold** [link](javascript:alert(1))",
    "x" * 300,
    "+1+1",
    "@SUM(A1)",
    "-2+3",
    "\t=1+1",
    "{{ 7 * 7 }}{% raw %}",
    "]]></style><img src=x onerror=alert(1)>",
)


def make_report(
    names: Sequence[str],
    *,
    months: int,
    owners: Sequence[str] = ("Ada", "Grace"),
    project: str = "Small language models",
) -> BudgetReport:
    """Return a report of experiments with these names, whose sums are those of its ledger."""
    entries = general_entries(months)
    rows = []
    for index, name in enumerate(names):
        first = (index * 5) % max(1, months - 2)
        length = min(months - first, 2 + index % 3)
        own = [*experiment_entries(index, name, first, length, owners[index % len(owners)])]
        entries += own
        rows.append(experiment_row(index, name, own, first, length))
    total = sum((one.usd for one in entries), Decimal(0))
    by_month = monthly_sums(entries, months, cents(total / months * Decimal("1.4")))
    by_owner = sums_of(entries, lambda one: one.owner or NO_OWNER, {owners[0]: cents(total / 2)})
    contingency = cents(total / 10)
    whole = spread(total)
    limits = [
        LimitCheck(
            name="total",
            usd=total + contingency,
            limit_usd=cents(total * Decimal("1.2")),
            is_over=False,
            on_exceed="fail",
        )
    ]
    limits += [
        LimitCheck(
            name=f"month {row.name}",
            usd=row.usd,
            limit_usd=row.limit_usd or Decimal(0),
            is_over=row.is_over,
            on_exceed="warn",
        )
        for row in by_month
    ]
    limits += [
        LimitCheck(
            name=f"owner {row.name}",
            usd=row.usd,
            limit_usd=row.limit_usd,
            is_over=row.is_over,
            on_exceed="warn",
        )
        for row in by_owner
        if row.limit_usd is not None
    ]
    grant = cents(total / 2)
    return BudgetReport(
        gpuplan_version="0.1.0",
        generated_at="2026-11-23T06:00:00+00:00",
        snapshot_date=date(2026, 8, 21),
        prices_from=date(2026, 8, 2),
        prices_to=date(2026, 8, 21),
        project=ProjectFacts(
            name=project,
            owner=owners[0],
            team="Research",
            start=START,
            months=months,
            file="gpuplan.yaml",
            content_hash="ab" * 32,
        ),
        summary=(
            f"The project is planned with ${total:,.2f}; it ends with a chance of 80 % between "
            f"${whole.p10_usd:,.2f} and ${whole.p90_usd:,.2f}.",
            f"That buys {len(names)} experiments of 3 runs each on rented accelerators.",
        ),
        total=whole,
        contingency_share=0.1,
        contingency_usd=contingency,
        budget_usd=total + contingency,
        funding=(
            FundingRow(
                name="National grant 4711",
                kind="grant",
                usd=grant,
                covers_usd=cents(grant / Decimal("1.15")),
                indirect_usd=grant - cents(grant / Decimal("1.15")),
                left_usd=Decimal(0),
                expires=date(2027, 6, 30),
                lapses_usd=Decimal(0),
            ),
        ),
        unfunded_usd=total - cents(grant / Decimal("1.15")),
        options=option_rows(whole, START.plus(months - 1)),
        experiments=tuple(rows),
        entries=tuple(sorted(entries, key=lambda one: one.month)),
        by_month=by_month,
        by_experiment=sums_of(entries, lambda one: one.experiment or NO_EXPERIMENT),
        by_owner=by_owner,
        by_provider=sums_of(entries, lambda one: one.provider or NO_PROVIDER),
        by_kind=sums_of(entries, lambda one: one.kind),
        month_ranges=cumulative_ranges(by_month),
        limits=tuple(limits),
        accelerators=uses_of(entries),
        accelerator_hours=sum(row.accelerator_hours for row in rows),
        energy_kwh=sum(row.energy_kwh or 0.0 for row in rows),
        kg_co2e=None if any(row.kg_co2e is None for row in rows) else 480.0,
        sensitivities=sensitivity_rows(total),
        assumptions=(
            AssumptionRow(
                name="failures of a node",
                value="once in 60 days",
                source="Kokolis et al. 2024, https://arxiv.org/abs/2410.21680",
                is_default=True,
            ),
            AssumptionRow(
                name="contingency", value="10 %", source="gpuplan.yaml", is_default=False
            ),
        ),
        risks=("One machine type carries 60 % of the cost; it may be sold out.",),
        not_included=("Taxes.", "Support contracts.", "Time of people who are not named."),
        currency=OwnCurrency(code="EUR", per_usd=0.86, date=date(2026, 8, 20)),
        spent=(
            SpentRow(
                launch="run-1",
                experiment=names[0],
                month=START,
                usd=Decimal("412.35"),
                planned_usd=Decimal("398.00"),
                status="done",
            ),
            SpentRow(
                launch="run-2",
                experiment=None,
                month=START.plus(1),
                usd=Decimal("96.10"),
                planned_usd=None,
                status="running",
            ),
        ),
        ways=tuple(_ways(names[0])),
        capacity=capacity_of(rows, uses_of(entries), START.first_day),
        seed=7,
        draws=10_000,
    )


def _ways(experiment: str) -> Iterable[WayRow]:
    """Yield an hour on demand, a term, one without a price, and a machine with that very name."""
    rented = BuyingWay(way="on-demand", usd_per_hour=55.04, by_use=_used(55.04, 55.04))
    bought = BuyingWay(
        way="owned",
        term_years=4.0,
        name=experiment,
        usd_per_hour=9.5,
        by_use=_used(38.0, 9.5),
        break_even_share=0.172_6,
        break_even_month=11,
    )
    unknown = BuyingWay(way="committed", term_years=1.0, usd_per_hour=None)
    for way in (rented, unknown, bought):
        yield WayRow(
            rent="aws 1 × p5.48xlarge us-east-1",  # noqa: RUF001
            experiments=(experiment,),
            node_hours=120.5,
            way=way,
        )


def _used(quarter_usd: float, full_usd: float) -> tuple[UseCost, ...]:
    return (
        UseCost(share=0.25, usd_per_hour=quarter_usd),
        UseCost(share=1.0, usd_per_hour=full_usd),
    )


def small_report() -> BudgetReport:
    """Return a report of 3 experiments and 6 months."""
    return make_report(("pretrain", "ablations", "ladder/1"), months=6)


def large_report() -> BudgetReport:
    """Return a report of 60 experiments and 24 months."""
    owners = ("Ada Lovelace", "Grace Hopper", "Katherine Johnson", "Alan Turing")
    names = [f"study-{index:02d}-of-attention" for index in range(60)]
    return make_report(names, months=24, owners=owners)


def hostile_report() -> BudgetReport:
    """Return a report whose project, owners and experiments have names that attack."""
    return make_report(HOSTILE_NAMES, months=6, owners=HOSTILE_NAMES[:2], project=HOSTILE_NAMES[0])


def bare_report() -> BudgetReport:
    """Return a report in which whatever may be unknown or absent is."""
    known = small_report()
    rows = [
        row.model_copy(
            update={
                "owner": None,
                "stage": None,
                "model": None,
                "work": None,
                "plan_id": None,
                "layout": None,
                "run_usd": None,
                "run_usd_low": None,
                "run_usd_high": None,
                "p_oom": None,
                "step_time_s": None,
                "step_parts": {},
                "memory_parts": {},
                "memory_capacity_bytes": None,
                "front": (),
                "energy_kwh": None,
                "kg_co2e": None,
            }
        )
        for row in known.experiments
    ]
    return known.model_copy(
        update={
            "experiments": tuple(rows),
            "prices_from": None,
            "prices_to": None,
            "project": known.project.model_copy(update={"owner": None, "team": None, "file": None}),
            "funding": (),
            "unfunded_usd": None,
            "limits": (),
            "energy_kwh": None,
            "kg_co2e": None,
            "sensitivities": (),
            "risks": (),
            "currency": None,
            "spent": (),
            "capacity": None,
        }
    )


def empty_report() -> BudgetReport:
    """Return a report of a project in which nothing costs anything yet."""
    nothing = spread(Decimal(0))
    parts = ("entries", "experiments", "by_month", "by_experiment", "by_owner", "by_provider")
    parts += ("by_kind", "month_ranges", "accelerators", "options", "summary", "assumptions")
    return bare_report().model_copy(
        update={
            **dict.fromkeys((*parts, "not_included"), ()),
            "total": nothing,
            "contingency_usd": Decimal(0),
            "budget_usd": Decimal(0),
            "accelerator_hours": 0.0,
        }
    )
