"""No curve that ships is wrong unnoticed: what holds of any device's kernels, and of relatives.

Each check once found a measured table that was not what it said: products with the casts of their
operands inside, one framework's fallback kernel, a throttled machine, a copied file.
"""

import itertools
from functools import cache
from typing import Literal

import numpy as np
import pytest

from gpuplan.catalog.snapshot import load_catalogue
from gpuplan.profiles.curves.device_curves import DeviceCurves, curves_for

MEASURED = (
    "A100-80GB-SXM",
    "H100-80GB-SXM",
    "H200-141GB-SXM",
    "B200-180GB-SXM",
    "B300",
    "GB200",
    "GB300",
    "L40S",
    "RTX-PRO-6000",
)
SIDES = (1024, 2048, 4096, 8192, 16384)
HEAD_DIMS = (64, 128, 192, 256)
LENGTHS = (1024, 2048, 4096, 8192, 16384, 32768)


@cache
def curves(name: str) -> DeviceCurves:
    return curves_for(load_catalogue().accelerators[name])


def product_share(name: str, dtype: Literal["bf16", "fp8"] = "bf16") -> np.ndarray:
    """Return [m, n, k] the share of its dense peak that a product of these `SIDES` reaches."""
    shapes = np.array(list(itertools.product(SIDES, SIDES, SIDES)))
    seconds = curves(name).gemm_s(*shapes.T, dtype=dtype)
    peak = load_catalogue().accelerators[name].peak_flops[dtype]
    return (2 * shapes.prod(axis=1) / seconds / peak).reshape((len(SIDES),) * 3)


def attention_share(name: str, head_dim: int, *, backward: bool = False) -> np.ndarray:
    """Return the share of peak of causal attention over `LENGTHS`, a token of 32 heads."""
    lengths = np.array(LENGTHS, dtype=float)
    seconds = curves(name).attention_s(
        1, 32, 8, lengths, lengths, head_dim, causal=True, dtype="bf16", backward=backward
    )
    flops = 2 * lengths**2 * 32 * head_dim * (2.5 if backward else 1)
    return flops / seconds / load_catalogue().accelerators[name].peak_flops["bf16"]


@pytest.mark.parametrize("name", MEASURED)
def test_no_product_beats_the_peak_and_large_ones_come_near_it(name: str) -> None:
    share = product_share(name)
    assert share.max() < 0.95
    assert share[-2, -2, -2] > 0.5


@pytest.mark.parametrize("name", MEASURED)
def test_a_longer_side_never_costs_much_of_the_rate(name: str) -> None:
    share = product_share(name)
    for axis in range(3):
        longer = share.take(range(1, len(SIDES)), axis=axis)
        assert (longer / share.take(range(len(SIDES) - 1), axis=axis)).min() > 0.8


@pytest.mark.parametrize("name", MEASURED[1:])  # The A100 has no units for eight bits.
def test_products_of_eight_bits_are_products(name: str) -> None:
    """With a cast of the activation inside, narrow layers reached a third of their rate."""
    ratio = product_share(name, "fp8") / product_share(name)
    assert ratio[2:, :, 2:].min() > 0.6
    assert ratio.max() < 1.15


@pytest.mark.parametrize("name", MEASURED)
def test_longer_attention_takes_longer_and_not_at_a_lower_rate(name: str) -> None:
    for head_dim, backward in itertools.product(HEAD_DIMS, (False, True)):
        share = attention_share(name, head_dim, backward=backward)
        seconds = np.array(LENGTHS, dtype=float) ** 2 / share
        assert (np.diff(seconds) > 0).all(), head_dim
        assert (share[1:] / share[:-1]).min() > 0.85, head_dim


@pytest.mark.parametrize("name", MEASURED)
def test_head_dimensions_agree(name: str) -> None:
    """A fallback kernel shows as one head dimension at a fraction of its neighbours' rate."""
    shares = np.stack([attention_share(name, one) for one in HEAD_DIMS])[:, 2:]
    for i in range(1, len(HEAD_DIMS) - 1):
        around = np.sqrt(shares[i - 1] * shares[i + 1])
        assert (shares[i] / around).min() > 0.62, HEAD_DIMS[i]
        assert (shares[i] / around).max() < 1.5, HEAD_DIMS[i]


@pytest.mark.parametrize(
    ("name", "relative", "within"),
    [
        ("H200-141GB-SXM", "H100-80GB-SXM", 0.05),  # The same chip at the same power.
        ("GB200", "B200-180GB-SXM", 0.20),
        ("GB300", "B300", 0.30),
    ],
)
def test_relatives_multiply_at_like_rates(name: str, relative: str, within: float) -> None:
    ratio = product_share(name)[1:, 1:, 1:] / product_share(relative)[1:, 1:, 1:]
    assert abs(np.log(ratio)).mean() < np.log(1 + within)
