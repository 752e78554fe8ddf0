"""Caches of one Profile: each predicts with its own curves, whoever asks another meanwhile."""

import json
from pathlib import Path

from gpuplan.catalog.snapshot import load_catalogue
from gpuplan.catalog.types import Link
from gpuplan.planner.constants import Constants
from gpuplan.planner.hardware.cluster import Site
from gpuplan.planner.plan.layout import Layout
from gpuplan.planner.plan.setup import Setup
from gpuplan.planner.predict.kept.model_cache import ModelCache
from gpuplan.planner.predict.predict import predict
from gpuplan.profiles.curves.choice import USUAL_CURVES, CurveChoice
from gpuplan.profiles.profile import Profile

A100 = load_catalogue().accelerators["A100-80GB-SXM"]
NODES = [1024, 4096]
SLOW = {
    "schema_version": 1,
    "accelerator": A100.name,
    "version": "1",
    "sources": ["test"],
    "gemm_grids": {
        "bf16": {
            **dict.fromkeys("mnk", NODES),
            "time_us": [m * n * k / 2**23 for m in NODES for n in NODES for k in NODES],
            "relative_error": 0.01,
        }
    },
}


def step_s(cache: ModelCache) -> tuple[float, float]:
    """Return the predicted step on one A100, and the top of its interval."""
    link = Link(name=None, bytes_per_s=None)
    site = Site(accelerator=A100, per_node=1, nodes=1, intra_link=link, inter_link=link)
    setup = Setup(layout=Layout(), precision="bf16-amp", micro_batch=4)
    step = predict(cache.profile, site, setup, cache=cache).step_time_s
    return step.value, step.high


def test_caches_with_other_curves_predict_beside_each_other(toy: Profile, tmp_path: Path) -> None:
    (tmp_path / "slow.json").write_text(json.dumps(SLOW))
    usual = ModelCache(toy)
    caches = {
        "usual": usual,
        "slow": usual.with_curves(CurveChoice(given=(tmp_path / "slow.json",))),
        "left out": usual.with_curves(USUAL_CURVES.without([A100.name])),
    }
    apart = {name: step_s(ModelCache(toy, curve_choice=one.curve_choice)) for name, one in
             caches.items()}  # fmt: skip
    for _ in range(2):
        assert {name: step_s(cache) for name, cache in reversed(caches.items())} == apart
    assert apart["slow"][0] > 2 * apart["usual"][0]
    width = {name: high / value for name, (value, high) in apart.items()}
    assert width["left out"] > width["usual"]


def test_another_profile_is_predicted_with_the_same_constants_and_curves(toy: Profile) -> None:
    choice = USUAL_CURVES.without([A100.name])
    constants = Constants.shipped().replaced({"step_overhead_s": 1.0})
    cache = ModelCache(toy, constants=constants, curve_choice=choice)
    other = cache.of(toy.model_copy(update={"name": "other"}))
    assert (other.constants, other.curve_choice) == (constants, choice)
    assert (other.profile.name, cache.profile.name) == ("other", "toy")
    assert other.with_constants(Constants.shipped()).curve_choice == choice
