"""Whether the clouds list machines of one launch, or cannot be asked."""

from decimal import Decimal
from pathlib import Path

import pytest
from fake_engine import Clock
from launch_records import RUN, make_record

from gpuplan.launcher.labels import slug
from gpuplan.launcher.lifecycle.engine import EngineError
from gpuplan.launcher.lifecycle.reconcile.discrepancy import LabelledMachine, Listing, Skipped
from gpuplan.launcher.lifecycle.reconcile.listed import listed_by
from gpuplan.launcher.store.launch_record import PricedPlace

OWN = LabelledMachine(
    cloud="aws",
    region="us-east-1",
    instance_id="i-0abc",
    instance_type=None,
    run=slug(RUN),
    launched_at=None,
)
LOST = Skipped(cloud="aws", regions=("us-east-1",), why="no answer")


def place(infra: str) -> PricedPlace:
    return PricedPlace(infra=infra, usd_per_hour=Decimal(36))


@pytest.mark.parametrize(
    ("infras", "listing", "expected"),
    [
        (["aws/us-east-1"], Listing(instances=(OWN,), clouds=("aws",)), ("i-0abc in us-east-1",)),
        (["aws/us-east-1"], Listing(clouds=("aws",)), ()),
        (["aws/us-east-1"], Listing(), None),
        (["aws/us-east-1"], Listing(failed=(LOST,), clouds=("aws",)), None),
        (["aws/us-east-1", "gcp/us-central1"], Listing(clouds=("aws",)), None),
        (["gcp/us-central1"], Listing(instances=(OWN,), clouds=("aws",)), None),
    ],
)
def test_what_is_not_listed_is_known_only_where_all_places_answered(
    tmp_path: Path, infras: list[str], listing: Listing, expected: tuple[str, ...] | None
) -> None:
    record = make_record(tmp_path, Clock(), places=tuple(place(one) for one in infras))
    assert listed_by(lambda _regions: listing)(record) == expected


def test_a_cloud_that_refuses_says_nothing_about_machines(tmp_path: Path) -> None:
    def refuse(_regions: object) -> Listing:
        raise EngineError("no region answers")

    assert listed_by(refuse)(make_record(tmp_path, Clock())) is None
