"""What a data set costs to keep and to move, and that no seller gains by stating no price."""

from decimal import Decimal

import pytest

from gpuplan.catalog.errors import UsageError
from gpuplan.catalog.terms.storage import read_storage
from gpuplan.planner.cost.beside_machines.beside import is_lower_bound
from gpuplan.planner.cost.beside_machines.dataset_cost import (
    KEPT,
    MOVED,
    READ_AFAR,
    dataset_lines,
    dearest_usd,
    known_usd,
)
from gpuplan.planner.cost.beside_machines.in_order import ranked_usd, usd_of_dataset
from gpuplan.planner.plan.question import Work

GIB = 2**30
MONTH = 730.0


def work(at: str | None = None, size_bytes: float = 1000 * GIB) -> Work:
    return Work(dataset_bytes=size_bytes, dataset_at=at)


def usd_of(at: str | None, provider: str, region: str, hours: float = MONTH) -> dict[str, object]:
    found = dataset_lines(work(at), provider, region, hours=hours)
    return {line.name: line.usd for line in found}


def test_lines_are_amounts_times_prices() -> None:
    """AWS: 0.023 dollars a GB and month; 0.09 to the internet, 0.02 to another region of its."""
    assert usd_of(None, "aws", "us-east-1") == {KEPT: Decimal("23.00")}
    assert usd_of("aws/us-east-1", "aws", "us-east-1") == {KEPT: Decimal("23.00")}
    inside = usd_of("aws/us-east-1", "aws", "us-west-2")
    assert inside[MOVED] == Decimal("20.00")
    elsewhere = usd_of("aws/us-east-1", "gcp", "us-central1")
    assert elsewhere[MOVED] == Decimal("90.00")
    assert usd_of("AWS/us-east-1", "gcp", "us-central1") == elsewhere


def test_large_data_sets_leave_by_the_tiers_of_the_price() -> None:
    """10 TB at 0.09, 40 at 0.085, 100 at 0.07: the bytes within each tier at its own."""
    lines = dataset_lines(work("aws/us-east-1", 100 * 1024 * GIB), "gcp", "us-central1", hours=1.0)
    moved = next(line for line in lines if line.name == MOVED)
    assert moved.usd == Decimal(10 * 1024 * 90 + 40 * 1024 * 85 + 50 * 1024 * 70) / 1000


def test_what_is_not_stated_is_not_counted_and_own_disks_are_paid() -> None:
    assert dataset_lines(Work(tokens=1e9), "aws", "us-east-1", hours=1.0) == ()
    assert dataset_lines(work(), "my-lab", "here", hours=1.0, is_owned=True) == ()
    owned = dataset_lines(work("aws/us-east-1"), "my-lab", "here", hours=1.0, is_owned=True)
    assert [line.name for line in owned] == [MOVED]


def test_a_price_that_is_not_known_is_the_highest_in_the_order_and_unknown_in_the_sum() -> None:
    lines = dataset_lines(work("runpod/global"), "aws", "eu-west-1", hours=MONTH)
    assert [line.usd for line in lines] == [None, Decimal("0.00")], "RunPod takes nothing for it"
    stated = {row.item: row.usd for row in sorted(read_storage(), key=lambda row: row.usd)}
    assert dearest_usd(KEPT) == stated["object_storage_usd_per_gb_month"]
    assert dearest_usd(MOVED) == stated["internet_egress_usd_per_gb"]
    assert known_usd(lines) == 0
    assert ranked_usd(lines) == pytest.approx(1000 * float(dearest_usd(KEPT)))
    assert is_lower_bound(Decimal(100), lines)
    every = {(row.provider, row.region) for row in read_storage() if row.region != "*"}
    for provider, region in every:
        known = ranked_usd(dataset_lines(work(), provider, region, hours=MONTH))
        sellers_gb = 1000 * GIB / 1e9
        assert known <= sellers_gb * float(dearest_usd(KEPT)) + 0.01


@pytest.mark.parametrize("hours", [0.5, 300.0, 9000.0])
@pytest.mark.parametrize(
    "place", [("aws", "us-east-1"), ("aws", "eu-west-1"), ("lambda", "global")]
)
def test_the_order_before_the_hours_are_known_is_that_after(
    hours: float, place: tuple[str, str]
) -> None:
    at = work("gcp/us-central1", 5e12)
    before = usd_of_dataset(at, *place).of(hours)
    after = ranked_usd(dataset_lines(at, *place, hours=hours))
    assert before == pytest.approx(after, abs=0.02)


@pytest.mark.parametrize("place", ["aws", "aws/", "/us-east-1", "aws/us-east-1/a", ""])
def test_a_place_is_a_provider_and_its_region(place: str) -> None:
    with pytest.raises(UsageError, match="is no place"):
        work(place)


def test_a_place_without_a_size_says_nothing() -> None:
    with pytest.raises(UsageError, match="how large"):
        Work(dataset_at="aws/us-east-1")
    with pytest.raises(UsageError, match="above zero"):
        Work(dataset_bytes=0)


@pytest.mark.parametrize(
    ("amount", "times"),
    [
        ({"epochs": 3}, 3),
        ({"samples": 2500.0, "dataset_size": 1000}, 2.5),
        ({"steps": 100, "global_batch": 50, "dataset_size": 1000}, 5),
        ({"epochs": 1}, None),
        ({"samples": 2500.0}, None),
    ],
)
def test_reading_from_afar_pays_its_traffic_in_every_epoch_and_is_in_no_sum(
    amount: dict[str, int], times: float | None
) -> None:
    """1,000 GB of AWS to another region of its own: $20 an epoch, to the cent."""
    asked = Work(dataset_bytes=1000 * GIB, dataset_at="aws/us-east-1", **amount)  # pyright: ignore[reportArgumentType]
    lines = {one.name: one for one in dataset_lines(asked, "aws", "us-west-2", hours=MONTH)}
    if times is None:
        assert READ_AFAR not in lines
        return
    afar, moved = lines[READ_AFAR], lines[MOVED]
    assert moved.usd == Decimal(20) and afar.usd == Decimal(str(20 * times))
    assert afar.quantity == 1000 * times
    assert not afar.is_certain and not afar.is_of_dataset
    others = [one for one in lines.values() if one.name != READ_AFAR]
    assert known_usd(lines.values()) == known_usd(others)
    assert ranked_usd(lines.values()) == ranked_usd(others)
    near = dataset_lines(asked, "aws", "us-east-1", hours=MONTH)
    assert [one.name for one in near] == [KEPT], "where it is, reading it costs no traffic"
