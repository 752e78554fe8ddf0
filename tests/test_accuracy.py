"""The planner against published measurements: the bounds that docs/accuracy.md shows are kept."""

from pathlib import Path
from statistics import fmean

import pytest

from gpuplan.launcher.validation import validate
from gpuplan.planner.judge import SummaryRow, Validation

PUBLISHED = Path(__file__).parent / "published"
SOURCE_BOUNDS = {
    # The first bound is 20 %; these are what was reached, with room for small changes.
    "llm-foundry": 0.08,
    "vtrain-single": 0.09,
    "bigscience-tr11": 0.13,
    "bigscience-v100": 0.11,
    "megatron-mp-2020": 0.10,
    "megatron-bridge": 0.24,
    "internevo": 0.09,
    "maxtext": 0.10,
    # 4 % but for three tensor-parallel runs; one of them (405B, fp8) is predicted twice too slow.
    "torchtitan": 0.15,
    "torchtune": 0.09,
    "narayanan": 0.06,
    "lambda": 0.18,
    "milabench": 0.12,
    "dle": 0.13,
    "neusight": 0.13,
}
SINGLE_ACCELERATOR_BOUND = 0.15
LARGE_ENOUGH = 8
"""Runs from which on a group must beat the null models."""

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def answer(tmp_path_factory: pytest.TempPathFactory) -> Validation:
    with pytest.MonkeyPatch.context() as patch:
        # One cache for the module: the profiles of all published models take minutes to make.
        patch.setenv("GPUPLAN_HOME", str(tmp_path_factory.mktemp("accuracy")))
        return validate(
            [PUBLISHED / "published_llm.jsonl", PUBLISHED / "published_single_gpu.jsonl"]
        )


def of_source(answer: Validation, group: str) -> SummaryRow:
    (row,) = [
        row
        for row in answer.summary
        if (row.by, row.quantity, row.group) == ("source_group", "step_time_s", group)
    ]
    return row


@pytest.mark.parametrize("group", SOURCE_BOUNDS)
def test_step_times_of_a_source_are_within_their_bound(answer: Validation, group: str) -> None:
    row = of_source(answer, group)
    assert row.mape <= SOURCE_BOUNDS[group]


def test_every_group_of_some_size_beats_both_null_models_or_is_within_reach(
    answer: Validation,
) -> None:
    rows = [
        row
        for row in answer.summary
        if (row.by, row.quantity) == ("source_group", "step_time_s") and row.n >= LARGE_ENOUGH
    ]
    assert len(rows) >= 8
    for row in rows:
        assert row.null_50_hfu is not None and row.mape < row.null_50_hfu, row.group
        assert row.null_left_out is not None and row.mape < row.null_left_out, row.group


@pytest.mark.parametrize("group", ["llm-foundry", "lambda", "milabench", "dle", "vtrain-single"])
def test_the_best_constant_that_knows_the_source_is_beaten_too(
    answer: Validation, group: str
) -> None:
    row = of_source(answer, group)
    assert row.null_best_constant is not None and row.mape < row.null_best_constant


def test_steps_on_one_accelerator_are_within_their_bound(answer: Validation) -> None:
    groups = [of_source(answer, group) for group in ("lambda", "milabench", "dle", "neusight")]
    pooled = sum(row.mape * row.n for row in groups) / sum(row.n for row in groups)
    assert pooled <= SINGLE_ACCELERATOR_BOUND
    assert fmean(row.mape for row in groups) <= SINGLE_ACCELERATOR_BOUND


def test_rows_that_are_skipped_say_why(answer: Validation) -> None:
    skipped = [row for row in answer.rows if row.predicted is None]
    assert skipped
    assert all(row.skipped for row in skipped)
    assert not [row for row in skipped if "Traceback" in (row.skipped or "")]
