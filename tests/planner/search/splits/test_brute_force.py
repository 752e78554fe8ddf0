"""The best layout that splits a model is that of trying all of them, one setup at a time.

Of generated spaces: experts, long sequences, sharing inside a node, odd numbers of nodes, virtual
stages, the optimizer in host memory, little memory. What is tried one by one is kept, since spaces
of one model differ in memory and risk alone.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from split_spaces import (
    BATCHES,
    FEW_EXPERTS,
    FEW_LAYERS,
    LONG,
    OPTIMIZER,
    SOFTWARE,
    bases,
    nearness,
    predictor_of,
    profiles_of,
    sites_of_one_node,
    with_memory,
)

from gpuplan.catalog.vocabulary import Offloaded, Recompute
from gpuplan.planner.goodput.expected_run import mean_training_s
from gpuplan.planner.hardware.cluster import Site
from gpuplan.planner.hardware.device import capacity_bytes
from gpuplan.planner.parallelism.legal_layouts import Limits, legal_layouts
from gpuplan.planner.plan.layout import Layout
from gpuplan.planner.plan.setup import Setup
from gpuplan.planner.predict.host_work import host_memory_of
from gpuplan.planner.predict.interval import safe_peak_bytes
from gpuplan.planner.predict.kept.model_cache import ModelCache
from gpuplan.planner.predict.memory.peak_memory import framework_of, memory_parts
from gpuplan.planner.predict.predict import predict
from gpuplan.planner.predict.step_time import planned_step_s, step_parts
from gpuplan.planner.search.found import Found
from gpuplan.planner.search.layouts.data_parallel import USUAL_FRAGMENTATION
from gpuplan.planner.search.layouts.some_layers import FRAGMENTATION, equal_layers
from gpuplan.planner.search.splits.outcome import Asked
from gpuplan.planner.software.stack import casts_layers

pytestmark = pytest.mark.slow

MODELS = (FEW_LAYERS, FEW_EXPERTS, LONG)
LIMITS = 6
"""Memories and accepted risks that each drawn space has."""
NODES = (1, 2, 3, 5, 6)
PER_NODE = (2, 4)


@dataclass(frozen=True, kw_only=True)
class Trials:
    """A model on equal nodes, and what trying its layouts one by one has found."""

    cache: ModelCache
    site: Site
    limits: Limits
    recomputes: tuple[Recompute, ...]
    base: Setup
    batch: int
    known: dict[tuple[object, ...], float] = field(default_factory=dict)
    """Peaks, host memory and steps by setup."""

    def step_times(self, site: Site, max_oom: float) -> list[float]:
        """Return the steps of all setups that fit but for such a chance of running out."""
        layouts = legal_layouts(
            self.limits, nodes=site.nodes, per_node=site.per_node, domain=site.domain
        )
        found = []
        for layout in layouts:
            if layout.tensor == 1 or layout.sequence_parallel:
                found += list(self._whole(site, layout, max_oom))
                found += list(self._some_layers(site, layout, max_oom))
        return found

    def _whole(self, site: Site, layout: Layout, max_oom: float) -> Iterator[float]:
        """Yield the steps in which all layers, or none, are recomputed."""
        for size, accum in self._batches(layout):
            for recompute in self.recomputes:
                setup = self._setup(layout, size, accum, recompute)
                if self._is_safe(USUAL_FRAGMENTATION, site, setup, max_oom):
                    yield self._step_s(site, setup)

    def _some_layers(self, site: Site, layout: Layout, max_oom: float) -> Iterator[float]:
        """Yield the steps with the fewest layers recomputed that fit, by trying 0, 1, 2 …"""
        layers = equal_layers(self.cache.profile) // layout.pipeline
        for size, accum in self._batches(layout):
            for again in range(layers):
                setup = self._setup(layout, size, accum, "full" if again else "none")
                setup = replace(setup, recompute_share=again / layers if again else 1.0)
                if self._is_safe(FRAGMENTATION, site, setup, max_oom):
                    if again:
                        yield self._step_s(site, setup)
                    break

    def _batches(self, layout: Layout) -> Iterator[tuple[int, int]]:
        """Yield the micro-batches and accumulations that make the global batch, legally."""
        for size in BATCHES.tolist():
            accum, rest = divmod(self.batch, size * layout.data)
            is_dealt = layout.virtual_stages == 1 or accum % layout.pipeline == 0
            if not rest and accum >= layout.pipeline and is_dealt:
                yield size, accum

    def _setup(self, layout: Layout, size: int, accum: int, recompute: Recompute) -> Setup:
        base = self.base
        return replace(
            base,
            layout=layout,
            micro_batch=size,
            grad_accum=accum,
            recompute=recompute,
            autocast=casts_layers(base.stack, layout, base.offload),
        )

    def _is_safe(self, fragmentation: float, site: Site, setup: Setup, max_oom: float) -> bool:
        """Return whether a setup fits, were the pool so much larger than what it hands out."""
        peak = self._once(
            ("peak", setup), lambda: memory_parts(self.cache, setup).peak_bytes.item()
        )
        if setup.offload:
            key = ("host", site.host_memory_bytes, setup)
            if not self._once(key, lambda: host_memory_of(self.cache, site, setup).fits):
                return False
        # Not the chance itself, which is rounded: one at the limit would be on either side of it.
        needed = safe_peak_bytes(
            np.array(peak * fragmentation),
            self._once(("framework", setup), lambda: framework_of(site, setup)),
            stack=setup.stack,
            layout=setup.layout,
            max_oom=max_oom,
        )
        return needed.item() <= capacity_bytes(site.accelerator)

    def _step_s(self, site: Site, setup: Setup) -> float:
        return self._once(
            ("step", setup), lambda: step_parts(self.cache, site, setup).total_s.item()
        )

    def _once(self, key: tuple[object, ...], compute: Callable[[], object]) -> float:
        if key not in self.known:
            self.known[key] = float(compute())  # pyright: ignore[reportArgumentType]
        return self.known[key]


@pytest.fixture(scope="module")
def caches() -> list[ModelCache]:
    return [ModelCache(profile) for profile in profiles_of(*MODELS)]


@pytest.fixture(scope="module")
def sites() -> list[Site]:
    return sites_of_one_node()


@pytest.mark.parametrize(
    "spaces", [12, pytest.param(300, marks=pytest.mark.repeats)], ids=lambda count: f"{count}"
)
@pytest.mark.timeout(1800)  # Minutes of arithmetic, on a machine that may be busy.
def test_the_best_is_that_of_trying_every_layout(caches, sites, spaces: int) -> None:
    """Brute force over every layout, policy and micro-batch, one setup at a time."""

    @settings(max_examples=spaces // LIMITS)
    @given(data=st.data())
    def check(data: st.DataObject) -> None:
        check_spaces(caches, sites, data)

    check()


def check_spaces(caches: list[ModelCache], sites: list[Site], data: st.DataObject) -> None:
    cache, site = data.draw(st.sampled_from(caches)), data.draw(st.sampled_from(sites))
    nodes = data.draw(st.sampled_from(NODES))
    # A rack's domain stays whole: it is more than one of its nodes.
    site = replace(site, nodes=1, per_node=data.draw(st.sampled_from(PER_NODE)))
    batch = nodes * site.per_node * data.draw(st.sampled_from([1, 2, 3, 4]))
    offload = data.draw(st.sampled_from([frozenset[Offloaded](), OPTIMIZER]))
    software = data.draw(st.sampled_from(SOFTWARE[: 2 if nodes > 1 else 3]))
    predictor = predictor_of(cache, site, nodes, software=software, global_batch=batch)
    tried_with = bases(offload, software)
    trials = Trials(
        cache=cache,
        site=site,
        limits=predictor.rows.limits,
        recomputes=predictor.space.recomputes,
        base=tried_with[0],
        batch=batch,
    )
    for share, host_bytes, max_oom in data.draw(limits_of_spaces(bool(offload))):
        one = replace(with_memory(site, share), host_memory_bytes=host_bytes)
        asked = [Asked(nodes=nodes, bound_s=float("inf"))]
        (outcome,) = predictor.best(one, tried_with, asked, max_oom=max_oom)
        placed = replace(one, nodes=nodes)
        tried = trials.step_times(placed, max_oom)
        assert outcome.fitting == len(tried)
        assert bool(outcome.found) == bool(tried)
        if tried:
            fastest = min(outcome.found, key=lambda one: one.step_s)
            near = nearness(fastest.recompute_share)
            assert fastest.step_s == pytest.approx(min(tried), rel=near)
        for found in outcome.found:
            check_one(cache, placed, found)


def limits_of_spaces(
    offloads: bool,
) -> st.SearchStrategy[list[tuple[float, float | None, float]]]:
    """Return shares of a device's memory, bytes of its host's, and accepted risks.

    In these shares all, some and none of the layouts fit.
    """
    each = st.tuples(
        st.sampled_from([1.0, 0.1, 0.06, 0.045, 0.03]),
        st.sampled_from([None, 1e9, 4e9] if offloads else [None]),
        st.sampled_from([0.4, 0.02, 0.001]),
    )
    return st.lists(each, min_size=LIMITS, max_size=LIMITS, unique=True)


def check_one(cache: ModelCache, site: Site, found: Found) -> None:
    """Compare what was found with the prediction of its setup."""
    setup = replace(
        found.base,
        layout=found.layout,
        micro_batch=found.micro_batch,
        grad_accum=found.grad_accum,
        recompute=found.recompute,
        recompute_share=found.recompute_share,
    )
    near = nearness(found.recompute_share)
    assert found.step_s == pytest.approx(planned_step_s(cache, site, setup), rel=near)
    step = predict(cache.profile, site, setup, cache=cache).step_time_s
    over_likely = mean_training_s(step) / step.value
    assert found.over_likely == pytest.approx(over_likely, rel=max(near, 1e-9))


def test_the_spaces_have_every_dimension(caches, sites) -> None:
    seen: set[str] = set()
    for cache in caches:
        predictor = predictor_of(cache, sites[0], 1)
        for nodes in NODES:
            for per_node in PER_NODE:
                layouts = legal_layouts(
                    predictor.rows.limits, nodes=nodes, per_node=per_node, domain=per_node
                )
                for one in layouts:
                    degrees = ("tensor", "pipeline", "virtual_stages", "context", "expert")
                    seen |= {name for name in degrees if getattr(one, name) > 1}
                    seen |= {f"zero{one.zero_stage}"}
                    seen |= {"hsdp"} if 1 < one.shard < one.data else set()
    assert seen == {
        "tensor", "pipeline", "virtual_stages", "context", "expert", "hsdp",
        "zero0", "zero1", "zero2", "zero3",
    }  # fmt: skip
