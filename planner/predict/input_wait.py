"""How fast a node's processors make samples, where that is known: a step waits for its input."""

from __future__ import annotations

import numpy as np

from ...profiles.measured import MeasuredProfile
from ...profiles.profile import Profile
from ..hardware.cluster import Site
from ..plan.plan import Estimated
from ..plan.setup import Setup

Array = np.ndarray

SPREAD = 1.5
"""How far, as a factor, the speed of the input may be from what is predicted: assumed. Processors
differ, and so do files and what is done with them."""

THREADS_PER_CORE = 2
"""A vCPU is a hardware thread on the machines that clouds rent with accelerators."""
THREAD_GAIN = 1.2
"""What two threads of a core do, relative to one thread alone: assumed for code bound by arithmetic
and by cache, as decoding is."""
IMAGES_PER_S_PER_CORE = 430.0
"""JPEG images decoded, cropped to 224 x 224 and normalised per second of one core: 428 to 495 were
measured with Pillow 13.0 on an AMD EPYC, images of 500 x 375 pixels and 65 to 113 kB."""
SMALLEST_IMAGE_BYTES = 100_000
"""A sample of fewer bytes is no photograph that is decoded for every step: it may lie in memory."""


def input_samples_per_s(profile: Profile, site: Site) -> float | None:
    """Return how many samples one node's processors make a second; None where that is not known.

    Known are data sets that were measured (`gpuplan measure`), and images, whose decoding is
    assumed.
    """
    if site.vcpus is None or site.accelerator.is_cpu:
        return None
    per_core = _samples_per_s_per_core(profile)
    return None if per_core is None else per_core * site.vcpus / THREADS_PER_CORE * THREAD_GAIN


def input_s(profile: Profile, site: Site, samples_per_node: Array | float) -> Array | None:
    """Return seconds that the input of one step takes a node; None where that is not known."""
    rate = input_samples_per_s(profile, site)
    return None if rate is None else np.asarray(samples_per_node) / rate


def input_wait_s(profile: Profile, site: Site, setup: Setup, step_s: float) -> float | None:
    """Return seconds that a step of `step_s` waits for its input; None where that is not known."""
    samples = setup.micro_batch * setup.grad_accum * setup.layout.data / site.nodes
    needed_s = input_s(profile, site, samples)
    return None if needed_s is None else max(0.0, needed_s.item() - step_s)


def after_waiting(step: Estimated, waited_s: float | None) -> Estimated:
    """Return the step time of a step that waits for its input; wider, if it does."""
    if not waited_s:
        return step
    needed_s = step.value + waited_s
    return Estimated(
        value=needed_s,
        low=max(step.low, needed_s / SPREAD),
        high=max(step.high, needed_s * SPREAD),
        basis=step.basis,
    )


def waiting_notes(profile: Profile, site: Site, waited_s: float | None) -> list[str]:
    """Return that the processors are the bottleneck, where they are."""
    rate = input_samples_per_s(profile, site)
    if not waited_s or rate is None:
        return []
    measured = isinstance(profile, MeasuredProfile) and profile.measured.input is not None
    basis = "as measured" if measured else "assumed for JPEG images"
    return [
        f"the accelerators wait for their input: {site.vcpus:.0f} vCPUs a node make about"
        f" {rate:,.0f} samples/s ({basis}); decode on the GPU, or store smaller or decoded samples"
    ]


def is_input_known(profile: Profile) -> bool:
    """Return whether the speed of the input is known, given the processors."""
    return _samples_per_s_per_core(profile) is not None


def _samples_per_s_per_core(profile: Profile) -> float | None:
    if isinstance(profile, MeasuredProfile) and profile.measured.input is not None:
        return profile.measured.input.samples_per_s_per_core
    images = (
        profile.tokens_per_sample is None
        and profile.batch_bytes.per_sample >= SMALLEST_IMAGE_BYTES
        and any(k.kind == "convolution" for s in profile.steps[0].segments for k in s.kernels)
    )
    return IMAGES_PER_S_PER_CORE if images else None
