"""Seconds of the optimizer's step: of all that is trained, and of the rows of sparse gradients."""

import numpy as np
import pytest

from gpuplan.catalog.snapshot import load_catalogue
from gpuplan.planner.plan.layout import parse_layout
from gpuplan.planner.plan.setup import Setup
from gpuplan.planner.predict.kept.model_cache import ModelCache
from gpuplan.planner.predict.setup import stack_facts
from gpuplan.planner.step.data_parallel_step import accumulation_s, optimizer_s
from gpuplan.profiles.profile import Profile

MANY_BYTES = 2_000_000


def seconds(profile: Profile, samples: list[int]) -> np.ndarray:
    cache = ModelCache(profile)
    one = parse_layout("dp1")
    setup = Setup(layout=one, precision="fp32", micro_batch=1, stack="torch-eager")
    return optimizer_s(
        profile,
        [one],
        cache.curves(load_catalogue().accelerators["A100-80GB-SXM"]),
        stack_facts(setup, cache.constants),
        samples=np.array([samples]),
    )


def test_rows_of_more_samples_take_longer(toy: Profile) -> None:
    facts = toy.optimizer.model_copy(update={"step_bytes_per_sample": float(MANY_BYTES)})
    rows = toy.model_copy(update={"optimizer": facts})
    dense, (few, more, most) = seconds(toy, [1, 1, 1]), seconds(rows, [1000, 2000, 4000])[0]
    assert dense.shape == (1, 1) and dense.item() < few < more < most
    assert (most - more) / (more - few) == pytest.approx(2, rel=0.05)


def test_sparse_gradients_are_not_added_up_over_whole_tables(toy: Profile) -> None:
    sparse = toy.trained_parameters - 1000
    of_rows = toy.model_copy(update={"sparse_parameters": sparse})
    of_few = toy.model_copy(update={"trainable_parameters": 1000, "unused_parameters": 0})
    cache = ModelCache(toy)
    curves = cache.curves(load_catalogue().accelerators["A100-80GB-SXM"])

    def adding(profile: Profile) -> float:
        return accumulation_s(profile, [parse_layout("dp1")], curves, 12.0).item()

    assert adding(of_rows) == adding(of_few) < adding(toy)
