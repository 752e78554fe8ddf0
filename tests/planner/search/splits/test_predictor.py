"""Layouts that split the model, many at once: equal to one by one, and to trying all of them."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from split_spaces import (
    ANY_STEP,
    BATCHES,
    DENSE,
    FEW_LAYERS,
    HUGE,
    MIXTURE,
    OPTIMIZER,
    SOFTWARE,
    TWO_KINDS,
    UNEVEN,
    bases,
    nearness,
    predictor_of,
    profiles_of,
    sites_of_one_node,
    with_memory,
)

from gpuplan.catalog.types import Link
from gpuplan.planner.hardware.cluster import Site
from gpuplan.planner.parallelism.legal_layouts import Shape, legal_layouts
from gpuplan.planner.plan.question import Machine, Question, Work
from gpuplan.planner.plan.setup import Setup
from gpuplan.planner.predict.kept.model_cache import ModelCache
from gpuplan.planner.predict.memory.peak_memory import memory_parts, sent_of
from gpuplan.planner.predict.memory.split_memory import (
    accumulations,
    shards_of,
    split_peaks,
    stages_of,
)
from gpuplan.planner.predict.step_time import planned_step_s
from gpuplan.planner.search.search_space import few_micro_batches, space_of
from gpuplan.planner.search.splits.outcome import Asked
from gpuplan.planner.search.splits.predictor import FIRST_LOOK, SplitPredictor
from gpuplan.planner.search.splits.rows import Kind
from gpuplan.planner.search.splits.steps import SplitSteps
from gpuplan.profiles.passes.optimizers import with_optimizer
from gpuplan.profiles.profile import Profile

pytestmark = pytest.mark.slow
MODELS = (FEW_LAYERS, MIXTURE, DENSE, UNEVEN, TWO_KINDS)


@pytest.fixture(scope="module")
def profiles() -> list[Profile]:
    """Return the Profiles of `MODELS` and, last, of `HUGE`."""
    return profiles_of(*MODELS, HUGE)


@pytest.fixture(scope="module")
def caches(profiles: list[Profile]) -> list[ModelCache]:
    # Whoever compiles such a model whole compiles its loss: no layout that splits it is.
    own_loss = {"loss_in_model": True}
    return [ModelCache(profile.model_copy(update=own_loss)) for profile in profiles[:-1]]


@pytest.fixture(scope="module")
def huge(profiles: list[Profile]) -> Profile:
    return profiles[-1]


@pytest.fixture(scope="module")
def sites() -> list[Site]:
    return sites_of_one_node()


def draws(few: int, many: int) -> pytest.MarkDecorator:
    """Return the mark of a test that draws few cases, and many where it is repeated."""
    return pytest.mark.parametrize(
        "draws",
        [few, pytest.param(many, marks=pytest.mark.repeats)],
        ids=lambda count: f"{count} draws",
    )


def drawn(count: int, check: Callable[[st.DataObject], None]) -> None:
    @settings(max_examples=count)
    @given(data=st.data())
    def each(data: st.DataObject) -> None:
        check(data)

    each()


@draws(16, 40)
def test_the_peaks_of_many_layouts_are_those_of_each(caches, draws: int) -> None:
    drawn(draws, partial(check_peaks, caches))


def check_peaks(caches: list[ModelCache], data: st.DataObject) -> None:
    cache = data.draw(st.sampled_from(caches))
    predictor = SplitPredictor.of(
        cache,
        space_of(Question(machine=Machine(nodes=(8,))), cache.profile),
        bases()[0],
        [Kind(8, 8)],
    )
    assert predictor is not None
    layouts = list(legal_layouts(predictor.rows.limits, nodes=8, per_node=8, domain=8))
    layout = data.draw(st.sampled_from(layouts))
    stack, date = data.draw(st.sampled_from(SOFTWARE))
    setup = Setup(
        layout=layout,
        precision=data.draw(st.sampled_from(["bf16-amp", "fp32", "fp16-amp"])),
        micro_batch=1,
        recompute=data.draw(st.sampled_from(["none", "selective", "full"])),
        stack=stack,
        software_date=date,
        features=data.draw(st.sampled_from([frozenset(), frozenset({"reduce-bf16"})])),
        autocast=data.draw(st.booleans()),
        offload=data.draw(st.sampled_from([frozenset(), OPTIMIZER])),
        compile=data.draw(st.booleans()),
    )
    pipelines = [(layout.pipeline, layout.virtual_stages)]
    # As the tables ask: for the split alone, whose data dimension is another.
    split = Shape.of(layout)._replace(pipeline=1, virtual_stages=1).smallest()
    asked = replace(setup, layout=split, by_block=True)
    stages, owners = stages_of(cache, asked, pipelines, BATCHES)
    peaks = split_peaks(cache, asked, stages, owners, layout.zero_stage, [shards_of(layout)])
    for way, accum in enumerate(accumulations(*pipelines[0])):
        for size, peak in zip(BATCHES.tolist(), peaks[way, 0, 0], strict=True):
            one = replace(setup, micro_batch=size, grad_accum=accum)
            # What stages keep of their sends follows from the number of micro-batches alone.
            held = peak + sent_of(cache, one)
            assert held == pytest.approx(memory_parts(cache, one).peak_bytes.item(), rel=1e-12)


def test_peaks_of_some_zero_stages_are_those_of_all(caches) -> None:
    question = Question(machine=Machine(nodes=(2,)))
    predictor = SplitPredictor.of(
        caches[0], space_of(question, caches[0].profile), bases()[0], [Kind(8, 8)]
    )
    assert predictor is not None
    every = predictor.tables.memory(bases()[0])
    some = predictor.tables.memory(bases()[0], (2, 3))
    stage = predictor.rows.facts["zero_stage"]
    first = every.offset[stage < 2], every.offset[stage >= 2]
    assert np.array_equal(some.peaks[first[1]], every.peaks[first[1]])
    assert np.isfinite(every.peaks[first[0]]).all()
    assert np.isinf(some.peaks[first[0]]).all()


def test_machines_share_the_stages_that_their_links_do_not_change(caches, sites) -> None:
    """Splits inside a node are taken over from a machine with another network, no others."""
    site, base = replace(sites[0], per_node=4), bases()[0]
    slower = replace(site, inter_link=slowed(site.inter_link))
    lone = replace(site, intra_link=slowed(site.intra_link))
    shared, alone = (predictor_of(caches[1], site, 2, global_batch=256).tables for _ in range(2))
    first = shared.stages(site, base)
    across = np.array([one.expert > site.domain for one in shared.rows.splits])
    assert across.any()
    assert not across.all()
    for other in (slower, lone):
        found, wanted = (tables.stages(other, base) for tables in (shared, alone))
        assert np.array_equal(found.others_s, wanted.others_s)
        for name, seconds in found.seconds.items():
            assert np.array_equal(seconds, wanted.seconds[name])
    waits = [
        tables.seconds["expert_comm_s"].reshape(len(across), -1)
        for tables in (first, shared.stages(slower, base))
    ]
    assert np.array_equal((waits[0] != waits[1]).any(axis=1), across)


def slowed(link: Link) -> Link:
    """Return a link of half the bandwidth."""
    assert link.bytes_per_s is not None
    return link.model_copy(update={"bytes_per_s": link.bytes_per_s / 2})


@pytest.mark.parametrize("several", [True, False])
def test_every_zero_stage_runs_under_one_of_the_bases(caches, several: bool) -> None:
    predictor = predictor_of(caches[0], sites_of_one_node()[0], 2, global_batch=256)
    of_bases = [predictor.fits.zero_stages_under(one, several=several) for one in bases()]
    if several:
        assert sorted(stage for stages in of_bases for stage in stages) == [0, 1, 2, 3]
    else:
        assert all(stages == (0, 1, 2, 3) for stages in of_bases)


@draws(4, 10)
def test_no_step_is_shorter_than_its_lower_bound(caches, sites, draws: int) -> None:
    """What pruning rests on."""
    drawn(draws, partial(check_bounds, caches, sites))


def check_bounds(caches: list[ModelCache], sites: list[Site], data: st.DataObject) -> None:
    cache, site = data.draw(st.sampled_from(caches)), data.draw(st.sampled_from(sites))
    nodes = data.draw(st.sampled_from([1, 2, 4]))
    predictor = predictor_of(cache, site, nodes, global_batch=256)
    rows = predictor.rows.legal[Kind(site.per_node, site.domain), nodes]
    base = data.draw(st.sampled_from(bases()))
    these, _, _ = predictor.fits.of(site, base, rows, 0, 1.0)
    steps = SplitSteps(cache, predictor.rows, predictor.tables, site, [base], rows)
    least_s = steps.least_s(these)
    step_s = steps.step_s(these, np.arange(len(these.row)))
    assert (least_s <= step_s * (1 + 1e-12)).all()


@draws(3, 6)
def test_steps_of_several_numbers_of_nodes_are_those_of_each_setup(
    caches, sites, draws: int
) -> None:
    drawn(draws, partial(check_steps, caches, sites))


def check_steps(caches: list[ModelCache], sites: list[Site], data: st.DataObject) -> None:
    cache, site = data.draw(st.sampled_from(caches)), data.draw(st.sampled_from(sites))
    counts = data.draw(st.lists(st.sampled_from([1, 2, 3, 4, 8]), min_size=1, unique=True))
    # A search plans with today's software. DeepSpeed's engine of 2021 launches by ZeRO stage, which
    # the tables of a split do not know (`launches_serially`).
    software = data.draw(st.sampled_from([one for one in SOFTWARE if one[1] is None]))
    predictor = predictor_of(cache, site, *counts, software=software, global_batch=96)
    compiled = data.draw(st.booleans())
    kind, several = Kind(site.per_node, site.domain), bases(software=software, compiled=compiled)
    asked = np.concatenate([predictor.rows.legal[kind, nodes] for nodes in counts])
    steps = SplitSteps(cache, predictor.rows, predictor.tables, site, several, asked)
    i = data.draw(st.integers(0, len(several) - 1))
    own = asked[predictor.fits.runs_under(several[i], several=len(several) > 1)[asked]]
    these, _, _ = predictor.fits.of(site, several[i], own, i, 1.0)
    if not len(these.row):
        return
    places = st.lists(st.integers(0, len(these.row) - 1), min_size=1, max_size=5)
    part = np.array(data.draw(places))
    step_s, parts = steps.step_s(these, part), steps.parts_of(these, part)
    for at, seconds, one in zip(part.tolist(), step_s.tolist(), parts, strict=True):
        layout = predictor.rows.layout(predictor.rows.rows[these.row[at]])
        setup = replace(
            several[i],
            layout=layout,
            by_block=False,
            micro_batch=int(BATCHES[these.size[at]]),
            grad_accum=int(these.accum[at]),
            recompute=predictor.space.recomputes[these.recompute[at]],
            recompute_share=float(these.share[at]),
        )
        placed = replace(site, nodes=layout.accelerators // site.per_node)
        near = nearness(setup.recompute_share)
        assert seconds == pytest.approx(planned_step_s(cache, placed, setup), rel=near)
        assert one.total_s.item() == seconds


@draws(2, 4)
def test_numbers_of_nodes_asked_together_are_answered_as_one_by_one(
    caches, sites, draws: int
) -> None:
    drawn(draws, partial(check_together, caches, sites))


def check_together(caches: list[ModelCache], sites: list[Site], data: st.DataObject) -> None:
    cache, site = data.draw(st.sampled_from(caches)), data.draw(st.sampled_from(sites))
    counts = data.draw(st.lists(st.sampled_from([1, 2, 3, 4, 8, 64]), min_size=1, unique=True))
    site = with_memory(site, data.draw(st.sampled_from([1.0, 0.045, 0.03, 0.001])))
    predictor = predictor_of(cache, site, *counts, global_batch=96)
    asked = [Asked(n, data.draw(st.sampled_from([float("inf"), 0.2, 0.02]))) for n in counts]
    together = predictor.best(site, bases(), asked, max_oom=0.02)
    assert together == [predictor.best(site, bases(), [one], max_oom=0.02)[0] for one in asked]


def test_what_a_first_look_prunes_is_not_the_best(
    huge: Profile, sites: list[Site], monkeypatch: pytest.MonkeyPatch
) -> None:
    cache, asked = ModelCache(huge), [Asked(nodes, float("inf")) for nodes in (2, 4, 8)]
    predictor = predictor_of(cache, sites[0], 2, 4, 8, global_batch=256)
    few = predictor.best(sites[0], bases(), asked)
    assert max(one.fitting for one in few) > FIRST_LOOK / 4
    for looked_at in (1, 10**6):
        monkeypatch.setattr(f"{SplitPredictor.__module__}.FIRST_LOOK", looked_at)
        other = predictor.best(sites[0], bases(), asked)
        assert [one.found for one in other] == [one.found for one in few]


def test_less_memory_leaves_fewer_layouts(caches, sites) -> None:
    fitting = []
    for share in (1.0, 0.04, 0.03, 0.001):
        site = with_memory(sites[0], share)
        predictor = predictor_of(caches[0], site, 1)
        (outcome,) = predictor.best(site, bases(), ANY_STEP, max_oom=0.02)
        fitting.append(outcome.fitting)
    assert fitting[0] > fitting[2] >= fitting[3] == 0
    assert fitting == sorted(fitting, reverse=True)


def test_a_predictor_that_is_gone_leaves_nothing_to_the_next(profiles, sites) -> None:
    """The next may lie where it lay."""
    cache, fitting = ModelCache(profiles[0]), []
    for batch in (64, 8, 24, 64, 8, 24):
        (outcome,) = predictor_of(cache, sites[0], 1, global_batch=batch).best(
            sites[0], bases(), ANY_STEP
        )
        fitting.append(outcome.fitting)
    alone = [
        predictor_of(ModelCache(profiles[0]), sites[0], 1, global_batch=batch)
        .best(sites[0], bases(), ANY_STEP)[0]
        .fitting
        for batch in (64, 8, 24)
    ]
    assert fitting == alone * 2


def test_the_micro_batches_tried_are_few(caches) -> None:
    space = space_of(Question(work=Work(global_batch=4096)), caches[0].profile)
    assert few_micro_batches(space.micro_batches) == [1, 2, 4, 8, 16, 32]
    assert few_micro_batches(np.array([3, 5])) == [3, 5]


def test_kept_peaks_are_those_that_are_computed(caches) -> None:
    kept: dict[str, bytes] = {}

    class Shelf:
        def get(self, key: str) -> bytes | None:
            return kept.get(key)

        def put(self, key: str, content: bytes) -> None:
            kept[key] = content

    shelf, profile = Shelf(), caches[0].profile
    space = space_of(Question(machine=Machine(nodes=(2,))), profile)

    def peaks(profile: Profile, kinds: list[Kind], base: Setup) -> np.ndarray:
        found = SplitPredictor.of(ModelCache(profile, kept=shelf), space, base, kinds)
        assert found is not None
        return found.tables.memory(base).peaks

    first = peaks(profile, [Kind(8, 8)], bases()[0])
    assert len(kept) == 1
    assert np.array_equal(peaks(profile, [Kind(8, 8)], bases()[0]), first)
    assert len(kept) == 1
    peaks(profile, [Kind(8, 8)], bases()[1])
    peaks(profile, [Kind(4, 4)], bases()[0])
    peaks(with_optimizer(profile, "sgd"), [Kind(8, 8)], bases()[0])
    assert len(kept) == 4, "casts, nodes and optimizer each have their own"
