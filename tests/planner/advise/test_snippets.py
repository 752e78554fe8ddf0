"""Lines that a change takes: those by which the training is what was predicted."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpuplan.planner.advise.snippets import (
    accumulation_lines,
    precision_lines,
    sharding_lines,
)
from gpuplan.planner.plan.layout import Layout
from gpuplan.planner.plan.setup import Setup

DDP = Setup(layout=Layout(data=8), precision="bf16-amp", micro_batch=2)
ZERO_1 = replace(DDP, layout=Layout(data=8, shard=8, zero_stage=1))
ZERO_2 = replace(DDP, layout=Layout(data=8, shard=8, zero_stage=2))
FSDP = replace(DDP, layout=Layout(data=8, shard=8, zero_stage=3))
HSDP = replace(DDP, layout=Layout(data=8, shard=4, zero_stage=3))


@pytest.mark.parametrize(
    ("name", "expected"),
    [("adam", "torch.optim.Adam,"), ("sgd", "torch.optim.SGD,"), ("adamw", "torch.optim.AdamW,")],
)
def test_zero_1_divides_the_optimizer_that_the_file_has(name: str, expected: str) -> None:
    text = "\n".join(sharding_lines(ZERO_1, name))
    assert f"optimizer_class={expected} lr=…" in text


def test_an_optimizer_that_nobody_knows_is_no_adamw() -> None:
    assert "optimizer_class=…," in "\n".join(sharding_lines(ZERO_1, "lion"))


def test_what_is_sharded_computes_in_16_bits_without_autocast() -> None:
    for setup in (ZERO_2, FSDP):
        text = "\n".join(sharding_lines(setup, "adamw"))
        assert (
            "MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)" in text
        )
        assert "fully_shard(block, mp_policy=policy" in text and "without torch.autocast" in text
    assert "mp_policy" not in "\n".join(sharding_lines(replace(FSDP, precision="tf32"), "adamw"))
    halved = "\n".join(precision_lines("fp16-amp", FSDP.layout))
    assert "param_dtype=torch.float16" in halved and "GradScaler" in halved
    assert "with torch.autocast" not in halved
    assert "with torch.autocast" in "\n".join(precision_lines("fp16-amp", DDP.layout))


def test_several_micro_batches_exchange_once_a_step() -> None:
    def lines(setup: Setup, grad_accum: int) -> str:
        return "\n".join(accumulation_lines(setup.layout, grad_accum))

    assert "with model.no_sync()" in lines(DDP, 4) and "with model.no_sync()" in lines(ZERO_1, 4)
    assert "set_reshard_after_backward(is_last)" in lines(ZERO_2, 4)
    assert "set_requires_all_reduce(is_last)" in lines(HSDP, 4)
    assert not lines(FSDP, 4)  # It scatters the gradients of every micro-batch, as is predicted.
    assert not any(lines(one, 1) for one in (DDP, ZERO_1, ZERO_2, FSDP, HSDP))
    assert not lines(replace(DDP, layout=Layout()), 4)
