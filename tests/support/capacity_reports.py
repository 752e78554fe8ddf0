"""Capacity over time made by hand, for reports of which it is a part."""

from collections.abc import Sequence
from datetime import date, timedelta
from decimal import Decimal

from gpuplan.planner.budget.report.capacity_rows import (
    AcceleratorNeed,
    CapacityOverTime,
    CheapestMix,
    CommitmentMix,
    CommittedNodes,
    CommittedTerm,
    JobTimes,
)
from gpuplan.planner.budget.report.rows import AcceleratorUse, ExperimentRow

HAVE = 8
"""Accelerators of the kind that the first experiment runs on."""
DELAY_DAYS = 4
"""Every second experiment waits so long."""


def capacity_of(
    rows: Sequence[ExperimentRow], uses: Sequence[AcceleratorUse], start: date
) -> CapacityOverTime:
    """Return the times of experiments of which every second one waits for machines."""
    jobs = tuple(_times(row, DELAY_DAYS * (number % 2), start) for number, row in enumerate(rows))
    kind = rows[0].accelerator
    return CapacityOverTime(
        project="made by hand",
        start=start,
        have={kind: HAVE},
        headline=f"With {HAVE} × {kind} the project likely ends {DELAY_DAYS} days later.",  # noqa: RUF001
        how="the best of five rules",
        wanted_end=max(one.wanted_end for one in jobs),
        end=max(one.end for one in jobs),
        end_low=max(one.wanted_end for one in jobs),
        end_high=max(one.end for one in jobs) + timedelta(days=9),
        draws=200,
        jobs=jobs,
        needs=tuple(_need(use, HAVE if use.accelerator == kind else None) for use in uses),
        shortages=(),
        commitments=(_mix(kind, start),),
        mixes=(_cheapest(kind, start),),
    )


def _times(row: ExperimentRow, slips_days: int, start: date) -> JobTimes:
    begin, end = start + timedelta(hours=row.begins_h), start + timedelta(hours=row.ends_h)
    later = timedelta(days=slips_days)
    return JobTimes(
        name=row.name,
        experiment=row.name,
        accelerator=row.accelerator,
        accelerators_wanted=16,
        accelerators=8,
        wanted_begin=begin,
        wanted_end=end,
        begin=begin + later,
        end=end + later,
        slips_days=float(slips_days),
        priority=1,
    )


def _need(use: AcceleratorUse, have: int | None) -> AcceleratorNeed:
    return AcceleratorNeed(
        month=use.month,
        accelerator=use.accelerator,
        mean=use.mean,
        mean_low=use.mean * 0.9,
        mean_high=use.mean * 1.1,
        peak=use.peak,
        peak_low=use.peak - 8,
        peak_high=use.peak + 8,
        have=have,
        used=use.mean / 2,
        short_probability=0.0 if have is None else 0.75,
    )


def _mix(kind: str, start: date) -> CommitmentMix:
    return CommitmentMix(
        machine="aws us-east-1 p5.48xlarge",
        accelerator=kind,
        term_years=1.0,
        break_even_share=0.62,
        committed=(CommittedNodes(begin=start, nodes=1),),
        used_share=0.8,
        usd=Decimal("298000.25"),
        on_demand_usd=Decimal("361000.75"),
    )


def _cheapest(kind: str, start: date) -> CheapestMix:
    later = start + timedelta(days=90)
    return CheapestMix(
        machine="aws us-east-1 p5.48xlarge",
        accelerator=kind,
        committed=(
            CommittedTerm(begin=start, term_years=3.0, nodes=1),
            CommittedTerm(begin=later, term_years=1.0, nodes=2),
        ),
        used_share=0.9,
        usd=Decimal("291000.5"),
        one_length_usd=Decimal("298000.25"),
        on_demand_usd=Decimal("361000.75"),
    )
