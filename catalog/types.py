"""The catalogue's types: what one accelerator, instance, link or offer is. SI units throughout."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Literal

from pydantic import BaseModel, ConfigDict

from .vocabulary import OfferPurchase

Dtype = Literal["fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "fp4", "int8"]
Confidence = Literal["high", "medium", "low"]

CPU_PREFIX = "CPU-"
"""Every host processor that is priced as a device (`--vs-cpu`) is named so, and nothing else is."""

USER_PRICE_BASES = ("user", "owned")
"""`Offer.price_basis` of an offer the user wrote: a price they stated, or hardware they bought."""
ACCELERATOR_ALONE = "accelerator_alone"
"""`Offer.price_basis` where vCPUs and memory are billed beside the price."""


BEFORE_TENSOR_CORES = ("Kepler", "Maxwell", "Pascal")
"""NVIDIA's architectures that multiply fp16 in fp32 units, but for the P100, whose own are twice as
fast (NVIDIA, Pascal GP100 whitepaper)."""
OLDEST_COMPUTE_CAPABILITY = 5.0
OLDEST_FOR_TRITON = 7.0
"""Below it torch.compile raises GPUTooOldForTriton (torch/_inductor/scheduler.py, create_backend;
torch 2.13: "Triton only supports devices of CUDA Capability >= 7.0")."""
_FP64_OVER_FP32 = {"7.5": 1 / 32, "8.6": 1 / 64, "8.9": 1 / 64, "12.0": 1 / 64}
"""Of graphics architectures, whose datasheets leave fp64 out: results per clock and multiprocessor
(NVIDIA, CUDA C++ Programming Guide, "Throughput of Native Arithmetic Instructions")."""


class CatalogueRow(BaseModel):
    """A frozen row of the catalogue; `None` means unknown, never zero."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Accelerator(CatalogueRow):
    """One device as the clouds sell it.

    Peaks are dense (no sparsity), in FLOP/s; a dtype that the device has no fast unit for is absent
    from `peak_flops`. `memory_bytes` is nominal; plan with `memory_visible_bytes`, what the driver
    shows to a process, where it is known.
    """

    name: str
    vendor: str
    arch: str
    form_factor: str | None
    memory_bytes: int
    memory_visible_bytes: int | None
    memory_bandwidth_bytes_per_s: float
    peak_flops: dict[Dtype, float]
    compute_units: int | None
    boost_hz: float | None
    l2_bytes: int | None
    link: str | None
    link_bytes_per_s: float | None
    """One direction, summed over the device's links."""
    tdp_w: float | None
    compute_capability: str | None
    """NVIDIA's "8.0", AMD's "gfx942"; None for devices without one."""
    launch_year: int | None
    source: str
    confidence: Confidence
    note: str | None
    licence: str | None
    memory_type: str | None = None
    memory_visible_source: str | None = None

    @property
    def is_cpu(self) -> bool:
        """Whether this is a host processor, listed only to price a run without accelerators."""
        return self.name.startswith(CPU_PREFIX)

    @property
    def can_train(self) -> bool:
        """Whether current torch trains on it: not Inferentia, not NVIDIA before Maxwell.

        The oldest architecture in torch's CUDA builds is sm_50 (its cu126 wheels).
        """
        if self.name.startswith("Inferentia"):
            return False
        capability = self.compute_capability if self.vendor == "NVIDIA" else None
        return capability is None or float(capability) >= OLDEST_COMPUTE_CAPABILITY

    @property
    def can_compile(self) -> bool:
        """Whether torch.compile runs on it: not on NVIDIA before Volta."""
        capability = self.compute_capability if self.vendor == "NVIDIA" else None
        return capability is None or float(capability) >= OLDEST_FOR_TRITON

    @property
    def multiplies_fp16_in_fp32(self) -> bool:
        """Whether products of 16-bit operands run at the rate of fp32, for want of faster units.

        cuBLAS takes operands in fp16 with CUBLAS_COMPUTE_32F on every device. Of a later device, or
        one that a user describes without its fp16 peak, that peak is unknown.
        """
        peaks = self.peak_flops
        return self.arch in BEFORE_TENSOR_CORES and "fp16" not in peaks and "fp32" in peaks

    @property
    def fp64_flops_per_s(self) -> float | None:
        """FLOP/s in fp64: the stated peak, else fp32's by what the architecture has of fp64 units.

        None: not known, as of TPUs.
        """
        stated, plain = self.peak_flops.get("fp64"), self.peak_flops.get("fp32")
        share = _FP64_OVER_FP32.get(self.compute_capability or "")
        return plain * share if stated is None and plain and share else stated

    @property
    def needs_xla(self) -> bool:
        """Whether a plain torch file must be ported to XLA to run on this device."""
        return port_of(self.name) == "XLA"

    @property
    def port_to(self) -> str | None:
        """What a plain torch file must be ported to before it runs here (`port_of`)."""
        return port_of(self.name)


def port_of(accelerator: str) -> str | None:
    """Return what a plain torch file must be ported to for an accelerator; None where it runs.

    Gaudi has a torch of its own, whose device is "hpu":
    https://docs.habana.ai/en/latest/PyTorch/PyTorch_Model_Porting/Mixed_Precision.html
    """
    if accelerator.startswith(("TPU", "Trainium", "Inferentia")):
        return "XLA"
    return "Gaudi's torch" if accelerator.startswith("Gaudi") else None


class Link(CatalogueRow):
    """A link between accelerators of one instance, or between instances.

    `bytes_per_s` is one direction: per accelerator inside an instance, per node between instances.
    None is unknown. `rdma` is None where nothing is stated.
    """

    name: str | None
    bytes_per_s: float | None
    rdma: bool | None = None
    switched: bool | None = None
    """True when every pair has full bandwidth at once (NVSwitch), False when pairs share a path."""


class Instance(CatalogueRow):
    """One instance type: accelerators per node and the links inside and between nodes."""

    provider: str
    instance_type: str
    accelerator: str
    accelerators: float
    """Per node; a fraction is a slice of a device (vGPU), which training is not planned on."""
    vcpus: float | None
    memory_bytes: int | None
    intra_link: Link
    inter_link: Link
    local_nvme_bytes: int | None
    basis: Literal["stated", "same_family", "assumed", "user"]
    source: str
    confidence: Confidence
    note: str | None
    link_domain_accelerators: int | None = None
    """Accelerators sharing `intra_link` across instances (72 on NVL72); None: this instance's."""
    cluster_placement: str | None = None
    usage_classes: tuple[str, ...] = ()
    licence: str | None = None

    @property
    def is_cpu(self) -> bool:
        """Whether the instance has no accelerator and trains on its host processors."""
        return self.accelerator.startswith(CPU_PREFIX)

    @property
    def is_fractional(self) -> bool:
        """Whether the instance holds slices of a device, on which training is not planned."""
        return not float(self.accelerators).is_integer()

    @property
    def can_cluster(self) -> bool:
        """Whether several nodes can be planned: whole devices and a known inter-node figure."""
        return self.inter_link.bytes_per_s is not None and not self.is_fractional


class Offer(CatalogueRow):
    """One instance type in one region with its prices; an unknown price is None."""

    provider: str
    region: str
    instance_type: str
    accelerator: str
    accelerators: float
    on_demand_usd_per_hour: Decimal | None
    spot_usd_per_hour: Decimal | None
    spot_is_market: bool
    """False when the spot price carries no information (equal to on-demand, or the 10 % floor)."""
    price_basis: str
    price_date: date | None
    marketplace: bool
    skypilot_cloud: str | None
    """The cloud's name in SkyPilot; None where `gpuplan launch` cannot reach it."""
    source: str
    note: str | None
    price_date_precision: Literal["day", "month", "year"] | None = None
    licence: str | None = None

    @property
    def is_cpu(self) -> bool:
        """Whether this sells host processors only (`Catalogue.cpu_offers`)."""
        return self.accelerator.startswith(CPU_PREFIX)

    @property
    def is_user(self) -> bool:
        """Whether the offer comes from the user's own `--offers` file."""
        return self.price_basis in USER_PRICE_BASES

    @property
    def is_host_apart(self) -> bool:
        """Whether the price is that of the accelerator alone: vCPUs and memory are billed too."""
        return self.price_basis == ACCELERATOR_ALONE

    @property
    def launchable(self) -> bool:
        """Whether `gpuplan launch` can reach the seller, and the seller owns what it sells."""
        return self.skypilot_cloud is not None and not self.marketplace

    @property
    def market_spot_usd_per_hour(self) -> Decimal | None:
        """The spot price, $/h; None where it is unknown, or no price of the market."""
        return self.spot_usd_per_hour if self.spot_is_market else None

    def usd_per_hour(self, purchase: OfferPurchase) -> Decimal | None:
        """Return the price of one instance, $/h, bought this way; None if it is unknown."""
        return self.spot_usd_per_hour if purchase == "spot" else self.on_demand_usd_per_hour

    def usd_per_accelerator_hour(self, purchase: OfferPurchase) -> Decimal | None:
        """Return the price of one accelerator, $/h, bought this way; None if it is unknown."""
        usd = self.usd_per_hour(purchase)
        return None if usd is None else usd / Decimal(str(self.accelerators))


class CommitmentRow(CatalogueRow):
    """The price of one instance type in one region, committed to for a term."""

    provider: str
    region: str
    instance_type: str
    term_years: int
    """Years for which every hour is paid, used or not."""
    usd_per_hour: Decimal
    """US dollars an hour of one instance, over the whole term, paid month by month."""
    price_date: date
    source: str


class EvictionRow(CatalogueRow):
    """The chance that a spot machine of one type in one region is taken away within an *hour*.

    Azure states it; it is no share per month, as AWS states (`terms.interruptions`).
    """

    provider: str
    region: str
    instance_type: str
    hourly_low: float
    """Low end of the seller's band, a chance of 0..1 per hour."""
    hourly_high: float
    """High end of the band, a chance of 0..1 per hour; 1 where the band has no end."""
    asked_on: date
    source: str


class Provider(CatalogueRow):
    """A seller: how it bills and where it is at home."""

    name: str
    skypilot_cloud: str | None
    marketplace: bool
    billing_increment_s: int | None
    minimum_s: int | None
    pue: float | None
    hipaa_eligible: bool | None
    home_jurisdiction: str | None
    source: str


class Region(CatalogueRow):
    """A provider's region: where it is and how carbon-heavy its grid is."""

    provider: str
    name: str
    jurisdiction: str | None
    """Country, ISO 3166 alpha-2 in lower case ("de"), by the provider's list; None: unknown."""
    grid_kg_co2e_per_kwh: float | None
    source: str | None
