"""Units of interruptions that cannot be mixed, and the rates they become."""

import math
import subprocess
import sys
from pathlib import Path

import pytest

from gpuplan.planner.goodput.rates import (
    HourlyChance,
    MeanUptime,
    MonthlyShare,
    Rate,
    StoppedShare,
)


def test_a_share_a_month_and_a_chance_an_hour_are_not_the_same_number() -> None:
    # AWS Spot Advisor's 20 % a month is 3.1e-4 an hour; Azure's 20 % is 0.22 an hour.
    assert MonthlyShare(0.2).rate().per_hour == pytest.approx(3.06e-4, rel=1e-2)
    assert HourlyChance(0.2).rate().per_hour == pytest.approx(-math.log(0.8))
    assert MeanUptime(7200).rate().per_hour == pytest.approx(0.5)


@pytest.mark.parametrize("share", [-0.1, 1.0, 1.5])
def test_what_is_no_chance_has_no_rate(share: float) -> None:
    with pytest.raises(ValueError, match="is no chance"):
        MonthlyShare(share).rate()


def test_rates_add_up() -> None:
    assert (Rate(1.0) + Rate(2.0)).per_s == 3.0
    assert (Rate.hourly(3600) * 4).per_s == 4.0
    with pytest.raises(ValueError, match="is no rate"):
        Rate(math.nan)


MIXED = {
    "a share a month added to a chance an hour": "MonthlyShare(0.2) + HourlyChance(0.2)",
    "a chance an hour added to a rate": "Rate(1.0) + HourlyChance(0.2)",
    "a bare number added to a rate": "Rate(1.0) + 0.2",
    "a share of stopped machines taken for a rate": "StoppedShare(0.3).rate()",
}


def test_nothing_can_be_mixed_at_run_time() -> None:
    names = {
        one.__name__: one for one in (HourlyChance, MonthlyShare, Rate, StoppedShare, MeanUptime)
    }
    for expression in MIXED.values():
        with pytest.raises((TypeError, AttributeError)):
            eval(expression, names)


@pytest.mark.slow
def test_mixing_is_an_error_of_types(tmp_path: Path) -> None:
    head = "from gpuplan.planner.goodput.rates import *\nMonthlyShare(0.2).rate() + Rate(1.0)\n"
    lines = [f"{expression}  # {name}" for name, expression in MIXED.items()]
    file = tmp_path / "mixed.py"
    file.write_text(head + "\n".join(lines) + "\n", encoding="utf-8")
    found = subprocess.run(
        [sys.executable, "-m", "basedpyright", "--level", "error", str(file)],
        capture_output=True,
        text=True,
        check=False,
    )
    wrong = {line.split(":")[1] for line in found.stdout.splitlines() if "mixed.py:" in line}
    assert wrong == {str(3 + place) for place in range(len(MIXED))}, found.stdout
