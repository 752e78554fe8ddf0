"""Whether a search splits a model: where it has to, and where it is worth it."""

from dataclasses import replace
from typing import cast

import pytest
from split_spaces import FEW_LAYERS, HUGE, OPTIMIZER, profiles_of

from gpuplan.catalog.snapshot import load_catalogue
from gpuplan.catalog.vocabulary import Offloaded
from gpuplan.planner.plan.question import Choices, Machine, Question, Work
from gpuplan.planner.predict.kept.model_cache import ModelCache
from gpuplan.planner.predict.step_time import planned_step_s
from gpuplan.planner.search.machines.offers import survey
from gpuplan.planner.search.search import search
from gpuplan.planner.search.search_space import space_of
from gpuplan.planner.search.splits.outcome import Asked, Outcome
from gpuplan.planner.search.splits.split_search import SplitSearch
from gpuplan.planner.search.sweep import WORTH_SPLITTING, Sweep
from gpuplan.profiles.profile import Profile

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def small() -> Profile:
    (profile,) = profiles_of(FEW_LAYERS)
    return profile


@pytest.fixture(scope="module")
def huge() -> Profile:
    (profile,) = profiles_of(HUGE)
    return profile


def sweep_of(question: Question, cache: ModelCache) -> Sweep:
    market = survey(load_catalogue(), question.machine, question.money)
    sweep = Sweep(question, cache, space_of(question, cache.profile), market)
    list(sweep.candidates())
    return sweep


def test_a_large_model_has_plans_that_split_it_and_a_small_one_is_left_alone(
    small: Profile, huge: Profile
) -> None:
    machine = Machine(providers=("aws",), accelerators=("H100:8",), max_nodes=8)
    question = Question(machine=machine, work=Work(global_batch=256))
    found = search(question, huge, load_catalogue())
    assert any(not plan.layout.is_data_parallel_only for plan in found.plans)
    swept = sweep_of(question, ModelCache(small))
    assert swept.timed == 0
    assert swept.tried > 0


@pytest.mark.parametrize("offload", [frozenset(), OPTIMIZER], ids=["device", "host"])
def test_every_split_candidate_is_counted_and_faster_than_data_parallelism(
    offload: frozenset[Offloaded],
    huge: Profile,
) -> None:
    machine = Machine(providers=("aws",), accelerators=("A100", "H100"), max_nodes=8)
    question = Question(machine=machine, work=Work(global_batch=256))
    sweep = Sweep(
        question,
        cache := ModelCache(huge),
        space_of(question, cache.profile),
        survey(load_catalogue(), machine, question.money),
        offload=offload,
    )
    found = list(sweep.candidates())
    counted = sum(one.variants_that_fit for one in found)
    assert counted + sweep.counts["out_of_memory"] + sweep.counts["indivisible"] == sweep.tried
    split = [one for one in found if not one.layout.is_data_parallel_only]
    assert split
    assert sweep.timed > 0
    for one in split:
        assert one.global_batch == 256
        assert one.setup.offload == offload
        assert one.step_s == pytest.approx(planned_step_s(cache, one.site, one.setup), rel=1e-9)
        whole = [
            other.step_s
            for other in found
            if other.layout.is_data_parallel_only
            and (other.choice, other.nodes) == (one.choice, one.nodes)
        ]
        assert one.step_s < WORTH_SPLITTING * min(whole, default=float("inf"))


def test_to_split_a_model_has_to_be_worth_it(
    huge: Profile, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step that splits the model and is hardly faster is more work for nothing."""
    machine = Machine(providers=("aws",), instances=("p5.48xlarge",), nodes=(8,))
    question = Question(machine=machine, work=Work(global_batch=256))
    bounds: list[float] = []

    def best(_: SplitSearch, *where: object, max_oom: float) -> list[Outcome]:
        (asked,) = cast(list[Asked], where[-1])
        bounds.append(asked.bound_s)
        return [Outcome(found=(), fitting=0, out_of_memory=0, indivisible=0, timed=0)]

    monkeypatch.setattr(SplitSearch, "best", best)
    found = search(question, huge, load_catalogue())
    assert bounds == [pytest.approx(0.99 * min(plan.step_time_s.value for plan in found.plans))]


def test_what_fits_no_other_way_is_split_with_its_optimizer_on_the_host(huge: Profile) -> None:
    """Eight ranks cannot share four samples, so that none of them holds the whole model."""
    machine = Machine(instances=("p4d.24xlarge",), nodes=(1,))
    question = Question(machine=machine, work=Work(global_batch=4))
    never = replace(question, choices=Choices(offload=()))
    assert not search(never, huge, load_catalogue()).plans
    first = search(question, huge, load_catalogue()).plans[0]
    assert not first.layout.is_data_parallel_only
    assert first.offloaded == ("optimizer",)
    assert first.host_memory_bytes is not None
    assert first.host_memory_bytes.fits
    assert first.runnable is False
    assert "keeps nothing in host memory" in (first.why_not_runnable or "")


def test_nothing_is_split_beside_parameters_on_the_host(huge: Profile) -> None:
    machine = Machine(instances=("p4d.24xlarge",), nodes=(1,))
    question = Question(machine=machine, work=Work(global_batch=256))
    cache = ModelCache(huge)
    sweep = Sweep(
        question,
        cache,
        space_of(question, cache.profile),
        survey(load_catalogue(), machine, question.money),
        offload=frozenset({"parameters"}),
    )
    assert all(one.layout.is_data_parallel_only for one in sweep.candidates())
    assert sweep.timed == 0


def test_one_accelerator_and_a_free_batch_leave_nothing_to_split(huge: Profile) -> None:
    cache = ModelCache(huge)
    alone = Machine(instances=("g4dn.xlarge",), max_nodes=1)
    batch = Work(global_batch=64)
    assert sweep_of(Question(machine=alone, work=batch), cache).timed == 0
    free = Machine(providers=("aws",), accelerators=("H100:8",), max_nodes=1)
    assert sweep_of(Question(machine=free), cache).timed == 0
