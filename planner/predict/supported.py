"""What cannot be predicted: setups that this version or the device does not support."""

from __future__ import annotations

from ...catalog.vocabulary import PRECISIONS
from ..hardware.cluster import Site
from ..hardware.device import peak_flops
from ..plan.errors import UnsupportedError
from ..plan.setup import Setup
from ..software.frozen_base import why_not_kept


def refuse_unsupported(site: Site, setup: Setup) -> None:
    """Raise UnsupportedError for what this version or this device cannot do."""
    if setup.layout.accelerators != site.accelerators:
        raise UnsupportedError(
            f"Layout {setup.layout} needs {setup.layout.accelerators} accelerators; {site.nodes}"
            f" x {site.per_node} are {site.accelerators}.",
            fix="make the degrees multiply to the number of accelerators.",
        )
    known = [one for one in PRECISIONS if peak_flops(site.accelerator, one) is not None]
    if setup.precision not in known:
        raise UnsupportedError(
            f"{site.accelerator.name} has no {setup.precision} units.",
            fix=f"give --precision one of {', '.join(known)}.",
        )
    _refuse_offload(setup)
    reason = why_not_kept(setup, site.accelerator)
    if reason is not None:
        raise UnsupportedError(
            f"{reason[0].upper()}{reason[1:]}.",
            fix="change that, or leave out --frozen-precision.",
        )


def _refuse_offload(setup: Setup) -> None:
    """Raise UnsupportedError for an offload that the layout cannot have."""
    layout = setup.layout
    if "parameters" in setup.offload and layout.zero_stage != 3:
        raise UnsupportedError(
            f"Parameters are offloaded by FSDP, which {layout} is not.",
            fix=f"give --layout fsdp{layout.accelerators}, or --offload optimizer.",
        )
    if "activations" in setup.offload and not layout.is_data_parallel_only:
        raise UnsupportedError(
            f"Offloaded activations are not predicted for {layout}, which splits the model.",
            fix="give a data-parallel layout, or --recompute full instead.",
        )
