"""What the runner refuses, and why: the planner says the same before anything starts."""

from __future__ import annotations

from typing import Any

import pytest

from gpuplan.planner.plan.layout import parse_layout
from gpuplan.planner.plan.runnable import why_not_runnable

TIED = ("embedding.weight", "head.weight")


def reason(layout: str, **given: Any) -> str | None:
    facts: dict[str, Any] = {
        "precision": "bf16-amp",
        "stack": "torch-eager",
        "grad_accum": 8,
        "recompute": "none",
        "offloaded": (),
        "tensor_plan": "sequence",
        "blocks": 8,
        "tied_modules": None,
        "tied_blocks": None,
        **given,
    }
    return why_not_runnable(parse_layout(layout), **facts)


@pytest.mark.parametrize(
    "layout",
    [
        *("dp1", "dp8", "dp8.zero1", "dp8.zero2", "fsdp8", "hsdp2x4"),
        *("dp2.tp2", "fsdp2.tp2.sp", "dp1.pp4", "dp2.pp2.vpp2", "fsdp2.pp2", "fsdp2.tp2.pp2"),
    ],
)
def test_these_layouts_run(layout: str) -> None:
    assert reason(layout) is None


@pytest.mark.parametrize("layout", ["dp2", "fsdp8", "dp1.pp4"])
def test_a_tied_head_runs_where_its_weight_stays_one(layout: str) -> None:
    assert reason(layout, tied_modules=TIED) is None


def test_sparse_gradients_run_on_one_accelerator() -> None:
    assert reason("dp1", sparse_parameters=8) is None


@pytest.mark.parametrize("layout", ["dp1", "dp2", "dp1.tp2"])
def test_blocks_that_share_a_weight_run_where_it_stays_one(layout: str) -> None:
    assert reason(layout, tied_blocks=TIED) is None


@pytest.mark.parametrize("layout", ["fsdp2", "hsdp2x2", "dp2.zero1", "dp2.zero2", "dp2.tp2"])
def test_blocks_that_share_a_weight_are_not_sharded_one_by_one(layout: str) -> None:
    found = reason(layout, tied_blocks=TIED) or ""
    assert f"{TIED[0]} and {TIED[1]} are one weight" in found and "dp" in found


@pytest.mark.parametrize(
    ("layout", "given", "words"),
    [
        ("dp2.cp2", {}, "Context parallelism"),
        ("dp2", {"sparse_parameters": 8}, "Sparse gradients"),
        ("fsdp8", {"sparse_parameters": 8}, "Sparse gradients"),
        ("dp2.ep2", {}, "Expert parallelism"),
        ("dp2.tp2", {"tensor_plan": "none"}, "tensor_parallel_plan"),
        ("dp2.tp2", {"tied_modules": TIED}, "embedding.weight and head.weight are one weight"),
        ("dp1.tp2.pp2", {"tied_modules": TIED}, "embedding.weight and head.weight are one weight"),
        ("dp1.pp2", {"tied_blocks": TIED}, "embedding.weight and head.weight are one weight"),
        ("dp2.tp2.sp", {"tensor_plan": "tensor"}, "sequence"),
        ("dp1.pp4", {"blocks": 3}, "3 blocks"),
        ("dp1.pp4", {"grad_accum": 2}, "4 gradient-accumulation steps"),
        ("dp1.pp4.vpp2", {"grad_accum": 6}, "not a multiple"),
        ("dp2.zero1.pp2", {}, "ZeRO-1"),
        ("dp2", {"precision": "fp8"}, "fp8"),
        ("dp2", {"stack": "megatron"}, "--command"),
        ("dp2", {"stack": "xla"}, "XLA"),
        ("dp2", {"port_to": "XLA"}, "a port to XLA"),
        ("dp2", {"port_to": "Gaudi's torch"}, "a port to Gaudi's torch"),
        ("dp2", {"offloaded": ("optimizer",)}, "optimizer"),
        ("dp2", {"recompute": "full", "blocks": 0}, "recompute=full"),
    ],
)
def test_the_reason_names_what_is_missing(layout: str, given: dict[str, Any], words: str) -> None:
    assert words in (reason(layout, **given) or "")
