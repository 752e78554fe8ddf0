"""The steps of a recurrent layer run one after another: a product, then its gates."""

import numpy as np
import pytest

from gpuplan.catalog.snapshot import load_catalogue
from gpuplan.planner.step.kernels.kernel_times import KernelTable
from gpuplan.profiles.curves.device_curves import curves_for
from gpuplan.profiles.profile import Affine, Kernel

CURVES = curves_for(load_catalogue().accelerators["A100-80GB-SXM"])
HIDDEN = 1024


def lstm_s(steps: int, layers: int, *, backward: bool = False, batch: int = 128) -> float:
    """Return the seconds of an LSTM in 16 bits, whose input is as wide as its state."""
    calls = 2 if backward else 1
    sizes = {"steps": steps, "input": HIDDEN, "hidden": HIDDEN, "layers": layers}
    kernel = Kernel(
        kind="rnn",
        op="_cudnn_rnn",
        dims={"batch": Affine(0, 1), **{name: Affine(size) for name, size in sizes.items()}},
        dtype="16bit",
        backward=backward,
        flops=Affine(0, calls * 2 * steps * layers * 2 * 4 * HIDDEN**2),
        bytes_read=Affine(0, 1),
        bytes_written=Affine(0, 1),
    )
    table = KernelTable([kernel], np.array([float(batch)]))
    return table.device_s(CURVES, "bf16-amp").item()


def test_every_step_waits_for_a_product_and_for_its_gates() -> None:
    product_s = float(CURVES.gemm_s(128, 4 * HIDDEN, HIDDEN, dtype="bf16"))
    gates_s = float(CURVES.memory_bound_s(11 * 128 * HIDDEN * 2))
    assert lstm_s(100, 2) > 200 * (product_s + gates_s)
    assert lstm_s(100, 2, backward=True) > 200 * (2 * product_s + gates_s)


def test_time_grows_with_steps_and_layers_alike() -> None:
    assert lstm_s(64, 2) == pytest.approx(lstm_s(32, 4), rel=0.05)
    assert lstm_s(64, 2) == pytest.approx(2 * lstm_s(32, 2), rel=0.05)


def test_small_batches_take_hardly_less_than_large_ones() -> None:
    assert lstm_s(100, 2, batch=8) > 0.4 * lstm_s(100, 2, batch=64)
