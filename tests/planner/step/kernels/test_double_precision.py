"""Kernels of a model in fp64 take what the device's fp64 units take, under every precision."""

import numpy as np
import pytest

from gpuplan.catalog.embedded import embedded_catalogue
from gpuplan.planner.step.kernels.kernel_times import KernelTable
from gpuplan.planner.step.new_kernels import new_kernel_share
from gpuplan.profiles.curves.device_curves import curves_for
from gpuplan.profiles.profile import Affine, Kernel, Segment, StepTrace

DEVICES = embedded_catalogue().accelerators
ROWS = 8192
PRODUCT = {"batch": Affine(1), "m": Affine(0, 1), "n": Affine(1024), "k": Affine(1024)}
CONVOLUTION = {
    "batch": Affine(0, 1),
    "in_channels": Affine(1024),
    "out_channels": Affine(1024),
    "kernel_elements": Affine(1),
    "out_pixels": Affine(1),
    "groups": Affine(1),
}


def kernel(kind: str, dtype: str) -> Kernel:
    width = 8 if dtype == "fp64" else 4
    return Kernel(
        kind=kind,  # pyright: ignore[reportArgumentType]
        op="addmm" if kind == "gemm" else kind,
        dims=PRODUCT if kind == "gemm" else CONVOLUTION,
        dtype=dtype,  # pyright: ignore[reportArgumentType]
        flops=Affine(0, 2 * 1024 * 1024),
        bytes_read=Affine(width * 1024 * 1024, width * 1024),
        bytes_written=Affine(0, width * 1024),
    )


def seconds(device: str, dtype: str, *, kind: str = "gemm", precision: str = "fp32") -> float:
    table = KernelTable([kernel(kind, dtype)], np.array([float(ROWS)]))
    return table.device_s(curves_for(DEVICES[device]), precision).item()  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("kind", ["gemm", "convolution"])
@pytest.mark.parametrize("precision", ["fp32", "tf32", "bf16-amp"])
@pytest.mark.parametrize("device", ["T4", "L4", "A10G", "A100-40GB-SXM", "H100-80GB-SXM"])
def test_no_kernel_is_faster_than_the_fp64_units(device: str, precision: str, kind: str) -> None:
    rate = DEVICES[device].fp64_flops_per_s
    assert rate is not None
    assert seconds(device, "fp64", kind=kind, precision=precision) >= 2 * 1024**2 * ROWS / rate


def test_a_graphics_card_takes_many_times_what_it_takes_in_fp32() -> None:
    assert seconds("T4", "fp64") > 10 * seconds("T4", "fp32")
    assert seconds("A100-40GB-SXM", "fp64") < 3 * seconds("A100-40GB-SXM", "fp32")


def test_the_rate_is_the_stated_one_or_that_of_the_architecture() -> None:
    assert DEVICES["A100-40GB-SXM"].fp64_flops_per_s == DEVICES["A100-40GB-SXM"].peak_flops["fp64"]
    assert DEVICES["L4"].fp64_flops_per_s == DEVICES["L4"].peak_flops["fp32"] / 64
    # The same rule beside a datasheet that states it.
    stated = DEVICES["T4"].peak_flops
    assert stated["fp32"] / 32 == pytest.approx(stated["fp64"], rel=0.02)


def test_a_device_without_a_known_rate_multiplies_no_fp64() -> None:
    assert DEVICES["TPU-v5e"].fp64_flops_per_s is None
    assert not curves_for(DEVICES["TPU-v5e"]).multiplies("fp64")
    assert curves_for(DEVICES["L4"]).multiplies("fp64")


def test_fp64_is_doubted_as_what_nobody_published() -> None:
    segment = Segment(name="root", phase="forward", block=None, kernels=(kernel("gemm", "fp64"),))
    assert new_kernel_share(StepTrace.model_construct(segments=(segment,), schedule=[0])) == 1.0
