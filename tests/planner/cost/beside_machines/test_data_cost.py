"""What the data of a job costs, and that what is not known is not free."""

from decimal import Decimal

import pytest

from gpuplan.planner.cost.beside_machines.data_cost import data_lines, disk_gb

GIB = 2**30


def lines_of(provider: str, region: str, **changes: float) -> dict[str, Decimal | None]:
    facts = {"nodes": 2, "checkpoint_bytes": 12 * GIB, "hours": 73.0}
    found = data_lines(provider=provider, region=region, **(facts | changes))  # pyright: ignore[reportArgumentType]
    return {line.name: line.usd for line in found}


def test_lines_are_amounts_times_prices() -> None:
    """A tenth of a month at AWS's prices of us-east-1: 0.08, 0.023 and 0.09 dollars a GB."""
    assert lines_of("aws", "us-east-1") == {
        "disks": Decimal("4.10"),  # 2 x 256 GB x 0.08 / 10
        "checkpoints kept": Decimal("0.06"),  # 2 x 12 GB x 0.023 / 10
        "download of a checkpoint": Decimal("1.08"),
    }


def test_what_is_not_known_is_not_free() -> None:
    found = lines_of("aws", "eu-west-1")
    assert found["disks"] is None and found["checkpoints kept"] is None
    lines = data_lines(
        provider="aws",
        region="eu-west-1",
        nodes=1,
        checkpoint_bytes=1e9,
        hours=1.0,
    )
    assert "disks ?" in [line.text for line in lines]
    assert all(line.usd is not None or line.source is None for line in lines)


def test_a_seller_without_disks_of_a_size_has_no_such_line() -> None:
    assert "disks" not in lines_of("lambda", "global")
    assert lines_of("lambda", "global")["download of a checkpoint"] == 0


@pytest.mark.parametrize("name", ["disks", "checkpoints kept"])
def test_twice_the_time_costs_twice_as_much(name: str) -> None:
    once = lines_of("gcp", "us-central1", hours=730.0)[name]
    twice = lines_of("gcp", "us-central1", hours=1460.0)[name]
    assert once is not None and twice is not None
    assert twice == pytest.approx(2 * once, abs=Decimal("0.01"))


def test_the_disk_grows_with_the_model() -> None:
    assert disk_gb(None) == disk_gb(12e9) == 256
    small = lines_of("gcp", "us-central1")
    large = lines_of("gcp", "us-central1", checkpoint_bytes=840e9)
    assert small["disks"] is not None and large["disks"] is not None
    assert 10 * small["disks"] < large["disks"]
