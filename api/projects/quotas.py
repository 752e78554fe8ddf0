"""What the account's quota leaves to a project: asked of each cloud whose machines it rents."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, get_args

from ...catalog.vocabulary import OfferPurchase

if TYPE_CHECKING:
    from ...catalog.clouds.interface import Asked, Cloud, Quota, Tell
    from ...catalog.snapshot import Catalogue
    from ...planner.budget.planned import RunCostOf
    from ...planner.budget.report.capacity_rows import CapacityOverTime
    from ...planner.budget.schedule import Span
    from ...planner.capacity.quotas import QuotaLimit

OFFLINE = "not asked (--offline)"


@dataclass(frozen=True, kw_only=True, order=True)
class Rented:
    """A type of machine that runs rent, in one region and one way."""

    provider: str
    purchase: str
    instance_type: str
    region: str

    @property
    def sku(self) -> str:
        """As `Job.sku` calls it."""
        return f"{self.provider} {self.region} {self.instance_type} {self.purchase}"


@dataclass
class AccountQuotas:
    """What the account's quotas leave, and of which machines that is not known."""

    limits: list[QuotaLimit] = field(default_factory=list)
    unknown: dict[str, str] = field(default_factory=dict)
    """Why, by `Rented.sku`."""
    commands: dict[tuple[str, str, str], Callable[[float], str]] = field(default_factory=dict)
    """What asks for a limit, by provider, region and code of the quota."""

    def with_commands(self, found: CapacityOverTime) -> CapacityOverTime:
        """Return the answer with the commands that ask for what is missing."""
        quotas = [
            one
            if one.short_from is None
            else one.model_copy(
                update={
                    "command": self.commands[one.provider, one.region, one.code](
                        (one.used or 0.0) + one.wanted
                    )
                }
            )
            for one in found.quotas
        ]
        return found.model_copy(update={"quotas": tuple(quotas)})


def rented_by(spans: Iterable[Span], owned: Collection[str]) -> list[Rented]:
    """Return the machines that runs rent at the three clouds, without accelerators one has."""
    costs = [span.of.chosen() for span in spans]
    found = {_rented(one) for one in costs if one.accelerator not in owned}
    return sorted(one for one in found if one is not None)


def account_quotas(
    rented: Iterable[Rented],
    catalogue: Catalogue,
    *,
    clouds: Mapping[str, Cloud] | None = None,
    offline: bool = False,
    now: datetime,
    tell: Tell,
) -> AccountQuotas:
    """Return what the account's quotas leave to these machines.

    Args:
        rented: the machines.
        catalogue: which holds their types.
        clouds: by provider, to be asked instead of those of the user's own accounts.
        offline: ask nobody; no quota is known then.
        now: with its time zone.
        tell: called as regions answer.
    """
    groups: dict[tuple[str, str], list[Rented]] = {}
    for one in rented:
        groups.setdefault((one.provider, one.purchase), []).append(one)
    found = AccountQuotas()
    for (provider, purchase), machines in groups.items():
        if offline:
            found.unknown |= {one.sku: OFFLINE for one in machines}
            continue
        for way in get_args(OfferPurchase):
            if way == purchase:
                asked = _asked(catalogue, provider, machines, way, now)
                _ask(found, provider, machines, asked, clouds, tell)
    return found


def _rented(cost: RunCostOf) -> Rented | None:
    from ...catalog.clouds.connect import CLOUDS

    instance_type, _, purchase = cost.sku.rpartition(" ")
    if cost.provider not in CLOUDS or cost.region is None:
        return None
    if purchase not in get_args(OfferPurchase):
        return None  # Reserved machines are had, and blocks count against no quota.
    return Rented(
        provider=cost.provider,
        purchase=purchase,
        instance_type=instance_type,
        region=cost.region,
    )


def _asked(
    catalogue: Catalogue,
    provider: str,
    machines: list[Rented],
    purchase: OfferPurchase,
    now: datetime,
) -> Asked:
    from ...catalog.prices.refresh import asked_of

    names = {one.instance_type for one in machines}
    instances = {name: catalogue.instances[provider, name] for name in sorted(names)}
    regions = sorted({one.region for one in machines})
    asked = asked_of(catalogue, provider, regions, instances=instances, now=now)
    return replace(asked, regions=tuple(regions), purchase=purchase)


def _ask(
    found: AccountQuotas,
    provider: str,
    machines: list[Rented],
    asked: Asked,
    clouds: Mapping[str, Cloud] | None,
    tell: Tell,
) -> None:
    """Ask one cloud for the quota of machines that are bought in one way."""
    from ...catalog.clouds.connect import connect
    from ...catalog.clouds.interface import CloudError

    cloud = clouds[provider] if clouds and provider in clouds else connect(provider)
    try:
        if isinstance(cloud, CloudError):
            raise cloud
        said = cloud.quota(asked, tell)
    except CloudError as error:
        found.unknown |= {one.sku: error.reason for one in machines}
        return
    counted: dict[tuple[str, str], dict[str, float]] = {}
    first: dict[tuple[str, str], Quota] = {}
    for machine in machines:
        own = [one for one in said.quotas if _counts(one, machine)]
        for one in own:
            key = (one.region, one.code)
            counted.setdefault(key, {})[machine.sku] = one.per_instance
            first.setdefault(key, one)
        if not own:
            reasons = [
                one.text
                for one in said.unanswered
                if one.region in (None, machine.region)
                and one.instance_type in (None, machine.instance_type)
            ]
            found.unknown[machine.sku] = reasons[0] if reasons else "it does not say"
    for key, quota in first.items():
        found.limits.append(_limit(provider, quota, counted[key]))
        found.commands[provider, *key] = _command(cloud, quota)


def _counts(quota: Quota, machine: Rented) -> bool:
    place = quota.region in (machine.region, "global")
    return place and quota.instance_type == machine.instance_type


def _command(cloud: Cloud, quota: Quota) -> Callable[[float], str]:
    return lambda wanted: cloud.quota_command(quota, wanted)


def _limit(provider: str, quota: Quota, per_node: Mapping[str, float]) -> QuotaLimit:
    from ...catalog.terms.quota_answers import answer_days_of
    from ...planner.capacity.quotas import QuotaLimit

    return QuotaLimit(
        provider=provider,
        region=quota.region,
        name=quota.name,
        code=quota.code,
        unit=quota.unit,
        limit=quota.limit,
        used=quota.used,
        per_node=per_node,
        answer_days=answer_days_of(provider),
    )
