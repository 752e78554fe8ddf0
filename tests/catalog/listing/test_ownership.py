from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from gpuplan.catalog.listing.ownership import (
    Ownership,
    break_even_month,
    capital_usd_per_month,
    energy_usd_per_month,
    lifetime_months,
    running_usd_per_month,
    usd_per_used_hour,
    used_hours_per_month,
)


def money(low, high):
    return st.decimals(low, high, places=2, allow_nan=False, allow_infinity=False)


owned_nodes = st.builds(
    Ownership,
    capex_usd=money(1000, 1_000_000),
    lifetime_years=money(1, 10),
    residual_usd=money(0, 900),
    power_w=money(100, 20_000),
    idle_power_w=money(0, 100),
    usd_per_kwh=st.decimals("0.01", "0.60", places=3),
    pue=st.decimals("1.0", "2.5", places=2),
    utilisation=st.decimals("0.05", "1", places=2),
    hosting_usd_per_month=money(0, 5000),
    staff_usd_per_month=money(0, 5000),
)


def node(**changes):
    fields = {
        "capex_usd": Decimal(292_000),
        "lifetime_years": Decimal(4),
        "power_w": Decimal(10_000),
        "usd_per_kwh": Decimal("0.10"),
        "pue": Decimal("1.5"),
        "utilisation": Decimal("0.5"),
    }
    return Ownership(**{**fields, **changes})


def test_by_hand():
    owned = node()
    # 292,000 / 48 months; 730 h × 0.5 × 10 kW × 1.5 × $0.10.
    assert capital_usd_per_month(owned) == pytest.approx(Decimal("6083.33"), abs=Decimal("0.01"))
    assert energy_usd_per_month(owned) == Decimal("547.5")
    assert used_hours_per_month(owned) == 365
    assert usd_per_used_hour(owned) == pytest.approx(Decimal("18.1666"), abs=Decimal("0.001"))
    # Renting at $30: 10,950 a month saved less 547.50 of power; 292,000 / 10,402.50 = 28.07.
    assert break_even_month(owned, rental_usd_per_hour=Decimal(30)) == 29
    assert break_even_month(owned, rental_usd_per_hour=Decimal(1)) is None


@given(owned_nodes)
def test_renting_at_the_cost_of_owning_breaks_even_at_the_end_of_life(owned):
    # Without resale value, the cost per used hour is the price at which both are even.
    owned = owned.model_copy(update={"residual_usd": Decimal(0)})
    cost = usd_per_used_hour(owned)
    month = break_even_month(owned, rental_usd_per_hour=cost * Decimal("1.000001"))
    if month is not None:
        assert abs(month - lifetime_months(owned)) <= 1
    assert break_even_month(owned, rental_usd_per_hour=cost * Decimal("0.9")) is None


@given(owned_nodes, money(1, 500))
def test_the_break_even_month_is_the_first_that_pays(owned, rental):
    month = break_even_month(owned, rental_usd_per_hour=rental)
    if month is None:
        return
    saved = rental * used_hours_per_month(owned) - running_usd_per_month(owned)
    assert month * saved >= owned.capex_usd > (month - 1) * saved
    assert month <= lifetime_months(owned)


@given(owned_nodes, owned_nodes)
def test_more_use_is_cheaper_per_hour_and_dearer_power_is_not(one, other):
    low, high = sorted((one.utilisation, other.utilisation))
    cost = usd_per_used_hour
    assert cost(one.model_copy(update={"utilisation": high})) <= cost(
        one.model_copy(update={"utilisation": low})
    )
    cheap, dear = sorted((one.usd_per_kwh, other.usd_per_kwh))
    assert cost(one.model_copy(update={"usd_per_kwh": cheap})) <= cost(
        one.model_copy(update={"usd_per_kwh": dear})
    )


@pytest.mark.parametrize(
    "changes",
    [
        {"capex_usd": Decimal(0)},
        {"capex_usd": Decimal("NaN")},
        {"utilisation": Decimal("1.01")},
        {"utilisation": Decimal(0)},
        {"pue": Decimal("0.9")},
        {"lifetime_years": Decimal("Infinity")},
        {"power_w": Decimal(-1)},
    ],
)
def test_impossible_nodes_are_refused(changes):
    with pytest.raises(ValidationError):
        node(**changes)
