"""Machines that differ in nothing but their seller and their price, and which of them are shown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal

from ....profiles.curves.network import fabric_of
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
            choice.one_node.intra_link.bytes_per_s,
            instance.inter_link.bytes_per_s,
            fabric_of(instance.inter_link.name, instance.inter_link.rdma),
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

        The cheapest of each group that has a row of its own, and the cheapest of the large clouds,
        with those that are dearer by the hour and bill a job of minutes in smaller steps.
        """
        if self.all_variants:
            return choices
        groups: dict[object, list[PricedInstance]] = {}
        for choice in sorted(choices, key=_price):
            _keep(groups.setdefault((self._of(choice), choice.way), []), choice)
            if choice.offer.provider in LARGE_CLOUDS:
                _keep(groups.setdefault((LARGE_CLOUDS, choice.way), []), choice)
        kept = (choice for group in groups.values() for choice in group)
        return list({id(choice): choice for choice in kept}.values())

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


def _keep(cheaper: list[PricedInstance], choice: PricedInstance) -> None:
    """Keep a choice that may be the cheapest for some job, of all that are cheaper by the hour."""
    step_s, least_s = _billed_s(choice)
    steps = [_billed_s(one) for one in cheaper]
    is_finer = all(step_s < step or least_s < least for step, least in steps)
    if not cheaper or (is_finer and choice.usd_per_hour is not None):
        cheaper.append(choice)


def _billed_s(choice: PricedInstance) -> tuple[int, int]:
    """Return the steps and the least that a seller bills in, seconds; 0 where it is not known."""
    billing = choice.billing
    if billing is None:
        return 0, 0
    return billing.billing_increment_s or 0, billing.minimum_s or 0


def _price(choice: PricedInstance) -> tuple[bool, Decimal]:
    """Return what choices of equal machines are ordered by; an unknown price comes last."""
    usd = choice.usd_per_hour
    return usd is None, usd or Decimal(0)
