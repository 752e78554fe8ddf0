"""Machines of the user's own whose price nobody stated: how long is known all the same."""

from decimal import Decimal
from pathlib import Path

import pytest

from gpuplan.catalog.listing.own_machine import with_own_machines
from gpuplan.catalog.listing.query import parse_filter
from gpuplan.catalog.snapshot import Catalogue, load_catalogue
from gpuplan.planner.plan.question import Choices, Machine, Money, Question, Work
from gpuplan.planner.search.outcome import SearchOutcome
from gpuplan.planner.search.search import search
from gpuplan.profiles.profile import Profile

NOBODYS = "RTX-3090:4"
FILE = """\
offers:
  - {{provider: our-lab, instance: box, accelerator: RTX-3090, accelerators_per_node: 4{price}}}
"""


def answer(profile: Profile, catalogue: Catalogue, machine: Machine, **money) -> SearchOutcome:
    question = Question(
        work=Work(steps=10_000, global_batch=512),
        machine=machine,
        choices=Choices(recomputes=("none",)),
        money=Money(**money),
    )
    return search(question, profile, catalogue)


def of_file(profile: Profile, folder: Path, price: str, **money) -> SearchOutcome:
    (folder / "own.yaml").write_text(FILE.format(price=price))
    catalogue = load_catalogue(folder / "own.yaml")
    return answer(profile, catalogue, Machine(providers=("our-lab",)), **money)


def assumed(profile: Profile, **money) -> SearchOutcome:
    catalogue = load_catalogue()
    wanted = parse_filter(catalogue, accelerators=[NOBODYS])
    machine = Machine(accelerators=(NOBODYS,), nodes=(1,))
    return answer(profile, with_own_machines(catalogue, wanted), machine, **money)


def test_what_nobody_sells_has_a_plan_without_dollars_and_a_note(toy: Profile) -> None:
    found = assumed(toy)
    (plan,) = found.plans
    assert plan.job is not None and plan.job.hours > 0 and plan.job.usd is None
    assert found.recommended is not None and found.recommended.id == plan.id
    (note,) = [each for each in found.notes if "nobody sells" in each]
    assert "4 × RTX-3090" in note and "--offers" in note  # noqa: RUF001


def test_a_machine_of_the_users_file_needs_no_price(toy: Profile, tmp_path: Path) -> None:
    found = of_file(toy, tmp_path, "")
    assert found.plans[0].job is not None and found.plans[0].job.usd is None
    assert any("our-lab box has no price in your file" in note for note in found.notes)


@pytest.mark.parametrize(
    ("money", "rejected"),
    [({"budget_usd": Decimal(5)}, "no_price"), ({"deadline_s": 1.0}, "past_deadline")],
)
def test_limits_hold_there_too(toy: Profile, money: dict[str, object], rejected: str) -> None:
    found = assumed(toy, **money)
    assert not found.plans and getattr(found.rejected, rejected) > 0


def test_how_long_it_takes_is_said_where_a_deadline_rules_it_out(toy: Profile) -> None:
    missed = assumed(toy, deadline_s=1.0).nearest_miss
    assert missed is not None
    assert missed.startswith("The fastest takes about") and "inf" not in missed


def test_on_spot_nothing_of_ones_own_is_bought(toy: Profile) -> None:
    assert not assumed(toy, purchase="spot").plans
