"""Sellers that price the accelerator alone: what is billed beside it is unknown, and never 0."""

from decimal import Decimal

import pytest

from gpuplan.catalog.embedded import embedded_catalogue
from gpuplan.catalog.types import ACCELERATOR_ALONE
from gpuplan.planner.cost.beside_machines.beside import HOST, Machines, beside_lines, is_lower_bound
from gpuplan.planner.cost.beside_machines.in_order import usd_beside

CATALOGUE = embedded_catalogue()


def machines(*, is_host_apart: bool) -> Machines:
    return Machines(
        provider="modal",
        region="global",
        nodes=2,
        checkpoint_bytes=1e9,
        is_managed=False,
        is_owned=False,
        is_paid_whole=False,
        is_host_apart=is_host_apart,
    )


def test_the_cost_is_at_least_what_the_accelerators_cost() -> None:
    lines = beside_lines(machines(is_host_apart=True), hours=10.0, usd_per_hour=Decimal(4))
    (host,) = (one for one in lines if one.name == HOST)
    assert (host.quantity, host.unit_usd, host.usd, host.is_certain) == (20, None, None, True)
    assert is_lower_bound(Decimal(80), lines)
    others = beside_lines(machines(is_host_apart=False), hours=10.0, usd_per_hour=Decimal(4))
    assert [one for one in lines if one.name != HOST] == list(others)
    assert not is_lower_bound(Decimal(80), others)


def test_none_comes_first_by_billing_its_host_apart() -> None:
    apart, whole = (usd_beside(machines(is_host_apart=one), Decimal(4)) for one in (True, False))
    assert apart.usd_per_hour > whole.usd_per_hour
    assert apart.at_once_usd == pytest.approx(whole.at_once_usd)


def test_who_says_so() -> None:
    sellers = {one.provider for one in CATALOGUE.offers if one.price_basis == ACCELERATOR_ALONE}
    assert sellers == {"coreweave", "modal", "salad"}
    for one in CATALOGUE.offers:
        assert not one.is_host_apart or "billed apart" in (one.note or "")
        if one.provider == "coreweave":
            assert one.is_host_apart == one.instance_type.endswith("-classic")
