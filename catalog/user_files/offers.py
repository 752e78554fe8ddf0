"""The user's own machines (`--offers my-offers.yaml`) → rows of the catalogue.

Quantities are typed as vendors print them (GiB, GB/s, Gbit/s, TFLOP/s) and converted here, once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import UsageError
from ..listing.ownership import Ownership, usd_per_used_hour
from ..names import assumption_about, resolve_accelerator
from ..tpu_slices import slice_chips
from ..types import Accelerator, Instance, Link, Offer, Provider, Region
from ..units import GB, GIB
from .fields import Fields
from .hardware import (
    accelerator_of,
    inter_link_of,
    intra_link_of,
    ownership_of,
    whole_bytes,
)
from .tree import read_tree

if TYPE_CHECKING:
    from ..embedded import Catalogue

DEFAULT_PROVIDER = "user"
DEFAULT_REGION = "local"
USED_HOUR_PLACES = Decimal("0.0001")
"""To which the cost of an hour of bought hardware is rounded, US dollars."""
NODE = ("accelerator", "accelerators_per_node")
"""What an offer must say where the catalogue does not know its instance type."""
FIELDS = (
    *("provider", "region", "country", "instance", *NODE),
    *("usd_per_hour", "spot_usd_per_hour", "owned", "price_date", "nodes"),
    *("intra_link", "inter_link", "link_domain_accelerators"),
    *("vcpus", "memory_gib", "local_nvme_gb", "source", "note"),
)
ALSO_CALLED = {
    **dict.fromkeys(("instance_type", "type", "machine", "name"), "instance"),
    **dict.fromkeys(("gpu", "gpu_type", "device", "gpu_name"), "accelerator"),
    **dict.fromkeys(
        ("accelerators", "gpus", "count", "gpu_count", "gpus_per_node", "num_gpus"),
        "accelerators_per_node",
    ),
    **dict.fromkeys(("price", "usd", "cost", "price_per_hour", "hourly", "$/h"), "usd_per_hour"),
    **dict.fromkeys(("spot", "spot_price"), "spot_usd_per_hour"),
    **dict.fromkeys(("cloud", "vendor"), "provider"),
    **dict.fromkeys(("memory", "ram", "ram_gb", "memory_gb"), "memory_gib"),
    **dict.fromkeys(("cpus", "cores"), "vcpus"),
}
EXAMPLE = "- {instance: node-8, accelerator: H100, accelerators_per_node: 8, usd_per_hour: 20.00}"
HELP = f"Begin with `offers:`, each entry below it like `{EXAMPLE}`."
CSV_EXAMPLE = "the columns instance,accelerator,accelerators_per_node,usd_per_hour"


@dataclass(frozen=True)
class UserOffers:
    """What one `--offers` file adds to the catalogue."""

    accelerators: tuple[Accelerator, ...]
    instances: tuple[Instance, ...]
    offers: tuple[Offer, ...]
    providers: tuple[Provider, ...]
    regions: tuple[Region, ...]
    ownership: dict[tuple[str, str], Ownership] = field(default_factory=dict)
    """What bought hardware cost, by (provider, instance type)."""
    own_nodes: dict[tuple[str, str, str], int] = field(default_factory=dict)
    """How many machines there are, by (provider, region, instance type), where the file says so."""


def load_user_offers(path: Path, catalogue: Catalogue) -> UserOffers:
    """Return the rows that the user's file describes.

    Raises:
        UsageError: The file is unreadable, malformed, hostile, or a value is wrong; with its line.
    """
    tree = read_tree(path, holds="offers:", help=HELP, bare_list="offers")
    top = Fields(path, tree, what="the file")
    accelerators = {row.name: row for row in map(accelerator_of, top.parts("accelerators"))}
    for part, name in zip(top.parts("accelerators"), accelerators, strict=False):
        if name in catalogue.accelerators:
            raise part.error(
                f"{name} is in the catalogue already.",
                line=part.line_of("name"),
                fix="Give your accelerator another name, or leave its entry out.",
            )
    entries = [_Entry(part, catalogue, accelerators) for part in top.parts("offers")]
    top.refuse_unknown()
    # A device alone is enough to ask what fits on it, and to calibrate it.
    if not entries and not accelerators:
        raise top.error("there are no offers in it.", fix="Add at least one entry under `offers:`.")
    _refuse_repeats(entries)
    return UserOffers(
        accelerators=tuple(accelerators.values()),
        instances=tuple(entry.instance for entry in entries),
        offers=tuple(entry.offer for entry in entries),
        providers=tuple(
            {
                entry.offer.provider: provider_of_user(entry.offer.provider, path.name)
                for entry in entries
                if entry.offer.provider not in catalogue.providers
            }.values()
        ),
        regions=tuple(entry.region for entry in entries if entry.region),
        ownership={
            (entry.offer.provider, entry.offer.instance_type): entry.owned
            for entry in entries
            if entry.owned
        },
        own_nodes={
            (entry.offer.provider, entry.offer.region, entry.offer.instance_type): entry.nodes
            for entry in entries
            if entry.nodes
        },
    )


class _Entry:
    """One entry under `offers:`, read field by field."""

    def __init__(self, part: Fields, catalogue: Catalogue, own: dict[str, Accelerator]) -> None:
        self.part = part
        known = catalogue.instances.get((part.text("provider") or "", part.text("instance") or ""))
        needed = ("instance", *(() if known else NODE))
        example = CSV_EXAMPLE if part.path.suffix.lower() == ".csv" else EXAMPLE
        part.expect(needed, FIELDS, also_called=ALSO_CALLED, example=f"{example}.")
        self.provider = part.text("provider") or DEFAULT_PROVIDER
        self.place = part.text("region") or DEFAULT_REGION
        self.instance_type = part.required_text("instance")
        listed = catalogue.instances.get((self.provider, self.instance_type))
        self.source = part.text("source") or f"{part.path.name}:{part.line}"
        self.owned = ownership_of(part.part("owned"))
        self.nodes = self._nodes()
        self.instance = self._instance(catalogue, own, listed)
        self.offer = self._offer(catalogue)
        self.region = self._region()

    def _instance(
        self, catalogue: Catalogue, own: dict[str, Accelerator], listed: Instance | None
    ) -> Instance:
        part = self.part
        if listed is not None:
            accelerator, count = listed.accelerator, Decimal(str(listed.accelerators))
        else:
            accelerator = self._accelerator_name(part.required_text("accelerator"), catalogue, own)
            count = part.required_number("accelerators_per_node", above=0)
        if part.has("accelerator") and listed is not None:
            stated = self._accelerator_name(part.required_text("accelerator"), catalogue, own)
            if stated != accelerator:
                raise part.error(
                    f"{self.instance_type} holds {accelerator}, not {stated}.",
                    line=part.line_of("accelerator"),
                )
        count = part.number("accelerators_per_node", above=0, most=4096) or count
        if count % 1:
            raise part.error(
                f"accelerators_per_node is {count}; give whole devices.",
                line=part.line_of("accelerators_per_node"),
            )
        vcpus = part.number("vcpus", above=0)
        memory = part.number("memory_gib", above=0)
        nvme = part.number("local_nvme_gb", least=0)
        domain = part.number("link_domain_accelerators", above=0, most=100_000)
        intra = intra_link_of(part.part("intra_link"))
        inter = inter_link_of(part.part("inter_link"))
        return Instance(
            provider=self.provider,
            instance_type=self.instance_type,
            accelerator=accelerator,
            accelerators=float(count),
            vcpus=float(vcpus) if vcpus is not None else listed and listed.vcpus,
            memory_bytes=whole_bytes(memory, GIB) if memory else listed and listed.memory_bytes,
            intra_link=intra
            or (listed.intra_link if listed else Link(name=None, bytes_per_s=None)),
            inter_link=inter
            or (listed.inter_link if listed else Link(name=None, bytes_per_s=None)),
            local_nvme_bytes=(
                whole_bytes(nvme, GB) if nvme is not None else listed and listed.local_nvme_bytes
            ),
            basis="user",
            source=self.source,
            confidence="high",
            note=listed.note if listed else None,
            link_domain_accelerators=(
                int(domain) if domain else self._domain(accelerator, count, listed)
            ),
        )

    def _domain(self, accelerator: str, count: Decimal, listed: Instance | None) -> int | None:
        """Return how many accelerators the fast link joins where the file does not say it."""
        if listed is not None and count == Decimal(listed.accelerators):
            return listed.link_domain_accelerators
        return slice_chips(self.instance_type, accelerator, count)

    def _nodes(self) -> int | None:
        nodes = self.part.number("nodes", above=0, most=1_000_000)
        if nodes is not None and nodes % 1:
            raise self.part.error(
                f"nodes is {nodes}; give whole machines.", line=self.part.line_of("nodes")
            )
        return None if nodes is None else int(nodes)

    def _accelerator_name(
        self, name: str, catalogue: Catalogue, own: dict[str, Accelerator]
    ) -> str:
        # Processors have no name but their exact one.
        if name in own or name in catalogue.accelerators:
            return name
        try:
            return resolve_accelerator(name, catalogue=catalogue)
        except UsageError as error:
            raise self.part.error(
                error.message,
                line=self.part.line_of("accelerator"),
                fix=error.fix or "Or describe it under `accelerators:`.",
            ) from error

    def _offer(self, catalogue: Catalogue) -> Offer:
        part = self.part
        stated = part.number("usd_per_hour", least=0)
        if stated == 0:
            raise part.error(
                "usd_per_hour is 0; it must be above 0.",
                line=part.line_of("usd_per_hour"),
                fix="Leave it out, and the machine is planned without a price; or give what an hour"
                " of it costs you in electricity.",
            )
        spot = part.number("spot_usd_per_hour", above=0)
        if stated is not None and self.owned is not None:
            raise part.error(
                "usd_per_hour and owned are both given.", fix="Keep one: a price, or what it cost."
            )
        if stated is not None and spot is not None and spot > stated:
            raise part.error(
                f"spot_usd_per_hour {spot} is above usd_per_hour {stated}.",
                line=part.line_of("spot_usd_per_hour"),
            )
        if self.owned is not None:
            stated = usd_per_used_hour(self.owned).quantize(USED_HOUR_PLACES)
        name = part.text("accelerator")
        provider = catalogue.providers.get(self.provider)
        return Offer(
            provider=self.provider,
            region=self.place,
            instance_type=self.instance_type,
            accelerator=self.instance.accelerator,
            accelerators=self.instance.accelerators,
            on_demand_usd_per_hour=stated,
            spot_usd_per_hour=spot,
            spot_is_market=spot is not None,
            price_basis="owned" if self.owned else "user",
            price_date=part.date("price_date"),
            marketplace=False,
            skypilot_cloud=provider.skypilot_cloud if provider else None,
            source=self.source,
            note=part.text("note") or (assumption_about(name) if name else None),
        )

    def _region(self) -> Region | None:
        country = self.part.text("country")
        if country is None:
            return None
        if not (len(country) == 2 and country.isascii() and country.isalpha()):
            raise self.part.error(
                f"country is {country!r}; give one country's two letters, like de.",
                line=self.part.line_of("country"),
            )
        return Region(
            provider=self.provider,
            name=self.place,
            jurisdiction=country.lower(),
            grid_kg_co2e_per_kwh=None,
            source=self.source,
        )


def provider_of_user(name: str, source: str) -> Provider:
    """Return a seller, or the user's own room, of which nothing is known but its name."""
    return Provider(
        name=name,
        skypilot_cloud=None,
        marketplace=False,
        billing_increment_s=None,
        minimum_s=None,
        pue=None,
        hipaa_eligible=None,
        home_jurisdiction=None,
        source=source,
    )


def _refuse_repeats(entries: list[_Entry]) -> None:
    seen: dict[tuple[str, str, str], int] = {}
    for entry in entries:
        key = (entry.provider, entry.place, entry.instance_type)
        if key in seen:
            raise entry.part.error(
                f"{entry.instance_type} of {entry.provider} in {entry.place} is on line "
                f"{seen[key]} already.",
                fix="Give each entry its own instance or region.",
            )
        seen[key] = entry.part.line
