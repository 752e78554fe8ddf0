"""The limits of a project, and what counts against them and has no known price, in words."""

from __future__ import annotations

from collections.abc import Sequence

from ....catalog.frozen import FrozenModel, Usd
from ..money import dollars
from ..project.on_exceed import OnExceed

MOST_NAMES = 3
"""Without a price that a sentence names before it counts the others."""


def no_price_of(names: Sequence[str], in_part: Sequence[str] = ()) -> str:
    """Return "the price of a, of a part of b and 2 more is not known".

    Args:
        names: what has no price at all.
        in_part: what has one that leaves a part of it out.

    >>> no_price_of(["big"])
    'the price of big is not known'
    >>> no_price_of(["big"], ["small"])
    'the price of big, of a part of small is not known'
    """
    parts = [*names, *(f"{'of ' if names else ''}a part of {one}" for one in in_part)]
    said = ", ".join(parts[:MOST_NAMES])
    left = len(parts) - MOST_NAMES
    return f"the price of {said}{f' and {left} more' if left > 0 else ''} is not known"


class LimitCheck(FrozenModel):
    """One limit of the project, and what comes nearest to it."""

    name: str
    """What is limited: "total", "month 2027-03", "owner Ada", "run of pretrain"."""
    usd: Usd
    """US dollars that are planned."""
    limit_usd: Usd
    """The most it may be."""
    is_over: bool
    """Whether it is above, by what is planned or by what launches have cost."""
    on_exceed: OnExceed
    """Whether that is only said, or ends with exit code 4."""
    spent_usd: Usd | None = None
    """US dollars that launches have cost so far; None where none counts against it."""
    unpriced: tuple[str, ...] = ()
    """What counts against it and has no price: whether it is kept is then not known."""
    in_part: tuple[str, ...] = ()
    """What counts against it with a price that leaves a part of it out: the same holds then."""
    at_most_usd: Usd | None = None
    """US dollars that are planned where what has no price costs as much as the dearest seller
    states; None where everything has a price, or where it may cost more than any price says."""

    @property
    def highest_usd(self) -> Usd:
        """US dollars that are planned, or spent where that is more."""
        return max(self.usd, self.spent_usd or self.usd)

    @property
    def is_unknown(self) -> bool:
        """Whether it may be exceeded by what has no price."""
        if not (self.unpriced or self.in_part) or self.is_over:
            return False
        return self.at_most_usd is None or self.at_most_usd > self.limit_usd

    @property
    def kept_text(self) -> str | None:
        """How it is kept whatever of the dearest known prices holds; None where all has a price."""
        if self.at_most_usd is None or self.is_over or self.is_unknown:
            return None
        return f"at most {dollars(self.at_most_usd)} even at the dearest known price"

    @property
    def unpriced_text(self) -> str:
        """What of it has no price, in words."""
        return no_price_of(self.unpriced, self.in_part)

    @property
    def must_not_pass(self) -> bool:
        """Whether the project says that it must be kept, and it is not known to be."""
        return self.on_exceed == "fail" and (self.is_over or self.is_unknown)

    @property
    def over_text(self) -> str:
        """The sentence about a limit that is exceeded, or may be."""
        most = f"at most {dollars(self.limit_usd)} is allowed"
        if self.spent_usd is not None and self.spent_usd > self.limit_usd:
            return f"Over the limit: {self.name} has cost {dollars(self.spent_usd)}, and {most}."
        if self.is_over:
            return f"Over the limit: {self.name} is {dollars(self.usd)}, and {most}."
        dearest = ""
        if self.at_most_usd is not None:
            dearest = f" ({dollars(self.at_most_usd)} at the dearest known price)"
        return (
            f"Not known whether a limit is kept: {self.name} is at least {dollars(self.usd)},"
            f" {most}, and {self.unpriced_text}{dearest}."
        )
