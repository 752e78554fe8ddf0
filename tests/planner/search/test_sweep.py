"""One walk of the space: who becomes a candidate, and where all the others are counted."""

from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal

import numpy as np
import pytest

from gpuplan.catalog.snapshot import load_catalogue
from gpuplan.catalog.types import Link
from gpuplan.planner.goodput.expected_run import mean_training_s
from gpuplan.planner.plan.layout import Layout
from gpuplan.planner.plan.plan import Offloaded
from gpuplan.planner.plan.question import Choices, Machine, Question, Work
from gpuplan.planner.predict.kept.model_cache import ModelCache
from gpuplan.planner.predict.predict import predict
from gpuplan.planner.predict.step_time import planned_step_s
from gpuplan.planner.search.candidate import Candidate
from gpuplan.planner.search.machines.offers import Market, PricedInstance, survey
from gpuplan.planner.search.search_space import space_of
from gpuplan.planner.search.sweep import Sweep
from gpuplan.profiles.missing_numerics import NEVER_TRACED
from gpuplan.profiles.profile import Numerics, Profile

P4D = Machine(providers=("aws",), instances=("p4d.24xlarge",), max_nodes=2)
SMALL = Choices(recomputes=("none",), precisions=("bf16-amp",))


def sweep_of(
    profile: Profile,
    *,
    machine: Machine = P4D,
    choices: Choices = SMALL,
    change: Callable[[PricedInstance], PricedInstance | list[PricedInstance]] = lambda one: one,
    offload: tuple[Offloaded, ...] = (),
    **given: object,
) -> tuple[Sweep, list[Candidate]]:
    """Return a sweep that has run, and its candidates."""
    question = Question(
        **{"machine": machine, "choices": choices, "work": Work(global_batch=64), **given}  # pyright: ignore[reportArgumentType]
    )
    market = survey(load_catalogue(), question.machine, question.money)
    changed = [change(one) for one in market.choices]
    flat = tuple(one for each in changed for one in (each if isinstance(each, list) else [each]))
    sweep = Sweep(
        question,
        ModelCache(profile),
        space_of(question, profile),
        replace(market, choices=flat),
        offload=frozenset(offload),
    )
    return sweep, list(sweep.candidates())


def with_fp32_products(profile: Profile, numerics: tuple[Numerics, ...] = ()) -> Profile:
    """Return the profile of a model that multiplies in fp32, in all of its traces or in these."""
    steps = tuple(
        step.model_copy(
            update={
                "segments": tuple(
                    segment.model_copy(
                        update={
                            "kernels": tuple(
                                kernel.model_copy(update={"dtype": "fp32"})
                                if kernel.kind == "gemm"
                                and (not numerics or step.numerics in numerics)
                                else kernel
                                for kernel in segment.kernels
                            )
                        }
                    )
                    for segment in step.segments
                )
            }
        )
        for step in profile.steps
    )
    return profile.model_copy(update={"steps": steps})


@pytest.mark.parametrize(
    ("kind", "trains"), [("Gaudi1", False), ("TPU-v5e", True), ("A100-40GB-SXM", True)]
)
def test_a_device_without_a_rate_for_a_product_ends_no_search(
    make_decoder: Callable[..., Profile], kind: str, trains: bool
) -> None:
    """Of a model whose step in 16 bits multiplies in fp32 too: XLA does that in bf16 on a TPU."""
    plain = make_decoder()
    machine = Machine(accelerators=(kind,), max_nodes=1)
    assert sweep_of(plain, machine=machine)[1]
    sweep, found = sweep_of(with_fp32_products(plain), machine=machine)
    assert bool(found) == trains
    assert bool(sweep.refusals) == (not trains)
    assert bool(sweep.counts["unsupported"]) == (not trains)


def test_fp32_products_of_sixteen_bit_layers_alone_end_no_search(
    make_decoder: Callable[..., Profile],
) -> None:
    """The step under autocast has none, and runs first."""
    machine = Machine(accelerators=("Gaudi1",), max_nodes=1)
    sweep, found = sweep_of(with_fp32_products(make_decoder(), ("pure16",)), machine=machine)
    assert not found
    assert "the step multiplies in fp32 too" in " ".join(sweep.refusals)


@pytest.mark.parametrize("all_variants", [False, True])
@pytest.mark.parametrize("global_batch", [64, 96, 7])
def test_everything_that_was_tried_is_a_candidate_or_counted(
    make_decoder: Callable[..., Profile], all_variants: bool, global_batch: int
) -> None:
    large = make_decoder(layers=24, hidden=4096)
    machine = Machine(providers=("aws",), accelerators=("A100", "T4"), max_nodes=4)
    sweep, found = sweep_of(
        large,
        machine=machine,
        choices=Choices(recomputes=("none",), precisions=("fp16-amp",)),
        all_variants=all_variants,
        work=Work(global_batch=global_batch),
    )
    feasible = sum(one.variants_that_fit for one in found)
    assert sweep.counts["out_of_memory"] > 0
    assert feasible + sweep.counts["out_of_memory"] + sweep.counts["indivisible"] == sweep.tried


def test_a_candidate_is_the_fastest_of_its_layout_and_its_time_is_the_prediction_s(
    toy: Profile,
) -> None:
    sweep, found = sweep_of(toy, all_variants=True)
    assert len({(one.nodes, one.layout) for one in found}) == len(found) > 4
    for one in found:
        assert one.step_s == pytest.approx(planned_step_s(sweep.cache, one.site, one.setup))
        step = predict(sweep.cache.profile, one.site, one.setup, cache=sweep.cache).step_time_s
        assert one.mean_step_s == pytest.approx(mean_training_s(step), rel=1e-9)
        assert one.global_batch == 64
        for size in (1, 2, 4):
            if 64 % (size * one.layout.data) == 0:
                setup = replace(
                    one.setup, micro_batch=size, grad_accum=64 // (size * one.layout.data)
                )
                assert planned_step_s(sweep.cache, one.site, setup) >= one.step_s * (1 - 1e-12)


def test_of_the_same_nodes_only_the_fastest_layout_of_a_kind_is_shown(toy: Profile) -> None:
    """The kinds are layouts with autocast's casts and layouts of 16-bit layers."""

    def key(one: Candidate) -> tuple[int, bool]:
        return one.nodes, one.base.autocast

    _, every = sweep_of(toy, all_variants=True)
    _, shown = sweep_of(toy)
    assert sorted(map(key, shown)) == [(1, False), (1, True), (2, False), (2, True)]
    for one in shown:
        same = [other for other in every if key(other) == key(one)]
        assert one.step_s == min(other.step_s for other in same)
        assert one.variants_that_fit == sum(other.variants_that_fit for other in same)


def test_of_equal_machines_the_cheapest_is_shown_and_the_others_are_counted(toy: Profile) -> None:
    def three_sellers(one: PricedInstance) -> list[PricedInstance]:
        usd = one.usd_per_hour or Decimal(1)
        return [replace(one, usd_per_hour=factor * usd) for factor in (3, 1, 2)]

    one_sweep, alone = sweep_of(toy)
    sweep, shown = sweep_of(toy, change=three_sellers)
    _, every = sweep_of(toy, change=three_sellers, all_variants=True)
    assert [one.choice.usd_per_hour for one in shown] == [one.choice.usd_per_hour for one in alone]
    assert sweep.tried == 3 * one_sweep.tried
    assert sum(one.variants_that_fit for one in shown) == 3 * sum(
        one.variants_that_fit for one in alone
    )
    assert len({one.choice.usd_per_hour for one in every}) == 3


def test_a_machine_without_a_price_is_counted_unless_it_is_the_one_asked_about(
    toy: Profile,
) -> None:
    def unpriced(one: PricedInstance) -> PricedInstance:
        return replace(one, usd_per_hour=None)

    sweep, found = sweep_of(toy, change=unpriced)
    assert (found, sweep.counts["no_price"], sweep.tried) == ([], 1, 0)
    fixed = Choices(layouts=(Layout(data=8),), micro_batches=(1,), precisions=("bf16-amp",))
    sweep, found = sweep_of(toy, machine=replace(P4D, nodes=(1,)), choices=fixed, change=unpriced)
    assert [one.usd_per_hour for one in found] == [float("inf")]
    assert sweep.counts["no_price"] == 0


def test_several_nodes_need_a_network_that_is_known(toy: Profile) -> None:
    def unknown_network(one: PricedInstance) -> PricedInstance:
        link = Link(name=None, bytes_per_s=None)
        return replace(one, instance=one.instance.model_copy(update={"inter_link": link}))

    sweep, found = sweep_of(toy, machine=replace(P4D, max_nodes=4), change=unknown_network)
    assert {one.nodes for one in found} == {1}
    assert sweep.counts["no_topology"] == 2


def test_a_precision_that_the_device_has_not_is_unsupported(toy: Profile) -> None:
    sweep, found = sweep_of(toy, choices=Choices(precisions=("fp8",)))
    assert (found, sweep.counts["unsupported"]) == ([], 1)


def test_parameters_are_offloaded_by_fsdp_alone(toy: Profile) -> None:
    sweep, found = sweep_of(toy, offload=("parameters",), all_variants=True)
    assert {one.layout.zero_stage for one in found} == {3}
    assert {one.setup.offload for one in found} == {frozenset({"parameters"})}
    given = Choices(layouts=(Layout(data=8),), precisions=("bf16-amp",))
    sweep, found = sweep_of(toy, choices=given, offload=("parameters",))
    assert found == []
    assert sweep.refusals == {"parameters are offloaded by FSDP, which dp8 is not"}


def test_only_sharded_layouts_have_16_bit_layers_of_their_own(toy: Profile) -> None:
    _, found = sweep_of(toy, all_variants=True)
    for one in found:
        assert one.base.autocast == (one.layout.zero_stage not in (2, 3))
    assert np.unique([one.layout.zero_stage for one in found]).tolist() == [0, 1, 2, 3]


def test_a_market_without_machines_has_no_candidates(toy: Profile) -> None:
    question = Question()
    nothing = Market(choices=(), without_spec=2, without_price=0, cannot_train=3)
    sweep = Sweep(question, ModelCache(toy), space_of(question, toy), nothing)
    assert list(sweep.candidates()) == []
    assert (sweep.counts["no_spec"], sweep.counts["unsupported"], sweep.tried) == (2, 3, 0)


def test_layouts_of_16_bit_layers_need_the_trace_of_them(toy: Profile) -> None:
    """Never taken as if autocast ran them; fp32 has no casts to miss."""
    steps = tuple(step for step in toy.steps if step.numerics != "pure16")
    without = toy.model_copy(update={"steps": steps})
    sweep, found = sweep_of(without, all_variants=True)
    assert {one.layout.zero_stage for one in found} == {0, 1}
    assert sweep.refusals == {NEVER_TRACED} and sweep.counts["unsupported"] == 5
    fp32 = Choices(precisions=("fp32",), recomputes=("none",))
    sweep, found = sweep_of(without, choices=fp32, all_variants=True)
    assert {one.layout.zero_stage for one in found} == {0, 1, 2, 3}
    assert not sweep.refusals


def test_it_tells_how_many_kinds_of_machine_are_compared(
    make_decoder: Callable[..., Profile],
) -> None:
    told: list[tuple[str, int | None, int | None]] = []
    machine = Machine(providers=("aws",), accelerators=("A100", "T4"), max_nodes=1)
    question = Question(machine=machine, choices=SMALL, work=Work(global_batch=64))
    profile = make_decoder(layers=2, hidden=512)
    sweep = Sweep(
        question,
        ModelCache(profile),
        space_of(question, profile),
        survey(load_catalogue(), question.machine, question.money),
        on_progress=lambda *one: told.append(one),
    )
    assert list(sweep.candidates())
    counted = [one for one in told if one[0] == "comparing kinds of machine"]
    many = len(counted) - 1
    assert many >= 2
    assert [one[1:] for one in counted] == [(done, many) for done in range(many + 1)]
