"""What tensor-core convolutions in NCHW order cost beside the same in channels-last order."""

import numpy as np
import pytest

from gpuplan.catalog.snapshot import load_catalogue
from gpuplan.catalog.vocabulary import Precision
from gpuplan.planner.constants import Constants
from gpuplan.planner.step.kernel_times import KernelTable
from gpuplan.profiles.curves.device_curves import curves_for
from gpuplan.profiles.profile import Affine, Kernel

ACCELERATORS = load_catalogue().accelerators
CONSTANTS = Constants.shipped()
PIXELS, FILTERS, BATCH = 56 * 56, 64, 64
ELEMENTS = BATCH * PIXELS * FILTERS
"""Of the input, and of the output."""


def convolution(order: str, precision: Precision, in_channels: int) -> Kernel:
    element_bytes = 2 if precision == "fp16-amp" else 4
    return Kernel(
        kind="convolution",
        op=f"convolution.{order}",
        dims={
            "batch": Affine(0, 1),
            "in_channels": Affine(in_channels, 0),
            "out_channels": Affine(FILTERS, 0),
            "kernel_elements": Affine(9, 0),
            "out_pixels": Affine(PIXELS, 0),
            "groups": Affine(1, 0),
        },
        dtype="16bit" if precision == "fp16-amp" else "fp32",
        flops=Affine(0, 2 * PIXELS * FILTERS * in_channels * 9),
        bytes_read=Affine(0, element_bytes * PIXELS * in_channels),
        bytes_written=Affine(0, element_bytes * PIXELS * FILTERS),
    )


def transposing_s(
    name: str, precision: Precision, *, in_channels: int = FILTERS, order: str = "contiguous"
) -> float:
    table = KernelTable([convolution(order, precision, in_channels)], np.array([float(BATCH)]))
    curves = curves_for(ACCELERATORS[name])
    return table.transposing_s(curves, precision, CONSTANTS, copy_step=1.0).item()


@pytest.mark.parametrize("name", ["A100-80GB-SXM", "H200-141GB-SXM"])
def test_multiprocessors_set_the_pace_where_bandwidth_is_plenty(name: str):
    device = ACCELERATORS[name]
    assert device.compute_units is not None and device.boost_hz is not None
    per_s = CONSTANTS["transposed_per_clock"] * device.compute_units * device.boost_hz
    moved = 2 * 2 * ELEMENTS
    assert transposing_s(name, "fp16-amp") == pytest.approx(
        CONSTANTS["transposition"] * moved / per_s
    )


def test_bandwidth_sets_the_pace_of_four_bytes_on_a_card():
    moved_bytes = 2 * 4 * ELEMENTS
    streamed_s = curves_for(ACCELERATORS["RTX-3090"]).memory_bound_s(moved_bytes, kind="copy")
    assert transposing_s("RTX-3090", "tf32") == pytest.approx(
        CONSTANTS["transposition"] * float(streamed_s)
    )


def test_in_tf32_results_are_in_order_already():
    assert transposing_s("H200-141GB-SXM", "tf32") == pytest.approx(
        transposing_s("H200-141GB-SXM", "fp16-amp") / 2
    )


def test_where_no_tensor_core_convolves_nothing_is_transposed():
    assert transposing_s("V100-32GB-SXM2", "fp32") == 0
    assert transposing_s("A100-80GB-SXM", "tf32", in_channels=3) == 0
    assert transposing_s("MI325X", "fp16-amp") == 0
    assert transposing_s("A100-80GB-SXM", "fp16-amp", order="channels_last") == 0
    assert transposing_s("V100-32GB-SXM2", "fp16-amp") > 0
