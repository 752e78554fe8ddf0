"""Layouts that share their kernels: where casts surround layers, where a compiler sees the loss."""

from dataclasses import replace

import pytest

from gpuplan.catalog.snapshot import load_catalogue
from gpuplan.catalog.vocabulary import Stack
from gpuplan.planner.plan.layout import Layout
from gpuplan.planner.plan.question import Choices, Machine, Question, Work
from gpuplan.planner.plan.setup import Setup
from gpuplan.planner.predict.kept.model_cache import ModelCache
from gpuplan.planner.predict.step_time import planned_step_s
from gpuplan.planner.search.layouts.next_best import NextBest
from gpuplan.planner.search.layouts.same_kernels import by_kernels
from gpuplan.planner.search.machines.offers import survey
from gpuplan.planner.search.search_space import space_of
from gpuplan.planner.search.sweep import Sweep
from gpuplan.planner.search.whole_work import WholeWork
from gpuplan.planner.software.kept_memory import compiles_whole
from gpuplan.profiles.profile import Profile

DDP, ZERO_1 = Layout(data=8), Layout(data=8, shard=8, zero_stage=1)
ZERO_2, FSDP = Layout(data=8, shard=8, zero_stage=2), Layout(data=8, shard=8, zero_stage=3)
ALL = (FSDP, DDP, ZERO_2, ZERO_1)


def test_only_what_differs_is_timed_apart() -> None:
    alike = by_kernels(ALL, "torch-eager", mixed=False, sees_loss=False, offload=())
    assert [one.layouts for one in alike] == [ALL]
    mixed = by_kernels(ALL, "torch-eager", mixed=True, sees_loss=False, offload=())
    assert [(one.autocast, one.layouts) for one in mixed] == [
        (True, (DDP, ZERO_1)),
        (False, (FSDP, ZERO_2)),
    ]
    seen = by_kernels(ALL, "torch-compile", mixed=True, sees_loss=True, offload=())
    assert [(one.autocast, one.layouts) for one in seen] == [
        (True, (DDP,)),
        (True, (ZERO_1,)),
        (False, (FSDP, ZERO_2)),
    ]


@pytest.mark.parametrize("stack", ["torch-eager", "torch-compile"])
def test_what_stands_for_a_group_is_compiled_as_its_layouts_are(stack: Stack) -> None:
    base = Setup(layout=Layout(), precision="fp32", micro_batch=1, stack=stack, compile=True)
    seen = by_kernels(ALL, stack, mixed=False, sees_loss=True, offload=())
    assert [one.layouts for one in seen] == [(DDP,), (FSDP, ZERO_2, ZERO_1)]
    for group in seen:
        whole = compiles_whole(replace(base, by_block=group.by_block))
        assert {compiles_whole(replace(base, layout=one)) for one in group.layouts} == {whole}


@pytest.mark.parametrize("stack", ["xla", "megatron"])
def test_only_torch_has_a_compiler_of_files(stack: Stack) -> None:
    base = Setup(layout=Layout(), precision="bf16-amp", micro_batch=1, stack=stack, compile=True)
    assert not compiles_whole(base)


def test_a_search_times_every_layout_as_it_is_compiled(small_decoder: Profile) -> None:
    """What replaces a candidate that is short of memory, too: DDP for DDP, ZeRO for ZeRO."""
    profile = small_decoder.model_copy(update={"loss_in_model": True})
    machine = Machine(instances=("p4d.24xlarge",), nodes=(1,))
    question = Question(
        machine=machine,
        work=Work(global_batch=256),
        choices=Choices(compile=True, precisions=("fp32", "bf16-amp"), micro_batches=(4, 8)),
    )
    cache, space = ModelCache(profile), space_of(question, profile)
    market = survey(load_catalogue(), machine, question.money)
    found = list(Sweep(question, cache, space, market).candidates())
    next_best = NextBest(
        cache=cache,
        space=space,
        whole=WholeWork(question.work, profile),
        max_oom=question.money.max_oom,
        all_variants=False,
    )
    others = [other for one in found for other in next_best.of(one)]
    assert {one.layout.zero_stage for one in found} > {0} and others
    for one in (*found, *others):
        alone_s = planned_step_s(cache, one.site, one.setup)
        assert one.step_s == pytest.approx(alone_s, rel=1e-9), one.layout
