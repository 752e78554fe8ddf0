"""Copies beside collectives: their bytes by hand, and none where a single sample is gathered."""

import numpy as np
import pytest
from whole_blocks import ACTIVATION_BYTES, segment_of, trace_of

from gpuplan.catalog.snapshot import load_catalogue
from gpuplan.planner.parallelism.rank_trace import Split, split_trace
from gpuplan.planner.software.collective_copies import collective_copies
from gpuplan.planner.step.collective_copies import copied_s
from gpuplan.profiles.curves.device_curves import curves_for
from gpuplan.profiles.profile import Profile

CURVES = curves_for(load_catalogue().accelerators["H100-80GB-SXM"])
TORCH = collective_copies("torch-eager", None, frozenset(), compiled=False)


def copies_s(toy: Profile, phase: str, split: Split, samples: int) -> float:
    share = split_trace(trace_of(toy), split)
    _, index = segment_of(share, phase, "layers")
    return copied_s(share, CURVES, np.array([samples]))[index].item()


@pytest.mark.parametrize("phase", ["forward", "backward"])
def test_two_gathers_and_two_scatters_of_a_block_are_copied(toy: Profile, phase: str) -> None:
    split = Split(tensor=4, sequence_parallel=True, copies=TORCH)
    one_s = float(CURVES.memory_bound_s(2 * 8 * ACTIVATION_BYTES, kind="copy"))
    assert copies_s(toy, phase, split, 8) == pytest.approx(4 * one_s)


def test_of_a_single_sample_only_what_is_scattered_is(toy: Profile) -> None:
    split = Split(tensor=4, sequence_parallel=True, copies=TORCH)
    one_s = float(CURVES.memory_bound_s(2 * ACTIVATION_BYTES, kind="copy"))
    assert copies_s(toy, "forward", split, 1) == pytest.approx(2 * one_s)


def test_an_eager_reduction_copies_what_it_reduces(toy: Profile) -> None:
    one_s = float(CURVES.memory_bound_s(2 * 4 * ACTIVATION_BYTES, kind="copy"))
    assert copies_s(toy, "forward", Split(tensor=4, copies=TORCH), 4) == pytest.approx(2 * one_s)
    assert copies_s(toy, "forward", Split(tensor=4), 4) == 0
