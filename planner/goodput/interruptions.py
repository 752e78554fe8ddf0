"""How often a provider takes spot machines away, and with how much warning."""

from __future__ import annotations

from functools import cache

from .priors import RatePrior, prior, source_of, stated
from .rates import Rate


@cache
def interruption_rate(provider: str, region: str, instance_type: str) -> RatePrior:
    """Return how often spot machines of a type are taken away from a run in one zone.

    Machines of one type and zone go together (more than 92 % of co-interruptions fall within three
    minutes), so that a run on N of them has the rate of one, not N times it.
    """
    assumed = prior("spot")
    return RatePrior(
        value=Rate.hourly(assumed.value),
        low=Rate.hourly(assumed.low),
        high=Rate.hourly(assumed.high),
        source=f"spot interruptions {assumed.source}",
    )


def notice_s(provider: str) -> float | None:
    """Return how long before its end a provider warns a spot machine; None where none is stated."""
    try:
        return stated("notice", provider)
    except KeyError:
        return None


def notice_source() -> str:
    """Return where the notices come from."""
    return source_of("notice")
