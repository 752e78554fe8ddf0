"""The search and the prediction are one physics: every layout and variant at once, or one alone."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gpuplan.catalog.snapshot import load_catalogue
from gpuplan.catalog.types import Link
from gpuplan.catalog.vocabulary import Recompute
from gpuplan.planner.constants import Constants
from gpuplan.planner.hardware.cluster import Site
from gpuplan.planner.hardware.device import capacity_bytes, supported_precisions
from gpuplan.planner.plan.layout import Layout
from gpuplan.planner.plan.question import Choices, Question, Work
from gpuplan.planner.predict.host_work import host_memory_of
from gpuplan.planner.predict.interval import oom_probability
from gpuplan.planner.predict.kept.model_cache import ModelCache
from gpuplan.planner.predict.memory.peak_memory import framework_of, memory_parts
from gpuplan.planner.predict.setup import Setup, stack_facts
from gpuplan.planner.predict.step_time import planned_step_s, step_parts
from gpuplan.planner.search.layouts.data_parallel import USUAL_FRAGMENTATION, DataParallelPredictor
from gpuplan.planner.search.layouts.same_kernels import by_kernels
from gpuplan.planner.search.search_space import Space, space_of
from gpuplan.planner.search.step_doubt import mean_over_likely
from gpuplan.planner.software.stack import casts_layers
from gpuplan.profiles.profile import Profile
from gpuplan.profiles.tracing_process.service import make_profile
from gpuplan.profiles.user_model.spec import parse_model_spec

SAME = 1e-12
MAX_OOM = 0.02
EXAMPLE = Path(__file__).parents[4] / "examples" / "decoder.py"
DIMS = {"layers": 3, "hidden": 256, "heads": 4, "kv_heads": 4, "ffn": 1024, "vocab": 1000}
DIMS |= {"seq_len": 256, "ffn_kind": "swiglu"}
RECOMPUTES: tuple[Recompute, ...] = ("none", "selective", "full")
SIZES = (1, 3, 8)
DEVICES = ("V100-32GB-SXM2", "A100-80GB-SXM", "H100-80GB-SXM", "MI300X", "L4")
KINDS: dict[str, Setup] = {
    name: Setup(layout=Layout(), micro_batch=1, **given)
    for name, given in {
        "eager": {"precision": "bf16-amp"},
        "tf32": {"precision": "tf32"},
        "fp32": {"precision": "fp32"},
        "fp16": {"precision": "fp16-amp"},
        "bf16": {"precision": "bf16"},
        "fp8": {"precision": "fp8"},
        "fp8 compiled": {"precision": "fp8", "stack": "torch-compile"},
        "compile": {"precision": "bf16-amp", "compile": True},
        "compiled file": {"precision": "bf16-amp", "stack": "torch-compile"},
        "megatron": {"precision": "bf16-amp", "stack": "megatron"},
        "xla": {"precision": "bf16-amp", "stack": "xla"},
        "DeepSpeed of 2021": {
            "precision": "fp16-amp",
            "stack": "megatron",
            "software_date": (2021, 6),
        },
        "reduced once a step": {"precision": "bf16-amp", "features": frozenset({"no-sync"})},
        "optimizer on host": {"precision": "bf16-amp", "offload": frozenset({"optimizer"})},
        "activations on host": {"precision": "fp32", "offload": frozenset({"activations"})},
        "parameters and activations on host": {
            "precision": "bf16-amp",
            "offload": frozenset({"parameters", "activations"}),
        },
    }.items()
}


@pytest.fixture(scope="module")
def traced() -> ModelCache:
    """Return a decoder traced in fp32, under autocast and in 16-bit layers."""
    spec = parse_model_spec(str(EXAMPLE), params=DIMS)
    numerics = ("amp16", "fp32", "pure16")
    return ModelCache(make_profile(spec, numerics=numerics, use_cache=False))


@pytest.fixture(scope="module", params=["by hand", pytest.param("traced", marks=pytest.mark.slow)])
def cache(request: pytest.FixtureRequest, make_decoder: Callable[..., Profile]) -> ModelCache:
    """Return a decoder: one written by hand, quick but without recompute, or `traced`."""
    if request.param == "traced":
        return request.getfixturevalue("traced")
    return ModelCache(make_decoder(layers=3))


def space(cache: ModelCache, *, sizes: tuple[int, ...] = SIZES, **work: int) -> Space:
    recomputes = RECOMPUTES if cache.profile.steps[0].forward_of else ("none",)
    choices = Choices(recomputes=recomputes, micro_batches=sizes)
    asked = Work(**work)  # pyright: ignore[reportArgumentType]
    return space_of(Question(work=asked, choices=choices), cache.profile)


def site(device: str, nodes: int, per_node: int, host_gib: float | None = 2048) -> Site:
    accelerator = load_catalogue().accelerators[device]
    return Site(
        accelerator=accelerator,
        per_node=per_node,
        nodes=nodes,
        intra_link=Link(name="link", bytes_per_s=accelerator.link_bytes_per_s or 16e9),
        inter_link=Link(name="fabric", bytes_per_s=50e9, rdma=True),
        host_memory_bytes=None if host_gib is None else host_gib * 2**30,
        vcpus=96,
    )


def layouts_of(where: Site) -> tuple[Layout, ...]:
    """Return every data-parallel layout of a number of ranks."""
    n, inside = where.accelerators, where.per_node
    stages = [Layout(data=n, shard=n, zero_stage=stage) for stage in (1, 2, 3)]
    return (Layout(data=n), *stages, Layout(data=n, shard=inside, zero_stage=3))


sites = st.builds(
    site, st.sampled_from(DEVICES), st.sampled_from([1, 2, 4]), st.sampled_from([1, 4, 8])
)
kinds = st.sampled_from(sorted(KINDS))


def one_setup(
    base: Setup, predictor: DataParallelPredictor, column: int, layout: Layout, accum: int
) -> Setup:
    sizes = predictor.space.micro_batches
    return replace(
        base,
        layout=layout,
        recompute=predictor.space.recomputes[column // len(sizes)],
        micro_batch=int(sizes[column % len(sizes)]),
        grad_accum=accum,
    )


@settings(max_examples=40, deadline=None)
@given(kind=kinds, where=sites, data=st.data())
def test_the_search_takes_a_step_for_as_long_as_the_prediction(
    cache: ModelCache, kind: str, where: Site, data: st.DataObject
) -> None:
    assume(KINDS[kind].precision in supported_precisions(where.accelerator))
    predictor = DataParallelPredictor(cache=cache, space=space(cache))
    layouts = layouts_of(where)
    autocast = all(casts_layers(KINDS[kind].stack, one, KINDS[kind].offload) for one in layouts)
    base = replace(KINDS[kind], autocast=data.draw(st.booleans()) and autocast)
    columns = len(predictor.space.recomputes) * len(SIZES)
    accums = st.sampled_from([1, 2, 5])
    accum = np.array([[data.draw(accums)] * columns for _ in layouts])
    variants = predictor.variants(where.accelerator, base)
    parts = predictor.parts(where, layouts, variants, accum)
    peaks = predictor.peak_bytes(layouts, base, accum)
    row = data.draw(st.integers(0, len(layouts) - 1))
    for column in {data.draw(st.integers(0, columns - 1)) for _ in range(2)}:
        setup = one_setup(base, predictor, column, layouts[row], int(accum[row, column]))
        assert variants.recompute[column] == setup.recompute
        assert variants.micro_batch[column] == setup.micro_batch
        alone_s = planned_step_s(cache, where, setup)
        assert parts.total_s[row, column] == pytest.approx(alone_s, rel=SAME, abs=0)
        alone = mean_over_likely(cache, where, setup, step_parts(cache, where, setup))
        found = mean_over_likely(cache, where, setup, parts.at(row, column))
        assert found == pytest.approx(alone, rel=SAME, abs=0)
        alone_bytes = memory_parts(cache, setup).peak_bytes.item()
        assert peaks[row, column] == pytest.approx(alone_bytes, rel=SAME, abs=0)


@settings(max_examples=20, deadline=None)
@given(kind=kinds, where=sites, host_gib=st.sampled_from([None, 0.05, 1.0, 1000.0]))
def test_what_fits_in_the_search_fits_by_the_prediction_s_own_parts(
    cache: ModelCache, kind: str, where: Site, host_gib: float | None
) -> None:
    on_host = None if host_gib is None else host_gib * 2**30
    where = replace(where, host_memory_bytes=on_host)
    assume(KINDS[kind].precision in supported_precisions(where.accelerator))
    predictor = DataParallelPredictor(cache=cache, space=space(cache, sizes=(1, 32, 1024)))
    base, layouts = KINDS[kind], layouts_of(where)
    columns = 3 * len(predictor.space.recomputes)
    accum = np.ones((len(layouts), columns), dtype=int)
    variants = predictor.variants(where.accelerator, base)
    fits, is_safe = predictor.fits(where, layouts, variants.setup, accum, max_oom=MAX_OOM)
    assert fits.shape == is_safe.shape == accum.shape
    for row, layout in enumerate(layouts):
        for column in range(columns):
            setup = one_setup(base, predictor, column, layout, 1)
            peak = memory_parts(cache, setup).peak_bytes.item() * USUAL_FRAGMENTATION
            room = capacity_bytes(where.accelerator) - framework_of(where, setup)
            held = not setup.offload or host_memory_of(cache, where, setup).fits
            assert fits[row, column] == (peak <= room and held)
            risk = oom_probability(
                peak,
                framework_of(where, setup),
                capacity_bytes=capacity_bytes(where.accelerator),
                stack=setup.stack,
                layout=layout,
            )
            assert is_safe[row, column] == (risk <= MAX_OOM and held)


@pytest.mark.slow
def test_a_loss_that_a_compiler_sees_is_one_kernel_in_the_search_too(traced: ModelCache) -> None:
    """DDP compiles the whole model, its loss with it; FSDP and ZeRO compile block by block."""
    own = ModelCache(traced.profile.model_copy(update={"loss_in_model": True}))
    where, one = site("A100-80GB-SXM", 1, 4), np.ones((1, len(SIZES)), dtype=int)
    seconds: dict[tuple[bool, int], float] = {}
    for cache in (traced, own):
        asked = replace(space(cache), recomputes=("none",))
        predictor = DataParallelPredictor(cache=cache, space=asked)
        groups = by_kernels(
            layouts_of(where),
            KINDS["compile"].stack,
            mixed=True,
            sees_loss=cache.profile.loss_in_model,
            offload=(),
        )
        for group in groups:
            base = replace(KINDS["compile"], autocast=group.autocast, by_block=group.by_block)
            variants = predictor.variants(where.accelerator, base)
            for layout in group.layouts:
                parts = predictor.parts(where, (layout,), variants, one)
                setup = one_setup(base, predictor, len(SIZES) - 1, layout, 1)
                setup = replace(setup, by_block=False)
                alone_s = planned_step_s(cache, where, setup)
                assert parts.total_s[0, -1] == pytest.approx(alone_s, rel=SAME, abs=0)
                seconds[cache is own, layout.zero_stage] = alone_s
    assert seconds[True, 0] < seconds[False, 0]
    for stage in (1, 2, 3):
        assert seconds[True, stage] == seconds[False, stage]


@pytest.mark.slow
def test_a_recompute_setting_that_mixes_policies_is_mixed_in_the_search_too(
    traced: ModelCache,
) -> None:
    """MaxText's selective policy runs a third of the products again, unlike torch's."""
    where, one = site("A100-80GB-SXM", 1, 1), np.ones((1, len(RECOMPUTES)), dtype=int)
    predictor = DataParallelPredictor(cache=traced, space=space(traced, sizes=(8,)))
    variants = predictor.variants(where.accelerator, KINDS["xla"])
    none, selective, full = variants.times.compute_s
    assert none < full
    policies = traced.times(
        where.accelerator,
        "bf16-amp",
        ("selective", "full"),
        stack=stack_facts(KINDS["xla"], Constants.shipped()),
        micro_batches=np.array([8]),
    )
    kept, again = (part.micro_batch().compute_s.item() for part in policies)
    assert selective == pytest.approx(2 / 3 * kept + 1 / 3 * again, rel=SAME)
    setup = replace(KINDS["xla"], recompute="selective", micro_batch=8)
    seconds = predictor.parts(where, (Layout(),), variants, one).total_s
    assert seconds[0, 1] == pytest.approx(planned_step_s(traced, where, setup), rel=SAME)


@pytest.mark.parametrize(
    ("global_batch", "sizes", "ranks", "accum", "exact"),
    [
        (64, (1, 8), 8, [8, 1], [True, True]),
        (64, (3, 16), 8, [2, 1], [False, False]),
        (None, (3, 16), 8, [1, 1], [True, True]),
    ],
)
def test_accumulation_makes_the_global_batch_or_says_that_it_cannot(
    cache: ModelCache,
    global_batch: int | None,
    sizes: tuple[int, ...],
    ranks: int,
    accum: list[int],
    exact: list[bool],
) -> None:
    asked = replace(space(cache, sizes=sizes), global_batch=global_batch)
    predictor = DataParallelPredictor(cache=cache, space=asked)
    found, divisible = predictor.accumulation((Layout(data=ranks),), np.array(sizes))
    assert found.tolist() == [accum]
    assert divisible.tolist() == [exact]


def test_a_given_accumulation_is_kept_whatever_it_makes(cache: ModelCache) -> None:
    asked = replace(space(cache, sizes=(2, 4)), global_batch=64, grad_accums=(8,))
    found, exact = DataParallelPredictor(cache=cache, space=asked).accumulation(
        (Layout(data=2), Layout(data=4)), np.array([2, 4])
    )
    assert found.tolist() == [[8, 8], [8, 8]]
    assert exact.tolist() == [[False, True], [True, False]]
