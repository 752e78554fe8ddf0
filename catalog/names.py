"""Names people type → the one canonical name of the catalogue.

`resolve_accelerator` wants one device and refuses a name that fits several ("A100");
`match_accelerators` is for filters and takes such a name as the whole family.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Literal, cast

from .embedded import CURATED_DIR, DATA_DIR, Catalogue, embedded_catalogue
from .errors import UsageError, did_you_mean
from .types import CPU_PREFIX

Certainty = Literal["exact", "assumed", "ambiguous", "none"]

VENDOR_WORDS = frozenset(
    {"nvidia", "tesla", "geforce", "amd", "instinct", "google", "aws", "intel"}
)
AZURE_START = "Standard_"
SELLERS_WITH_NAMES = frozenset({"lambda", "verda", "vultr"})
"""Small sellers whose machines have names of their own; others list accelerators by their model."""
MADE_UP_END = "-on-demand"
"""Of names that the catalogue gives to types which their seller has no name for."""
_LEFT_OUT = re.compile(r"SXM\d?|PCIe|NVL|\d+GB")
"""Parts of a name that may be left out where the rest means the same device."""
FULL_NAMES = {"google": "gcp", "amazon": "aws", "microsoft": "azure", "oracle": "oci"}


@dataclass(frozen=True)
class Alias:
    """One spelling of an accelerator's name, and how surely it means that accelerator."""

    spelling: str
    canonical: str | None
    certainty: Certainty
    note: str | None


def resolve_accelerator(name: str, *, catalogue: Catalogue | None = None) -> str:
    """Return the canonical name of the one accelerator that `name` means.

    Args:
        name: A canonical name or any known spelling, in any case; "A100-80GB" is taken as SXM
            (`assumption_about` says so), bare "A100" fits two memory sizes and is refused.
        catalogue: Where to look the user's own accelerators up too; default: the embedded one.

    Raises:
        UsageError: The name is unknown, or it fits several devices; the candidates are listed.
    """
    known = _canonical_names(catalogue)
    alias = _find(name, known)
    if alias is not None and alias.canonical and alias.certainty != "ambiguous":
        return alias.canonical
    family = match_family(name, known.values())
    if alias is not None and alias.certainty == "none":
        raise UsageError(f"{name!r} is not one device: {alias.note}.", fix=_LIST_FIX)
    if len(family) == 1:
        return family[0]
    if family:
        raise UsageError(
            f"{name!r} could be any of {', '.join(family)}.",
            fix=f"Give the full name, for example {family[0]}.",
        )
    raise _unknown_accelerator(name, known, catalogue)


def match_accelerators(name: str, *, catalogue: Catalogue | None = None) -> tuple[str, ...]:
    """Return the canonical names a filter means: one device, or every member of a family.

    >>> match_accelerators("a100-80gb")
    ('A100-80GB-PCIe', 'A100-80GB-SXM')

    Raises:
        UsageError: The name is unknown, or it is not one device.
    """
    known = _canonical_names(catalogue)
    exact = known.get(_folded(name))
    if exact is not None:
        return (exact,)
    family = match_family(name, known.values())
    if family:
        return family
    alias = _find(name, known)
    if alias is not None and alias.canonical:
        return (alias.canonical,)
    if alias is not None:
        raise UsageError(f"{name!r} is not one device: {alias.note}.", fix=_LIST_FIX)
    raise _unknown_accelerator(name, known, catalogue)


def ambiguous_members(name: str, *, catalogue: Catalogue | None = None) -> tuple[str, ...]:
    """Return the accelerators that a name could be any of; () for one device, and for none.

    >>> ambiguous_members("a100-40gb"), len(ambiguous_members("A100"))
    ((), 4)
    """
    known = _canonical_names(catalogue)
    alias = _find(name, known)
    if alias is not None and alias.certainty != "ambiguous":
        return ()
    family = match_family(name, known.values())
    return family if len(family) > 1 else ()


def is_accelerator(name: str, *, catalogue: Catalogue | None = None) -> bool:
    """Return whether a name means an accelerator, or a family of them."""
    known = _canonical_names(catalogue)
    return _find(name, known) is not None or bool(match_family(name, known.values()))


def assumption_about(name: str) -> str | None:
    """Return what `resolve_accelerator` assumes for this spelling ("SXM assumed"), or None."""
    alias = _aliases().get(_folded(name))
    return alias.note if alias is not None and alias.certainty == "assumed" else None


def short_accelerator(name: str) -> str:
    """Return the shortest form of a canonical name that is read as this very device.

    Only its form factor and its memory are left out.

    >>> [short_accelerator(name) for name in ("B200-180GB-SXM", "A100-40GB-SXM", "A100-80GB-PCIe")]
    ['B200', 'A100-40GB', 'A100-80GB-PCIe']
    """
    shortest = rest = name
    while _LEFT_OUT.fullmatch(rest.rpartition("-")[2]):
        rest = rest.rpartition("-")[0]
        if _reads_as(rest) == name:
            shortest = rest
    return shortest


def short_instance(provider: str, name: str) -> str:
    """Return an instance type without what its provider says already.

    >>> short_instance("azure", "Standard_ND96asr_v4"), short_instance("verda", "verda-b200-sxm")
    ('ND96asr_v4', 'b200-sxm')
    """
    own = seller_name(provider, name)
    if own is not None and own != name:
        return own
    return name.removeprefix(AZURE_START).removeprefix(f"{provider}-").removesuffix(MADE_UP_END)


def seller_name(provider: str, name: str) -> str | None:
    """Return what the seller's own pages call an instance type.

    None: the catalogue has it from a list of accelerators, and knows no name that its seller uses.

    >>> seller_name("lambda", "lambda-gh200-on-demand"), seller_name("aws", "p5.48xlarge")
    ('gpu_1x_gh200', 'p5.48xlarge')
    >>> seller_name("jarvis-labs", "jarvis-labs-l4")
    """
    if not name.startswith(f"{provider}-") or (
        (provider, name) not in embedded_catalogue().instances
    ):
        return name
    return _seller_names().get((provider, name))


def shown_instance(provider: str, name: str) -> str:
    """Return an instance type as its seller knows it, in a text that says its accelerator.

    >>> shown_instance("lambda", "lambda-gh200-on-demand"), shown_instance("azure", "Standard_A")
    ('gpu_1x_gh200', 'Standard_A')
    >>> shown_instance("jarvis-labs", "jarvis-labs-l4-on-demand")
    'l4'
    """
    return seller_name(provider, name) or short_instance(provider, name)


def listed_instance(provider: str, name: str) -> str:
    """Return an instance type as its seller knows it, in a list of machines.

    >>> listed_instance("jarvis-labs", "jarvis-labs-l4-on-demand")
    'l4 (by accelerator)'
    """
    own = seller_name(provider, name)
    return f"{short_instance(provider, name)} (by accelerator)" if own is None else own


def instance_names(provider: str, name: str) -> frozenset[str]:
    """Return how an instance type may be typed, in lower case."""
    stripped = name.removeprefix(f"{provider}-").removesuffix(MADE_UP_END)
    named = {name, stripped, short_instance(provider, name), listed_instance(provider, name)}
    return frozenset(one.casefold() for one in named)


def aliases_of(canonical: str) -> tuple[str, ...]:
    """Return the other spellings of one accelerator, sorted."""
    found = (alias.spelling for alias in _aliases().values() if alias.canonical == canonical)
    return tuple(sorted(spelling for spelling in found if spelling != canonical))


def resolve_provider(name: str, *, catalogue: Catalogue | None = None) -> str:
    """Return the catalogue's name of one provider ("AWS" → "aws", "google" → "gcp").

    Raises:
        UsageError: The provider is unknown.
    """
    providers = (catalogue or embedded_catalogue()).providers
    by_folded = {_folded(known): known for known in providers}
    folded = _folded(name)
    found = by_folded.get(folded) or by_folded.get(FULL_NAMES.get(folded, folded))
    if found is None:
        raise UsageError(
            f"There is no provider {name!r}.{did_you_mean(name, providers)}",
            fix=f"Give one of {', '.join(sorted(providers))}.",
        )
    return found


def resolve_region(
    name: str, *, providers: Collection[str] = (), catalogue: Catalogue | None = None
) -> str:
    """Return the catalogue's name of one region, of one of these providers; none given: of any.

    Raises:
        UsageError: None of them sells in a region of that name; the message says who does.
    """
    offers = (catalogue or embedded_catalogue()).offers
    regions = {offer.region for offer in offers if not providers or offer.provider in providers}
    by_folded = {region.casefold(): region for region in regions}
    wanted = name.strip().casefold()
    found = by_folded.get(wanted)
    if found is None:
        asked = " or ".join(sorted(providers))
        owners = sorted({offer.provider for offer in offers if offer.region.casefold() == wanted})
        if owners:
            raise UsageError(
                f"{name} is a region of {' and '.join(owners)}, not of {asked}."
                f"{did_you_mean(name, regions)}",
                fix=f"give --provider {owners[0]}, or a region of {asked}{in_brackets(regions)}.",
            )
        whose = f" of {asked}" if asked else ""
        raise UsageError(
            f"There is no region {name!r}{whose} in the catalogue.{did_you_mean(name, regions)}",
            fix="Leave --region out, or see the names with `gpuplan offers --format csv`.",
        )
    return found


def in_brackets(regions: Collection[str], most: int = 12) -> str:
    """Return the regions in brackets, the first of them where they are many; "" for none.

    >>> in_brackets({"b", "a"}), in_brackets({"b", "a"}, 1), in_brackets(())
    (' (a, b)', ' (a, … 1 more)', '')
    """
    names = sorted(regions)
    more = len(names) - most
    listed = ", ".join((*names[:most], *([f"… {more} more"] if more > 0 else [])))
    return f" ({listed})" if listed else ""


def match_family(name: str, known: Iterable[str]) -> tuple[str, ...]:
    """Return the names that begin with the same word and contain every other word of `name`."""
    words = _words(name)
    if not words:
        return ()
    members = []
    for candidate in known:
        theirs = _words(candidate)
        if theirs[:1] == words[:1] and set(words) <= set(theirs):
            members.append(candidate)
    return tuple(sorted(members))


_LIST_FIX = "See the names with `gpuplan gpus`."


def _unknown_accelerator(
    name: str, known: dict[str, str], catalogue: Catalogue | None
) -> UsageError:
    for offer in (catalogue or embedded_catalogue()).offers:
        if name.casefold() in instance_names(offer.provider, offer.instance_type):
            count, device = f"{offer.accelerators:g}", offer.accelerator
            return UsageError(
                f"{name!r} is an instance type of {offer.provider} with {count} × {device}, and no"  # noqa: RUF001
                " accelerator.",
                fix=f"Give the accelerator, {device} ({device}:{count} where a count may be given),"
                f" or --instance {offer.instance_type} where there is that option.",
            )
    counted = _COUNT_BEFORE.fullmatch(name.strip()) or _COUNT_BEHIND.fullmatch(name.strip())
    if counted is not None:
        count, device = counted["count"], counted["device"]
        return UsageError(
            f"There is no accelerator {name!r}: a count stands behind its name, after a colon.",
            fix=f"write {device}:{count}, or {device} where no count may be given.",
        )
    # A short spelling is often closer to what was meant than any full name ("h1000" → "H100").
    spellings = {alias.spelling for alias in _aliases().values() if alias.canonical}
    suggestions = did_you_mean(name, sorted(spellings | set(known.values())))
    return UsageError(f"There is no accelerator {name!r}.{suggestions}", fix=_LIST_FIX)


_COUNT_BEFORE = re.compile(r"(?P<count>\d+)\s*[x×*]\s*(?P<device>[A-Za-z].*)")  # noqa: RUF001
_COUNT_BEHIND = re.compile(r"(?P<device>[A-Za-z].*\d\S*?)\s*[x×*]\s*(?P<count>\d+)")  # noqa: RUF001
"""As people write "8xH100" and "H100x8"."""


def _reads_as(name: str) -> str | None:
    """Return the one accelerator of the embedded catalogue that a name means; None for several."""
    known = _canonical_names(None)
    alias = _find(name, known)
    if alias is not None and alias.canonical and alias.certainty != "ambiguous":
        return alias.canonical
    family = match_family(name, known.values())
    return family[0] if len(family) == 1 else None


def _find(name: str, known: dict[str, str]) -> Alias | None:
    canonical = known.get(_folded(name))
    if canonical is not None:
        return Alias(name, canonical, "exact", None)
    return _aliases().get(_folded(name))


_NAMES: list[tuple[Catalogue, dict[str, str]]] = []
"""The catalogue that was asked last, with its names: thousands of records ask for the same."""


def _canonical_names(catalogue: Catalogue | None) -> dict[str, str]:
    """Return every canonical name by its folded form: those with a spec row and those sold."""
    catalogue = catalogue or embedded_catalogue()
    for known, named in _NAMES:
        if known is catalogue:
            return named
    named = _folded_names(catalogue)
    _NAMES[:] = [(catalogue, named)]
    return named


def _folded_names(catalogue: Catalogue) -> dict[str, str]:
    names = {offer.accelerator for offer in catalogue.offers} | set(catalogue.accelerators)
    return {_folded(name): name for name in names if not name.startswith(CPU_PREFIX)}


@lru_cache(maxsize=1)
def _aliases() -> dict[str, Alias]:
    with (DATA_DIR / "aliases.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.reader(file))[1:]
    return {
        _folded(spelling): Alias(
            spelling, canonical or None, cast(Certainty, certainty), note or None
        )
        for spelling, canonical, certainty, note in rows
    }


def _folded(name: str) -> str:
    return re.sub(r"[\s_]+", "-", name.strip().casefold())


def _words(name: str) -> list[str]:
    words = [word for word in re.split(r"[\s_\-]+", name.strip().casefold()) if word]
    return [word for word in words if word not in VENDOR_WORDS]


@cache
def _seller_names() -> dict[tuple[str, str], str]:
    """Return the one name of each type of the catalogue that has one, without patterns."""
    with (CURATED_DIR / "seller_types.csv").open(newline="", encoding="utf-8") as file:
        return {
            (row["provider"], row["instance_type"]): row["seller_type"]
            for row in csv.DictReader(file)
            if row["provider"] in SELLERS_WITH_NAMES and not {"*", "?"} & {*row["seller_type"]}
        }
