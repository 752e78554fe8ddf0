"""A frozen base in 16 and in 4 bits: what it takes of memory and of time, part by part."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gpuplan import api
from gpuplan.catalog.errors import UsageError
from gpuplan.catalog.snapshot import load_catalogue
from gpuplan.catalog.types import Link
from gpuplan.catalog.vocabulary import FrozenPrecision, Recompute
from gpuplan.planner.hardware.cluster import Site
from gpuplan.planner.plan.errors import UnsupportedError
from gpuplan.planner.plan.layout import parse_layout
from gpuplan.planner.plan.setup import Setup
from gpuplan.planner.predict import step_time
from gpuplan.planner.predict.fits import fits
from gpuplan.planner.predict.kept.model_cache import ModelCache
from gpuplan.planner.predict.memory.peak_memory import data_parallel_memory
from gpuplan.planner.predict.predict import Prediction, predict
from gpuplan.planner.software.frozen_base import NF4_BYTES
from gpuplan.profiles.profile import Profile

EXAMPLE = Path(__file__).parents[3] / "examples" / "lora.py"
# As wide as a model of 1B parameters, so that weights are most of what a step moves and keeps.
DIMS = {"layers": 4, "hidden": 2048, "heads": 16, "kv_heads": 8, "ffn": 5632, "vocab": 1000}
DIMS |= {"seq_len": 128}
BF16 = Setup(layout=parse_layout("dp1"), precision="bf16-amp", micro_batch=2)

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def profile() -> Profile:
    return api.profile(EXAMPLE, params=DIMS, numerics=("amp16", "fp32", "pure16"))


def site(name: str = "A100-80GB-SXM", count: int = 1) -> Site:
    link = Link(name=None, bytes_per_s=3e11)
    device = load_catalogue().accelerators[name]
    return Site(accelerator=device, per_node=count, nodes=1, intra_link=link, inter_link=link)


def kept(
    profile: Profile, frozen: FrozenPrecision | None, recompute: Recompute = "none"
) -> dict[str, float]:
    setup = replace(BF16, frozen_precision=frozen, recompute=recompute)
    found = data_parallel_memory(ModelCache(profile), setup, np.array([2]))
    return {name: part.item() for name, part in vars(found).items()} | {
        "peak": found.peak_bytes.item()
    }


def predicted(
    profile: Profile, frozen: FrozenPrecision | None, recompute: Recompute = "none"
) -> Prediction:
    return predict(profile, site(), replace(BF16, frozen_precision=frozen, recompute=recompute))


@pytest.mark.parametrize("recompute", ["none", "full"])
def test_a_16_bit_base_halves_the_weights_and_drops_their_copies(
    profile: Profile, recompute: Recompute
) -> None:
    plain, bf16 = kept(profile, None, recompute), kept(profile, "bf16", recompute)
    saved = plain["parameters_bytes"] - bf16["parameters_bytes"]
    frozen = profile.parameters - profile.trainable_parameters
    linears = profile.frozen_linears
    assert linears is not None
    # Under recompute, those of the one block that runs.
    copies = 2 * linears.parameters / (1 if recompute == "none" else DIMS["layers"])
    assert saved == pytest.approx(2 * frozen + copies, rel=0.03)
    assert bf16["optimizer_bytes"] == plain["optimizer_bytes"]


@pytest.mark.parametrize("recompute", ["none", "full"])
def test_4_bits_save_what_they_say_and_hold_one_weight_while_it_runs(
    profile: Profile, recompute: Recompute
) -> None:
    bf16, nf4 = kept(profile, "bf16", recompute), kept(profile, "nf4", recompute)
    linears = profile.frozen_linears
    assert linears is not None
    saved = (2 - NF4_BYTES) * linears.parameters
    assert bf16["parameters_bytes"] - nf4["parameters_bytes"] == pytest.approx(saved)
    assert nf4["temporary_bytes"] - bf16["temporary_bytes"] == pytest.approx(2 * linears.largest)
    assert bf16["peak"] - nf4["peak"] == pytest.approx(saved - 2 * linears.largest)


def test_what_lies_unused_between_activations_stays_the_same(profile: Profile) -> None:
    unused = {
        frozen: found.peak_reserved_bytes - found.peak_allocated_bytes
        for frozen in ("bf16", "nf4")
        if (found := predicted(profile, frozen))
    }
    linears = profile.frozen_linears
    assert linears is not None
    assert unused["nf4"] == pytest.approx(unused["bf16"], rel=0.05, abs=2 * linears.largest)


@pytest.mark.parametrize(("recompute", "passes"), [("none", 2), ("selective", 2), ("full", 3)])
def test_every_pass_reads_4_bits_and_writes_16(
    profile: Profile, recompute: Recompute, passes: int
) -> None:
    bf16, nf4 = predicted(profile, "bf16", recompute), predicted(profile, "nf4", recompute)
    linears = profile.frozen_linears
    assert linears is not None
    curves = ModelCache(profile).curves(site().accelerator)
    rate = curves.memory_fraction("copy") * site().accelerator.memory_bandwidth_bytes_per_s
    moved_s = passes * (NF4_BYTES + 2) * linears.parameters / rate
    longer_s = nf4.step_time_s.value - bf16.step_time_s.value
    assert longer_s == pytest.approx(moved_s, rel=0.05)
    assert nf4.breakdown_s.memory_bound - bf16.breakdown_s.memory_bound == pytest.approx(longer_s)
    assert nf4.breakdown_s.compute == bf16.breakdown_s.compute


def test_a_16_bit_base_is_faster_as_nothing_is_cast(profile: Profile) -> None:
    plain, bf16 = predicted(profile, None), predicted(profile, "bf16")
    assert bf16.step_time_s.value < plain.step_time_s.value
    assert bf16.breakdown_s.compute == pytest.approx(plain.breakdown_s.compute)


def test_what_nobody_measured_widens_the_interval_and_is_said(
    profile: Profile, monkeypatch: pytest.MonkeyPatch
) -> None:
    bf16, nf4 = predicted(profile, "bf16"), predicted(profile, "nf4")
    monkeypatch.setattr(step_time, "NF4_RATE_DOUBT", 0.0)
    surer = predicted(profile, "nf4").step_time_s
    assert nf4.step_time_s.low < surer.low < surer.high < nf4.step_time_s.high
    assert any("fitted to no measurement" in note for note in nf4.notes)
    assert not any("4 bits" in note for note in bf16.notes)


def test_model_flops_do_not_depend_on_how_the_base_is_kept(profile: Profile) -> None:
    for one in (None, "bf16", "nf4"):
        found = predicted(profile, one, "full")
        assert found.mfu is not None and found.hfu is not None
        seconds = found.step_time_s.value
        whole = predicted(profile, None, "full")
        assert whole.mfu is not None
        assert found.mfu * seconds == pytest.approx(whole.mfu * whole.step_time_s.value)


def test_what_cannot_be_kept_so_is_refused(profile: Profile) -> None:
    setup = replace(BF16, layout=parse_layout("fsdp2"), frozen_precision="nf4", autocast=False)
    with pytest.raises(UnsupportedError, match="which fsdp2 is not"):
        predict(profile, site(count=2), setup)
    with pytest.raises(UnsupportedError, match="NVIDIA alone"):
        predict(profile, site("MI300X"), replace(BF16, frozen_precision="nf4"))


def test_a_model_that_was_not_traced_so_is_refused(toy: Profile) -> None:
    with pytest.raises(UsageError, match="not mostly frozen"):
        ModelCache(toy).with_frozen("bf16")


def test_fits_answers_for_a_4_bit_base_and_proposes_it(profile: Profile) -> None:
    device = site().accelerator
    needed = fits(profile, device, precision="fp32", recompute="full").peak_memory_bytes.value
    small = device.model_copy(update={"memory_visible_bytes": int(0.97 * needed)})
    plain = fits(profile, small, precision="fp32", recompute="full")
    assert not plain.fits and plain.frozen_precision is None
    proposed = [remedy.text for remedy in plain.remedies]
    assert "--precision bf16-amp --frozen-precision bf16" in proposed
    assert "--precision bf16-amp --frozen-precision nf4" in proposed
    sizes = [r.peak_bytes for r in plain.remedies if "--frozen-precision" in r.text]
    assert sizes == sorted(sizes, reverse=True)
    nf4 = fits(profile, small, precision="bf16-amp", recompute="full", frozen_precision="nf4")
    assert nf4.fits and nf4.frozen_precision == "nf4"
    assert nf4.peak_memory_bytes.value == pytest.approx(sizes[-1])


def test_fits_takes_mixed_precision_where_only_the_base_is_named() -> None:
    found = api.fits(EXAMPLE, "L4", params=DIMS, frozen_precision="bf16")
    assert (found.precision, found.frozen_precision) == ("bf16-amp", "bf16")
    asked = api.fits(EXAMPLE, "L4", params=DIMS, frozen_precision="fp32")
    assert (asked.precision, asked.frozen_precision) == ("fp32", None)
