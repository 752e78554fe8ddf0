"""What the job of a spot plan costs on demand: how much the risk of a stop saves."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

from ..candidate import Candidate

CENT = Decimal("0.01")


def on_demand_instead_usd(candidate: Candidate) -> Decimal | None:
    """Return the dollars of the same steps on the same machines on demand, likely ones.

    With what is surely paid beside those machines, as `ranked_usd`: no controller, and its own
    stops. None where the candidate is no spot plan, the price is not known, or limits say how much
    is trained, so that another price trains another amount.
    """
    choice = candidate.choice
    usd = choice.offer.on_demand_usd_per_hour
    if choice.purchase != "spot" or usd is None or candidate.limited_by is not None:
        return None
    if candidate.steps is None:
        return None
    on_demand = replace(choice, purchase="on-demand", usd_per_hour=usd, spot_prices=None)
    exact = replace(candidate, choice=on_demand).ranked_usd
    return Decimal(str(exact)).quantize(CENT)
