"""The user's own terms (`--pricebook pricebook.yaml`) → a `Pricebook`.

A pricebook is a file that people keep beside their keys: what looks like one is refused by its
line, and never printed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from ..errors import UsageError, did_you_mean
from ..names import resolve_provider, resolve_region
from ..terms.blocks import block_days
from ..terms.pricebook import (
    CapacityBlock,
    Credit,
    Currency,
    Discount,
    DiscountOf,
    Pricebook,
    Reservation,
)
from ..text.secrets import SECRET_NAME, looks_secret
from .fields import Fields
from .tree import Branch, Items, Leaf, Tree, read_tree

if TYPE_CHECKING:
    from ..embedded import Catalogue

HELP = "See docs/pricebook.md."
LONGEST_TERM_YEARS = 10
LONGEST_BLOCK_DAYS = 3650
MOST_INSTANCES = 100_000
RESERVATION_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,199}")
WITH_IDS = ("aws", "gcp")
"""Providers whose reservations SkyPilot 0.14 starts machines in by their names."""


def load_pricebook(path: Path, catalogue: Catalogue) -> Pricebook:
    """Return the terms that a file states; names are those of the catalogue.

    Raises:
        UsageError: The file is unreadable or malformed, a value is wrong, a name is unknown, or
            something in it looks like a key; with its line.
    """
    tree = read_tree(path, holds="discounts:", help=HELP)
    _refuse_secrets(path, tree)
    top = Fields(path, tree, what="the file")
    reader = _Reader(catalogue)
    book = Pricebook(
        discounts=tuple(map(reader.discount, top.parts("discounts"))),
        reserved=tuple(map(reader.reservation, top.parts("reserved"))),
        blocks=tuple(map(reader.block, top.parts("blocks"))),
        credits=tuple(map(reader.credit, top.parts("credits"))),
        currency=_currency(top.part("currency")),
        tax_percent=top.number("tax_percent", least=0, most=100),
    )
    top.refuse_unknown()
    if book == Pricebook():
        raise top.error("there are no terms in it.", fix=f"Add at least one. {HELP}")
    return book


class _Reader:
    """Reads entries, and refuses one that stands there twice."""

    def __init__(self, catalogue: Catalogue) -> None:
        self.catalogue = catalogue
        self._lines: dict[tuple[object, ...], int] = {}

    def discount(self, part: Fields) -> Discount:
        part.required_text("percent")
        percent = part.number("percent", above=0)
        assert percent is not None
        if percent >= 100:
            raise part.error(
                f"percent is {percent}; it must be below 100.", line=part.line_of("percent")
            )
        provider, region, instance = self._place(part)
        purchase = _purchase(part)
        part.refuse_unknown()
        self._refuse_repeat(part, "discount", provider, region, instance, purchase)
        return Discount(
            percent=percent,
            provider=provider,
            region=region,
            instance=instance,
            purchase=purchase,
        )

    def reservation(self, part: Fields) -> Reservation:
        for name in ("provider", "region", "instance", "usd_per_hour", "term_years"):
            part.required_text(name)
        provider, region, instance = self._place(part)
        assert provider is not None and region is not None and instance is not None
        hourly = part.number("usd_per_hour", least=0)
        years = part.number("term_years", above=0, most=LONGEST_TERM_YEARS)
        upfront = part.number("upfront_usd", least=0) or Decimal(0)
        count = part.number("count", above=0, most=MOST_INSTANCES)
        assert hourly is not None and years is not None
        if count is not None and count % 1:
            raise part.error(f"count is {count}; give whole instances.", line=part.line_of("count"))
        if hourly == 0 and upfront == 0:
            raise part.error(
                "usd_per_hour is 0 and upfront_usd is not given.",
                line=part.line_of("usd_per_hour"),
                fix="Give what the term costs: by the hour, upfront, or both.",
            )
        name = self._reservation_id(part, provider, is_held=count is not None)
        part.refuse_unknown()
        self._refuse_repeat(part, "reserved price", provider, region, instance, years, name)
        return Reservation(
            provider=provider,
            instance=instance,
            region=region,
            usd_per_hour=hourly,
            term_years=years,
            upfront_usd=upfront,
            count=None if count is None else int(count),
            id=name,
        )

    def _reservation_id(self, part: Fields, provider: str, *, is_held: bool) -> str | None:
        name = part.text("id")
        if name is None:
            return None
        line = part.line_of("id")
        if provider not in WITH_IDS:
            raise part.error(
                f"id is given, and SkyPilot starts no machines in a reservation of {provider}.",
                line=line,
                fix=f"Leave it out; it is for {' and '.join(WITH_IDS)}.",
            )
        if not is_held:
            raise part.error(
                "id is given without count.", line=line, fix="Give how many machines it holds."
            )
        if not RESERVATION_ID.fullmatch(name):
            raise part.error(
                f"id is {name!r}, no name of a reservation.",
                line=line,
                fix="Give it as the provider does: cr-0123456789abcdef0 on AWS, its name on GCP.",
            )
        return name

    def block(self, part: Fields) -> CapacityBlock:
        for name in ("provider", "region", "instance"):
            part.required_text(name)
        provider, region, instance = self._place(part)
        assert provider is not None and region is not None and instance is not None
        days = part.number("days", above=0, most=LONGEST_BLOCK_DAYS)
        upfront = part.number("upfront_usd", above=0)
        hourly = part.number("usd_per_hour", above=0)
        if (upfront is None) == (hourly is None):
            raise part.error(
                "a block has either upfront_usd or usd_per_hour.",
                fix="Give the fee of one instance with its `days`, or the rate of an hour of it.",
            )
        self._refuse_other_length(part, provider, days, needs_days=upfront is not None)
        part.refuse_unknown()
        self._refuse_repeat(part, "block", provider, region, instance, days)
        return CapacityBlock(
            provider=provider,
            instance=instance,
            region=region,
            days=None if days is None else int(days),
            upfront_usd=upfront,
            usd_per_hour=hourly,
        )

    def _refuse_other_length(
        self, part: Fields, provider: str, days: Decimal | None, *, needs_days: bool
    ) -> None:
        sold = block_days(provider)
        if days is None and (needs_days or not sold):
            why = "upfront_usd is of some days" if sold else f"{provider} states no lengths"
            raise part.error(f"days is not given, and {why}.", fix="Add `days: …`.")
        if days is not None and (days % 1 or (sold and int(days) not in sold)):
            raise part.error(
                f"days is {days}, no length that {provider} sells a block for.",
                line=part.line_of("days"),
                fix=f"Give one of {', '.join(map(str, sold))}." if sold else "Give whole days.",
            )

    def credit(self, part: Fields) -> Credit:
        part.required_text("provider")
        provider, _, _ = self._place(part, where=False)
        assert provider is not None
        usd = part.required_number("usd", above=0)
        part.required_text("expires")
        expires = part.date("expires")
        assert expires is not None
        part.refuse_unknown()
        return Credit(provider=provider, usd=usd, expires=expires)

    def _place(
        self, part: Fields, *, where: bool = True
    ) -> tuple[str | None, str | None, str | None]:
        """Return provider, region and instance type as the catalogue names them."""
        catalogue = self.catalogue
        provider, region, instance = part.text("provider"), None, None
        name = "provider"
        try:
            if provider is not None:
                provider = resolve_provider(provider, catalogue=catalogue)
            if where:
                name, region = "region", part.text("region")
                sellers = () if provider is None else (provider,)
                if region is not None:
                    region = resolve_region(region, providers=sellers, catalogue=catalogue)
                name, instance = "instance", part.text("instance")
                if instance is not None:
                    instance = self._instance(instance, provider)
        except UsageError as error:
            raise part.error(
                error.message, line=part.line_of(name), fix=_without_options(error.fix)
            ) from error
        return provider, region, instance

    def _instance(self, name: str, provider: str | None) -> str:
        sold = {kind for seller, kind in self.catalogue.instances if provider in (None, seller)}
        by_folded = {kind.casefold(): kind for kind in sold}
        if name.casefold() in by_folded:
            return by_folded[name.casefold()]
        whose = f" of {provider}" if provider else ""
        raise UsageError(
            f"There is no instance type {name!r}{whose}.{did_you_mean(name, sold)}",
            fix="See the names with `gpuplan offers`.",
        )

    def _refuse_repeat(self, part: Fields, what: str, *key: object) -> None:
        known = self._lines.setdefault((what, *key), part.line)
        if known != part.line:
            raise part.error(
                f"a {what} of the same scope is on line {known} already.", fix="Keep one."
            )


def _purchase(part: Fields) -> DiscountOf:
    text = part.text("purchase")
    kinds: tuple[DiscountOf, ...] = get_args(DiscountOf)
    if text is None:
        return "on-demand"
    for kind in kinds:
        if kind == text.casefold().replace("_", "-"):
            return kind
    raise part.error(
        f"purchase is {text!r}.{did_you_mean(text, kinds)}",
        line=part.line_of("purchase"),
        fix=f"Give one of {', '.join(kinds)}.",
    )


def _currency(part: Fields | None) -> Currency | None:
    if part is None:
        return None
    code = part.required_text("code").upper()
    if not re.fullmatch("[A-Z]{3}", code):
        raise part.error(
            f"code is {code!r}; give three letters, like EUR (ISO 4217).",
            line=part.line_of("code"),
        )
    rate = part.required_number("per_usd", above=0)
    part.required_text("date")
    day = part.date("date")
    assert day is not None
    part.refuse_unknown()
    return Currency(code=code, per_usd=rate, date=day)


def _without_options(fix: str | None) -> str | None:
    """Return advice that speaks of no option: what is wrong stands in the file."""
    return None if fix is None or "--" in fix else fix


def _refuse_secrets(path: Path, tree: Tree) -> None:
    for line in _secret_lines(tree):
        raise UsageError(
            f"{path}:{line}: what stands here looks like a key, a token or a password; it is not"
            " shown.",
            fix="Remove it: a pricebook holds prices alone, and is best kept under version"
            " control.",
        )


def _secret_lines(tree: Tree) -> Iterator[int]:
    """Yield the lines of values that look like keys, and of names that such are kept under."""
    if isinstance(tree, Leaf):
        if tree.text is not None and looks_secret(tree.text):
            yield tree.line
    elif isinstance(tree, Items):
        for child in tree.children:
            yield from _secret_lines(child)
    else:
        yield from _secret_lines_of_map(tree)


def _secret_lines_of_map(tree: Branch) -> Iterator[int]:
    for name, child in tree.children.items():
        if SECRET_NAME.search(name) or looks_secret(name):
            yield child.line
        else:
            yield from _secret_lines(child)
