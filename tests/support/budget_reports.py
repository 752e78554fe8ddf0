"""Budget reports made by hand: a small one, a large one, and one whose names attack."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import date
from decimal import ROUND_HALF_UP, Decimal

from capacity_reports import capacity_of

from gpuplan.planner.budget.project.months import Month
from gpuplan.planner.budget.report.actual_rows import SpentRow
from gpuplan.planner.budget.report.report import BudgetReport
from gpuplan.planner.budget.report.rows import (
    AcceleratorUse,
    AssumptionRow,
    Entry,
    EntryKind,
    ExperimentRow,
    FrontPoint,
    FundingRow,
    LimitCheck,
    MoneyRange,
    OptionRow,
    ProjectFacts,
    Sensitivity,
    Sum,
    WayRow,
)
from gpuplan.planner.budget.sums import NO_EXPERIMENT, NO_OWNER, NO_PROVIDER
from gpuplan.planner.plan.payment import BuyingWay, OwnCurrency, UseCost

CENT = Decimal("0.01")
START = Month(2027, 1)
MACHINES = (
    ("aws", "us-east-1", "p5.48xlarge on demand", "H100-80GB-SXM", Decimal("55.04")),
    ("gcp", "us-central1", "a2-highgpu-8g on demand", "A100-40GB-SXM", Decimal("29.3868")),
    ("lambda", "us-west-2", "gpu_8x_b200 on demand", "B200-180GB-SXM", Decimal("39.92")),
)
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


def cents(amount: Decimal) -> Decimal:
    """Return an amount rounded half up to the cent."""
    return amount.quantize(CENT, rounding=ROUND_HALF_UP)


def _exact(quantity: Decimal) -> Decimal:
    """Return a quantity as the ledger keeps it."""
    return quantity.quantize(Decimal("0.000001"))


def spread(usd: Decimal, low: str = "0.85", high: str = "1.25") -> MoneyRange:
    """Return a sum with a range around it."""
    return MoneyRange(
        usd=usd,
        p10_usd=cents(usd * Decimal(low)),
        p50_usd=cents(usd * Decimal("1.01")),
        p90_usd=cents(usd * Decimal(high)),
    )


def entry(month: Month, name: str | None, kind: EntryKind, line: str, **given: object) -> Entry:
    """Return a row of the ledger whose dollars are those of its quantity and its unit price."""
    quantity = Decimal(str(given.pop("quantity")))
    unit_usd = Decimal(str(given.pop("unit_usd")))
    rest = {
        "stage": None,
        "owner": None,
        "provider": None,
        "region": None,
        "sku": None,
        "accelerator": None,
        **given,
    }
    return Entry.model_validate(
        {
            "month": month,
            "experiment": name,
            "kind": kind,
            "name": line,
            "quantity": quantity,
            "unit_usd": unit_usd,
            "usd": cents(quantity * unit_usd),
            **rest,
        }
    )


def _experiment_entries(
    index: int, name: str, first: int, months: int, owner: str
) -> Iterable[Entry]:
    provider, region, sku, accelerator, price = MACHINES[index % len(MACHINES)]
    machine = {
        "owner": owner,
        "stage": "pre-training" if index % 2 == 0 else "ablations",
        "provider": provider,
        "region": region,
        "sku": sku,
        "accelerator": accelerator,
        "unit": "instance-hour",
        "unit_usd": price,
    }
    for step in range(months):
        month = START.plus(first + step)
        hours = _exact(Decimal(97 + 31 * index + 17 * step) * 3)
        yield entry(month, name, "accelerators", "training", quantity=hours, **machine)
        yield entry(
            month, name, "failures", "failures and restarts", quantity=_exact(hours / 16), **machine
        )
        yield entry(
            month,
            name,
            "storage",
            "checkpoints",
            quantity=Decimal("1234.5") + index,
            unit="GB-month",
            unit_usd="0.023",
            owner=owner,
            provider=provider,
        )
    yield entry(
        START.plus(first), name, "start-up", "start of the machines", quantity="0.2", **machine
    )


def _row(index: int, name: str, entries: Sequence[Entry], first: int, months: int) -> ExperimentRow:
    provider, region, sku, accelerator, _ = MACHINES[index % len(MACHINES)]
    own = [one for one in entries if one.experiment == name]
    total = sum((one.usd for one in own), Decimal(0))
    run_usd = cents(total / 3)
    begins = float((START.plus(first).first_day - START.first_day).days * 24)
    hours = 72.5 + 9 * index
    front = tuple(
        FrontPoint(
            hours=hours * (1.6 - 0.25 * step),
            usd=cents(run_usd * Decimal(str(0.8 + 0.18 * step))),
            rent=f"{provider} {step + 1} × {sku.split()[0]} {region}",  # noqa: RUF001
        )
        for step in range(5)
    )
    return ExperimentRow(
        name=name,
        owner=own[0].owner,
        stage=own[0].stage,
        model=f"models/m{index}.py",
        work=f"{index + 1}B tokens",
        runs=3,
        runs_expected=3.4,
        plan_id=f"{index:010x}",
        rent=f"{provider} 1 × {sku.split()[0]} {region}",  # noqa: RUF001
        devices=f"8 × {accelerator}",  # noqa: RUF001
        accelerator=accelerator,
        accelerators=8,
        layout="fsdp8 mb4 ga2 bf16-amp",
        run_hours=hours,
        run_hours_low=hours * 0.85,
        run_hours_high=hours * 1.3,
        run_usd=run_usd,
        run_usd_low=cents(run_usd * Decimal("0.85")),
        run_usd_high=cents(run_usd * Decimal("1.3")),
        accelerator_hours=float(sum(8 * one.quantity for one in own if one.accelerator)),
        starts=START.plus(first),
        begins_h=begins,
        ends_h=begins + months * 700.0,
        p_oom=0.004 if index % 3 else None,
        step_time_s=0.41 + 0.03 * index,
        step_parts={
            "compute": 0.29 + 0.02 * index,
            "memory_bound": 0.06,
            "data_comm_exposed": 0.04 + 0.01 * index,
            "optimizer": 0.02,
        },
        memory_parts={
            "parameters": 2.0e9 * (1 + index % 5),
            "gradients": 2.0e9 * (1 + index % 5),
            "optimizer": 6.0e9,
            "activations": 1.1e10,
            "framework": 1.5e9,
        },
        memory_capacity_bytes=8.5e10,
        front=front,
        energy_kwh=410.0 + 50 * index,
        kg_co2e=160.0 + 20 * index if index % 4 != 3 else None,
        total=spread(total),
    )


def _sums(
    entries: Iterable[Entry], key: Callable[[Entry], str], limits: dict[str, Decimal] | None = None
) -> tuple[Sum, ...]:
    found: dict[str, Decimal] = {}
    for one in entries:
        found[key(one)] = found.get(key(one), Decimal(0)) + one.usd
    total = sum(found.values(), Decimal(0))
    rows = [
        Sum(
            name=name,
            usd=usd,
            share=float(usd / total),
            limit_usd=(limits or {}).get(name),
        )
        for name, usd in found.items()
    ]
    return tuple(sorted(rows, key=lambda row: -row.usd))


def _months(entries: Sequence[Entry], months: int, limit: Decimal | None) -> tuple[Sum, ...]:
    total = sum((one.usd for one in entries), Decimal(0))
    rows = []
    for step in range(months):
        month = START.plus(step)
        usd = sum((one.usd for one in entries if one.month == month), Decimal(0))
        rows.append(Sum(name=str(month), usd=usd, share=float(usd / total), limit_usd=limit))
    return tuple(rows)


def _uses(entries: Sequence[Entry]) -> tuple[AcceleratorUse, ...]:
    hours: dict[tuple[Month, str], float] = {}
    for one in entries:
        if one.accelerator and one.unit == "instance-hour":
            key = (one.month, one.accelerator)
            hours[key] = hours.get(key, 0.0) + float(one.quantity) * 8
    return tuple(
        AcceleratorUse(
            month=month,
            accelerator=name,
            hours=amount,
            peak=8 * (1 + int(amount // 2000)),
            mean=amount / month.hours,
        )
        for (month, name), amount in sorted(hours.items())
    )


def _options(total: MoneyRange, end: Month) -> tuple[OptionRow, ...]:
    rows = (
        ("cheap", "0.82", 118.0, "Each experiment on its cheapest plan: 18 % less, 31 days later."),
        ("normal", "1", 87.0, "Each experiment on its recommended plan."),
        ("fast", "1.37", 61.0, "Each experiment on its fastest plan: 26 days sooner, 37 % more."),
    )
    return tuple(
        OptionRow.model_validate(
            {
                "name": name,
                "is_planned": name == "normal",
                "total": total if name == "normal" else spread(cents(total.usd * Decimal(factor))),
                "ends": end,
                "days": days,
                "accelerator_hours": 5000.0,
                "text": text,
            }
        )
        for name, factor, days, text in rows
    )


def _sensitivities(total: Decimal) -> tuple[Sensitivity, ...]:
    rows = (
        ("price of the machines", "-25 %", "+10 %", "0.79", "1.08"),
        ("step time", "low end", "high end", "0.88", "1.14"),
        ("runs that fail", "0 %", "20 %", "0.95", "1.11"),
        ("development runs", "0 ×", "1 ×", "0.97", "1.09"),  # noqa: RUF001
        ("stored data", "half", "double", "0.995", "1.01"),
    )
    return tuple(
        Sensitivity(
            name=name,
            low=low,
            high=high,
            low_usd=cents(total * Decimal(least)),
            high_usd=cents(total * Decimal(most)),
        )
        for name, low, high, least, most in rows
    )


def _cumulative(by_month: Sequence[Sum]) -> tuple[MoneyRange, ...]:
    spent, found = Decimal(0), []
    for row in by_month:
        spent += row.usd
        found.append(spread(spent, "0.84", "1.27"))
    return tuple(found)


def _general(months: int) -> list[Entry]:
    found = []
    for step in range(months):
        month = START.plus(step)
        found.append(
            entry(
                month,
                None,
                "storage",
                "data set",
                quantity="20000",
                unit="GB-month",
                unit_usd="0.023",
                provider="aws",
            )
        )
        found.append(
            entry(
                month,
                None,
                "people",
                "engineer, half time",
                quantity=1,
                unit="month",
                unit_usd="1250.50",
                owner="Ada",
            )
        )
    return found


def make_report(
    names: Sequence[str],
    *,
    months: int,
    owners: Sequence[str] = ("Ada", "Grace"),
    project: str = "Small language models",
) -> BudgetReport:
    """Return a report of experiments with these names, whose sums are those of its ledger."""
    entries = _general(months)
    rows = []
    for index, name in enumerate(names):
        first = (index * 5) % max(1, months - 2)
        length = min(months - first, 2 + index % 3)
        own = [*_experiment_entries(index, name, first, length, owners[index % len(owners)])]
        entries += own
        rows.append(_row(index, name, own, first, length))
    total = sum((one.usd for one in entries), Decimal(0))
    by_month = _months(entries, months, cents(total / months * Decimal("1.4")))
    by_owner = _sums(entries, lambda one: one.owner or NO_OWNER, {owners[0]: cents(total / 2)})
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
        options=_options(whole, START.plus(months - 1)),
        experiments=tuple(rows),
        entries=tuple(sorted(entries, key=lambda one: one.month)),
        by_month=by_month,
        by_experiment=_sums(entries, lambda one: one.experiment or NO_EXPERIMENT),
        by_owner=by_owner,
        by_provider=_sums(entries, lambda one: one.provider or NO_PROVIDER),
        by_kind=_sums(entries, lambda one: one.kind),
        month_ranges=_cumulative(by_month),
        limits=tuple(limits),
        accelerators=_uses(entries),
        accelerator_hours=sum(row.accelerator_hours for row in rows),
        energy_kwh=sum(row.energy_kwh or 0.0 for row in rows),
        kg_co2e=None if any(row.kg_co2e is None for row in rows) else 480.0,
        sensitivities=_sensitivities(total),
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
        capacity=capacity_of(rows, _uses(entries), START.first_day),
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
