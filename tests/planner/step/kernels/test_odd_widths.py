"""Products of layers with an odd width: slow in 16 bits, but for software that pads them."""

import numpy as np
import pytest

from gpuplan.catalog.snapshot import load_catalogue
from gpuplan.catalog.vocabulary import Precision, Stack
from gpuplan.planner.software.stack import odd_widths
from gpuplan.planner.step.kernels.kernel_times import KernelTable
from gpuplan.profiles.curves.device_curves import curves_for
from gpuplan.profiles.profile import Affine, Kernel

ACCELERATORS = load_catalogue().accelerators
TOKENS, HIDDEN = 1024, 768


def head_s(
    vocabulary: int,
    *,
    device: str = "H100-80GB-SXM",
    precision: Precision = "bf16-amp",
    stack: Stack = "torch-eager",
    sequence: int = TOKENS,
    samples: int = 16,
) -> np.ndarray:
    """Return seconds of the forward, input's and weight's product of an output head, [3]."""
    tokens, hidden, wide = Affine(0, sequence), Affine(HIDDEN, 0), Affine(vocabulary, 0)
    shapes = [(tokens, wide, hidden), (tokens, hidden, wide), (wide, hidden, tokens)]
    kernels = [
        Kernel(
            kind="gemm",
            op="aten.mm",
            dims={"batch": Affine(1, 0), "m": m, "n": n, "k": k},
            dtype="fp32" if precision in ("fp32", "tf32") else "16bit",
            flops=Affine(0, 2 * sequence * HIDDEN * vocabulary),
            bytes_read=Affine(0, 0),
            bytes_written=Affine(0, 0),
        )
        for m, n, k in shapes
    ]
    table = KernelTable(kernels, np.array([samples]))
    curves = curves_for(ACCELERATORS[device])
    return table.device_s(curves, precision, odd_widths=odd_widths(stack))[:, 0]


@pytest.mark.parametrize(
    ("device", "least", "most"),
    # A100: padding GPT-2's vocabulary takes a step from 1.25-1.3 to 1, its products are a quarter
    # of it. H100: 71 to 115 TFLOP/s (0.12 of peak), where even ones reach 0.6 to 0.7.
    [
        ("A100-80GB-SXM", 1.8, 2.6),
        ("H100-80GB-SXM", 3.2, 6),
        ("RTX-4090", 1.0, 1.6),
        ("RTX-PRO-6000", 1.0, 1.6),
    ],
)
def test_an_odd_vocabulary_is_slow_and_slowest_on_the_newest(device, least, most):
    odd, even = head_s(50257, device=device), head_s(50304, device=device)
    assert least < odd.sum() / even.sum() < most


@pytest.mark.parametrize("precision", ["fp32", "tf32"])
def test_elements_of_four_bytes_are_copied_one_by_one_as_fast(precision):
    odd = head_s(50257, precision=precision)
    assert odd.tolist() == pytest.approx(head_s(50304, precision=precision).tolist(), rel=0.02)


def test_an_odd_number_of_tokens_does_not_matter():
    odd, even = (head_s(50304, sequence=size, samples=15) for size in (1023, 1024))
    assert odd.tolist() == pytest.approx(even.tolist(), rel=0.05)


@pytest.mark.parametrize("stack", ["torch-compile", "megatron", "xla"])
def test_software_that_pads_loses_less(stack):
    kept, padded, even = head_s(50257), head_s(50257, stack=stack), head_s(50304)
    assert even.sum() < padded.sum() < 0.6 * kept.sum()


def test_a_narrow_odd_width_is_bound_by_bytes_as_ever():
    odd, even = head_s(47), head_s(48)
    assert odd.sum() < 1.3 * even.sum()
