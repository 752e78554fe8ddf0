"""Accelerators that wait for their input: where its speed is known, and what follows."""

from dataclasses import replace

import pytest

from gpuplan.catalog.snapshot import load_catalogue
from gpuplan.catalog.types import Link
from gpuplan.planner.hardware.cluster import Site
from gpuplan.planner.plan.layout import Layout
from gpuplan.planner.plan.plan import Estimated
from gpuplan.planner.plan.setup import Setup
from gpuplan.planner.predict.input_wait import (
    IMAGES_PER_S_PER_CORE,
    after_waiting,
    input_samples_per_s,
    input_wait_s,
    waiting_notes,
)
from gpuplan.profiles.profile import Affine, Kernel, Profile

A100 = load_catalogue().accelerators["A100-40GB-SXM"]
NODE = Site(
    accelerator=A100,
    per_node=8,
    nodes=2,
    intra_link=Link(name=None, bytes_per_s=3e11),
    inter_link=Link(name=None, bytes_per_s=5e10),
    vcpus=96,
)
SETUP = Setup(layout=Layout(data=16), precision="bf16-amp", micro_batch=128, grad_accum=2)


def images(toy: Profile, sample_bytes: float = 602_112) -> Profile:
    """Return a model of images: it convolves, and has no tokens."""
    step = toy.steps[0]
    (first, *rest) = step.segments
    kernel: Kernel = first.kernels[0].model_copy(update={"kind": "convolution"})
    segments = (first.model_copy(update={"kernels": (kernel, *first.kernels[1:])}), *rest)
    return toy.model_copy(
        update={
            "steps": (step.model_copy(update={"segments": segments}), *toy.steps[1:]),
            "tokens_per_sample": None,
            "batch_bytes": Affine(0, sample_bytes),
        }
    )


def test_images_are_decoded_by_the_processors_of_a_node(toy: Profile) -> None:
    rate = input_samples_per_s(images(toy), NODE)
    assert rate is not None
    assert 48 * IMAGES_PER_S_PER_CORE <= rate <= 96 * IMAGES_PER_S_PER_CORE


@pytest.mark.parametrize("known", ["text", "small", "no vcpus"])
def test_what_is_not_known_stays_unknown(toy: Profile, known: str) -> None:
    profile = {"text": toy, "small": images(toy, 3072.0)}.get(known, images(toy))
    site = replace(NODE, vcpus=None) if known == "no vcpus" else NODE
    assert input_samples_per_s(profile, site) is None
    assert input_wait_s(profile, site, SETUP, 1.0) is None
    assert waiting_notes(profile, site, None) == []


def test_a_step_waits_for_what_its_node_needs(toy: Profile) -> None:
    profile = images(toy)
    rate = input_samples_per_s(profile, NODE)
    assert rate is not None
    needed_s = 128 * 2 * 8 / rate
    assert input_wait_s(profile, NODE, SETUP, needed_s / 3) == pytest.approx(needed_s * 2 / 3)
    assert input_wait_s(profile, NODE, SETUP, needed_s * 2) == 0.0
    (note,) = waiting_notes(profile, NODE, 0.1)
    assert "96 vCPUs" in note and "assumed for JPEG images" in note
    assert waiting_notes(profile, NODE, 0.0) == []


def test_waiting_moves_and_widens_the_interval() -> None:
    step = Estimated(value=1.0, low=0.9, high=1.1, basis="analytic")
    assert after_waiting(step, None) is step
    assert after_waiting(step, 0.0) is step
    waited = after_waiting(step, 1.0)
    assert waited.value == 2.0
    assert waited.low < waited.value < waited.high
    assert waited.high / waited.low > step.high / step.low
