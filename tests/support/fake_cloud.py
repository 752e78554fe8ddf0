"""A cloud that answers what a test gives it, without a client library."""

from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal

from gpuplan.catalog.clouds.interface import (
    Asked,
    Availability,
    CloudError,
    PriceRow,
    Prices,
    Quota,
    Quotas,
    Reservations,
    Tell,
)
from gpuplan.catalog.types import CommitmentRow, EvictionRow

NOW = datetime(2026, 11, 23, 18, tzinfo=UTC)


def row(usd: str, region: str = "us-east-1", **changes) -> PriceRow:
    given = {
        "provider": "aws",
        "region": region,
        "instance_type": "p5.48xlarge",
        "purchase": "on-demand",
        "usd_per_hour": Decimal(usd),
        "price_date": NOW.date(),
        "source": "a test",
    }
    return PriceRow(**(given | changes))


def commitment(usd: str, years: int = 1, **changes) -> CommitmentRow:
    given = {
        "provider": "aws",
        "region": "us-east-1",
        "instance_type": "p5.48xlarge",
        "term_years": years,
        "usd_per_hour": Decimal(usd),
        "price_date": NOW.date(),
        "source": "a test",
    }
    return CommitmentRow(**(given | changes))


def eviction(low: float, high: float, **changes) -> EvictionRow:
    given = {
        "provider": "azure",
        "region": "eastus",
        "instance_type": "Standard_ND96isr_H100_v5",
        "hourly_low": low,
        "hourly_high": high,
        "asked_on": NOW.date(),
        "source": "a test",
    }
    return EvictionRow(**(given | changes))


def quota(limit: float, used: float | None, **changes) -> Quota:
    given = {
        "region": "us-east-1",
        "instance_type": "p5.48xlarge",
        "purchase": "on-demand",
        "name": "Running On-Demand P instances",
        "code": "L-417A185B",
        "unit": "vCPU",
        "limit": limit,
        "used": used,
        "per_instance": 192.0,
    }
    return Quota(**(given | changes))


@dataclass
class FakeCloud:
    name: str = "aws"
    prices: Prices = field(default_factory=Prices)
    zones: Availability = field(default_factory=Availability)
    quotas: Quotas = field(default_factory=Quotas)
    held: Reservations = field(default_factory=Reservations)
    error: CloudError | None = None
    asked: list[Asked] = field(default_factory=list)

    def offers(self, asked: Asked, tell: Tell) -> Prices:
        self._say(asked, tell)
        return self.prices

    def availability(self, asked: Asked, tell: Tell) -> Availability:
        self._say(asked, tell)
        return self.zones

    def quota(self, asked: Asked, tell: Tell) -> Quotas:
        self._say(asked, tell)
        return self.quotas

    def reservations(self, asked: Asked, tell: Tell) -> Reservations:
        self._say(asked, tell)
        return self.held

    def quota_command(self, quota: Quota, wanted: float) -> str:
        return f"ask {self.name} for {wanted:g} {quota.unit} in {quota.region}"

    def _say(self, asked: Asked, tell: Tell) -> None:
        self.asked.append(asked)
        tell("prices", 1, 1)
        if self.error is not None:
            raise self.error
