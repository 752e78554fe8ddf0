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
    input_needed,
    input_notes,
    input_samples_per_s,
    input_wait_s,
    unknown_input_notes,
    waiting_notes,
    with_input,
)
from gpuplan.profiles.profile import BatchTensor, Profile

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


def samples(toy: Profile, *shapes: tuple[int, ...], dtype: str = "float32") -> Profile:
    """Return a model whose batches hold tensors of these shapes, and a label."""
    tensors = [BatchTensor(sample_shape=shape, dtype=dtype) for shape in shapes]
    label = BatchTensor(sample_shape=(), dtype="int64")
    return toy.model_copy(update={"batch_tensors": (*tensors, label)})


def images(toy: Profile) -> Profile:
    return samples(toy, (3, 224, 224))


def test_images_are_decoded_by_the_processors_of_a_node(toy: Profile) -> None:
    rate = input_samples_per_s(images(toy), NODE)
    assert rate is not None
    assert 48 * IMAGES_PER_S_PER_CORE <= rate <= 96 * IMAGES_PER_S_PER_CORE


def test_what_is_not_known_stays_unknown(toy: Profile) -> None:
    site = replace(NODE, vcpus=None)
    for profile, where in ((toy, NODE), (images(toy), site)):
        assert input_samples_per_s(profile, where) is None
        assert input_needed(profile, where, SETUP) is None
        assert input_wait_s(None, 1.0) is None
        assert waiting_notes(profile, where, None) == []
        assert unknown_input_notes(profile) == []


@pytest.mark.parametrize(
    ("shape", "dtype", "is_said"),
    [
        ((1600, 80), "float32", True),
        ((3, 128, 1024), "float32", True),
        ((1, 128, 1024), "float32", True),
        ((16, 3, 224, 224), "float32", True),
        ((4, 64, 64), "float32", False),
        ((3, 32, 32), "float32", False),
        ((3, 96, 96), "float32", True),
        ((3, 224, 224), "int64", False),
        ((32_768,), "int64", False),
    ],
    ids=[
        "spectrogram",
        "spectrogram in three channels",
        "spectrogram in one",
        "video",
        "latents",
        "CIFAR",
        "STL-10",
        "ids",
        "text",
    ],
)
def test_what_is_no_photograph_is_not_decoded(
    toy: Profile, shape: tuple[int, ...], dtype: str, is_said: bool
) -> None:
    profile = samples(toy, shape, dtype=dtype)
    assert input_samples_per_s(profile, NODE) is None
    assert input_needed(profile, NODE, SETUP) is None
    notes = unknown_input_notes(profile)
    assert bool(notes) == is_said
    assert all("×".join(map(str, shape)) in note for note in notes)  # noqa: RUF001


@pytest.mark.parametrize(
    ("shape", "relative"),
    [
        ((3, 128, 128), 1.0),
        ((384, 384, 3), 1.0),
        ((3, 375, 500), 1.0),
        ((3, 750, 1000), 0.25),
        ((3, 1024, 1024), 187_500 / 1024**2),
    ],
)
def test_a_photograph_takes_the_time_of_its_pixels(
    toy: Profile, shape: tuple[int, ...], relative: float
) -> None:
    usual = input_samples_per_s(images(toy), NODE)
    assert usual is not None
    for dtype in ("float32", "uint8"):
        rate = input_samples_per_s(samples(toy, shape, dtype=dtype), NODE)
        assert rate == pytest.approx(usual * relative)
    two = samples(toy, shape, (3, 224, 224))
    assert input_samples_per_s(two, NODE) == pytest.approx(usual * relative)
    assert unknown_input_notes(two) == []


def test_a_step_waits_for_what_its_node_needs(toy: Profile) -> None:
    profile = images(toy)
    rate = input_samples_per_s(profile, NODE)
    assert rate is not None
    needed_s = 128 * 2 * 8 / rate
    needed = input_needed(profile, NODE, SETUP)
    assert needed is not None and needed.value == pytest.approx(needed_s)
    assert needed.low < needed_s < needed.high and needed.basis == "analytic"
    assert input_wait_s(needed, needed_s / 3) == pytest.approx(needed_s * 2 / 3)
    assert input_wait_s(needed, needed_s * 2) == 0.0
    (note,) = waiting_notes(profile, NODE, 0.1)
    assert "96 vCPUs" in note and "assumed for JPEG files" in note
    assert waiting_notes(profile, NODE, 0.0) == []


def test_waiting_moves_and_widens_the_interval() -> None:
    step = Estimated(value=1.0, low=0.9, high=1.1, basis="analytic")
    assert with_input(step, None) is step
    waited = with_input(step, Estimated(value=2.0, low=1.0, high=4.0, basis="analytic"))
    assert (waited.low, waited.value, waited.high) == (1.0, 2.0, 4.0)
    assert waited.basis == step.basis
    fast = Estimated(value=0.5, low=0.25, high=1.0, basis="analytic")
    assert with_input(step, fast) == step


def test_an_input_that_is_hardly_faster_than_the_step_may_be_slower() -> None:
    step = Estimated(value=1.0, low=0.9, high=1.1, basis="analytic")
    near = with_input(step, Estimated(value=0.8, low=0.4, high=1.6, basis="analytic"))
    assert (near.low, near.value, near.high) == (0.9, 1.0, 1.6)


def test_rows_by_the_hundred_thousand_say_how_many_cores_put_them_together(toy: Profile) -> None:
    rows = samples(toy, (26,), dtype="int64")
    (note,) = input_notes(rows, NODE, 800_000.0)
    assert "400k samples/s a node" in note and "10 cores (it has 48)" in note
    assert input_notes(rows, NODE, 100_000.0) == []
    # Large samples have a note of their own.
    assert input_notes(samples(toy, (64, 64, 64)), NODE, 800_000.0) == []


def test_what_decodes_photographs_is_said_beside_what_the_step_takes(toy: Profile) -> None:
    rate = input_samples_per_s(images(toy), NODE)
    assert rate is not None
    (note,) = input_notes(images(toy), NODE, NODE.nodes * 10_000.0)
    assert note == (
        f"input: 96 vCPUs a node decode about {rate / 1000:.1f}k JPEG/s, the step takes 10.0k"
    )
    (waits,) = input_notes(images(toy), NODE, NODE.nodes * rate)
    assert waits.endswith(", and waits for them")
    unknown = replace(NODE, vcpus=None)
    assert input_notes(images(toy), unknown, 1000.0) == []
    (note,) = input_notes(images(toy), unknown, NODE.nodes * rate)
    assert "the work of about 96 vCPUs; how many a node has is not known" in note


@pytest.mark.parametrize(
    ("ops", "tokens", "is_said"),
    [
        (("index_select", "scatter_add"), None, True),
        (("index_add",), None, True),
        (("index_select",), None, False),
        (("topk", "index_add"), None, False),
        (("index_add",), 1024.0, False),
    ],
    ids=["sums over edges", "index_add", "lookups", "experts", "a language model"],
)
def test_what_draws_the_neighbours_of_a_graph_is_said_to_be_unknown(
    toy: Profile, ops: tuple[str, ...], tokens: float | None, is_said: bool
) -> None:
    step = toy.steps[0]
    at = next(i for i, one in enumerate(step.segments) if one.phase == "forward")
    old = step.segments[at]
    added = tuple(old.kernels[0].model_copy(update={"op": op}) for op in ops)
    changed = old.model_copy(update={"kernels": (*old.kernels, *added)})
    segments = (*step.segments[:at], changed, *step.segments[at + 1 :])
    steps = (step.model_copy(update={"segments": segments}),)
    profile = toy.model_copy(update={"steps": steps, "tokens_per_sample": tokens})
    assert any("NeighborLoader" in note for note in unknown_input_notes(profile)) == is_said
