"""Lines of a ledger without a known price; the text below a field is its description."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Self

from ....catalog.frozen import Usd
from ..money import NOTHING
from .rows import LedgerLine


class OpenLedgerLine(LedgerLine):
    """What has no known price: it is in no sum."""

    dearest_unit_usd: Usd | None = None
    """US dollars of one unit, with tax, at the highest price that any seller states for such a
    thing; None where that does not say what it costs at most, as of machines without a price and of
    vCPUs of which nobody says how many there are."""

    @classmethod
    def of(cls, line: LedgerLine, dearest_unit_usd: Usd | None = None) -> Self:
        """Return a line of the ledger as one without a price, US dollars a unit at most."""
        return cls.model_validate({**dict(line), "dearest_unit_usd": dearest_unit_usd})

    @property
    def most_usd(self) -> Usd | None:
        """US dollars at that price; None where it is not known."""
        unit_usd = self.dearest_unit_usd
        return None if unit_usd is None else self.quantity * unit_usd


def most_usd(lines: Iterable[OpenLedgerLine]) -> Usd | None:
    """Return what lines cost at most, at the dearest known prices; None where one may cost more."""
    usd = NOTHING
    for one in lines:
        if one.most_usd is None:
            return None
        usd += one.most_usd
    return usd
