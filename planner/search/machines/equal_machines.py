"""Machines that differ in nothing but their seller and their price, and which of them are shown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal

from ...plan.question import By
from .offers import LARGE_CLOUDS, PricedInstance


def by_machine(
    choices: Iterable[PricedInstance], *, by_memory: bool, by_cpus: bool
) -> list[list[PricedInstance]]:
    """Return the choices in groups of equal machines, in the order of their first.

    Args:
        choices: instance types with their prices.
        by_memory: whether the host's memory and its cores count, where something is kept there.
        by_cpus: whether its cores count, where it is known what the input takes.
    """
    found: dict[tuple[object, ...], list[PricedInstance]] = {}
    for choice in choices:
        instance = choice.instance
        key = (
            choice.accelerator.name,
            int(instance.accelerators),
            instance.intra_link.bytes_per_s,
            instance.inter_link.bytes_per_s,
            instance.inter_link.rdma,
            instance.link_domain_accelerators,
            instance.memory_bytes if by_memory else None,
            instance.vcpus if by_memory or by_cpus else None,
        )
        found.setdefault(key, []).append(choice)
    return list(found.values())


@dataclass(frozen=True, kw_only=True)
class Sellers:
    """Which sellers of equal machines become candidates."""

    by: By | None
    """What plans are grouped by; None: by seller."""
    all_variants: bool
    """Whether every variant was asked for."""

    def shown(self, choices: Sequence[PricedInstance]) -> Sequence[PricedInstance]:
        """Return the choices of equal machines that become candidates.

        The cheapest of each group that has a row of its own, and the cheapest of the large clouds.
        """
        if self.all_variants:
            return choices
        groups: dict[object, PricedInstance] = {}
        for choice in sorted(choices, key=_price):
            groups.setdefault((self._of(choice), choice.way), choice)
            if choice.offer.provider in LARGE_CLOUDS:
                groups.setdefault((LARGE_CLOUDS, choice.way), choice)
        return list({id(choice): choice for choice in groups.values()}.values())

    def _of(self, choice: PricedInstance) -> object:
        """Return what equal machines are kept apart by."""
        offer = choice.offer
        return {
            "accelerator": None,
            "provider": offer.provider,
            "instance": (offer.provider, offer.instance_type),
            "region": (offer.provider, offer.region),
            None: offer.provider,
        }[self.by]


def _price(choice: PricedInstance) -> tuple[bool, Decimal]:
    """Return what choices of equal machines are ordered by; an unknown price comes last."""
    usd = choice.usd_per_hour
    return usd is None, usd or Decimal(0)
