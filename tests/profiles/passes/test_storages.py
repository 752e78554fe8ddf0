"""The storages of a step as rows, and the step with others in their place."""

from typing import Any

import pytest

from gpuplan.profiles.passes.storages import kernel_ticks, storages_of, with_storages
from gpuplan.profiles.profile import StepTrace
from gpuplan.profiles.trace.trace import trace_workload


@pytest.fixture
def step(example_workload: Any) -> StepTrace:
    return trace_workload(example_workload("gpt2", layers=2, seq_len=64, vocab=100)).steps[0]


def test_there_and_back_nothing_changes(step: StepTrace) -> None:
    rows = storages_of(step.memory)
    assert len(rows) == len(step.memory.birth_tick)
    assert with_storages(step, rows[::-1]).memory.birth_tick == step.memory.birth_tick
    assert with_storages(step, rows) == step


def test_without_any_storage_the_columns_are_empty(step: StepTrace) -> None:
    empty = with_storages(step, []).memory
    assert (empty.birth_tick, empty.end_tick) == ([], step.memory.end_tick)
    assert storages_of(empty) == []


def test_each_kernel_has_the_tick_at_which_it_runs(step: StepTrace) -> None:
    ticks = [tick for tick, _ in kernel_ticks(step)]
    assert len(ticks) == sum(len(step.segments[number].kernels) for number in step.schedule)
    assert ticks == sorted(ticks) and ticks[-1] < step.memory.end_tick
    older = [one.model_copy(update={"offsets": ()}) for one in step.segments]
    assert not list(kernel_ticks(step.model_copy(update={"segments": tuple(older)})))
