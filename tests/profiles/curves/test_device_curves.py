"""Kernel times: they reproduce measured points, respect the laws of the machine, cover all."""

import itertools
import json
from pathlib import Path

import numpy as np
import pytest
from dtypes import multiplies_in

from gpuplan.catalog import price_folder
from gpuplan.catalog.errors import UsageError, UserFileError
from gpuplan.catalog.snapshot import load_catalogue
from gpuplan.profiles.calibrate.fit_curves import preparation_ns_per_element
from gpuplan.profiles.curves.device_curves import GEMM_DTYPES, DeviceCurves, curves_for
from gpuplan.profiles.curves.files import (
    CURVES_DIR,
    embedded_curve_file,
    measured_accelerators,
    read_curve_file,
)
from gpuplan.profiles.curves.relatives import family_of

MEASURED = json.loads((Path(__file__).parent / "measured_kernels.json").read_text())
EVERY_NAME = sorted(
    name for name, device in load_catalogue().accelerators.items() if device.peak_flops
)


def curves(name: str) -> DeviceCurves:
    return curves_for(load_catalogue().accelerators[name])


def relative(predicted_s, measured_us) -> float:
    return abs(float(predicted_s) / (measured_us * 1e-6) - 1)


@pytest.mark.parametrize(("name", "dtype", "m", "n", "k", "time_us"), MEASURED["gemm"])
def test_gemm_reproduces_measured_points(name, dtype, m, n, k, time_us):
    assert relative(curves(name).gemm_s(m, n, k, dtype=dtype), time_us) < 0.15


def test_gemm_reproduces_measured_points_on_average():
    errors = [
        relative(curves(name).gemm_s(m, n, k, dtype=dtype), time_us)
        for name, dtype, m, n, k, time_us in MEASURED["gemm"]
    ]
    assert np.median(errors) < 0.005


def test_attention_reproduces_measured_points_without_their_preparation():
    """What the cache holds of it is not taken off: a point lies between with and without it."""
    errors, outside = [], []
    for name, b, heads, kv, s, d, time_us in MEASURED["attention"]:
        predicted_s = curves(name).attention_s(b, heads, kv, s, s, d, causal=True, dtype="bf16")
        prepared_us = preparation_ns_per_element(curves(name).device) * 1e-3
        prepared_us *= b * s * d * (heads + 2 * kv)
        alone_us = max(time_us - prepared_us, 0.4 * time_us)
        predicted_us = float(np.squeeze(predicted_s)) * 1e6
        errors.append(relative(predicted_s, alone_us))
        outside.append(max(0.0, alone_us / predicted_us - 1, predicted_us / time_us - 1))
    assert np.median(errors) < 0.03 and max(errors) < 0.4
    assert np.mean(outside) < 0.03


@pytest.mark.parametrize(
    ("name", "least", "most"),
    [
        # Sustained products alone: Azure's cuBLASLt cubes and TransformerEngine.
        ("H100-80GB-SXM", 0.62, 0.70),
        ("H200-141GB-SXM", 0.62, 0.70),
        ("B200-180GB-SXM", 0.60, 0.66),
        ("B300", 0.60, 0.69),
        ("GB200", 0.55, 0.63),
        ("GB300", 0.60, 0.74),
    ],
)
def test_fp8_products_are_those_measured_without_their_casts(name, least, most):
    device = curves(name)
    peak = device.machine("fp8").peak_flops
    shares = [
        2 * m * n * k / float(device.gemm_s(m, n, k, dtype="fp8")) / peak
        for m, n, k in itertools.product((4096, 8192, 16384), repeat=3)
    ]
    assert least * 0.95 <= np.median(shares) <= most * 1.05
    # A cast does not shrink with n: timed with it, n = 1,024 reaches a third of this.
    narrow = 2 * 8192 * 1024 * 8192 / float(device.gemm_s(8192, 1024, 8192, dtype="fp8")) / peak
    assert narrow > 0.4


def test_collectives_reproduce_measured_points():
    errors = [
        relative(curves(name).collective_s(kind, size_bytes, ranks), time_us)
        for name, kind, ranks, size_bytes, time_us in MEASURED["collective"]
    ]
    assert max(errors) < 0.01


def test_fp32_gemm_is_near_measured_points():
    errors = [
        relative(curves(name).gemm_s(m, n, k, dtype="fp32"), time_us)
        for name, m, n, k, time_us in MEASURED["fp32"]
    ]
    assert np.mean(errors) < 0.15


@pytest.mark.parametrize("name", EVERY_NAME)
def test_every_accelerator_has_curves(name):
    device = curves(name)
    dtypes = [dtype for dtype in GEMM_DTYPES if multiplies_in(device.device, dtype)]
    assert dtypes
    for dtype in dtypes:
        times = [
            device.gemm_s(4096, 4096, 4096, dtype=dtype),
            device.gemm_s(128, 2048, 64, batch=96, dtype=dtype),
            device.conv_s(32, 64, 64, 9, 784, 1, flops=1.8e9, bytes=1e7, dtype=dtype),
            device.attention_s(2, 16, 4, 2048, 2048, 64, causal=True, dtype=dtype),
        ]
        assert all(np.isfinite(t) and t > 0 for t in times)
        for kind in ("gemm", "conv", "attention", "memory_bound", "collective"):
            assert 0 < device.relative_error(kind, dtype) < 1
            assert device.basis_of(kind, dtype) in ("measured", "derived")
            assert device.relative_of(kind, dtype) in measured_accelerators()
    assert device.memory_bound_s(1e9) > 1e9 / device.device.memory_bandwidth_bytes_per_s
    assert device.collective_s("all_reduce", 1e8, 8) > 0


def test_small_depth_is_bound_by_bytes_not_by_clamped_flops():
    device = curves("A100-80GB-SXM")
    scores = device.gemm_s(2048, 2048, 64, batch=512, dtype="bf16")
    size_bytes = 512 * 2 * (2 * 2048 * 64 + 2048 * 2048)
    assert scores < 1.6 * size_bytes / (0.8 * 2039e9)


def test_misaligned_batched_products_cost():
    device = curves("A100-80GB-SXM")
    aligned = device.gemm_s(192, 192, 64, batch=512, dtype="bf16")
    assert device.gemm_s(192, 197, 64, batch=512, dtype="bf16") > 1.1 * aligned


@pytest.mark.parametrize(
    ("name", "depth", "measured_us"),
    # DeepBench (cuBLAS 10), 512 by 16: hardly longer than reading the operands takes.
    [("V100-16GB-SXM2", 500_000, 1339), ("T4", 500_000, 5089)],
)
def test_a_deep_product_of_few_tiles_is_cut_into_slices(name, depth, measured_us):
    found_us = 1e6 * float(curves(name).gemm_s(512, 16, depth, dtype="fp32"))
    assert found_us == pytest.approx(measured_us, rel=0.25)


def test_slices_leave_products_of_a_wave_as_they_are():
    device = curves("H100-80GB-SXM")
    once, twice = (float(device.gemm_s(2048, 2048, k, dtype="fp32")) for k in (8192, 65536))
    assert twice == pytest.approx(8 * once, rel=0.02)
    few, fewer = (float(device.gemm_s(size, 256, 2**18, dtype="fp32")) for size in (512, 256))
    assert fewer < few


@pytest.mark.parametrize(
    ("name", "over_forward"),
    # DeepBench: gradients of input and filter over the forward, median and mean by time.
    [("V100-16GB-SXM2", (2.17, 2.38)), ("T4", (2.53, 2.54)), ("GTX-1080-Ti", (2.77, 3.21))],
)
def test_gradients_of_fp32_convolutions_take_more_than_twice_the_forward(name, over_forward):
    shape = (16, 256, 512, 9, 28 * 28)
    flops = 2 * 16 * 28 * 28 * 512 * 256 * 9

    def seconds(times: int, phase: str) -> float:
        moved = 4 * (16 * 28 * 28 * (256 + 512) + 256 * 512 * 9)
        facts = {"flops": times * flops, "bytes": times * moved, "dtype": "fp32", "phase": phase}
        return float(curves(name).conv_s(*shape, **facts))

    least, most = over_forward
    assert least - 0.1 < seconds(2, "backward") / seconds(1, "forward") < most + 0.1


def test_few_output_channels_waste_less_than_a_whole_tile():
    def per_flop(channels: int, elements: int = 9) -> float:
        pixels, batch = 56 * 56, 64
        flops = 2 * batch * pixels * channels * 256 * elements
        sizes = (batch, 256, channels, elements, pixels, 1)
        time = curves("A100-80GB-SXM").conv_s(*sizes, flops=flops, bytes=1.0, dtype="fp16")
        return float(time) / flops

    wide, narrow, narrower = per_flop(128), per_flop(64), per_flop(32)
    assert narrow / wide == pytest.approx(1.5)  # 64 channels a tile: 192 values loaded, not 256.
    assert narrower / wide == pytest.approx(2.5)  # 32: 160 values, for a quarter of the products.
    assert per_flop(32, 27) / wide == pytest.approx(4.0)  # Of volumes nobody measured smaller ones.
    assert per_flop(96) / wide == pytest.approx(4 / 3)  # The largest tile, a quarter of it padding.


def depthwise_s(name: str, dtype: str, *, together: int = 1) -> float:
    """Return the seconds of a convolution of 144 channels, so many of them a group."""
    pixels, channels, batch = 56 * 56, 144, 64
    elements = 2 * batch * channels * pixels
    flops = elements * 9 * together
    size_bytes = elements * (2 if dtype in ("fp16", "bf16") else 4)
    sizes = (batch, channels, channels, 9, pixels, channels / together)
    return float(curves(name).conv_s(*sizes, flops=flops, bytes=size_bytes, dtype=dtype))


@pytest.mark.parametrize("dtype", ["fp32", "tf32", "fp16"])
def test_depthwise_convolutions_take_little_more_than_their_elements_take_to_move(dtype):
    moved_s = 2 * 64 * 144 * 56 * 56 * (2 if dtype == "fp16" else 4) / 2039e9
    assert moved_s < depthwise_s("A100-80GB-SXM", dtype) < 9 * moved_s
    # Without tensor cores the dtype changes little: the elements are as many.
    assert depthwise_s("A100-80GB-SXM", dtype) < 1.5 * depthwise_s("A100-80GB-SXM", "fp16")


def test_two_channels_a_group_use_tensor_cores_in_tf32_as_four_do():
    two, four = (depthwise_s("A100-80GB-SXM", "tf32", together=n) for n in (2, 4))
    assert two < 2 * four


@pytest.mark.parametrize("name", EVERY_NAME)
def test_depthwise_convolutions_are_within_reach_of_the_bandwidth_everywhere(name):
    device = load_catalogue().accelerators[name]
    dtype = next(one for one in ("bf16", "fp16", "fp32") if one in device.peak_flops)
    moved_s = 2 * 64 * 144 * 56 * 56 * (4 if dtype == "fp32" else 2)
    moved_s /= device.memory_bandwidth_bytes_per_s
    assert moved_s < depthwise_s(name, dtype) < 25 * moved_s


def test_depthwise_convolutions_are_not_faster_for_more_bandwidth_alone():
    # 108 multiprocessors at 1.41 GHz and 2,039 GB/s; 82 at 1.70 and 936.
    faster = depthwise_s("RTX-3090", "fp16") / depthwise_s("A100-80GB-SXM", "fp16")
    assert 0.7 < faster < 1.2


@pytest.mark.parametrize(
    ("phase", "measured_s"),
    # pytorch/pytorch#75747: 32 x 768 sequences, 768 outputs of 768 taps each, in fp32.
    [("forward", 14e-3), ("backward", 65e-3)],
)
def test_a_depthwise_filter_over_a_sequence_takes_what_was_measured(phase, measured_s):
    batch, channels, length = 32, 768, 768
    calls = 2 if phase == "backward" else 1
    found_s = curves("RTX-3090").conv_s(
        *(batch, channels, channels, length, length, channels),
        flops=calls * 2 * batch * channels * length * length,
        bytes=calls * 4 * batch * channels * 3 * length,
        dtype="fp32",
        phase=phase,
        filter_side=length,
    )
    assert float(found_s) == pytest.approx(measured_s, rel=0.15)


def test_gradients_of_filters_of_one_side_are_as_slow_on_a_tpu_as_those_of_images():
    sizes = (64, 256, 256, 49, 1024, 256)
    facts = {"flops": 2 * 64 * 256 * 49 * 1024, "bytes": 4 * 64 * 256 * 1024, "dtype": "bf16"}
    image, sequence = (
        float(curves("TPU-v5e").conv_s(*sizes, **facts, phase="backward", filter_side=side))
        for side in (7, 49)
    )
    assert sequence == image


def test_a_filter_over_a_sequence_is_slower_than_one_of_an_image_with_as_many_elements():
    sizes = (64, 256, 256, 49, 1024, 256)
    facts = {"flops": 2 * 64 * 256 * 49 * 1024, "bytes": 4 * 64 * 256 * 1024, "dtype": "fp16"}
    image, sequence = (
        float(curves("A100-80GB-SXM").conv_s(*sizes, **facts, filter_side=side)) for side in (7, 49)
    )
    assert sequence > 2 * image


def test_dtypes_without_units():
    volta = curves("V100-32GB-SXM2")
    with pytest.raises(UsageError, match="does not multiply matrices in bf16") as error:
        volta.gemm_s(1024, 1024, 1024, dtype="bf16")
    assert "fp32, fp16" in str(error.value)
    # tf32 without tf32 units is plain fp32, as in torch.
    assert volta.gemm_s(4096, 4096, 4096, dtype="tf32") == volta.gemm_s(
        4096, 4096, 4096, dtype="fp32"
    )


def test_a_tpu_multiplies_fp32_as_bf16():
    tpu = curves("TPU-v5e")
    assert tpu.multiplies("fp32") and not curves("Gaudi1").multiplies("fp32")
    assert tpu.gemm_s(4096, 4096, 4096, dtype="fp32") == tpu.gemm_s(4096, 4096, 4096, dtype="bf16")


def test_arguments_broadcast():
    time = curves("H100-80GB-SXM").gemm_s([1024, 2048], [[4096], [8192]], 4096, dtype="bf16")
    assert time.shape == (2, 2)


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_kernels_do_not_influence_one_another(dtype):
    device = curves("A100-80GB-SXM")
    together = device.gemm_s([512, 64], [512, 512], [512, 128], batch=[1, 96], dtype=dtype)
    assert together[0] == device.gemm_s(512, 512, 512, dtype=dtype)
    assert together[1] == device.gemm_s(64, 512, 128, batch=96, dtype=dtype)


def test_an_instance_with_a_slower_link_has_slower_collectives():
    device = curves("A100-80GB-SXM")
    own = device.collective_s("all_gather", 1e9, 8)
    assert device.collective_s("all_gather", 1e9, 8, link_bytes_per_s=31e9) > 5 * own
    assert device.collective_s("all_gather", 1e9, 1) == 0


def test_kernels_are_timed_without_looking_for_fresh_prices(monkeypatch):
    device = load_catalogue().accelerators["H800-80GB-SXM"]
    monkeypatch.setattr(price_folder, "snapshot_files", lambda: pytest.fail("looked for prices"))
    derived = DeviceCurves(device)
    assert derived.relative_of("collective") != device.name
    assert derived.gemm_s(4096, 4096, 4096, dtype="bf16") > 0
    assert derived.collective_s("all_reduce", 1e9, 8) > 0


def test_derived_curves_say_so():
    derived = curves("A100-40GB-SXM")
    assert derived.basis == "derived"
    assert derived.relative_of("gemm") == "A100-80GB-SXM"
    assert derived.relative_error("gemm") > curves("A100-80GB-SXM").relative_error("gemm")
    assert curves("A100-80GB-SXM").basis == "measured"


@pytest.mark.parametrize("name", EVERY_NAME)
def test_no_device_is_surer_than_the_one_that_its_curves_are_of(name):
    device = curves(name)
    for kind, dtype in itertools.product(("gemm", "memory_bound"), GEMM_DTYPES):
        if multiplies_in(device.device, dtype):
            relative = curves(device.relative_of(kind, dtype))
            if relative.multiplies(dtype):
                own, its = (one.relative_error(kind, dtype) for one in (device, relative))
                assert own >= its


def test_a_power_capped_card_is_slower_by_the_stated_rule():
    capped = curves("H100-96GB-HBM2e-SXM-500W").gemm_s(8192, 8192, 8192, dtype="bf16")
    full = curves("H100-80GB-SXM").gemm_s(8192, 8192, 8192, dtype="bf16")
    assert capped / full == pytest.approx((700 / 500) ** (1 / 3), rel=0.01)


def test_an_unreadable_curve_file_is_one_clear_error(tmp_path):
    bad = tmp_path / "MyCard.json"
    bad.write_text('{"schema_version": 99}')
    with pytest.raises(UserFileError, match="MyCard.json is not a curve file"):
        read_curve_file(bad)
    with pytest.raises(UsageError, match="Did you mean H100-80GB-SXM"):
        embedded_curve_file("H100-80GB-SXN")


def test_committed_curves_are_small():
    assert sum(p.stat().st_size for p in CURVES_DIR.glob("*.json")) < 2e6


@pytest.mark.parametrize(
    "name",
    ["CPU-2x-Xeon-8488C", "CPU-2x-Xeon-8481C", "CPU-2x-EPYC-9R14", "CPU-2x-EPYC-9V33X"],
)
def test_memory_of_a_host_of_two_sockets_gives_a_smaller_share_than_that_of_a_gpu(name):
    """By one tool: 0.50 and 0.51 of the datasheet on such hosts, 0.76 on the A100 of PCIe."""
    share = curves(name).memory_fraction() / curves("A100-80GB-PCIe").memory_fraction()
    assert share == pytest.approx(0.50 / 0.76, rel=0.03)
    assert "FluidX3D" in family_of(curves(name).device)["memory"]["source"]


def test_heads_between_two_kernels_take_as_long_as_the_wider_one():
    device = curves("H100-80GB-SXM")

    def seconds(head_dim: int) -> float:
        time = device.attention_s(1, 32, 32, 8192, 8192, head_dim, causal=True, dtype="bf16")
        return float(time)

    assert seconds(100) == seconds(128) > seconds(96)
    assert seconds(72) == seconds(96) > seconds(64)
    assert seconds(40) == seconds(64) > seconds(32)
    assert seconds(200) == seconds(256)
    assert seconds(300) > seconds(256)


@pytest.mark.parametrize("name", ["P4", "GTX-1080-Ti"])
def test_16_bit_operands_are_multiplied_in_fp32_without_units_of_their_own(name):
    device = curves(name)
    assert "fp16" not in device.device.peak_flops
    assert device.gemm_s(512, 512, 512, dtype="fp16") == device.gemm_s(512, 512, 512, dtype="fp32")
    with pytest.raises(UsageError, match="does not multiply matrices in bf16"):
        device.gemm_s(512, 512, 512, dtype="bf16")
