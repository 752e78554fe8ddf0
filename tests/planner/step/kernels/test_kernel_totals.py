"""How long the kernels of a step take in it, beside alone."""

from dataclasses import replace

import numpy as np
import pytest
from no_storages import no_storages
from one_kernel import step_of

from gpuplan.catalog.snapshot import load_catalogue
from gpuplan.catalog.vocabulary import Precision, Recompute, Stack
from gpuplan.planner.constants import Constants
from gpuplan.planner.software.stack import facts_of
from gpuplan.planner.step.kernels.kernel_totals import StepKernels
from gpuplan.profiles.curves.device_curves import curves_for
from gpuplan.profiles.profile import Affine, Kernel, Phase, Segment, StepTrace

ACCELERATORS = load_catalogue().accelerators
CONSTANTS = Constants.shipped()
NOTHING = no_storages()


def convolution(order: str, precision: Precision, groups: int) -> Kernel:
    pixels, channels = 28 * 28, 256
    return Kernel(
        kind="convolution",
        op=f"convolution.{order}",
        dims={
            "batch": Affine(0, 1),
            "in_channels": Affine(channels, 0),
            "out_channels": Affine(channels, 0),
            "kernel_elements": Affine(9, 0),
            "out_pixels": Affine(pixels, 0),
            "groups": Affine(groups, 0),
        },
        dtype="fp32" if precision == "tf32" else "16bit",
        flops=Affine(0, 2 * pixels * channels * channels // groups * 9),
        bytes_read=Affine(0, 2 * pixels * channels),
        bytes_written=Affine(0, 2 * pixels * channels),
    )


def channels_last_factor(
    device: str = "A100-80GB-SXM",
    *,
    order: str = "channels_last",
    precision: Precision = "fp16-amp",
    groups: int = 1,
    stack: Stack = "torch-eager",
) -> float:
    """Return how much longer a convolution takes if those in channels-last order take twice."""
    kernels = (convolution(order, precision, groups),)
    trace = step_of(kernels[0], numerics="fp32" if precision == "tf32" else "amp16")
    step = StepKernels([trace], np.array([64.0]))
    once, twice = (
        step.kind_seconds(
            curves_for(ACCELERATORS[device]),
            precision=precision,
            stack=facts_of(stack, CONSTANTS.replaced({"convolution_step.channels_last": factor})),
        )["convolution"]
        for factor in (1.0, 2.0)
    )
    return twice / once


def test_dense_convolutions_in_channels_last_order_have_a_level_of_their_own():
    assert channels_last_factor() == pytest.approx(2)
    assert channels_last_factor("V100-32GB-SXM2") == pytest.approx(2)
    assert channels_last_factor("RTX-3090") == pytest.approx(2)


def test_a_compiler_that_picks_the_order_has_that_level_whatever_the_file_says():
    assert channels_last_factor(order="contiguous", stack="torch-compile") == pytest.approx(2)


def test_other_convolutions_do_not_have_it():
    assert channels_last_factor(order="contiguous") == 1
    assert channels_last_factor(groups=32) == 1
    assert channels_last_factor(groups=256) == 1
    assert channels_last_factor(precision="tf32") == 1
    assert channels_last_factor("MI325X") == 1


def test_convolutions_in_channels_last_order_are_faster():
    assert CONSTANTS["convolution_step.channels_last"] < 1


def passes_of_a_block(recompute: Recompute, stack: Stack) -> tuple[float, float]:
    """Return the seconds of both passes of a block whose kernels take next to no time."""
    kernels = (convolution("contiguous", "fp16-amp", 1),)
    phases: tuple[Phase, ...] = ("forward", "backward")
    trace = StepTrace(
        numerics="amp16",
        recompute=recompute,
        segments=tuple(
            Segment(name=phase, phase=phase, block="blocks", kernels=kernels) for phase in phases
        ),
        schedule=[0, 1],
        start_tick=[0, 1],
        memory=NOTHING,
    )
    step = StepKernels([trace], np.array([0.001]))
    (found,) = step.times(
        curves_for(ACCELERATORS["H100-80GB-SXM"]),
        precision="fp16-amp",
        stack=facts_of(stack, CONSTANTS),
    )
    forward, backward = found.total_s[:, 0]
    return float(forward), float(backward)


def test_a_checkpoint_takes_the_host_time_in_both_passes_of_a_block():
    for recompute in ("full", "selective"):
        forward, backward = passes_of_a_block(recompute, "torch-eager")
        added = CONSTANTS[f"recompute_host_s.{recompute}"]
        assert forward + backward == pytest.approx(added, rel=0.1)
        assert forward >= added / 2 and backward >= added / 2
    assert sum(passes_of_a_block("none", "torch-eager")) < 0.1e-3


def test_a_compiler_takes_checkpoints_into_its_graph():
    plain = passes_of_a_block("none", "torch-compile")
    assert passes_of_a_block("selective", "torch-compile") == plain


def attention_s(precision: Precision, *, in_8_bits: bool) -> float:
    kernel = Kernel(
        kind="attention",
        op="flash",
        dims={
            "batch": Affine(0, 1),
            "heads": Affine(32, 0),
            "kv_heads": Affine(32, 0),
            "seq_q": Affine(8192, 0),
            "seq_kv": Affine(8192, 0),
            "head_dim": Affine(128, 0),
        },
        dtype="16bit",
        flops=Affine(0, 4 * 32 * 8192**2 * 128),
        bytes_read=Affine(0, 1),
        bytes_written=Affine(0, 1),
    )
    trace = step_of(kernel)
    stack = replace(facts_of("megatron", CONSTANTS), fp8_attention=in_8_bits)
    found = StepKernels([trace], np.array([1.0])).kind_seconds(
        curves_for(ACCELERATORS["H100-80GB-SXM"]), precision=precision, stack=stack
    )
    return found["attention"]


def test_attention_in_8_bits_goes_with_layers_in_8_bits_alone():
    faster = attention_s("fp8", in_8_bits=True) / attention_s("fp8", in_8_bits=False)
    assert faster == pytest.approx(CONSTANTS["attention_fp8"])
    assert attention_s("bf16-amp", in_8_bits=True) == attention_s("bf16-amp", in_8_bits=False)
