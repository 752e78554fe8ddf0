"""The share of a device's memory bandwidth that a step uses: the yardstick where MFU says nothing.

A step of embedding tables or of a large optimizer multiplies little and moves much: its MFU is near
zero however well it runs, and what it may reach is the bandwidth of the memory (the roofline of
Williams et al. 2009, doi:10.1145/1498765.1498785).
"""

from __future__ import annotations

from ..hardware.cluster import Site
from ..offload.host_memory import steps_on_host
from ..plan.setup import Setup
from ..software.stack import adds_up_shards
from ..step.data_parallel_step import summed_parameters
from .kept.model_cache import ModelCache
from .setup import accumulation_bytes, recompute_policies, stack_facts


def bandwidth_share(cache: ModelCache, site: Site, setup: Setup, step_s: float) -> float | None:
    """Return bytes moved by the kernels of one rank / (`step_s` x peak bandwidth of its device).

    The bytes are those that kernels read and write: what a cache serves counts, so that a step of
    small tensors may have more than 1. None where the model is split, as its ranks then differ.
    """
    if not setup.layout.is_data_parallel_only or step_s <= 0:
        return None
    cache = cache.with_frozen(setup.frozen_precision)
    moved = setup.grad_accum * _micro_batch_bytes(cache, setup) + _step_bytes(cache, setup)
    return moved / (step_s * site.accelerator.memory_bandwidth_bytes_per_s)


def _micro_batch_bytes(cache: ModelCache, setup: Setup) -> float:
    """Return what the kernels of both passes over one micro-batch move."""
    stack = stack_facts(setup, cache.constants)
    numerics = cache.numerics(setup.precision, autocast=setup.autocast)
    return sum(
        share
        * cache.steps.moved_bytes(
            numerics, policy, fused=stack.fuses, fuses_loss=cache.fuses_loss(stack)
        ).at(setup.micro_batch)
        for policy, share in recompute_policies(setup).items()
    )


def _step_bytes(cache: ModelCache, setup: Setup) -> float:
    """Return what adding up gradients and the optimizer's step move on one rank."""
    layout, parameters = setup.layout, cache.profile.trained_parameters
    ranks = layout.shard if adds_up_shards(setup.stack, layout) else 1
    summed = summed_parameters(cache.profile) / ranks
    moved = (setup.grad_accum - 1) * accumulation_bytes(setup) * summed
    if setup.optimizer == "none" or steps_on_host(setup.offload):
        return moved
    stepped = parameters / (layout.shard if layout.zero_stage else 1)
    traffic = stack_facts(setup, cache.constants).optimizer_traffic
    facts = cache.steps.optimizer(setup.precision)
    rows = facts.step_bytes_per_sample * setup.micro_batch * setup.grad_accum
    return moved + stepped * facts.step_bytes_per_parameter * traffic + rows
