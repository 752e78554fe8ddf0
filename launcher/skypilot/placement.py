"""Where a plan may be launched, in the order in which it is tried, and what a node costs there."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from ...catalog.errors import PriceError, UsageError
from ...catalog.snapshot import Catalogue
from ...catalog.tpu_slices import LARGEST_SLICE_CHIPS
from ...catalog.types import Offer
from ...planner.plan.plan import ChosenOffer, Plan

OWN_CLUSTERS: Mapping[str, str] = {
    "kubernetes": "k8s",
    "k8s": "k8s",
    "slurm": "slurm",
    "ssh": "ssh",
}
"""How an --offers file names the user's own clusters → SkyPilot's name of their kind; the region
is the context, the Slurm cluster or the pool of SSH nodes."""
ANYWHERE = ("global", "local", "")
"""Regions that are none."""
NAMED_INSTANCES: Mapping[str, str] = {
    "aws": "",
    "azure": "",
    "gcp": "",
    "lambda": "gpu_",
    "nebius": "",
    "oci": "",
}
"""Cloud → how the instance types begin that the catalogue has by the names that SkyPilot knows;
elsewhere SkyPilot is asked for the accelerators."""
PLACE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@:-]*")
# By SkyPilot's own catalogue of accelerators (v8); an accelerator that is not here has one name.
SKYPILOT_NAMES: Mapping[str, str] = {
    "A100-40GB-PCIe": "A100",
    "A100-40GB-SXM": "A100",
    "A100-80GB-PCIe": "A100-80GB",
    "A100-80GB-SXM": "A100-80GB",
    "B200-180GB-SXM": "B200",
    "GH200-96GB": "GH200",
    "H100-80GB-PCIe": "H100",
    "H100-80GB-SXM": "H100",
    "H200-141GB-SXM": "H200",
    "P100-16GB-PCIe": "P100",
    "P100-16GB-SXM2": "P100",
    "RTX-3090": "RTX3090",
    "RTX-4090": "RTX4090",
    "RTX-5090": "RTX5090",
    "V100-16GB-PCIe": "V100",
    "V100-16GB-SXM2": "V100",
    "V100-32GB-PCIe": "V100-32GB",
    "V100-32GB-SXM2": "V100-32GB",
}
# Where a cloud's machines have names of their own in SkyPilot 0.14 (sky/catalog/data_fetchers), by
# which the card of a server is told from the one of a slot.
NAMES_OF: Mapping[str, Mapping[str, str]] = {
    "runpod": {
        "A100-80GB-SXM": "A100-80GB-SXM",
        "H100-80GB-SXM": "H100-SXM",
        "H100-94GB-NVL": "H100-NVL",
        "H200-141GB-SXM": "H200-SXM",
        "RTX-4000-Ada": "RTX4000-Ada",
        "RTX-6000-Ada": "RTX6000-Ada",
        "RTX-A5000": "RTXA5000",
        "RTX-A6000": "RTXA6000",
        "RTX-PRO-6000": "RTXPRO6000",
    },
    "lambda": {"Quadro-RTX-6000": "RTX6000", "RTX-A6000": "A6000"},
}
LAMBDA_MACHINES: Mapping[str, str] = {
    "A100-40GB-PCIe": "gpu_{}x_a100",
    "A100-40GB-SXM": "gpu_{}x_a100_sxm4",
    "H100-80GB-PCIe": "gpu_{}x_h100_pcie",
    "H100-80GB-SXM": "gpu_{}x_h100_sxm5",
}
"""Lambda's own names, for accelerators of which SkyPilot knows two kinds by one name."""
ONE_NODE_ONLY = ("runpod", "vast", "verda")
"""Clouds on which SkyPilot 0.14 starts no cluster of several nodes (sky/clouds)."""
NO_BUCKETS = ("runpod", "vast")
"""Clouds on which it mounts no bucket."""
NO_SPOT = ("do", "lambda")
"""Clouds on which it buys no spot machines."""
# Google names v2 to v5p slices by TensorCores, two a chip, and v5e and v6e slices by chips.
TPU_SLICES: Mapping[str, tuple[str, int]] = {
    "TPU-v2": ("tpu-v2", 2),
    "TPU-v3": ("tpu-v3", 2),
    "TPU-v4": ("tpu-v4", 2),
    "TPU-v5p": ("tpu-v5p", 2),
    "TPU-v5e": ("tpu-v5litepod", 1),
    "TPU-v6e": ("tpu-v6e", 1),
}


@dataclass(frozen=True, kw_only=True)
class Place:
    """A cloud, a region or a zone, with the price of one node in it."""

    cloud: str
    """As SkyPilot names it."""
    region: str | None
    zone: str | None
    usd_per_hour: Decimal
    """US dollars, before tax."""
    tax_percent: Decimal | None = None
    """What the user's pricebook says that is paid on it."""
    discount_percent: Decimal | None = None
    """What their pricebook has taken off it; None: nothing."""
    is_of_term: bool = False
    """Whether it is the price of a commitment or a reservation, which no table of hours has."""

    @property
    def paid_usd_per_hour(self) -> Decimal:
        """Return what an hour of a node costs with its tax, as it is counted."""
        return self.usd_per_hour * (1 + (self.tax_percent or Decimal(0)) / 100)

    @property
    def infra(self) -> str:
        """Return the place as SkyPilot's `infra` names it."""
        return "/".join(part for part in (self.cloud, self.region, self.zone) if part)


def places(
    plan: Plan,
    catalogue: Catalogue,
    *,
    spot: bool,
    regions: tuple[str, ...] = (),
    zones: tuple[str, ...] = (),
) -> tuple[Place, ...]:
    """Return where a plan is tried, in order: the regions that are named, else the plan's own.

    Raises:
        UsageError: SkyPilot does not reach the provider, or regions and zones contradict.
        PriceError: the price of a node is not known in one of them.
    """
    cloud = cloud_of(plan.offer, catalogue)
    _refuse_unsold(plan, cloud, spot=spot)
    for name in (*regions, *zones):
        if not PLACE.fullmatch(name):
            raise UsageError(f"{name!r} is no region or zone.", fix="see `gpuplan offers`.")
    if zones and len(regions) > 1:
        raise UsageError(
            "--zone is given with several regions.", fix="give one --region, or leave --zone out."
        )
    tried = regions or (plan.offer.region,)
    zones_tried: tuple[str | None, ...] = (
        zones or (() if regions else (plan.offer.zone,)) or (None,)
    )
    return tuple(
        Place(
            cloud=cloud,
            region=None if region in ANYWHERE else region,
            zone=zone,
            **_price(plan.offer, region, catalogue, spot=spot),
        )
        for region in tried
        for zone in zones_tried
    )


def own_place(infra: str, plan: Plan, *, spot: bool) -> Place:
    """Return a cluster of the user's own, `k8s/context`, `slurm/cluster` or `ssh/pool`.

    Whoever sells it, and however its offers call it, a node costs what the plan says.

    Raises:
        UsageError: it is none of these, or is to be bought as spot.
        PriceError: the plan has no price.
    """
    kind, _, rest = infra.partition("/")
    parts = rest.split("/") if rest else []
    cloud = OWN_CLUSTERS.get(kind)
    if cloud is None or len(parts) > 2 or not all(PLACE.fullmatch(part) for part in parts):
        raise UsageError(
            f"--infra {infra!r} is no cluster of your own.",
            fix="write k8s/CONTEXT, slurm/CLUSTER or ssh/POOL, as `sky check` names them; for a"
            " cloud give --provider and --region.",
        )
    if spot:
        raise UsageError(
            f"{infra} has no spot machines.", fix="give --on-demand, or leave --infra out."
        )
    if plan.offer.usd_per_hour is None:
        raise PriceError(
            f"Nobody states what a node of {infra} costs.",
            fix="state it in a file for --offers, and estimate with it; 0 if it is yours.",
        )
    return Place(
        cloud=cloud,
        region=parts[0] if parts else None,
        zone=parts[1] if len(parts) > 1 else None,
        usd_per_hour=Decimal(str(plan.offer.usd_per_hour)),
        tax_percent=_decimal(plan.offer.tax_percent),
    )


def cloud_of(offer: ChosenOffer, catalogue: Catalogue) -> str:
    """Return SkyPilot's name of the provider.

    Raises:
        UsageError: SkyPilot does not reach it.
    """
    if offer.provider in OWN_CLUSTERS:
        return OWN_CLUSTERS[offer.provider]
    provider = catalogue.providers.get(offer.provider)
    if provider is None or provider.skypilot_cloud is None:
        raise UsageError(
            f"SkyPilot does not reach {offer.provider}, which plan's machines are from.",
            fix="take a plan on another provider; `gpuplan offers --launchable` lists them."
            " A cluster of your own is reached with --infra k8s/CONTEXT, slurm/CLUSTER or"
            " ssh/POOL.",
        )
    return provider.skypilot_cloud


def skypilot_name(accelerator: str, cloud: str) -> str:
    """Return what SkyPilot calls an accelerator on a cloud.

    >>> skypilot_name("H100-80GB-SXM", "aws"), skypilot_name("H100-80GB-SXM", "runpod")
    ('H100', 'H100-SXM')
    """
    named = {**SKYPILOT_NAMES, **NAMES_OF.get(cloud, {})}
    return named.get(accelerator, accelerator)


def _refuse_several_slices(plan: Plan) -> None:
    """Raise an error where a plan's chips are no one slice."""
    accelerator, chips = plan.offer.accelerator, plan.accelerators
    most = LARGEST_SLICE_CHIPS[accelerator]
    if chips <= most:
        return
    raise UsageError(
        f"{chips:,} chips are more than one slice of {accelerator}, which has {most:,} at most, and"
        " SkyPilot starts one.",
        fix=f"give --nodes: {most // plan.offer.accelerators_per_node} at most.",
    )


def hardware(plan: Plan, cloud: str) -> tuple[int, dict[str, Any]]:
    """Return how many nodes SkyPilot starts, and the fields that say what each is.

    A TPU slice of several machines is one node to SkyPilot, which runs the job on all of them.
    """
    offer = plan.offer
    if offer.accelerator in TPU_SLICES:
        name, factor = TPU_SLICES[offer.accelerator]
        _refuse_several_slices(plan)
        return 1, {"accelerators": f"{name}-{plan.accelerators * factor}"}
    host, plus, attached = offer.instance_type.partition("+")
    if plus and cloud == "gcp":
        count, _, device = attached.partition("x")
        name = device.removeprefix("nvidia-tesla-").upper()
        return plan.nodes, {"instance_type": host, "accelerators": {name: int(count)}}
    if cloud in NAMED_INSTANCES and offer.instance_type.startswith(NAMED_INSTANCES[cloud]):
        return plan.nodes, {"instance_type": offer.instance_type}
    if cloud == "lambda" and offer.accelerator in LAMBDA_MACHINES:
        machine = LAMBDA_MACHINES[offer.accelerator].format(offer.accelerators_per_node)
        return plan.nodes, {"instance_type": machine}
    name = skypilot_name(offer.accelerator, cloud)
    return plan.nodes, {"accelerators": {name: offer.accelerators_per_node}}


def _refuse_unsold(plan: Plan, cloud: str, *, spot: bool) -> None:
    """Refuse what SkyPilot does not start on a cloud, before it says so itself."""
    if plan.nodes > 1 and cloud in ONE_NODE_ONLY:
        raise UsageError(
            f"SkyPilot starts one node at a time on {plan.offer.provider}, and the plan has"
            f" {plan.nodes}.",
            fix="take a plan of one node (`gpuplan estimate --nodes 1`), or another provider.",
        )
    if spot and cloud in NO_SPOT:
        raise UsageError(
            f"SkyPilot buys no spot machines on {plan.offer.provider}.", fix="give --on-demand."
        )


def _price(chosen: ChosenOffer, region: str, catalogue: Catalogue, *, spot: bool) -> dict[str, Any]:
    """Return what a place says of its price: the plan's own terms where it is the plan's price.

    Raises:
        PriceError: it is not known.
    """
    offer = _offer(chosen, region, catalogue)
    tax_percent = _decimal(chosen.tax_percent)
    planned_so = region == chosen.region and spot == (chosen.purchase == "spot")
    if planned_so and chosen.usd_per_hour is not None:
        planned = Decimal(str(chosen.usd_per_hour))
        # A plan that was kept by an older gpuplan may hold a spot price that is none of the market.
        if not (spot and _is_hollow_spot(planned, offer)):
            return {
                "usd_per_hour": planned,
                "tax_percent": tax_percent,
                "discount_percent": _decimal(chosen.discount_percent),
                "is_of_term": chosen.purchase in ("committed", "reserved"),
            }
    usd = _usd_per_hour(chosen, region, offer, spot=spot)
    percent = None
    if offer is not None:
        percent = catalogue.pricebook.discount_percent(offer, "spot" if spot else "on-demand")
    return {"usd_per_hour": usd, "tax_percent": tax_percent, "discount_percent": percent}


def price_now(
    chosen: ChosenOffer, infra: str, catalogue: Catalogue, *, spot: bool
) -> Decimal | None:
    """Return what an hour of a node costs in a place with its tax, bought so; None: not known.

    The higher of the plan's price, where it is one of that place and market, and today's.
    """
    cloud, _, rest = infra.partition("/")
    region = rest.partition("/")[0] or chosen.region
    tax = 1 + (_decimal(chosen.tax_percent) or Decimal(0)) / 100
    planned = _decimal(chosen.usd_per_hour)
    if cloud in OWN_CLUSTERS.values():
        return None if spot or planned is None else planned * tax
    offer = _offer(chosen, region, catalogue)
    is_so = region == chosen.region and spot == (chosen.purchase == "spot")
    if not is_so or (spot and planned is not None and _is_hollow_spot(planned, offer)):
        planned = None
    if planned is not None and chosen.purchase not in ("on-demand", "spot"):
        return planned * tax  # No table of hours has the price of a term.
    today = None
    if offer is not None:
        today = offer.market_spot_usd_per_hour if spot else offer.on_demand_usd_per_hour
    known = [usd * tax for usd in (planned, today) if usd is not None]
    return max(known, default=None)


def place_again(
    chosen: ChosenOffer, infra: str, paid_usd_per_hour: Decimal, catalogue: Catalogue, *, spot: bool
) -> Place:
    """Return a place in which a launch goes on, as its record names it.

    Args:
        chosen: the offer of its plan.
        infra: as SkyPilot names it.
        paid_usd_per_hour: what a node costs there with its tax.
        catalogue: with the user's terms.
        spot: whether spot machines are bought there.
    """
    cloud, region, zone = (*infra.split("/", 2), None, None)[:3]
    tax_percent = _decimal(chosen.tax_percent)
    offer = _offer(chosen, region or chosen.region, catalogue)
    is_planned = (region or chosen.region) == chosen.region
    percent = _decimal(chosen.discount_percent) if is_planned else None
    if offer is not None and not (is_planned and spot == (chosen.purchase == "spot")):
        percent = catalogue.pricebook.discount_percent(offer, "spot" if spot else "on-demand")
    return Place(
        cloud=cloud or "",
        region=region,
        zone=zone,
        usd_per_hour=paid_usd_per_hour / (1 + (tax_percent or Decimal(0)) / 100),
        tax_percent=tax_percent,
        discount_percent=percent,
        is_of_term=is_planned and not spot and chosen.purchase in ("committed", "reserved"),
    )


def _usd_per_hour(chosen: ChosenOffer, region: str, offer: Offer | None, *, spot: bool) -> Decimal:
    how = "spot" if spot else "on-demand"
    usd = None
    if offer is not None:
        usd = offer.market_spot_usd_per_hour if spot else offer.on_demand_usd_per_hour
    if usd is None:
        raise PriceError(
            f"Nobody states a {'market ' if spot else ''}price of {chosen.instance_type}"
            f" ({chosen.provider}) in {region}, {how}.",
            fix="take a region that `gpuplan offers --instance"
            f" {chosen.instance_type}` shows with one, or state it in a file for --offers.",
        )
    return usd


def _decimal(number: float | None) -> Decimal | None:
    return None if number is None else Decimal(str(number))


def _is_hollow_spot(usd: Decimal, offer: Offer | None) -> bool:
    """Return whether this is the catalogue's spot price, and promises no discount."""
    return offer is not None and not offer.spot_is_market and usd == offer.spot_usd_per_hour


def _offer(chosen: ChosenOffer, region: str, catalogue: Catalogue) -> Offer | None:
    wanted = (chosen.provider, region, chosen.instance_type)
    return next(
        (
            offer
            for offer in (*catalogue.offers, *catalogue.cpu_offers)
            if (offer.provider, offer.region, offer.instance_type) == wanted
        ),
        None,
    )
