"""Rows of budget reports made by hand: lines of a ledger, experiments, sums, options."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from decimal import ROUND_HALF_UP, Decimal

from gpuplan.planner.budget.project.months import Month
from gpuplan.planner.budget.report.rows import (
    AcceleratorUse,
    Entry,
    EntryKind,
    ExperimentRow,
    FrontPoint,
    MoneyRange,
    OptionRow,
    Sensitivity,
    Sum,
)

CENT = Decimal("0.01")
START = Month(2027, 1)
MACHINES = (
    ("aws", "us-east-1", "p5.48xlarge on demand", "H100-80GB-SXM", Decimal("55.04")),
    ("gcp", "us-central1", "a2-highgpu-8g on demand", "A100-40GB-SXM", Decimal("29.3868")),
    ("lambda", "us-west-2", "gpu_8x_b200 on demand", "B200-180GB-SXM", Decimal("39.92")),
)


def cents(amount: Decimal) -> Decimal:
    """Return an amount rounded half up to the cent."""
    return amount.quantize(CENT, rounding=ROUND_HALF_UP)


def exact(quantity: Decimal) -> Decimal:
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


def experiment_entries(
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
        hours = exact(Decimal(97 + 31 * index + 17 * step) * 3)
        yield entry(month, name, "accelerators", "training", quantity=hours, **machine)
        yield entry(
            month, name, "failures", "failures and restarts", quantity=exact(hours / 16), **machine
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


def experiment_row(
    index: int, name: str, entries: Sequence[Entry], first: int, months: int
) -> ExperimentRow:
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


def sums_of(
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


def monthly_sums(entries: Sequence[Entry], months: int, limit: Decimal | None) -> tuple[Sum, ...]:
    total = sum((one.usd for one in entries), Decimal(0))
    rows = []
    for step in range(months):
        month = START.plus(step)
        usd = sum((one.usd for one in entries if one.month == month), Decimal(0))
        rows.append(Sum(name=str(month), usd=usd, share=float(usd / total), limit_usd=limit))
    return tuple(rows)


def uses_of(entries: Sequence[Entry]) -> tuple[AcceleratorUse, ...]:
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


def option_rows(total: MoneyRange, end: Month) -> tuple[OptionRow, ...]:
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


def sensitivity_rows(total: Decimal) -> tuple[Sensitivity, ...]:
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


def cumulative_ranges(by_month: Sequence[Sum]) -> tuple[MoneyRange, ...]:
    spent, found = Decimal(0), []
    for row in by_month:
        spent += row.usd
        found.append(spread(spent, "0.84", "1.27"))
    return tuple(found)


def general_entries(months: int) -> list[Entry]:
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
