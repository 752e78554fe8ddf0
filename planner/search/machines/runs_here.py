"""Whether gpuplan's runner carries out a setup on a device: layout, precision, build of torch."""

from __future__ import annotations

from ....catalog.torch_builds import host_architecture
from ....catalog.types import Accelerator
from ....profiles.profile import Profile
from ...offload.host_memory import ordered
from ...plan.runnable import why_not_runnable
from ...plan.setup import Setup
from ...software.torch_builds import BuildVerdict, build_verdict
from ..candidate import Candidate


def torch_build_of(accelerator: Accelerator, profile: Profile) -> BuildVerdict:
    """Return which build of torch drives a device, given the torch that traced the model."""
    return _verdict(accelerator, profile.torch_version)


def why_not_run(setup: Setup, accelerator: Accelerator, profile: Profile) -> str | None:
    """Return why gpuplan's runner does not carry out a setup, as a sentence; None where it does."""
    return torch_build_of(accelerator, profile).why_not or why_not_runnable(
        setup.layout,
        precision=setup.precision,
        frozen_precision=setup.frozen_precision,
        stack=setup.stack,
        grad_accum=setup.grad_accum,
        recompute=setup.recompute,
        offloaded=ordered(setup.offload),
        tensor_plan=profile.tensor_plan,
        tied_modules=profile.tied_modules,
        tied_blocks=profile.tied_blocks,
        blocks=max((group.count for group in profile.blocks), default=0),
        port_to=accelerator.port_to,
        sparse_parameters=profile.sparse_parameters,
    )


def stands_apart(accelerator: Accelerator, profile: Profile) -> bool:
    """Return whether a device runs a torch file after a port only, or with torch from source."""
    has_build = torch_build_of(accelerator, profile).why_not is None
    return accelerator.port_to is not None or not has_build


def needs_build(accelerator: Accelerator, profile: Profile) -> bool:
    """Return whether a device needs a build of torch other than the one that pip brings."""
    return torch_build_of(accelerator, profile) != BuildVerdict()


def is_run(candidate: Candidate, profile: Profile) -> bool:
    """Return whether the runner carries out a candidate, with this release of torch."""
    accelerator = candidate.one_node.accelerator
    if torch_build_of(accelerator, profile).is_older:
        return False
    return why_not_run(candidate.setup, accelerator, profile) is None


_KNOWN: dict[tuple[str, str | None, str], BuildVerdict] = {}


def _verdict(accelerator: Accelerator, torch_version: str) -> BuildVerdict:
    """Return the verdict, looked up once per device: a search asks for thousands of candidates."""
    key = (accelerator.name, accelerator.compute_capability, torch_version)
    if key not in _KNOWN:
        host = host_architecture(accelerator.name)
        _KNOWN[key] = build_verdict(accelerator, host, torch_version)
    return _KNOWN[key]
