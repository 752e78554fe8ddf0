"""A measurement on one device moves predictions of others, less the less they are alike."""

from datetime import UTC, datetime

import numpy as np
import pytest

from gpuplan import api
from gpuplan.catalog.snapshot import load_catalogue
from gpuplan.planner.constants import Constants
from gpuplan.planner.predict.interval import step_interval
from gpuplan.planner.predict.kept.model_cache import ModelCache
from gpuplan.planner.predict.measured.calibration import (
    LARGEST_RESIDUAL,
    CalibratedProfile,
    calibrated,
    residuals,
)
from gpuplan.planner.software.stack import facts_of
from gpuplan.profiles.measured import (
    Conditions,
    KernelTime,
    MeasuredDevice,
    MeasuredProfile,
    Measurement,
    StepMemory,
    StepTime,
)
from gpuplan.profiles.profile import Profile

CATALOGUE = load_catalogue()
A100 = CATALOGUE.accelerators["A100-40GB-SXM"]
SLOWER = 1.2


def measured(
    toy: Profile,
    *,
    slower: float = SLOWER,
    device: str = "NVIDIA A100-SXM4-40GB",
    kind: str = "cuda",
    conditions: Conditions | None = None,
) -> MeasuredProfile:
    """Return the toy as if its kernels had taken so much longer than predicted on an A100."""
    predicted = ModelCache(toy).kind_seconds(
        A100,
        "bf16-amp",
        "none",
        stack=facts_of("torch-eager", Constants.shipped()),
        micro_batches=np.array([4]),
    )
    kernels = tuple(
        KernelTime(kind=kind, seconds=slower * seconds) for kind, seconds in predicted.items()
    )
    times = StepTime(median_s=1, p10_s=1, p90_s=1, steps=20)
    measurement = Measurement(
        device=MeasuredDevice(kind=kind, name=device),  # pyright: ignore[reportArgumentType]
        precision="bf16-amp",
        micro_batch=4,
        recompute="none",
        step_time=times,
        memory=StepMemory(),
        kernels=kernels,
        other_s=0,
        input=None,
        conditions=conditions or Conditions(throttled=("power cap",), contention=()),
        versions={},
    )
    return MeasuredProfile(**dict(toy), measured=measurement)


def answer(profile: Profile, accelerator: str) -> api.Estimate:
    question = api.Question(
        machine=api.Machine(accelerators=(accelerator,), nodes=(1,)),
        choices=api.Choices(
            precisions=("bf16-amp",),
            micro_batches=(16,),
            layouts=(api.parse_layout("dp8"),),
            recomputes=("none",),
        ),
    )
    inputs = api.Inputs(profile=profile, catalogue=CATALOGUE)
    return api.estimate(inputs, question, now=lambda: datetime(2026, 1, 1, tzinfo=UTC))


def test_every_device_moves_by_its_share_of_the_residual(toy: Profile) -> None:
    profile, notes = calibrated(measured(toy), A100)
    assert isinstance(profile, CalibratedProfile)
    assert profile.calibration.residuals == pytest.approx({"gemm": SLOWER, "pointwise": SLOWER})
    assert "calibrated by real steps on A100-40GB-SXM" in notes[0]
    weights = {
        name: profile.calibration.weight(CATALOGUE.accelerators[name])
        for name in ("A100-40GB-SXM", "A100-80GB-SXM", "H100-80GB-SXM", "MI300X")
    }
    assert list(weights.values()) == [1.0, 0.75, 0.5, 0.25]
    factors = profile.calibration.factors(CATALOGUE.accelerators["H100-80GB-SXM"])
    assert factors["gemm"] == pytest.approx(SLOWER**0.5)


def test_a_measured_file_changes_time_basis_and_interval(toy: Profile) -> None:
    plain = answer(toy, "A100-40GB-SXM").plans[0].step_time_s
    found = answer(measured(toy), "A100-40GB-SXM")
    time = found.plans[0].step_time_s
    assert (plain.basis, time.basis) == ("analytic", "calibrated")
    assert 1 < time.value / plain.value <= SLOWER
    assert time.high / time.low < plain.high / plain.low
    assert any("calibrated by real steps" in note for note in found.notes)

    exact = answer(measured(toy, slower=1.0), "H100-80GB-SXM").plans[0].step_time_s
    assert exact.value == pytest.approx(answer(toy, "H100-80GB-SXM").plans[0].step_time_s.value)
    assert exact.basis == "calibrated"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"kind": "cpu", "device": "AMD EPYC"}, "made on a processor (AMD EPYC)"),
        ({"device": "NVIDIA Prototype 7"}, "NVIDIA Prototype 7 is not in the catalogue"),
        ({"conditions": Conditions(contention=("2 other processes",))}, "2 other processes"),
        ({"conditions": Conditions(throttled=("hardware slowdown",))}, "hardware slowdown"),
    ],
)
def test_what_calibrates_nothing_is_said(
    toy: Profile, changes: dict[str, object], words: str
) -> None:
    found = answer(measured(toy, **changes), "H100-80GB-SXM")  # pyright: ignore
    assert found.plans[0].step_time_s == answer(toy, "H100-80GB-SXM").plans[0].step_time_s
    assert any("calibrates no accelerator" in note and words in note for note in found.notes)


def test_a_plain_profile_stays_as_it_is(toy: Profile) -> None:
    assert calibrated(toy, A100) == (toy, ())


def test_a_residual_is_cut_and_small_kinds_are_left_out() -> None:
    found = residuals({"gemm": 30.0, "norm": 1e-4, "softmax": 9.0}, {"gemm": 1.0, "norm": 1.0})
    assert found == {"gemm": LARGEST_RESIDUAL}


def test_the_interval_narrows_with_what_holds_of_a_measurement() -> None:
    def width(calibration: float | None) -> float:
        time = step_interval(
            1.0,
            {"form.torch-eager": 1.0, "curves": 0.05},
            Constants.shipped(),
            calibration=calibration,
        )
        return time.high / time.low

    widths = [width(each) for each in (None, 0.25, 0.5, 0.75, 1.0)]
    assert widths == sorted(widths, reverse=True)
    assert len(set(widths)) == len(widths)
