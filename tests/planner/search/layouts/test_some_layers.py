"""Recompute of some of the layers: what fits, how fast it is, and that no real step needs more."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.utils.checkpoint import checkpoint

from gpuplan.catalog.errors import UsageError
from gpuplan.catalog.snapshot import load_catalogue
from gpuplan.catalog.types import Link
from gpuplan.planner.hardware.cluster import Site
from gpuplan.planner.plan.layout import Layout
from gpuplan.planner.plan.question import Choices, Question, Work
from gpuplan.planner.plan.setup import Setup
from gpuplan.planner.predict.kept.model_cache import ModelCache
from gpuplan.planner.predict.memory.peak_memory import framework_of, memory_parts
from gpuplan.planner.predict.step_time import planned_step_s
from gpuplan.planner.search.layouts.data_parallel import DataParallelPredictor
from gpuplan.planner.search.layouts.some_layers import (
    FRAGMENTATION,
    asked_share,
    ends_of,
    further_share,
    least_share,
    recomputed_layers,
)
from gpuplan.planner.search.layouts.tried_layouts import tried_layouts
from gpuplan.planner.search.search_space import space_of
from gpuplan.profiles.analysis.replay import replay
from gpuplan.profiles.passes.recompute import recomputed
from gpuplan.profiles.profile import Profile, StepTrace
from gpuplan.profiles.trace.trace import trace_workload
from gpuplan.profiles.tracing_process.service import make_profile
from gpuplan.profiles.user_model.contract import load_workload
from gpuplan.profiles.user_model.spec import parse_model_spec
from gpuplan.profiles.user_model.structure.blocks import find_blocks

EXAMPLE = Path(__file__).parents[4] / "examples" / "decoder.py"
DIMS = {"layers": 8, "hidden": 256, "heads": 4, "kv_heads": 4, "ffn": 1024, "vocab": 1000}
DIMS |= {"seq_len": 256, "ffn_kind": "swiglu"}
LAYERS = 8
SETUP = Setup(layout=Layout(), precision="bf16-amp", micro_batch=4, recompute="full")


@pytest.fixture(scope="module")
def cache() -> ModelCache:
    spec = parse_model_spec(str(EXAMPLE), params=DIMS)
    return ModelCache(make_profile(spec, numerics=("amp16", "pure16"), use_cache=False))


def site(usable_bytes: float) -> Site:
    accelerator = load_catalogue().accelerators["A100-80GB-SXM"]
    accelerator = accelerator.model_copy(update={"memory_visible_bytes": int(usable_bytes)})
    link = Link(name=None, bytes_per_s=accelerator.link_bytes_per_s)
    return Site(accelerator=accelerator, per_node=1, nodes=1, intra_link=link, inter_link=link)


peaks = st.floats(1e6, 1e12)


@given(kept=peaks, less=st.floats(0.01, 1.0), room=peaks, layers=st.integers(2, 120))
def test_the_least_share_fits_and_a_layer_less_does_not(
    kept: float, less: float, room: float, layers: int
) -> None:
    again = kept * less
    share = least_share(np.array([kept]), np.array([again]), room, layers=layers).item()
    if np.isnan(share):
        assert min(kept, again) > room
        return
    assert kept + share * (again - kept) <= room * (1 + 1e-6)
    if share > 0:
        assert kept + (share - 1 / layers) * (again - kept) > room * (1 - 1e-6)
        assert share * layers == pytest.approx(round(share * layers))


def test_what_neither_end_fits_has_no_share() -> None:
    found = least_share(np.array([10.0, np.inf]), np.array([9.0, np.inf]), 8.0, layers=4)
    assert np.isnan(found).all()


def test_a_larger_share_ends_at_all_layers() -> None:
    shares = [0.25]
    while shares[-1] < 1:
        shares.append(further_share(shares[-1], 10))
        assert shares[-1] > shares[-2]
        assert shares[-1] * 10 == pytest.approx(round(shares[-1] * 10))


def test_layers_that_differ_have_no_straight_line(make_decoder: Any) -> None:
    profile: Profile = make_decoder(layers=6)
    assert ends_of(("none", "selective", "full"), profile) == (0, 2)
    assert ends_of(("full",), profile) is None
    twice = profile.model_copy(update={"blocks": profile.blocks * 2})
    assert ends_of(("none", "full"), twice) is None


def test_layers_that_were_asked_for_are_kept(make_decoder: Any) -> None:
    profile: Profile = make_decoder(layers=6)
    choices = Choices(recomputes=("full",), recompute_layers=2)
    assert asked_share(choices, profile) == pytest.approx(1 / 3)
    setup = replace(SETUP, recompute_share=asked_share(choices, profile))
    assert recomputed_layers(setup, profile) == 2
    with pytest.raises(UsageError, match="has 6 equal layers"):
        asked_share(replace(choices, recompute_layers=6), profile)
    with pytest.raises(UsageError, match="goes with the recompute policy full"):
        Choices(recompute_layers=2)


@pytest.fixture(scope="module")
def traces() -> tuple[Profile, dict[int, StepTrace]]:
    """Return the model, and its trace with so many first layers under torch's checkpoint."""
    workload = load_workload(parse_model_spec(str(EXAMPLE), params=DIMS))
    found: dict[int, StepTrace] = {}
    for layers in (2, 4, 7):

        def build_model(layers: int = layers) -> nn.Module:
            model = workload.build_model()
            for block in [one for run in find_blocks(model) for one in run.modules][:layers]:
                block.__class__ = _checkpointed(type(block))
            return model

        found[layers] = in_16_bits(trace_workload(replace(workload, build_model=build_model)))
    return trace_workload(workload), found


def in_16_bits(profile: Profile) -> StepTrace:
    return next(one for one in profile.steps if one.numerics == "amp16")


@pytest.mark.slow
@pytest.mark.parametrize("micro_batch", [2, 16])
def test_no_real_step_needs_more_than_the_line(
    traces: tuple[Profile, dict[int, StepTrace]], micro_batch: int
) -> None:
    """A trace of the model with its first layers under torch's checkpoint is the truth."""
    profile, real = traces
    ends = [
        replay(recomputed(in_16_bits(profile), profile, policy), micro_batch).peak_allocated_bytes
        for policy in ("none", "full")
    ]
    for layers, traced in real.items():
        needed = replay(traced, micro_batch).peak_allocated_bytes
        line = ends[0] + layers / LAYERS * (ends[1] - ends[0])
        assert needed <= 1.01 * line
        assert needed >= 0.85 * line


def _checkpointed(block_class: type[nn.Module]) -> type[nn.Module]:
    def call(self: nn.Module, *args: Any) -> Any:
        return checkpoint(partial(block_class.__call__, self), *args, use_reentrant=False)

    return type(block_class.__name__, (block_class,), {"__call__": call})


@pytest.mark.slow
def test_time_and_memory_lie_between_both_ends(cache: ModelCache) -> None:
    where = site(80e9)
    ends = [replace(SETUP, recompute="none"), SETUP]
    none_s, full_s = (planned_step_s(cache, where, one) for one in ends)
    none_bytes, full_bytes = (memory_parts(cache, one).peak_bytes.item() for one in ends)
    half = replace(SETUP, recompute_share=0.5)
    assert memory_parts(cache, half).peak_bytes.item() == pytest.approx(
        (none_bytes + full_bytes) / 2
    )
    assert none_s < planned_step_s(cache, where, half) < full_s


@pytest.mark.slow
def test_the_search_recomputes_as_few_layers_as_fit(cache: ModelCache) -> None:
    """Where none of the layers is too few and all are more than needed, fewer are faster."""
    choices = Choices(micro_batches=(16,))
    space = space_of(Question(work=Work(global_batch=16), choices=choices), cache.profile)
    kept, again = (
        memory_parts(cache, replace(SETUP, micro_batch=16, recompute=policy)).peak_bytes.item()
        for policy in ("none", "full")
    )
    predictor = DataParallelPredictor(cache=cache, space=space)
    base = replace(SETUP, recompute="none")
    shares = set()
    for part in np.linspace(0.2, 1.2, 12):
        outside = framework_of(site(80e9), SETUP)
        where = site(FRAGMENTATION * (again + part * (kept - again)) + outside)
        tried = tried_layouts(predictor, where, (Layout(),), base, max_oom=1.0)
        some = np.flatnonzero(tried.fits[0] & (tried.share[0] < 1))
        for column in some:
            share = float(tried.share[0, column])
            shares.add(share)
            alone = replace(SETUP, micro_batch=16, recompute_share=share)
            expected_s = planned_step_s(cache, where, alone)
            assert tried.step_s[0, column] == pytest.approx(expected_s, rel=1e-12)
    assert len(shares) >= 3


@pytest.mark.slow
def test_what_was_tried_is_what_fits_and_what_does_not(cache: ModelCache) -> None:
    space = space_of(
        Question(work=Work(global_batch=24), choices=Choices(micro_batches=(3, 16))), cache.profile
    )
    predictor = DataParallelPredictor(cache=cache, space=space)
    peak = memory_parts(cache, replace(SETUP, micro_batch=3, recompute="none")).peak_bytes.item()
    where = site(0.95 * peak + framework_of(site(80e9), SETUP))
    tried = tried_layouts(predictor, where, (Layout(),), replace(SETUP), max_oom=1.0)
    some = int((tried.fits & (tried.share < 1)).sum())
    assert some == 1  # of micro-batches of 3, without recompute too large
    assert tried.indivisible == 3  # 16 under every policy
    assert tried.tried == 3 * 2 + some
    assert tried.out_of_memory == 3 * 2 - 3 - (int(tried.fits.sum()) - some)
