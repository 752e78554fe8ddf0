"""What pipeline stages send each other: activations forward, their gradients backward.

Without sequence parallelism every tensor rank holds the whole activation. Where software scatters
it, each rank sends a part over the network, and the ranks of the next stage gather the parts over
their fast link (Narayanan et al. 2021, arXiv:2104.04473, section 4.1).
"""

from __future__ import annotations

import numpy as np

from ..hardware.collectives import Links

Array = np.ndarray

SEND_LATENCY_S = 10e-6


def send_s(
    links: Links,
    activation_bytes: Array,
    *,
    on_fast_link: Array,
    parts: Array,
) -> Array:
    """Return seconds that one micro-batch's transfers between stages take a stage.

    Args:
        links: what they run over.
        activation_bytes: what a rank holds of the activation between two stages.
        on_fast_link: whether a whole pipeline lies on the fast link; else the network is between.
        parts: tensor ranks among which that is scattered; 1 where every rank sends all it holds.
    """
    site = links.site
    line = site.domain_bytes_per_s
    fast, slow = site.intra_link.bytes_per_s, None if line is None else line / site.domain
    unit = np.where(on_fast_link, 1 / fast if fast else 0.0, 1 / slow if slow else 0.0)
    sent_s = activation_bytes / parts * unit
    gathered_s = _gather_s(links, activation_bytes, parts)
    return 2 * (SEND_LATENCY_S + sent_s + gathered_s + links.constants["send_host_s"])


def _gather_s(links: Links, activation_bytes: Array, parts: Array) -> Array:
    """Return seconds in which the ranks of a stage gather what each of them received."""
    whole, ranks = np.broadcast_arrays(activation_bytes, parts)
    seconds = np.zeros(whole.shape)
    for several in np.unique(ranks[ranks > 1]).tolist():
        these = ranks == several
        seconds[these] = links.constants["fast_link"] * links.curves.collective_s(
            "all_gather",
            whole[these],
            several,
            link_bytes_per_s=links.site.intra_link.bytes_per_s,
        )
    return seconds
