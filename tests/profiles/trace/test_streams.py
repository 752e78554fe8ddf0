"""Streams, events, NVTX ranges and DataParallel: what files of one GPU use changes no trace."""

from typing import Any

import pytest
import torch
from torch import nn
from traced_mlp import Mlp, workload

from gpuplan.profiles.trace.trace import trace_workload


def copies_ahead(model: nn.Module, batch: Any) -> Any:
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        ahead = batch[0].cuda(non_blocking=True)
        ahead.record_stream(side)
    torch.cuda.current_stream().wait_stream(side)
    return model(ahead).square().mean()


def times_the_step(model: nn.Module, batch: Any) -> Any:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    loss = model(batch[0]).square().mean()
    end.record(torch.cuda.default_stream())
    torch.cuda.synchronize()
    assert end.query() and len(batch[0]) / start.elapsed_time(end) > 0
    return loss


def names_its_parts(model: nn.Module, batch: Any) -> Any:
    with torch.cuda.nvtx.range("forward"):
        torch.cuda.nvtx.mark("start")
        loss = model(batch[0]).square().mean()
    assert torch.cuda.max_memory_reserved() == torch.cuda.memory_stats()["peak"] == 0
    return loss


def plain(model: nn.Module, batch: Any) -> Any:
    return model(batch[0]).square().mean()


@pytest.mark.parametrize("compute_loss", [copies_ahead, times_the_step, names_its_parts])
def test_a_step_is_the_same_with_what_one_gpu_offers(compute_loss: Any) -> None:
    """An event around a step ended in "Tried to instantiate dummy base class Event"."""
    usual, profile = (
        trace_workload(workload(compute_loss=one), numerics=["fp32"])
        for one in (plain, compute_loss)
    )
    assert profile.flops == usual.flops
    assert profile.steps[0].segments == usual.steps[0].segments


def test_data_parallel_of_one_gpu_is_its_model() -> None:
    def build_model() -> nn.Module:
        return nn.DataParallel(Mlp().cuda())

    usual, profile = (
        trace_workload(workload(compute_loss=plain, **changes), numerics=["fp32"])
        for changes in ({}, {"build_model": build_model})
    )
    assert profile.flops == usual.flops and profile.parameters == usual.parameters
