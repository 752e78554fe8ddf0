"""Of the user's own machines no more are planned than there are."""

from pathlib import Path

import pytest

from gpuplan.catalog.snapshot import load_catalogue
from gpuplan.planner.cost.start_up import start_up_s
from gpuplan.planner.plan.question import Choices, Machine, Money, Question, Work
from gpuplan.planner.search.outcome import SearchOutcome
from gpuplan.planner.search.search import search
from gpuplan.profiles.profile import Profile

OWNED = (
    "owned: {capex_usd: 260000, lifetime_years: 4, power_w: 10200, usd_per_kwh: 0.2,"
    " utilisation: 0.8, pue: 1.3}"
)
FILE = """\
offers:
  - {{provider: our-lab, region: basement, instance: hgx, accelerator: H100-80GB-SXM,
     accelerators_per_node: 8, {price}, {nodes}
     intra_link: {{name: NVLink4, gb_per_s: 450, switched: yes}},
     inter_link: {{name: IB, gbit_per_s: 3200, rdma: yes}}}}
"""


def answer(
    profile: Profile, folder: Path, price: str, nodes: str, asked: tuple[int, ...] = (), **money
) -> SearchOutcome:
    (folder / "own.yaml").write_text(FILE.format(price=price, nodes=nodes))
    question = Question(
        work=Work(steps=10_000, global_batch=512),
        machine=Machine(providers=("our-lab",), nodes=asked, max_nodes=8),
        choices=Choices(recomputes=("none",)),
        money=Money(**money),
        top=50,
    )
    return search(question, profile, load_catalogue(folder / "own.yaml"))


@pytest.mark.parametrize("price", ["usd_per_hour: 17", OWNED])
@pytest.mark.parametrize(
    ("nodes", "asked", "has_plan"),
    [("nodes: 3,", 2, True), ("nodes: 3,", 4, False), ("nodes: 4,", 4, True), ("", 8, True)],
)
def test_no_plan_takes_more_than_there_are(
    toy: Profile, tmp_path: Path, price: str, nodes: str, asked: int, *, has_plan: bool
) -> None:
    found = answer(toy, tmp_path, price, nodes, (asked,))
    assert bool(found.plans) is has_plan


@pytest.mark.parametrize(
    ("price", "is_own"),
    [("usd_per_hour: 17", False), ("", True), (OWNED, True)],
    ids=["rented", "unpriced", "bought"],
)
def test_ones_own_machine_is_not_provisioned(
    toy: Profile, tmp_path: Path, price: str, *, is_own: bool
) -> None:
    """Five minutes of provisioning were counted on every machine."""
    stated = price and f"{price},"
    (tmp_path / "own.yaml").write_text(
        FILE.replace("{price},", "{price}").format(price=stated, nodes="")
    )
    question = Question(
        work=Work(steps=1, global_batch=512),
        machine=Machine(providers=("our-lab",)),
        choices=Choices(recomputes=("none",)),
    )
    plan = search(question, toy, load_catalogue(tmp_path / "own.yaml")).plans[0]
    assert plan.offer.is_own is is_own and plan.whole_job is not None
    start_s = start_up_s(is_own=is_own)
    assert start_s < 3600 * plan.whole_job.hours < start_s + 60
    names = [line.name for line in plan.whole_job.cost_lines]
    assert ("provisioning" in names) is (bool(names) and not is_own)


def test_where_more_are_asked_for_it_says_how_many_there_are(toy: Profile, tmp_path: Path) -> None:
    found = answer(toy, tmp_path, OWNED, "nodes: 4,", (8,))
    assert not found.plans and found.nearest_miss is not None
    assert "There are 4 × our-lab hgx by `nodes` in your offers file" in found.nearest_miss  # noqa: RUF001


def test_a_deadline_that_they_miss_is_no_reason_for_more_max_nodes(
    toy: Profile, tmp_path: Path
) -> None:
    found = answer(toy, tmp_path, OWNED, "nodes: 1,", deadline_s=360)
    assert not found.plans and found.nearest_miss is not None
    assert "more machines (there is 1 by `nodes` in your offers file)" in found.nearest_miss
