"""The sentences of a difference between two reports. Pure text; every figure is given."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import TYPE_CHECKING

from ....catalog.text.amounts import format_given_share
from ..money import dollars
from ..report.limit_rows import no_price_of

if TYPE_CHECKING:
    from ..report.rows import ExperimentRow

MANY_TIMES = 3
"""From this ratio on it is said in times."""
MOST = Decimal("0.5")
"""Share of the difference from which one cause is most of it."""


def headline(
    usd: Decimal,
    share: float | None,
    causes: Sequence[tuple[Decimal, str]],
    before_usd: Decimal,
    *,
    is_at_most: bool = False,
) -> str:
    """Return the first line: how much more or less, and mostly why.

    Args:
        usd: by how much the later budget is above the earlier, US dollars.
        share: the same as a share of the earlier.
        causes: US dollars and words of each.
        before_usd: the earlier budget, US dollars.
        is_at_most: whether the earlier leaves out what had no price then, so that the later is at
            most so much more.
    """
    if not causes:
        return f"Nothing changed: {dollars(before_usd)} in both."
    said = _of_causes(usd, share, causes, before_usd)
    if not is_at_most or not usd:
        return said
    return f"{'At most' if usd > 0 else 'At least'} {said}"


def not_known(names: Sequence[str], parts: Sequence[str], rest: str) -> str:
    """Return the first line where the later budget has no price of something that changed.

    Args:
        names: what has none.
        parts: what has one that leaves a part of it out.
        rest: what all else comes to.
    """
    all_else = f"{rest[0].lower()}{rest[1:]}"
    return f"Not known how much more or less, as {no_price_of(names, parts)}. All else: {all_else}"


def _of_causes(
    usd: Decimal, share: float | None, causes: Sequence[tuple[Decimal, str]], before_usd: Decimal
) -> str:
    if not usd:
        _, text = max(causes, key=lambda one: abs(one[0]))
        return f"The same sum, {dollars(before_usd)}: what changed cancels out, as {text}."
    same_way = [one for one in causes if (one[0] > 0) == (usd > 0)]
    largest_usd, text = max(same_way, key=lambda one: abs(one[0]))
    mostly = "mostly" if abs(largest_usd) >= MOST * abs(usd) else "first of all"
    if len(causes) == 1:
        mostly = "all of it"
    part = "" if share is None else f" ({share_text(share)})"
    return f"{dollars(abs(usd))} {more(usd)}{part}: {mostly} because {text}."


def scope(name: str, *, is_new: bool) -> str:
    """Return that an experiment was added or left out."""
    return f"{name} is new" if is_new else f"{name} is left out"


def unpriced(name: str, *, was_known: bool) -> str:
    """Return that the price of an experiment came to be known, or is not known any more."""
    known = "is not known any more" if was_known else "was not known before"
    return f"the price of {name} {known}"


def runs(old: ExperimentRow, new: ExperimentRow) -> str:
    """Return that an experiment has another number of runs, or of attempts."""
    seeds = old.seeds or 0, new.seeds or 0
    if all(seeds) and seeds[0] != seeds[1] and new.runs * seeds[0] == old.runs * seeds[1]:
        return f"{new.name} runs {counted(seeds[1], 'seed')} instead of {seeds[0]}"
    if new.runs != old.runs:
        return f"{new.name} has {counted(new.runs, 'run')} instead of {old.runs}"
    which = "(failed, tried and early-ended ones)"
    first, last = (f"{one.runs_expected:.3g}" for one in (old, new))
    if first == last:
        ratio = times_or_percent(new.runs_expected / old.runs_expected)
        return f"{new.name} takes {ratio} runs {which}"
    return f"{new.name} takes the work of {last} runs instead of {first} {which}"


def work(old: ExperimentRow, new: ExperimentRow) -> str:
    """Return that a run has another amount of work."""
    if not old.work or not new.work or old.work == new.work:
        return f"a run of {new.name} has another amount of work"
    first, last = old.work.split(", "), new.work.split(", ")
    gone, come = (
        [one for one in these if one not in those]
        for these, those in ((first, last), (last, first))
    )
    if not gone or not come:
        return f"a run of {new.name} is {new.work} instead of {old.work}"
    return f"a run of {new.name} is {', '.join(come)} instead of {', '.join(gone)}"


def model(old: ExperimentRow, new: ExperimentRow) -> str:
    """Return that a sample takes more or fewer FLOPs, and of which model."""
    first, last = old.flops_per_sample or 1.0, new.flops_per_sample or 1.0
    text = f"a sample of {new.name} takes {times_or_percent(last / first)} FLOPs"
    if old.model == new.model or old.model is None or new.model is None:
        return text
    return f"{text} (of {new.model} instead of {old.model})"


def plan(old: ExperimentRow, new: ExperimentRow) -> str:
    """Return that an experiment is planned otherwise."""
    if old.rent != new.rent:
        return f"{new.name} is planned on {new.rent} instead of {old.rent}"
    if old.layout != new.layout:
        return f"{new.name} is laid out as {new.layout} instead of {old.layout}"
    return f"{new.name} is paid for in another way"


def speed(
    old: ExperimentRow, new: ExperimentRow, ratio: float, version: str, new_version: str
) -> str:
    """Return that the same plan takes another time."""
    said = f"{new.name} takes {times_or_percent(ratio)} hours on the same plan"
    return said if version == new_version else f"{said}, as gpuplan {new_version} estimates it"


def price(old: ExperimentRow, new: ExperimentRow, old_usd: Decimal, new_usd: Decimal) -> str:
    """Return that an hour of the same machine has another price."""
    return (
        f"an instance-hour of {new.name} costs ${new_usd:,.4f} instead of ${old_usd:,.4f}"
        f" ({new.rent})"
    )


def other(name: str) -> str:
    """Return that the lines beside machines changed."""
    return f"data and the like of {name} take another share"


def tax(name: str, old: Decimal, new: Decimal) -> str:
    """Return that the tax on all money of an experiment changed; both are 1 + its rate."""
    before, after = (_share_of_tax(one) for one in (old, new))
    return f"the tax on {name} is {after} instead of {before}"


def _share_of_tax(factor: Decimal) -> str:
    return "none" if factor == 1 else f"{float(factor - 1) * 100:.3g} %"


def rounding(name: str) -> str:
    """Return that sums differ by cents of rounding alone."""
    return f"the lines of {name} fall into other months and are rounded there"


def fixed(name: str, old: Decimal | None, new: Decimal | None) -> str:
    """Return that a line of the project was added, left out or changed."""
    if old is None:
        return f"{name} is new"
    if new is None:
        return f"{name} is left out"
    return f"{name} costs {dollars(new)} instead of {dollars(old)}"


def contingency(old: float, new: float) -> str:
    """Return that the contingency changed."""
    if old == new:
        return f"the contingency is {format_given_share(new)} of another total"
    return f"the contingency is {format_given_share(new)} instead of {format_given_share(old)}"


def more(usd: Decimal) -> str:
    """Return in which direction a difference goes."""
    return "more" if usd > 0 else "less"


def times_or_percent(ratio: float) -> str:
    """Return how many more or fewer there are: in times where nobody thinks in percent.

    >>> times_or_percent(1.2), times_or_percent(0.9), times_or_percent(235), times_or_percent(0.1)
    ('20 % more', '10 % fewer', '235 times the', '0.1 times the')
    """
    if ratio >= MANY_TIMES or ratio <= 1 / MANY_TIMES:
        return f"{ratio:,.0f} times the" if ratio >= 100 else f"{ratio:.2g} times the"
    return f"{percent(ratio)} {'more' if ratio > 1 else 'fewer'}"


def percent(ratio: float) -> str:
    """Return how far a ratio is from 1, in percent with three digits."""
    return f"{abs(ratio - 1) * 100:.3g} %"


def share_text(share: float) -> str:
    """Return a share with its sign, in percent; in times where it is many times as much."""
    if share >= MANY_TIMES - 1:
        return f"{1 + share:.2g} times as much" if share < 99 else f"{1 + share:,.0f} times as much"
    points = share * 100
    digits = 0 if abs(points) >= 10 else 1
    return f"{points:+.{digits}f} %".replace("-", "−")  # noqa: RUF001


def counted(count: int, noun: str) -> str:
    """Return a number of things."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
