"""What torch copies beside the collectives of tensor ranks."""

import pytest

from gpuplan.planner.parallelism.rank_trace import Split
from gpuplan.planner.plan.layout import parse_layout
from gpuplan.planner.software.collective_copies import NO_COPIES, collective_copies

ASYNC = frozenset({"async-tensor-parallel"})


def test_torch_alone_copies():
    for stack in ("megatron", "xla"):
        assert collective_copies(stack, None, frozenset(), compiled=False) == NO_COPIES


@pytest.mark.parametrize(("compiled", "reduced"), [(False, 2), (True, 0)])
def test_a_buffer_is_read_and_written_and_a_compiler_reduces_in_place(compiled, reduced):
    found = collective_copies("torch-eager", None, frozenset(), compiled=compiled)
    assert (found.gathered, found.gathered_again, found.scattered) == (2, 2, 2)
    assert found.reduced == reduced


def test_what_runs_beside_products_is_joined_for_gradients_of_weights_alone():
    found = collective_copies("torch-compile", None, ASYNC, compiled=True)
    assert (found.gathered, found.gathered_again, found.scattered) == (0, 2, 1)


@pytest.mark.parametrize(("date", "views"), [((2026, 2), False), ((2026, 3), True), (None, True)])
def test_a_single_sample_stays_where_it_is_since_torch_2_11(date, views):
    found = collective_copies("torch-eager", date, frozenset(), compiled=False)
    assert found.views_one == views


def test_nothing_is_copied_without_tensor_ranks():
    copies = collective_copies("torch-eager", None, frozenset(), compiled=False)
    alone = Split.of(parse_layout("fsdp8"), "torch-eager", copies=copies)
    assert alone.copies == NO_COPIES
    split = Split.of(parse_layout("fsdp4.tp2.sp"), "torch-eager", copies=copies)
    assert split.copies == copies
