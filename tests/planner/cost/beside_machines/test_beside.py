"""What is paid beside the machines, its exact sum, and when a cost is a lower bound."""

from decimal import Decimal

import pytest

from gpuplan.planner.cost.beside_machines.beside import (
    AROUND_LINES,
    CONTROLLER,
    SPARES_SOURCE,
    Machines,
    around_lines,
    at_price,
    beside_lines,
    beside_tax_line,
    billed_tail_s,
    controller_line,
    is_lower_bound,
    spares_line,
    total_usd,
)
from gpuplan.planner.cost.beside_machines.data_cost import data_lines
from gpuplan.planner.cost.beside_machines.in_order import ranked_usd, usd_beside
from gpuplan.planner.goodput.own_stops import OwnStops
from gpuplan.planner.plan.plan import CostLine, DataLine

MACHINES = CostLine(
    name="training",
    quantity=10.0,
    unit="instance-hour",
    unit_usd=Decimal(3),
    usd=Decimal("30.00"),
)


def test_a_controller_is_paid_for_the_job_and_ten_minutes_more() -> None:
    line = controller_line("aws", "us-east-1", 10.0)
    assert (line.name, line.unit, line.unit_usd) == (CONTROLLER, "instance-hour", Decimal("0.192"))
    assert line.quantity == pytest.approx(10 + 1 / 6)
    assert line.usd == Decimal("1.95")  # 10.1667 x 0.192
    assert line.is_certain and line.source is not None and line.source.startswith("m6i.xlarge")


@pytest.mark.parametrize("place", [("aws", "eu-west-1"), ("verda", "global"), ("runpod", "global")])
def test_a_controller_without_a_known_price_is_there_and_not_free(place: tuple[str, str]) -> None:
    line = controller_line(*place, 10.0)
    assert line.usd is None and line.unit_usd is None and line.source is None
    assert line.text == "SkyPilot's controller ?"


@pytest.mark.parametrize(("nodes", "spare"), [(16, 2), (17, 4), (32, 4), (33, 6)])
def test_two_nodes_of_every_rack_begun_are_spares(nodes: int, spare: int) -> None:
    line = spares_line(nodes, 5.0, Decimal(40))
    assert line is not None
    assert (line.quantity, line.usd, line.is_certain) == (spare * 5.0, spare * 200, False)
    assert line.source == SPARES_SOURCE and "assumed" in SPARES_SOURCE
    unpriced = spares_line(nodes, 5.0, None)
    assert unpriced is not None and unpriced.usd is None


def test_a_job_of_less_than_a_rack_has_no_spares() -> None:
    assert spares_line(15, 5.0, Decimal(40)) is None


def test_the_sum_is_exact_and_holds_what_is_sure_and_known() -> None:
    beside = (
        a_line(usd=Decimal("0.10")),
        a_line(usd=Decimal("0.20")),
        a_line(usd=None),
        a_line(usd=Decimal(7), is_certain=False),
    )
    assert total_usd([MACHINES], beside) == Decimal("30.30")
    assert total_usd([], ()) == 0


def test_the_tax_is_on_what_is_in_the_sum() -> None:
    beside = (
        a_line(usd=Decimal("10.00")),
        a_line(usd=None),
        a_line(usd=Decimal(7), is_certain=False),
    )
    tax = beside_tax_line(beside, Decimal(19))
    assert tax is not None and (tax.unit_usd, tax.usd) == (Decimal("0.19"), Decimal("1.90"))
    assert total_usd([MACHINES], (*beside, tax)) == MACHINES.usd + Decimal("11.90")
    assert beside_tax_line(beside, None) is None
    assert beside_tax_line(beside[1:], Decimal(19)) is None


@pytest.mark.parametrize(("hours", "bound"), [(1.0, True), (0.1, False)])
def test_an_unknown_price_that_cannot_matter_is_no_lower_bound(hours: float, bound: bool) -> None:
    """Ten dollars of machines: a tenth of that a percent, which the controller reaches in time."""
    line = a_line(usd=None, quantity=hours)
    assert is_lower_bound(Decimal(10), [line]) is bound
    assert not is_lower_bound(Decimal(10), [line.model_copy(update={"usd": Decimal(9)})])
    assert not is_lower_bound(Decimal(10), [line.model_copy(update={"is_certain": False})])


def test_every_line_that_is_sure_has_a_price_to_judge_it_by() -> None:
    lines = data_lines(
        provider="oci",
        region="nowhere",
        nodes=1,
        checkpoint_bytes=1e10,
        hours=100.0,
        in_bucket=True,
    )
    sure = [line for line in lines if line.is_certain]
    assert [line.name for line in sure] == ["disks", "checkpoints kept"]
    assert all(is_lower_bound(Decimal("0.01"), [line]) for line in sure if line.usd is None)
    assert any(line.usd is None for line in sure)


def a_line(*, usd: Decimal | None, quantity: float = 1.0, is_certain: bool = True) -> DataLine:
    return DataLine(
        name=CONTROLLER,
        quantity=quantity,
        unit="instance-hour",
        unit_usd=usd,
        usd=usd,
        is_certain=is_certain,
    )


def test_machines_are_paid_for_a_minute_after_the_job_and_for_starts_that_fail() -> None:
    """Two nodes of $36: a minute of both, and a fifth of a start of ten minutes."""
    tail, failed = around_lines(2, Decimal(36))
    assert (tail.name, failed.name) == AROUND_LINES
    assert (tail.unit_usd, tail.usd, tail.is_certain) == (Decimal(36), Decimal("1.20"), True)
    assert failed.quantity == pytest.approx(2 * 0.2 / 6)
    assert (failed.usd, failed.is_certain) == (Decimal("2.40"), False)
    assert all(line.source and "assumed" in line.source for line in (tail, failed))
    assert at_price(tail, Decimal(18)).usd == Decimal("0.60")
    assert at_price(tail, Decimal(36)) is tail


def test_without_a_price_both_are_there_and_not_free_and_a_whole_term_has_neither() -> None:
    assert [line.text for line in around_lines(2, None)] == ["idle tail ?", "failed attempts ?"]
    assert around_lines(2, Decimal(36), is_paid_whole=True) == ()


@pytest.mark.parametrize(
    ("ran_s", "billed_s"), [(600, 0), (3540, 0), (3570, 30), (3600, 60), (7200, 60)]
)
def test_of_an_idle_tail_that_is_billed_which_is_beyond_the_least(
    ran_s: int, billed_s: int
) -> None:
    assert billed_tail_s(ran_s, 3600) == billed_s
    assert billed_tail_s(ran_s, 0) == 60
    machines = Machines("oci", "r", 2, 0.0, False, False, False, minimum_s=3600)
    lines = beside_lines(machines, hours=ran_s / 3600, usd_per_hour=Decimal(36))
    tail = [one.usd for one in lines if one.name == "idle tail"]
    assert tail == ([Decimal("0.02") * billed_s] if billed_s else [])
    # Before the length is known: the same to the rounding of lines to a cent.
    assert usd_beside(machines, Decimal(36)).of(ran_s / 3600) == pytest.approx(
        ranked_usd(lines), abs=0.02
    )


@pytest.mark.parametrize(
    ("launches", "untrained", "failed"), [(0, 0, 0.2), (6, 2, 2.8 / 8), (100, 0, 0.8 / 104)]
)
def test_own_launches_say_how_many_fail_once_there_are_some(
    launches: int, untrained: int, failed: float
) -> None:
    """The prior counts as four launches that train, of which 0.8 failed beside them."""
    own = OwnStops(launches=launches, untrained=untrained)
    line = around_lines(1, Decimal(60), own)[1]
    assert line.quantity == pytest.approx(failed / 6)
    assert line.source is not None
    assert ("of your" in line.source) is bool(launches)
