"""The table of constants: complete and sourced; predictions with others stand beside the usual."""

import re
from pathlib import Path

import pytest

import gpuplan.planner
from gpuplan.catalog.snapshot import load_catalogue
from gpuplan.catalog.types import Link
from gpuplan.planner.constants import Constants, known_constants
from gpuplan.planner.hardware.cluster import Site
from gpuplan.planner.plan.layout import Layout
from gpuplan.planner.plan.setup import Setup
from gpuplan.planner.predict.kept.model_cache import ModelCache
from gpuplan.planner.predict.predict import Prediction, predict
from gpuplan.profiles.profile import Profile

USUAL = Constants.shipped()


def test_every_constant_has_a_prior_with_a_source_and_a_value_not_far_from_it():
    for one in known_constants().values():
        assert one.source
        assert 0 < one.spread <= 1
        assert 0 < one.prior <= (one.most or float("inf"))
        assert 0 < one.value <= (one.most or float("inf"))
        factor = 8 if one.name.startswith("doubt.") else 4
        assert one.prior / factor < one.value < factor * one.prior, one.name


def test_the_shipped_values_are_those_of_the_table():
    assert dict(USUAL) == {name: one.value for name, one in known_constants().items()}


def test_replacing_makes_others_and_leaves_the_first_as_they_are():
    slow = USUAL.replaced({"network": 1.2})
    both = slow.replaced({"hiding_share": 0.5})
    assert (both["network"], both["hiding_share"]) == (1.2, 0.5)
    assert slow["hiding_share"] == USUAL["hiding_share"] != 0.5
    assert USUAL["network"] == known_constants()["network"].value != 1.2
    assert slow != USUAL
    back = slow.replaced({"network": USUAL["network"]})
    assert back == USUAL and hash(back) == hash(USUAL)


def test_constants_cannot_be_changed():
    with pytest.raises(TypeError):
        USUAL["network"] = 1.2  # pyright: ignore[reportIndexIssue]
    with pytest.raises(AttributeError):
        USUAL.network = 1.2  # pyright: ignore[reportAttributeAccessIssue]
    values = {"a": 1.0}
    own = Constants(values)
    values["a"] = 2.0
    assert own["a"] == 1.0


def test_constants_fitted_without_runs_are_others_of_the_same_values():
    without = USUAL.without("my cluster")
    assert without != USUAL and dict(without) == dict(USUAL)
    assert without.replaced({"network": 1.2}).fitted_without == {"my cluster"}
    assert without.without("L4").fitted_without == {"my cluster", "L4"}
    assert hash(without) == hash(USUAL.without("my cluster")) != hash(USUAL)


def test_a_name_that_is_not_a_constant_is_refused():
    with pytest.raises(KeyError, match="hiding_shore"):
        USUAL.replaced({"hiding_shore": 0.5})
    with pytest.raises(KeyError, match="hiding_shore"):
        USUAL["hiding_shore"]


SETUPS = (
    Setup(layout=Layout(data=16, shard=16, zero_stage=3), precision="bf16-amp", micro_batch=4),
    Setup(layout=Layout(data=16), precision="fp32", micro_batch=2, compile=True),
    Setup(
        layout=Layout(data=16, shard=16, zero_stage=3),
        precision="bf16-amp",
        micro_batch=4,
        offload=frozenset({"parameters"}),
    ),
    Setup(
        layout=Layout(data=16, shard=16, zero_stage=3),
        precision="fp16-amp",
        micro_batch=2,
        stack="megatron",
        software_date=(2021, 6),
        optimizer="adamw8bit",
    ),
)


def predicted(cache: ModelCache) -> list[Prediction]:
    device = load_catalogue().accelerators["A100-80GB-SXM"]
    site = Site(
        accelerator=device,
        per_node=8,
        nodes=2,
        intra_link=Link(name="link", bytes_per_s=device.link_bytes_per_s),
        inter_link=Link(name="fabric", bytes_per_s=50e9, rdma=True),
        host_memory_bytes=1e12,
        vcpus=96,
    )
    return [predict(cache.profile, site, setup, cache=cache) for setup in SETUPS]


def slower(name: str) -> float:
    """Return what multiplies a constant so that steps take longer: rates and shares shrink."""
    return 1 / 1.1 if name.endswith("_per_s") or name == "hiding_share" else 1.1


def test_caches_with_other_constants_predict_beside_each_other(toy: Profile):
    """Whichever is asked first, and whether or not they share what is derived from the Profile."""
    others = USUAL.replaced({name: slower(name) * value for name, value in USUAL.items()})
    usual, other = predicted(ModelCache(toy)), predicted(ModelCache(toy, constants=others))
    for one, two in zip(usual, other, strict=True):
        assert two.step_time_s.value > 1.01 * one.step_time_s.value
        assert two.step_time_s.high != one.step_time_s.high
        assert two.peak_allocated_bytes == one.peak_allocated_bytes

    first = ModelCache(toy, constants=others)
    second = first.with_constants(USUAL)
    for _ in range(2):
        assert predicted(second) == usual
        assert predicted(first) == other
    assert first.with_constants(USUAL).steps.trace("fp32", "none") is first.steps.trace(
        "fp32", "none"
    )


def test_every_constant_is_used_somewhere():
    folder = Path(gpuplan.planner.__file__).parent
    text = "\n".join(path.read_text() for path in folder.rglob("*.py"))
    for name in known_constants():
        family = name.split(".")[0]
        assert re.search(rf'"{family}["./]|"{family}\.', text) or f'"{family}.{{' in text, name


def test_the_page_on_predictions_says_what_recompute_takes_of_the_host():
    page = Path(__file__).parents[2] / "docs" / "how-it-predicts.md"
    text = " ".join(page.read_text(encoding="utf-8").split())
    full, selective = (1e3 * USUAL[f"recompute_host_s.{kind}"] for kind in ("full", "selective"))
    assert f"adds {full:.2g} ms of the host to a block, and {selective:.2g} ms" in text
