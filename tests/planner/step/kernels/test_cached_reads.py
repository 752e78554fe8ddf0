"""What memory-bound kernels read where a card's cache still holds it."""

from itertools import pairwise

import numpy as np
import pytest
from one_kernel import step_of

from gpuplan.catalog.snapshot import load_catalogue
from gpuplan.planner.constants import Constants
from gpuplan.planner.software.kernel_levels import has_fast_cache
from gpuplan.planner.software.stack import facts_of
from gpuplan.planner.step.kernels.kernel_totals import StepKernels
from gpuplan.profiles.curves.device_curves import curves_for
from gpuplan.profiles.profile import Affine, Kernel, KernelKind

ACCELERATORS = load_catalogue().accelerators
CONSTANTS = Constants.shipped()
MB = 10**6


def seconds(
    device: str, megabytes: float, *, kind: KernelKind = "pointwise", cached: float = 1.0
) -> float:
    """Return the time of a kernel that reads and writes as much, where the cache saves a share."""
    kernel = Kernel(
        kind=kind,
        op="gelu",
        dims={},
        dtype="16bit",
        flops=Affine(0),
        bytes_read=Affine(0, MB),
        bytes_written=Affine(0, MB),
    )
    trace = step_of(kernel)
    found = StepKernels([trace], np.array([megabytes])).kind_seconds(
        curves_for(ACCELERATORS[device]),
        precision="fp16-amp",
        stack=facts_of("torch-eager", CONSTANTS.replaced({"cached_reads": cached})),
    )
    return found[kind]


@pytest.mark.parametrize("name", ["L40S", "L4", "RTX-4090"])
def test_what_fits_is_read_from_the_cache_and_what_is_larger_from_memory(name: str) -> None:
    saved = [
        1 - seconds(name, megabytes) / seconds(name, megabytes, cached=0.0)
        for megabytes in (2, 8, 32, 128, 2048)
    ]
    # Reads are half of the bytes; what is written goes to memory whatever its size.
    assert all(0 <= share < 0.5 for share in saved)
    assert max(saved) > 0.35 and saved[-1] < 0.01
    assert all(later < earlier for earlier, later in pairwise(saved[1:]))


def test_no_kernel_is_slower_with_less_to_move() -> None:
    times = [seconds("L40S", megabytes) for megabytes in (1, 2, 4, 8, 16, 32, 64, 128, 256)]
    assert times == sorted(times)


@pytest.mark.parametrize("name", ["A100-80GB-SXM", "H100-80GB-SXM", "RTX-3090", "T4"])
def test_other_caches_are_small_or_no_faster_than_their_memory(name: str) -> None:
    assert not has_fast_cache(ACCELERATORS[name])
    assert seconds(name, 4) == seconds(name, 4, cached=0.0)


def test_an_embedding_reads_rows_that_nothing_just_wrote() -> None:
    assert seconds("L40S", 4, kind="embedding") == seconds("L40S", 4, kind="embedding", cached=0.0)
