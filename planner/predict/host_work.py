"""The host's side of one setup: what its ranks copy, step and keep in host memory."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...profiles.passes.residence import offloaded_activation_bytes
from ..hardware.cluster import Site
from ..offload.host_copies import HostWork, host_work
from ..offload.host_memory import host_memory, kept_bytes
from ..plan.layout import Layout
from ..plan.plan import EstimatedHostMemory
from ..plan.setup import Setup
from .fullest_rank import stepped_parameters
from .kept.model_cache import ModelCache


def data_parallel_host_work(
    cache: ModelCache,
    site: Site,
    setup: Setup,
    layouts: Sequence[Layout],
    *,
    activation_bytes: np.ndarray | float,
) -> HostWork:
    """Return what a rank and its host do in a step of each layout, arrays of [L, 1] or [V].

    Args:
        cache: the model.
        site: links, and ranks per node.
        setup: what is offloaded; its layout does not matter.
        layouts: data-parallel ones.
        activation_bytes: of one micro-batch that leave the device.
    """
    shards = _shards(layouts)
    return host_work(
        cache.profile,
        setup.precision,
        setup.offload,
        site,
        cache.constants,
        stepped=cache.profile.trained_parameters / shards,
        gathered=cache.profile.parameters / shards,
        activation_bytes=activation_bytes,
    )


def host_bytes(
    cache: ModelCache,
    setup: Setup,
    layouts: Sequence[Layout],
    *,
    activation_bytes: np.ndarray | float,
) -> np.ndarray:
    """Return [L, V] bytes of host memory that one rank needs under data-parallel layouts."""
    return np.asarray(
        kept_bytes(
            cache.profile,
            setup.precision,
            setup.offload,
            stepped=cache.profile.trained_parameters / _shards(layouts),
            activation_bytes=activation_bytes,
        )
    )


def activations_on_host(cache: ModelCache, setup: Setup, micro_batches: np.ndarray) -> np.ndarray:
    """Return bytes of each micro-batch's activations that wait on the host for its backward pass.

    The micro-batch of the setup itself is not looked at.
    """
    if "activations" not in setup.offload:
        return np.zeros(len(micro_batches))
    numerics = cache.numerics(setup.precision, autocast=setup.autocast)
    trace = cache.steps.trace_in(numerics, setup.recompute)
    offloaded = offloaded_activation_bytes(trace)
    return np.array([offloaded.at(int(size)) for size in micro_batches])


def staging_bytes(cache: ModelCache, setup: Setup, *, gather_bytes: int) -> float:
    """Return bytes of the device copies of offloaded parameters where one rank has all of them.

    Where several ranks share them these are FSDP's gathers, which the memory of a layout has.
    """
    if "parameters" not in setup.offload or setup.layout.shard > 1:
        return 0.0
    *blocks, root = cache.units
    largest = max((unit.parameters for unit in blocks), default=0)
    return gather_bytes * (root.parameters + 2 * largest)


def host_memory_of(cache: ModelCache, site: Site, setup: Setup) -> EstimatedHostMemory:
    """Return the host memory that one node needs for a setup."""
    return host_memory(
        cache.profile,
        setup.precision,
        setup.offload,
        site,
        stepped=stepped_parameters(cache, setup),
        activation_bytes=activations_on_host(cache, setup, np.array([setup.micro_batch])).item(),
    )


def _shards(layouts: Sequence[Layout]) -> np.ndarray:
    """Return [L, 1] ranks that share one copy of the optimizer's state."""
    return np.array([[layout.shard if layout.zero_stage else 1] for layout in layouts])
