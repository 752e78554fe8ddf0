"""What is known of whether many machines can be had at once, on demand or on spot: next to nothing.

No seller publishes what it has free. What the catalogue does know are the sellers' own words that a
type is had by reservation (`data/curated/reserved_in_practice.csv`), and how many machines one
capacity block has at most (`data/curated/capacity_blocks.csv`).
"""

from __future__ import annotations

from ....catalog.terms.blocks import block_most_instances
from .offers import LARGE_CLOUDS, PricedInstance

MANY = 64
"""Accelerators from which it is said. A judgement: eight machines of eight are more than an account
starts without asking."""


def many_at_once(choice: PricedInstance, nodes: int) -> str | None:
    """Return what is to know of renting so many machines at once; None: nothing beyond their price.

    Args:
        choice: the machine and how it is paid for.
        nodes: how many are rented at once.
    """
    if nodes < 2 or nodes * choice.instance.accelerators < MANY:
        return None
    if choice.purchase not in ("on-demand", "spot"):
        return None
    seller, machine = choice.offer.provider, choice.instance.instance_type
    most = block_most_instances(seller)
    block = "" if most is None else f"; one capacity block of {seller} has {most} at most"
    ask = "`gpuplan capacity` asks your account" if seller in LARGE_CLOUDS else "ask the seller"
    return (
        f"whether {nodes:,} × {machine} can be had at once is not known: {seller} publishes no"  # noqa: RUF001
        f" stock{block}; {ask}"
    )
