"""Losses that compare the samples of a batch with each other: what they need grows with pairs."""

from __future__ import annotations

import json
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from gpuplan.catalog.snapshot import load_catalogue
from gpuplan.planner.memory.plateaus import envelope
from gpuplan.planner.plan.question import Choices, Machine, Question, Work
from gpuplan.planner.search.search import search
from gpuplan.profiles.analysis.replay import replay
from gpuplan.profiles.passes.recompute import recomputed
from gpuplan.profiles.profile import Affine, Profile
from gpuplan.profiles.trace import trace
from gpuplan.profiles.trace.trace import trace_workload
from gpuplan.profiles.user_model.workload import Workload

WIDTH, OUT = 32, 16
MANY = 512
MOST = 4096
Loss = Callable[[Tensor], Tensor]


def cdist(x: Tensor) -> Tensor:
    return (-torch.cdist(x, x)).logsumexp(1).mean()


def broadcast(x: Tensor) -> Tensor:
    return (x[:, None] - x[None, :]).square().sum(-1).sqrt().relu().mean()


def info_nce(x: Tensor) -> Tensor:
    x = F.normalize(x, dim=1)
    return F.cross_entropy(x @ x.T / 0.1, torch.arange(len(x), device=x.device))


def two_views(x: Tensor) -> Tensor:
    return info_nce(torch.cat([x, x.flip(1)]))


def upper_half(x: Tensor) -> Tensor:
    rows, columns = torch.triu_indices(len(x), len(x), 1, device=x.device)
    return (x[rows] - x[columns]).square().sum(1).mean()


def related(x: Tensor) -> Tensor:
    """A layer over all pairs, as of a relation network."""
    rows, columns = torch.triu_indices(len(x), len(x), 1, device=x.device)
    weight = torch.ones(2 * OUT, OUT, device=x.device)
    return (torch.cat([x[rows], x[columns]], 1) @ weight).relu().mean()


def hardest_half(x: Tensor) -> Tensor:
    """A share of the samples for each of them."""
    return torch.cdist(x, x).topk(int(0.3 * len(x)), dim=1).values.square().mean()


def halves(x: Tensor) -> Tensor:
    """Of 2 and of 3 samples, halves look like those of a line."""
    return torch.cdist(x[: len(x) // 2], x[len(x) // 2 :]).mean()


def triplets(x: Tensor) -> Tensor:
    apart = torch.cdist(x, x)
    return (apart[:, :, None] - apart[:, None, :] + 0.2).relu().mean()


def over_samples(x: Tensor) -> Tensor:
    """Attention from sample to sample, as of tables."""
    q = x[None, None]
    return F.scaled_dot_product_attention(q, q, q).square().mean()


def variance(x: Tensor) -> Tensor:
    """Of the batch, as VICReg's: no sample is compared with another."""
    x = x - x.mean(0)
    return (x.T @ x / (len(x) - 1)).square().mean() + x.sort(0).values[1:].mean()


def workload(loss: Loss) -> Workload:
    return Workload(
        name="pairs",
        path=None,
        build_model=lambda: nn.Sequential(nn.Linear(WIDTH, OUT), nn.BatchNorm1d(OUT)),
        make_batch=lambda size: (torch.randn(size, WIDTH),),
        compute_loss=lambda model, batch: loss(model(*batch)),
        build_optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1),
    )


def profiled(loss: Loss) -> Profile:
    return trace_workload(workload(loss), numerics=["fp32"])


def profiled_at(samples: int, loss: Loss) -> Profile:
    """Return the same of a trace at this micro-batch and the next: exact there, whatever grows."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trace, "SIZES", ((samples, samples + 1),))
        return profiled(loss)


class _Alive(TorchDispatchMode):
    """Counts the bytes of the storages that a real run keeps alive."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.most = 0
        self.known: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, Tensor):
                self.hold(tensor)
        return result

    def hold(self, tensor: Tensor) -> None:
        storage = tensor.untyped_storage()
        key, size = storage._cdata, storage.nbytes()
        if key in self.known:
            return
        self.known.add(key)
        self.now += size
        self.most = max(self.most, self.now)
        weakref.finalize(storage, self.drop, key, size)

    def drop(self, key: int, size: int) -> None:
        self.known.discard(key)
        self.now -= size


def real_peak_bytes(loss: Loss, samples: int) -> int:
    """Return the most bytes of tensors that a second step on the CPU has at once."""
    work = workload(loss)
    model = work.build_model()
    optimizer = work.build_optimizer(model.parameters())
    most = 0
    for _ in range(2):
        with _Alive() as alive:
            batch = work.make_batch(samples)
            held = sum(t.nbytes for t in (*model.parameters(), *model.buffers()))
            value = work.compute_loss(model, batch)
            value.backward()
            del value
            optimizer.step()
            optimizer.zero_grad()
        most = alive.most + held
    return most


@pytest.mark.parametrize("samples", [MANY, MOST])
@pytest.mark.parametrize(
    "loss",
    [cdist, broadcast, info_nce, two_views, upper_half, related, triplets, over_samples, variance],
    ids=lambda one: one.__name__,
)
def test_all_is_as_in_a_trace_at_that_micro_batch(loss: Loss, samples: int) -> None:
    few, there = profiled(loss), profiled_at(samples, loss)
    assert numbers_at(samples, few) == numbers_at(samples, there)
    peaks = [replay(one.steps[0], samples).peak_allocated_bytes for one in (few, there)]
    assert peaks[0] == peaks[1]
    assert few.flops.at(samples) == there.flops.at(samples)


def numbers_at(samples: int, profile: Profile) -> list[tuple[object, ...]]:
    """Return what all kernels of a step compute and move at a micro-batch."""
    step = profile.steps[0]
    return [
        (k.op, *(size.at(samples) for size in (k.flops, k.bytes_read, k.bytes_written)))
        + tuple(size.at(samples) for size in k.dims.values())
        for index in step.schedule
        for k in step.segments[index].kernels
    ]


@pytest.mark.parametrize("loss", [cdist, broadcast, info_nce], ids=lambda one: one.__name__)
def test_plans_are_those_of_a_trace_at_their_micro_batch(loss: Loss) -> None:
    plans = []
    for profile in (profiled(loss), profiled_at(MOST, loss)):
        question = Question(
            work=Work(samples=1e9, global_batch=64 * MOST),
            machine=Machine(providers=("aws",), accelerators=("A100",), max_nodes=1),
            choices=Choices(micro_batches=(MOST,), precisions=("fp32",)),
        )
        plans.append(search(question, profile, load_catalogue()).plans[0])
    few, there = plans
    assert few.peak_memory_bytes.value == pytest.approx(there.peak_memory_bytes.value, rel=1e-3)
    assert few.step_time_s.value == pytest.approx(there.step_time_s.value, rel=1e-3)
    assert few.peak_memory_bytes.value > MOST**2 * 4


@pytest.mark.parametrize(
    "loss", [cdist, broadcast, info_nce, two_views, upper_half], ids=lambda one: one.__name__
)
def test_the_peak_at_many_samples_is_that_of_a_real_run(loss: Loss) -> None:
    step = profiled(loss).steps[0]
    assert replay(step, MANY).peak_allocated_bytes == pytest.approx(
        real_peak_bytes(loss, MANY), rel=0.05
    )


def test_losses_of_triplets_grow_with_the_cube() -> None:
    step = profiled(triplets).steps[0]
    real = real_peak_bytes(triplets, 96)
    assert replay(step, 96).peak_allocated_bytes == pytest.approx(real, rel=0.05)


@pytest.mark.parametrize(
    "loss",
    [cdist, broadcast, info_nce, upper_half, triplets, over_samples],
    ids=lambda one: one.__name__,
)
def test_losses_that_compare_samples_are_known_as_such(loss: Loss) -> None:
    profile = profiled(loss)
    assert profile.mixes_samples
    assert "grow with the square of the micro-batch" in profile.notes[0]
    assert "traced sizes" not in profile.notes[0]


def test_what_only_averages_over_the_batch_stays_a_line() -> None:
    profile = profiled(variance)
    assert (profile.mixes_samples, profile.notes) == (False, ())
    assert "per_pair" not in profile.model_dump_json()


def test_flops_and_bytes_of_products_grow_with_the_square() -> None:
    profile = profiled(info_nce)
    forward = [k for s in profile.steps[0].segments if s.phase == "forward" for k in s.kernels]
    product = [k for k in forward if k.kind == "gemm"][-1]
    assert product.flops.at(MANY) == 2 * MANY**2 * OUT
    assert product.bytes_written == Affine(0, 4, 8)
    layer = 2 * 2 * WIDTH * OUT  # Forward and the weight's gradient.
    assert profile.flops.at(MANY) == MANY * layer + 3 * 2 * MANY**2 * OUT


def test_fused_attention_over_samples_grows_with_the_square() -> None:
    profile = trace_workload(workload(over_samples), numerics=["amp16"])
    sixteen_times = profile.flops.at(4 * MANY) / profile.flops.at(MANY)
    assert 12 < sixteen_times <= 16


@pytest.mark.parametrize("recompute", ["none", "full"])
def test_search_sees_the_same_memory_as_the_replay(recompute: Any) -> None:
    profile = profiled(cdist)
    step = recomputed(profile.steps[0], profile, recompute)
    shape = envelope(step, np.array([8, MANY]))
    moving = shape.activation_bytes + shape.temporary_bytes + shape.input_bytes
    most = moving.max(axis=0) + sum(shape.persistent_bytes.values())
    replayed = [replay(step, size).peak_allocated_bytes for size in (8, MANY)]
    assert most[1] == pytest.approx(replayed[1], rel=0.02)
    assert most[0] == pytest.approx(replayed[0], rel=0.5)


def test_profiles_with_pairs_and_without_are_read_back_as_they_were() -> None:
    profile = profiled(triplets)
    again = Profile.model_validate_json(profile.model_dump_json())
    assert again == profile
    assert again.steps[0].memory.growth == profile.steps[0].memory.growth
    older = json.loads(profiled(variance).model_dump_json())
    assert "bytes_per_pair" not in older["steps"][0]["memory"]
    assert len(older["flops"]) == 2
    assert Profile.model_validate(older).flops == Affine(*older["flops"])
