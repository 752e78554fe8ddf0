"""What is said where no offer matches: what was asked for, and what nearby is sold. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from ..names import shown_instance
from ..text.money import format_price
from .offers import NearbyOffers, OfferLine, OfferList

AS_TYPED: Mapping[str, str] = MappingProxyType({})


def no_match_text(listed: OfferList, *, instead: Mapping[str, str] = AS_TYPED) -> str:
    """Return in one line what was asked for without a match, and what nearby is sold.

    Args:
        listed: the offers, none of which matches.
        instead: options of `gpuplan offers` → what another command is given so that the wish is
            dropped: "launchable" → "with --provider all".
    """
    asked = f" {', '.join(listed.asked)}" if listed.asked else ""
    is_spot = "a known spot price" in listed.asked
    near = listed.nearby
    others = []
    if listed.other_numbers is not None:
        sold = listed.other_numbers
        *more, most = [f"{count:g}" for count in sold.per_instance]
        held = f"{', '.join(more)} or {most}" if more else most
        cheapest = _cheapest(sold.cheapest, is_spot=is_spot)
        others = [f"{sold.of} is sold as {held} in one instance, cheapest {cheapest}"]
        near = tuple(each for each in near if "accelerator" not in each.without)
    others += [_near_text(each, instead, is_spot=is_spot) for each in near]
    return "; ".join([f"No offer matches{asked}", *others])


def _near_text(near: NearbyOffers, instead: Mapping[str, str], *, is_spot: bool) -> str:
    given = [instead[option] for option in near.without if option in instead]
    left_out = [f"--{option}" for option in near.without if option not in instead]
    words = [f"without {' and '.join(left_out)}"] if left_out else []
    cheapest = _cheapest(near.cheapest, is_spot=is_spot and "spot" not in near.without)
    how = " and ".join([*words, *given])
    if near.matched == 1:
        return f"{how}: {cheapest}"
    return f"{how}: {near.matched:,} offers, cheapest {cheapest}"


def _cheapest(line: OfferLine, *, is_spot: bool) -> str:
    usd = line.spot_usd_per_hour if is_spot else line.on_demand_usd_per_hour
    price = "price not known" if usd is None else f"{format_price(usd)}/h"
    name = shown_instance(line.provider, line.instance_type)
    return f"{line.provider} {name} {line.region} ({price})"
