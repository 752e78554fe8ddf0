"""The bytes of a base in 4 bits, and where frozen parameters have a storage of their own."""

from dataclasses import replace
from typing import Any

import pytest

from gpuplan.catalog.snapshot import load_catalogue
from gpuplan.planner.plan.layout import parse_layout
from gpuplan.planner.plan.setup import Setup
from gpuplan.planner.software.frozen_base import (
    NF4_BYTES,
    backward_dequantisations,
    saved_in_8_bits_bytes,
    why_not_kept,
)
from gpuplan.profiles.profile import FrozenLinears, Profile

CATALOGUE = load_catalogue()


def why(layout: str = "dp1", device: str = "L4", **given: Any) -> str | None:
    facts = {"precision": "bf16-amp", "micro_batch": 1, "frozen_precision": "nf4", **given}
    return why_not_kept(Setup(layout=parse_layout(layout), **facts), CATALOGUE.accelerators[device])


def test_double_quantisation_leaves_0_127_bits_of_constants_a_parameter() -> None:
    # Dettmers et al. 2023, section 3: from 32/64 = 0.5 to 8/64 + 32/(64 · 256) = 0.127 bits.
    assert pytest.approx(4 + 0.127, abs=5e-4) == NF4_BYTES * 8


def test_a_weight_is_dequantised_once_more_where_its_product_is_recomputed() -> None:
    assert backward_dequantisations({"none": 1.0}) == 1.0
    assert backward_dequantisations({"selective": 1.0}) == 1.0
    assert backward_dequantisations({"full": 1.0}) == 2.0
    assert backward_dequantisations({"selective": 0.5, "full": 0.5}) == 1.5


@pytest.mark.parametrize(
    ("stack", "features", "saved"),
    [
        ("megatron", {"fp8-parameters"}, 7_000 / 4),
        ("megatron", {"nvfp4"}, 7_000 / 4),
        ("megatron", set(), 0),
        ("torch-eager", {"fp8-parameters"}, 0),
    ],
)
def test_megatron_keeps_a_frozen_base_in_8_bits(
    stack: str, features: set[str], saved: float
) -> None:
    """A byte less of each parameter of a frozen layer that a rank of two stages holds."""
    setup = Setup(
        layout=parse_layout("dp1.tp2.pp2"),
        precision="fp8",
        micro_batch=1,
        stack=stack,  # pyright: ignore[reportArgumentType]
        features=frozenset(features),
    )
    linears = FrozenLinears(count=7, parameters=7_000, largest=1_000)
    profile = Profile.model_construct(frozen_linears=linears)
    assert saved_in_8_bits_bytes(setup, profile) == saved
    sharded = replace(setup, layout=parse_layout("fsdp2.tp2.pp2"))
    assert saved_in_8_bits_bytes(sharded, profile) == saved / 2
    assert saved_in_8_bits_bytes(setup, Profile.model_construct(frozen_linears=None)) == 0


@pytest.mark.parametrize("frozen", ["bf16", "nf4"])
@pytest.mark.parametrize("layout", ["dp1", "dp8", "dp8.zero1"])
def test_replicated_layouts_under_autocast_can(layout: str, frozen: str) -> None:
    assert why(layout, frozen_precision=frozen) is None


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"layout": "fsdp8"}, "which fsdp8 is not"),
        ({"layout": "dp8.zero2"}, "which dp8.zero2 is not"),
        ({"layout": "dp2.tp2"}, "which dp2.tp2 is not"),
        ({"precision": "bf16"}, "not with bf16"),
        ({"precision": "tf32"}, "not with tf32"),
        ({"precision": "fp16-amp", "frozen_precision": "bf16"}, "runs with bf16-amp"),
        ({"device": "MI300X"}, "NVIDIA alone, not MI300X"),
        ({"stack": "xla"}, "torch without offload"),
        ({"offload": frozenset({"activations"})}, "torch without offload"),
    ],
)
def test_others_cannot(given: dict[str, Any], reason: str) -> None:
    assert reason in (why(**given) or "")


def test_as_the_precision_keeps_them_always_can() -> None:
    assert why("fsdp8", precision="bf16", frozen_precision=None) is None
    assert why("dp8", "MI300X", frozen_precision="bf16") is None
    assert why("dp8", "T4", precision="fp16-amp") is None
