"""How fast a node's processors make samples, where that is known: a step waits for its input."""

from __future__ import annotations

from math import prod

import numpy as np

from ...catalog.text.quantity import format_count
from ...profiles.measured import MeasuredProfile
from ...profiles.profile import BatchTensor, Profile
from ..hardware.cluster import Site
from ..plan.plan import Estimated
from ..plan.setup import Setup

Array = np.ndarray

MEASURED_SPREAD = 1.5
"""How far, as a factor, the speed of an input that was measured may be from what is predicted:
assumed. Processors differ, and so do files."""
ASSUMED_SPREAD = 2.0
"""The same for photographs whose decoding is assumed: what is done with each is not known, and the
processors that clouds rent with V100 and A100 are three to six years older than the one measured.
Assumed."""

THREADS_PER_CORE = 2
"""A vCPU is a hardware thread on the machines that clouds rent with accelerators."""
THREAD_GAIN = 1.2
"""What two threads of a core do, relative to one thread alone: assumed for code bound by arithmetic
and by cache, as decoding is."""
IMAGES_PER_S_PER_CORE = 290.0
"""JPEG images read, decoded, cropped at random to 224 x 224, mirrored, normalised and put into
batches by a worker of torch's DataLoader, per second of one core: 361, and 239 with two more random
changes to each (colours, contrast, rotation, shear), were measured with Pillow 13.0 and torch 2.13
on an AMD EPYC of 2022, images of 500 x 375 pixels and 92 kB; this is between them."""
FILE_PIXELS = 500 * 375
"""Pixels of those files. Assumed: work grows with the pixels of a file, which is decoded block by
block, and a sample that is larger than these files is of a file as large as itself."""
SMALLEST_SIDE_PIXELS = 128
"""Smaller images are stored as small as they are, and mostly lie in memory: CIFAR's have 32 a side,
Tiny ImageNet's 64, STL-10's 96."""
LARGEST_RATIO = 4.0
"""Longest by shortest side: a spectrogram in three channels is longer than a photograph."""
RGB = 3
LARGE_SAMPLE_BYTES = 100_000
"""Smaller samples that are no photographs are made fast, or lie in memory: a judgement."""
ROWS_PER_S_PER_CORE = 40_000.0
"""Rows of 13 numbers, 26 ids and a label that torch's DataLoader takes one by one from a
TensorDataset and puts into batches of 512 and 8,192, per second of one core: 28,000 to 65,000 were
measured with torch 2.13 on an AMD EPYC."""
SUMS_OVER_EDGES = frozenset({"scatter_add", "index_add", "scatter_reduce", "index_reduce"})
"""Operations of a forward pass that add what arrives at a node of a graph."""
ROUNDING = 1e-6
"""Of a rate that waits for its input: that of the input itself."""
USUAL_VCPUS = 8
"""Of a machine, for each of its accelerators, with hardly one that has fewer: what no more are the
work of is not worth a word. A judgement."""
ROW_CORES = 2.0
"""Cores at work on that from which it is worth a word: one worker is what everybody has."""
DTYPE_BYTES = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2, "uint8": 1}
"""Of what images, sound and video are kept in; wider integers are ids or labels."""


def input_samples_per_s(profile: Profile, site: Site) -> float | None:
    """Return how many samples one node's processors make a second; None where that is not known.

    Known are data sets that were measured (`gpuplan profile --measure`), and photographs, whose
    decoding is assumed.
    """
    if site.vcpus is None or site.accelerator.is_cpu:
        return None
    per_core = _samples_per_s_per_core(profile)
    return None if per_core is None else per_core * site.vcpus / THREADS_PER_CORE * THREAD_GAIN


def input_s(profile: Profile, site: Site, samples_per_node: Array | float) -> Array | None:
    """Return seconds that the input of one step takes a node; None where that is not known."""
    rate = input_samples_per_s(profile, site)
    return None if rate is None else np.asarray(samples_per_node) / rate


def input_needed(profile: Profile, site: Site, setup: Setup) -> Estimated | None:
    """Return seconds that the input of a step takes a node; None where that is not known."""
    samples = setup.micro_batch * setup.grad_accum * setup.layout.data / site.nodes
    found = input_s(profile, site, samples)
    if found is None:
        return None
    needed_s, is_measured = found.item(), is_input_measured(profile)
    spread = MEASURED_SPREAD if is_measured else ASSUMED_SPREAD
    return Estimated(
        value=needed_s,
        low=needed_s / spread,
        high=needed_s * spread,
        basis="calibrated" if is_measured else "analytic",
    )


def input_wait_s(needed: Estimated | None, step_s: float) -> float | None:
    """Return seconds that a step of `step_s` waits for its input; None where that is not known."""
    return None if needed is None else max(0.0, needed.value - step_s)


def with_input(step: Estimated, needed: Estimated | None) -> Estimated:
    """Return the time of a step that takes at least as long as its input.

    The interval knows that the input may be slower, though no wait is likely.

    Args:
        step: of the accelerators alone.
        needed: of the input alone; None where that is not known.
    """
    if needed is None:
        return step
    return Estimated(
        value=max(step.value, needed.value),
        low=max(step.low, needed.low),
        high=max(step.high, needed.high),
        basis=step.basis,
    )


def is_input_measured(profile: Profile) -> bool:
    """Return whether the speed of the input was measured."""
    return isinstance(profile, MeasuredProfile) and profile.measured.input is not None


def waiting_notes(profile: Profile, site: Site, waited_s: float | None) -> list[str]:
    """Return that the processors are the bottleneck, where they are."""
    rate = input_samples_per_s(profile, site)
    if not waited_s or rate is None:
        return []
    basis = "as measured" if is_input_measured(profile) else "assumed for JPEG files"
    return [
        f"the accelerators wait for their input: {site.vcpus:.0f} vCPUs a node make about"
        f" {rate:,.0f} samples/s ({basis}); decode on the GPU, or store smaller or decoded samples"
    ]


def is_input_known(profile: Profile) -> bool:
    """Return whether the speed of the input is known, given the processors."""
    return _samples_per_s_per_core(profile) is not None


def unknown_input_notes(profile: Profile) -> list[str]:
    """Return that nothing is known of the speed of the input, where it may matter."""
    large = [
        one
        for one in profile.batch_tensors
        if prod(one.sample_shape) * DTYPE_BYTES.get(one.dtype, 0) >= LARGE_SAMPLE_BYTES
    ]
    if is_input_known(profile):
        return []
    if not large:
        return _graph_notes(profile)
    shapes = " and ".join("×".join(map(str, one.sample_shape)) for one in large)  # noqa: RUF001
    return [
        f"how fast processors make samples of {shapes} is not known, and no wait for them is in the"
        " step times: `gpuplan profile --measure` times your data set"
    ]


def _graph_notes(profile: Profile) -> list[str]:
    """Return that nothing is known of what draws the graphs of a batch, where it has some."""
    forward = [
        kernel
        for segment in profile.steps[0].segments
        if segment.phase == "forward"
        for kernel in segment.kernels
    ]
    gathers = any(kernel.op in SUMS_OVER_EDGES for kernel in forward)
    # A layer of experts adds the rows that it picked in the same way.
    if not gathers or profile.tokens_per_sample or any(kernel.op == "topk" for kernel in forward):
        return []
    return [
        "how fast processors draw the graphs or the neighbours of a batch (NeighborLoader) is not"
        " known, nor how long their features take to the device, and no wait for them is in the"
        " step times: `gpuplan profile --measure` times your data set"
    ]


def input_notes(profile: Profile, site: Site, samples_per_s: float) -> list[str]:
    """Return what making the samples of a run takes, where something is known of it.

    Args:
        profile: the model.
        site: where it is trained.
        samples_per_s: of all nodes.
    """
    if not is_input_known(profile):
        return _row_notes(profile, site, samples_per_s / site.nodes)
    rate = input_samples_per_s(profile, site)
    if rate is None:
        return _unknown_vcpus_notes(profile, site, samples_per_s / site.nodes)
    is_measured = is_input_measured(profile)
    makes = "make about {} samples/s (as measured)" if is_measured else "decode about {} JPEG/s"
    taken = samples_per_s / site.nodes
    waits = "" if rate > taken * (1 + ROUNDING) else ", and waits for them"
    return [
        f"input: {site.vcpus:.0f} vCPUs a node {makes.format(format_count(rate))}, the step takes"
        f" {format_count(taken)}{waits}"
    ]


def _unknown_vcpus_notes(profile: Profile, site: Site, samples_per_s: float) -> list[str]:
    """Return how many vCPUs the input takes, where nobody says how many a node has."""
    per_core = _samples_per_s_per_core(profile)
    if site.accelerator.is_cpu or per_core is None:
        return []
    vcpus = samples_per_s / per_core * THREADS_PER_CORE / THREAD_GAIN
    if vcpus <= USUAL_VCPUS * site.per_node:
        return []
    return [
        f"input: the step takes {format_count(samples_per_s)} samples/s a node, the work of about"
        f" {vcpus:,.0f} vCPUs; how many a node has is not known, and no wait for them is in the"
        " step time"
    ]


def _row_notes(profile: Profile, site: Site, samples_per_s: float) -> list[str]:
    """Return how many cores put together samples that are small and many, where that is several.

    Rows of tables and of click logs are taken by the hundred thousand a second, where a loader that
    makes them one at a time is the bottleneck. No step time has it.
    """
    cores = samples_per_s / ROWS_PER_S_PER_CORE
    if cores < ROW_CORES or unknown_input_notes(profile):
        return []
    has = "" if site.vcpus is None else f" (it has {site.vcpus / THREADS_PER_CORE:.0f})"
    return [
        f"input: {format_count(samples_per_s)} samples/s a node, taken one by one, are the work of"
        f" {cores:.0f} cores{has}, not in the step times: read whole batches, or use as many"
        " workers (`gpuplan profile --measure` times them)"
    ]


def _samples_per_s_per_core(profile: Profile) -> float | None:
    if isinstance(profile, MeasuredProfile) and profile.measured.input is not None:
        return profile.measured.input.samples_per_s_per_core
    pixels = [_photograph_pixels(one) for one in profile.batch_tensors]
    largest = max((one for one in pixels if one is not None), default=None)
    # Of several in a sample, two crops of one file for one, at least the largest is decoded.
    return (
        None if largest is None else IMAGES_PER_S_PER_CORE * FILE_PIXELS / max(FILE_PIXELS, largest)
    )


def _photograph_pixels(tensor: BatchTensor) -> int | None:
    """Return the pixels of a photograph in three channels, first or last; None for all else."""
    shape = tensor.sample_shape
    if tensor.dtype not in DTYPE_BYTES or len(shape) != 3 or RGB not in (shape[0], shape[-1]):
        return None
    short, long = sorted(shape[1:] if shape[0] == RGB else shape[:-1])
    is_photograph = short >= SMALLEST_SIDE_PIXELS and long <= LARGEST_RATIO * short
    return short * long if is_photograph else None
