"""gpuplan's prices in SkyPilot's own tables of machines, so that both speak of the same dollars.

SkyPilot looks machines up in one table for each cloud (`catalogs/v8/CLOUD/vms.csv`). Which zones
sell a machine, which image boots on it and what a controller's machine costs are SkyPilot's facts
and stay as they are: only prices are written over, and only where gpuplan knows one. A price cell
that is empty in SkyPilot's table says "not sold so in this zone", and stays empty.

Pure: tables in, tables out. `sky_home` reads and writes the files.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal

from ...catalog.snapshot import Catalogue
from ...catalog.types import Offer
from ...catalog.vocabulary import OfferPurchase
from .placement import ANYWHERE, LAMBDA_MACHINES, NAMED_INSTANCES, TPU_SLICES, skypilot_name

COLUMNS: Mapping[str, OfferPurchase] = {"Price": "on-demand", "SpotPrice": "spot"}
"""SkyPilot's columns of prices, $/h of one machine."""
NO_PRICE = "nobody states its price"
NO_TABLE = "SkyPilot's table of the cloud is not here"
NOT_THERE = "SkyPilot sells nothing of that name there"
TWO_PRICES = "SkyPilot has one name for what is sold at several prices"
SLICE = "a slice of a device"
SHARED_MACHINES = "_COMMUNITY"
"""How RunPod's machines of other people end; they are another offer, at another price."""
ROUNDING = Decimal("0.001")
"""Prices this close, as a fraction, are one price, of which the highest is written: a slice of a
TPU is priced by its chips, and machines of several chips are rounded."""
GCP_HOSTS: Mapping[str, str] = {
    "a2-highgpu-": "A100",
    "a2-megagpu-": "A100",
    "a2-ultragpu-": "A100-80GB",
    "a3-highgpu-": "H100",
    "a3-megagpu-": "H100-MEGA",
    "a3-ultragpu-": "H200",
    "a4-highgpu-": "B200",
    "g2-standard-": "L4",
    "g4-standard-": "RTXPRO6000",
}
"""Google's machines that come with GPUs → SkyPilot's name of the GPUs, which it prices apart."""

Row = Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class Table:
    """One `vms.csv`: its columns in order, and its rows as they are written."""

    columns: tuple[str, ...]
    rows: tuple[Row, ...]


@dataclass(frozen=True, kw_only=True)
class Export:
    """SkyPilot's tables with gpuplan's prices in them, and what could not be said there."""

    tables: Mapping[str, Table]
    """Cloud, by SkyPilot's name → its table."""
    priced: Mapping[str, int]
    """Cloud → how many offers of the catalogue have their price in the table."""
    left_out: Mapping[str, Mapping[str, int]]
    """Cloud → why not → how many offers."""


def clouds_of(catalogue: Catalogue) -> tuple[str, ...]:
    """Return the clouds, by SkyPilot's names, of which the catalogue has offers to launch."""
    return tuple(sorted({str(offer.skypilot_cloud) for offer in _offers(catalogue)}))


def with_our_prices(catalogue: Catalogue, tables: Mapping[str, Table]) -> Export:
    """Return SkyPilot's tables with the catalogue's prices in them.

    Args:
        catalogue: the prices; the user's own offers win over the snapshot's.
        tables: SkyPilot's own, by its names of the clouds; a cloud without one is left out.
    """
    priced: Counter[str] = Counter()
    left_out: defaultdict[str, Counter[str]] = defaultdict(Counter)
    drafts = {cloud: _Draft(cloud, table) for cloud, table in tables.items()}
    claimed: list[tuple[str, Offer, tuple[_Cell, ...]]] = []
    for offer in _offers(catalogue):
        cloud = str(offer.skypilot_cloud)
        why = _unsayable(offer, cloud in drafts)
        cells = () if why else tuple(drafts[cloud].claim(offer))
        if not cells:
            left_out[cloud][why or NOT_THERE] += 1
        else:
            claimed.append((cloud, offer, cells))
    for cloud, _, cells in claimed:
        if any(drafts[cloud].settled(cell) is not None for cell in cells):
            priced[cloud] += 1
        else:
            left_out[cloud][TWO_PRICES] += 1
    return Export(
        tables={cloud: draft.table() for cloud, draft in drafts.items()},
        priced=dict(priced),
        left_out={cloud: dict(counts) for cloud, counts in left_out.items()},
    )


def _offers(catalogue: Catalogue) -> Iterator[Offer]:
    for offer in (*catalogue.offers, *catalogue.cpu_offers):
        if offer.launchable:
            yield offer


def _unsayable(offer: Offer, has_table: bool) -> str | None:
    if not float(offer.accelerators).is_integer():
        return SLICE
    if offer.on_demand_usd_per_hour is None and offer.spot_usd_per_hour is None:
        return NO_PRICE
    return None if has_table else NO_TABLE


_Cell = tuple[int, str]
"""A row's position and a column."""


@dataclass
class _Draft:
    """A table on which offers lay claim to price cells; the closest offer gets a cell."""

    cloud: str
    source: Table
    claims: dict[_Cell, dict[int, set[Decimal]]] = field(default_factory=dict)
    """Cell → how close the offer is → the prices of the offers that close."""

    def __post_init__(self) -> None:
        self.by_instance: defaultdict[str, list[int]] = defaultdict(list)
        self.by_accelerator: defaultdict[str, list[int]] = defaultdict(list)
        for position, row in enumerate(self.source.rows):
            self.by_instance[row["InstanceType"]].append(position)
            if row["AcceleratorName"]:
                self.by_accelerator[row["AcceleratorName"]].append(position)

    def claim(self, offer: Offer) -> Iterator[_Cell]:
        """Yield the cells in which the offer's price belongs."""
        anywhere = offer.region in ANYWHERE
        closeness = 2 * offer.is_user + (not anywhere)
        for position in self._rows_of(offer):
            row = self.source.rows[position]
            if not anywhere and row["Region"].lower() != offer.region.lower():
                continue
            for column, purchase in COLUMNS.items():
                usd = offer.usd_per_hour(purchase)
                written = None if usd is None else self._written(offer, usd, row, column)
                if written is not None and row.get(column):
                    cell = (position, column)
                    self.claims.setdefault(cell, {}).setdefault(closeness, set()).add(written)
                    yield cell

    def settled(self, cell: _Cell) -> Decimal | None:
        """Return the price of a cell; None where nobody or several claim it."""
        claims = self.claims.get(cell)
        if not claims:
            return None
        prices = claims[max(claims)]
        dearest = max(prices)
        return dearest if dearest - min(prices) <= dearest * ROUNDING else None

    def table(self) -> Table:
        """Return the table with the prices that are settled."""
        rows = [dict(row) for row in self.source.rows]
        if self.cloud == "gcp":
            self._fold_accelerators(rows)
        for position, column in self.claims:
            usd = self.settled((position, column))
            if usd is not None:
                rows[position][column] = f"{usd:f}"
        return Table(columns=self.source.columns, rows=tuple(rows))

    def _rows_of(self, offer: Offer) -> Iterable[int]:
        if offer.accelerator in TPU_SLICES:
            prefix = f"{TPU_SLICES[offer.accelerator][0]}-"
            return [
                position
                for name, positions in self.by_accelerator.items()
                if name.startswith(prefix)
                for position in positions
            ]
        count = int(offer.accelerators)
        host, plus, device = offer.instance_type.partition("+")
        if plus:
            name = device.partition("x")[2].removeprefix("nvidia-tesla-").upper()
            return self._with_accelerators(name, count) if self._hosts(host) else ()
        start = NAMED_INSTANCES.get(self.cloud)
        if offer.is_cpu or (start is not None and offer.instance_type.startswith(start)):
            return self.by_instance.get(offer.instance_type, ())
        if self.cloud == "lambda" and offer.accelerator in LAMBDA_MACHINES:
            machine = LAMBDA_MACHINES[offer.accelerator].format(count)
            return self.by_instance.get(machine, ())
        return self._with_accelerators(skypilot_name(offer.accelerator, self.cloud), count)

    def _with_accelerators(self, name: str, count: int) -> list[int]:
        return [
            position
            for position in self.by_accelerator.get(name, ())
            if float(self.source.rows[position]["AcceleratorCount"]) == count
            and not self.source.rows[position]["InstanceType"].endswith(SHARED_MACHINES)
        ]

    def _hosts(self, instance_type: str) -> list[Row]:
        return [self.source.rows[position] for position in self.by_instance.get(instance_type, ())]

    def _written(self, offer: Offer, usd: Decimal, row: Row, column: str) -> Decimal | None:
        """Return the row's price at which the whole machine costs this much; None: none."""
        if offer.accelerator in TPU_SLICES:
            # A slice of any size, by its chips; the host is not charged for apart.
            cores = int(row["AcceleratorName"].rpartition("-")[2])
            chips = Decimal(cores) / TPU_SLICES[offer.accelerator][1]
            return usd / Decimal(str(offer.accelerators)) * chips
        host_type, plus, _ = offer.instance_type.partition("+")
        if not plus:
            return usd
        # SkyPilot adds the host's own row.
        zone = row.get("AvailabilityZone")
        hosts = [host for host in self._hosts(host_type) if host.get("AvailabilityZone") == zone]
        if len(hosts) != 1 or not hosts[0][column]:
            return None
        alone = usd - Decimal(hosts[0][column])
        return alone if alone >= 0 else None

    def _fold_accelerators(self, rows: list[dict[str, str]]) -> None:
        """Move the GPUs' price into the machines that come with them, where we price one.

        SkyPilot adds two rows: the machine's and the GPUs'. Several machines share the row of GPUs,
        so only the machines' rows can say what each costs in all; the GPUs' row then says 0.
        """
        for (region, name, count, column), positions in self._priced_families().items():
            gpus = {
                rows[position]["AvailabilityZone"]: rows[position]
                for position in self._with_accelerators(name, count)
                if rows[position]["Region"] == region
                and not rows[position]["InstanceType"]
                and rows[position][column]
            }
            for position in positions:
                row = rows[position]
                devices = gpus.get(row["AvailabilityZone"])
                if devices is not None and row[column]:
                    row[column] = f"{Decimal(row[column]) + Decimal(devices[column]):f}"
            for devices in gpus.values():
                devices[column] = "0"

    def _priced_families(self) -> dict[tuple[str, str, int, str], list[int]]:
        """Return (region, GPUs, count, column) → all machines with them, where we price one."""
        families: defaultdict[tuple[str, str, int, str], list[int]] = defaultdict(list)
        for instance_type, positions in self.by_instance.items():
            name = next(
                (GCP_HOSTS[start] for start in GCP_HOSTS if instance_type.startswith(start)), None
            )
            count = self._gpus_of(instance_type, name)
            if name is None or count is None:
                continue
            for position in positions:
                for column in COLUMNS:
                    region = self.source.rows[position]["Region"]
                    families[region, name, count, column].append(position)
        return {
            family: positions
            for family, positions in families.items()
            if any(self.settled((position, family[3])) is not None for position in positions)
        }

    def _gpus_of(self, instance_type: str, name: str | None) -> int | None:
        """Return how many GPUs one of Google's machines comes with."""
        size = instance_type.rpartition("-")[2]
        if name == "L4":
            return {"24": 2, "48": 4, "96": 8}.get(size, 1)
        if name == "RTXPRO6000":
            return {"48": 1, "96": 2, "192": 4, "384": 8}.get(size)
        return int(size[:-1]) if size.endswith("g") and size[:-1].isdigit() else None
