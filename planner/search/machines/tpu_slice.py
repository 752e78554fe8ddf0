"""TPU hosts of one torus: they are rented as a slice, not one by one."""

from __future__ import annotations

from ....catalog.tpu_slices import has_slice
from ...hardware.cluster import Site


def is_of_slices(site: Site) -> bool:
    """Return whether such nodes are hosts of a TPU that one torus joins."""
    return site.accelerator.vendor == "Google" and site.link_domain is not None


def can_be_rented(site: Site, nodes: int) -> bool:
    """Return whether slices have so many hosts, or several alike do."""
    chips = nodes * site.per_node
    return not is_of_slices(site) or has_slice(site.accelerator.name, chips)


def slice_note(site: Site) -> str | None:
    """Return what is rented where nodes are hosts of a slice; None where they are not."""
    if site.nodes == 1 or not is_of_slices(site):
        return None
    hosts, chips = f"its {site.nodes:,} hosts", site.accelerators
    if not can_be_rented(site, site.nodes):
        return (
            f"whether a slice of {chips:,} chips can be had is not known: most have a power of two"
        )
    if chips <= site.domain:
        return f"{hosts} are rented as one slice of {chips:,} chips"
    slices = chips // site.domain
    return (
        f"{hosts} are rented as {slices:,} slices of {site.domain:,} chips, joined by the network"
    )
