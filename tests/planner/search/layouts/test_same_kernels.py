"""Layouts that share their kernels: where casts surround layers, where a compiler sees the loss."""

from gpuplan.planner.plan.layout import Layout
from gpuplan.planner.search.layouts.same_kernels import by_kernels

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


def test_what_stands_for_a_group_is_compiled_as_its_layouts_are() -> None:
    seen = by_kernels(ALL, "torch-compile", mixed=False, sees_loss=True, offload=())
    assert [one.layouts for one in seen] == [(DDP,), (FSDP, ZERO_2, ZERO_1)]
    assert [one.shape.zero_stage > 0 for one in seen] == [False, True]
