"""What is gathered of 8-bit operands, and how blocks keep them, by stack, recipe and date."""

import pytest

from gpuplan.planner.plan.layout import Layout, parse_layout
from gpuplan.planner.software.fp8_operands import gathered_bytes, kept_operands


@pytest.mark.parametrize(
    ("stack", "features", "expected"),
    [
        ("torch-eager", set(), (1, 1)),
        ("torch-compile", set(), (1, 1)),
        ("torch-compile", {"fp8-rowwise"}, (2, 2)),
        ("megatron", set(), (1, 1)),
        ("megatron", {"mxfp8"}, (1, 2)),
        ("megatron", {"nvfp4"}, (0.5, 1)),
        ("xla", set(), (2, 2)),
    ],
)
def test_what_is_gathered_follows_the_recipe(stack, features, expected):
    found = gathered_bytes(stack, "fp8", frozenset(features))
    assert (found.forward_bytes, found.backward_bytes) == expected
    assert found.is_cast_before == (expected != (2, 2))
    in_16_bits = gathered_bytes(stack, "bf16-amp", frozenset(features))
    assert (in_16_bits.forward_bytes, in_16_bits.backward_bytes) == (2, 2)


@pytest.mark.parametrize(
    ("stack", "layout", "date", "features", "expected"),
    [
        ("torch-eager", "fsdp8", None, set(), "16 bits"),
        ("torch-compile", "fsdp8", None, set(), "made again"),
        ("torch-eager", "fsdp8.tp8.sp", None, set(), "8 bits"),
        ("torch-compile", "fsdp8.tp8.sp", None, set(), "8 bits"),
        ("torch-compile", "fsdp8.tp8.sp", None, {"fp8-rowwise"}, "made again"),
        ("torch-eager", "fsdp8.tp8", None, set(), "16 bits"),
        ("megatron", "dp8.zero1", None, set(), "8 bits"),
        ("megatron", "dp8.zero1", (2025, 8), set(), "8 bits"),
        ("megatron", "dp8.zero1", (2025, 7), set(), "8 bits, attention's twice"),
        ("xla", "fsdp8", None, set(), "16 bits"),
    ],
)
def test_what_blocks_keep_follows_the_layers(stack, layout, date, features, expected):
    asked = parse_layout(layout), date, frozenset(features)
    assert kept_operands(stack, "fp8", *asked) == expected
    assert kept_operands(stack, "bf16-amp", *asked) == "16 bits"


def test_a_compiled_file_casts_again():
    assert kept_operands("torch-eager", "fp8", Layout(), compiled=True) == "made again"
    again = kept_operands("torch-compile", "fp8", Layout(), recompute="full")
    assert again == "8 bits"
