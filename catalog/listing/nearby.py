"""What a filter of offers asks for in words, and the same filter with wishes dropped. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import combinations
from os.path import commonprefix

from .query import JURISDICTION_GROUPS, AcceleratorRequest, OfferFilter

MOST_NAMES = 3
"""Names of one wish that are spelled out."""
FIELD_OF = {
    "accelerator": "accelerators",
    "provider": "providers",
    "region": "regions",
    "jurisdiction": "countries",
    "instance": "instance_types",
    "purchase": "purchase",
    "max-price": "max_usd_per_hour",
    "launchable": "launchable_only",
}
"""Option of `gpuplan offers` → field of the filter; purchase stands for --spot or --on-demand."""
_NOTHING = OfferFilter()


def wishes(wanted: OfferFilter) -> dict[str, str]:
    """Return what a filter asks for, option → words: "region" → "region eu-south-2"."""
    words = {
        "accelerator": " or ".join(map(_accelerator_words, wanted.accelerators)),
        "provider": f"provider {_names(wanted.providers)}",
        "region": f"region {_names(wanted.regions)}",
        "jurisdiction": f"jurisdiction {_places(wanted.countries)}",
        "instance": f"instance {_names(wanted.instance_types)}",
        "purchase": f"a known {wanted.purchase} price",
        "max-price": f"at most ${wanted.max_usd_per_hour}/h",
        "launchable": "sellers that launch can reach",
    }
    return {option: words[option] for option in FIELD_OF if _asks(wanted, option)}


def with_fewer_wishes(wanted: OfferFilter, count: int) -> list[tuple[tuple[str, ...], OfferFilter]]:
    """Return the filters without `count` of the wishes: the options dropped, what is still asked.

    A filter that would ask for nothing is not among them.
    """
    asked = [option for option in FIELD_OF if _asks(wanted, option)]
    if count >= len(asked):
        return []
    return [
        (tuple(_as_typed(wanted, option) for option in dropped), _without(wanted, dropped))
        for dropped in combinations(asked, count)
    ]


def without_numbers(wanted: OfferFilter) -> OfferFilter:
    """Return the filter that takes its accelerators in any number per instance."""
    freed = tuple(replace(one, per_instance=None) for one in wanted.accelerators)
    return replace(wanted, accelerators=freed)


def _as_typed(wanted: OfferFilter, option: str) -> str:
    return wanted.purchase if option == "purchase" else option


def _asks(wanted: OfferFilter, option: str) -> bool:
    name = FIELD_OF[option]
    return getattr(wanted, name) != getattr(_NOTHING, name)


def _without(wanted: OfferFilter, options: Iterable[str]) -> OfferFilter:
    names = [FIELD_OF[option] for option in options]
    return replace(wanted, **{name: getattr(_NOTHING, name) for name in names})


def _accelerator_words(request: AcceleratorRequest) -> str:
    count = "" if request.per_instance is None else f"{request.per_instance:g} × "  # noqa: RUF001
    family = commonprefix(sorted(request.names)).rpartition("-")[0]
    several = len(request.names) > 1
    return count + (f"any {family}" if several and family else _names(request.names))


def _places(countries: frozenset[str]) -> str:
    """Return the shortest words for these countries: "eu" for all of the EU and EEA."""
    groups = (
        name for name, members in JURISDICTION_GROUPS.items() if 1 < len(members) <= len(countries)
    )
    group = next((one for one in groups if JURISDICTION_GROUPS[one] <= countries), None)
    if group is None:
        return _names(countries)
    return _names([group, *(countries - JURISDICTION_GROUPS[group])])


def _names(names: Iterable[str]) -> str:
    listed = sorted(names)
    more = len(listed) - MOST_NAMES
    return ", ".join(listed[:MOST_NAMES]) + (f" and {more} more" if more > 0 else "")
