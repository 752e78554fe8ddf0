"""Outcomes of data-parallel layouts that are kept: found bit by bit, for equal facts alone."""

import json
from dataclasses import replace
from decimal import Decimal

import pytest

from gpuplan.catalog.embedded import Catalogue
from gpuplan.catalog.snapshot import load_catalogue
from gpuplan.planner.plan.plan import Plan
from gpuplan.planner.plan.question import Machine, Money, Question, Work
from gpuplan.planner.search import sweep
from gpuplan.planner.search.layouts.data_parallel_outcome import BestVariant, DataParallelOutcome
from gpuplan.planner.search.layouts.tried_layouts import TriedLayouts
from gpuplan.planner.search.outcome import SearchOutcome
from gpuplan.planner.search.search import search
from gpuplan.profiles.curves.choice import CurveChoice
from gpuplan.profiles.profile import Profile

MACHINE = Machine(accelerators=("L4", "T4"), providers=("aws", "gcp"), max_nodes=2)
QUESTION = Question(machine=MACHINE, work=Work(global_batch=64, samples=10**6))
Kept = tuple[SearchOutcome, dict[str, bytes]]


class Shelf:
    """Bytes by key, in memory."""

    def __init__(self, content: dict[str, bytes]) -> None:
        self.content = dict(content)

    def get(self, key: str) -> bytes | None:
        return self.content.get(key)

    def put(self, key: str, content: bytes) -> None:
        self.content[key] = content


@pytest.fixture(scope="module")
def kept(small_decoder: Profile) -> Kept:
    """Return what a search found, and what it kept."""
    shelf = Shelf({})
    return search(QUESTION, small_decoder, load_catalogue(), kept=shelf), shelf.content


def refuse_to_try(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object, **__: object) -> TriedLayouts:
        raise AssertionError("tried again")

    monkeypatch.setattr(sweep, "tried_layouts", refused)


def test_an_outcome_comes_back_from_json_bit_by_bit() -> None:
    best = BestVariant(
        row=3,
        micro_batch=8,
        grad_accum=2,
        recompute="full",
        recompute_share=1 / 3,
        step_s=0.1 + 0.2,
        over_likely=1.1 / 3,
        is_risky=True,
        fitting=5,
    )
    outcome = DataParallelOutcome(best=(best,), tried=9, indivisible=2, out_of_memory=2)
    written = json.loads(json.dumps(outcome))

    def unknown() -> DataParallelOutcome:
        raise AssertionError("computed again")

    assert DataParallelOutcome.kept(lambda _: written, unknown) == outcome
    assert DataParallelOutcome.kept(lambda make: make(), lambda: outcome) == outcome


def test_a_search_asked_again_is_the_same_and_tries_no_layout(
    small_decoder: Profile, kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, content = kept
    catalogue, shelf = load_catalogue(), Shelf(content)
    assert first.plans
    assert search(QUESTION, small_decoder, catalogue) == first
    refuse_to_try(monkeypatch)
    assert search(QUESTION, small_decoder, catalogue, kept=shelf) == first
    longer = replace(QUESTION, work=Work(global_batch=64, samples=10**7))
    assert search(longer, small_decoder, catalogue, kept=shelf).plans
    sooner = replace(QUESTION, money=Money(deadline_s=1e6, budget_usd=Decimal(10**6)))
    assert search(sooner, small_decoder, catalogue, kept=shelf).plans
    with pytest.raises(AssertionError, match="tried again"):
        search(QUESTION, small_decoder, catalogue)


@pytest.mark.parametrize(
    "question",
    [
        replace(QUESTION, all_variants=True),
        replace(QUESTION, money=Money(max_oom=0.3)),
        replace(QUESTION, work=Work(global_batch=32)),
        replace(QUESTION, machine=replace(MACHINE, max_nodes=4)),
    ],
)
def test_another_question_tries_its_layouts(
    small_decoder: Profile, kept: Kept, monkeypatch: pytest.MonkeyPatch, question: Question
) -> None:
    catalogue, shelf = load_catalogue(), Shelf(kept[1])
    refuse_to_try(monkeypatch)
    with pytest.raises(AssertionError, match="tried again"):
        search(question, small_decoder, catalogue, kept=shelf)


def test_another_device_or_other_curves_try_their_layouts(
    small_decoder: Profile, kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalogue, shelf = load_catalogue(), Shelf(kept[1])
    refuse_to_try(monkeypatch)
    with pytest.raises(AssertionError, match="tried again"):
        search(QUESTION, small_decoder, with_slower_memory(catalogue, "T4"), kept=shelf)
    with pytest.raises(AssertionError, match="tried again"):
        search(
            QUESTION,
            small_decoder,
            catalogue,
            kept=shelf,
            curve_choice=CurveChoice(left_out=frozenset({"T4"})),
        )


def test_other_prices_are_those_of_the_plans_that_were_kept(
    small_decoder: Profile, kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, content = kept
    catalogue, shelf = load_catalogue(), Shelf(content)
    refuse_to_try(monkeypatch)
    dearer = search(QUESTION, small_decoder, with_prices_doubled(catalogue), kept=shelf)
    prices, before = ({_rented(plan): _usd(plan) for plan in one.plans} for one in (dearer, first))
    # Waiting weighs in dollars, so that the plan beside the cheapest ones may be another.
    both = set(prices) & set(before)
    assert len(both) >= len(before) - 1
    assert all(prices[one] == 2 * before[one] for one in both)
    assert dearer.plans[0].step_time_s == first.plans[0].step_time_s


def _rented(plan: Plan) -> tuple[str, str, int]:
    return plan.offer.region, plan.offer.instance_type, plan.nodes


def _usd(plan: Plan) -> float:
    return plan.offer.usd_per_hour or 0.0


def with_slower_memory(catalogue: Catalogue, name: str) -> Catalogue:
    device = catalogue.accelerators[name]
    slower = device.model_copy(
        update={"memory_bandwidth_bytes_per_s": device.memory_bandwidth_bytes_per_s / 2}
    )
    return replace(catalogue, accelerators={**catalogue.accelerators, name: slower})


def with_prices_doubled(catalogue: Catalogue) -> Catalogue:
    def doubled(usd: Decimal | None) -> Decimal | None:
        return None if usd is None else 2 * usd

    return replace(
        catalogue,
        offers=tuple(
            offer.model_copy(
                update={
                    "on_demand_usd_per_hour": doubled(offer.on_demand_usd_per_hour),
                    "spot_usd_per_hour": doubled(offer.spot_usd_per_hour),
                }
            )
            for offer in catalogue.offers
        ),
    )
