"""What convolutions cost whose memory order is not the one that cuDNN has a kernel for."""

import numpy as np
import pytest

from gpuplan.catalog.snapshot import load_catalogue
from gpuplan.catalog.vocabulary import Precision
from gpuplan.planner.constants import Constants
from gpuplan.planner.step.kernels.kernel_times import KernelTable
from gpuplan.profiles.curves.device_curves import curves_for
from gpuplan.profiles.profile import Affine, Kernel

ACCELERATORS = load_catalogue().accelerators
CONSTANTS = Constants.shipped()
PIXELS, FILTERS, BATCH = 56 * 56, 64, 64
ELEMENTS = BATCH * PIXELS * FILTERS
"""Of the input, and of the output."""


def convolution(
    order: str,
    precision: Precision,
    in_channels: int,
    *,
    filters: int = FILTERS,
    groups: int = 1,
    kernel_elements: int = 9,
    backward: bool = False,
) -> Kernel:
    element_bytes = 2 if precision == "fp16-amp" else 4
    return Kernel(
        kind="convolution",
        op=f"convolution.{order}",
        dims={
            "batch": Affine(0, 1),
            "in_channels": Affine(in_channels, 0),
            "out_channels": Affine(filters, 0),
            "kernel_elements": Affine(kernel_elements, 0),
            "out_pixels": Affine(PIXELS, 0),
            "groups": Affine(groups, 0),
        },
        dtype="16bit" if precision == "fp16-amp" else "fp32",
        backward=backward,
        flops=Affine(0, 2 * PIXELS * filters * in_channels // groups * kernel_elements),
        bytes_read=Affine(0, element_bytes * PIXELS * (in_channels + backward * filters)),
        bytes_written=Affine(0, element_bytes * PIXELS * (in_channels if backward else filters)),
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


def turned_elements(
    name: str,
    *,
    channels: int,
    groups: int,
    order: str = "channels_last",
    precision: Precision = "fp16-amp",
    kernel_elements: int = 9,
    backward: bool = False,
) -> float:
    """Return what the general kernel turns, over the elements of the input."""
    one = convolution(
        order,
        precision,
        channels,
        filters=channels,
        groups=groups,
        kernel_elements=kernel_elements,
        backward=backward,
    )
    curves = curves_for(ACCELERATORS[name])
    table = KernelTable([one], np.array([float(BATCH)]))
    seconds = table.general_transposing_s(curves, precision, CONSTANTS).item()
    device = curves.device
    assert device.compute_units is not None and device.boost_hz is not None
    per_s = CONSTANTS["transposed_per_clock.general"] * device.compute_units * device.boost_hz
    return seconds * per_s / (BATCH * PIXELS * channels)


@pytest.mark.parametrize(("channels", "groups"), [(128, 2), (2048, 32), (1024, 8)])
def test_groups_without_a_kernel_in_channels_last_order_are_turned(channels: int, groups: int):
    """Forward its input and its output; both gradients read the output's, one the input."""
    assert turned_elements("RTX-3090", channels=channels, groups=groups) == pytest.approx(2)
    assert turned_elements(
        "A100-80GB-SXM", channels=channels, groups=groups, backward=True
    ) == pytest.approx(4)


@pytest.mark.parametrize(("channels", "groups"), [(256, 64), (512, 16), (64, 2)])
def test_narrow_groups_in_other_numbers_than_resnext_s_are_turned_in_part(
    channels: int, groups: int
):
    turned = turned_elements("RTX-3090", channels=channels, groups=groups)
    assert turned == pytest.approx(2 * CONSTANTS["transposed_share.narrow_groups"])
    assert 0 < turned < 2


@pytest.mark.parametrize(("channels", "groups"), [(256, 1), (128, 32), (1024, 32), (256, 256)])
def test_whole_resnext_s_and_depthwise_convolutions_have_kernels(channels: int, groups: int):
    assert turned_elements("RTX-3090", channels=channels, groups=groups) == 0


@pytest.mark.parametrize(("kernel_elements", "turned"), [(25, 0), (49, 0), (81, 2)])
def test_depthwise_filters_have_kernels_up_to_7_x_7(kernel_elements: int, turned: int):
    found = turned_elements("RTX-3090", channels=256, groups=256, kernel_elements=kernel_elements)
    assert found == pytest.approx(turned)


def test_groups_are_turned_in_16_bits_and_channels_last_order_by_cudnn_alone():
    assert turned_elements("MI325X", channels=128, groups=2) == 0
    assert turned_elements("RTX-3090", channels=128, groups=2, order="contiguous") == 0
    assert turned_elements("RTX-3090", channels=128, groups=2, precision="tf32") == 0


def test_two_strided_groups_are_about_as_slow_as_torch_s_developers_saw():
    """224 channels of 112 x 112: 31 times (`decide_layout_opt`, torch/_inductor/graph.py)."""
    curves = curves_for(ACCELERATORS["A100-80GB-SXM"])

    def seconds(order: str) -> float:
        one = convolution(order, "fp16-amp", 224, filters=224, groups=2)
        strided = one.model_copy(update={"bytes_read": Affine(0, 2 * 4 * PIXELS * 224)})
        table = KernelTable([strided], np.array([float(BATCH)]))
        usual = table.device_s(curves, "fp16-amp")
        around = table.transposing_s(curves, "fp16-amp", CONSTANTS, copy_step=1.0)
        general = table.general_transposing_s(curves, "fp16-amp", CONSTANTS)
        return (usual + around + general).item()

    assert 15 < seconds("channels_last") / seconds("contiguous") < 45
