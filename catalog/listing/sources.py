"""Where the prices of an answer are from: the package's own snapshot, or one of the user's."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Literal

from ..frozen import FrozenModel


class PriceSource(FrozenModel):
    """Which snapshot prices were read from, how old it is, and whose prices in it are older."""

    kind: Literal["embedded", "refreshed"] = "embedded"
    """Of the package, or refreshed from the clouds by the user."""
    made_at: datetime | None = None
    """When the user refreshed them; None for those of the package."""
    fresh: tuple[str, ...] = ()
    """Providers that answered then."""
    kept: dict[str, date] = {}
    """Providers that did not, with the day of the prices that are kept of them."""

    @property
    def key(self) -> dict[str, datetime]:
        """What tells answers at refreshed prices apart: two refreshes may be of one day."""
        return {} if self.made_at is None else {"refreshed_at": self.made_at}

    def age_s(self, now: datetime) -> float | None:
        """Return the age of a refreshed snapshot, seconds; None for that of the package."""
        if self.made_at is None:
            return None
        moment = now if now.tzinfo is not None else now.replace(tzinfo=UTC)
        return (moment - self.made_at).total_seconds()

    def text(self, now: datetime) -> str | None:
        """Return it in a few words ("aws, gcp refreshed 3 h ago"); None for the package's own."""
        age_s = self.age_s(now)
        if self.made_at is None or age_s is None:
            return None
        parts = []
        if self.fresh:
            parts.append(f"{', '.join(self.fresh)} refreshed {_ago(age_s, self.made_at)}")
        parts += [f"{name} kept of {day.isoformat()}" for name, day in sorted(self.kept.items())]
        return "; ".join(parts) or f"refreshed {_ago(age_s, self.made_at)}"


def _ago(age_s: float, made_at: datetime) -> str:
    # An answer states the second in which it was made, and prices may come later in that second.
    if age_s <= -1.0:
        return f"at {made_at.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
    for size_s, unit in ((86400.0, "day"), (3600.0, "h"), (60.0, "min")):
        count = int(max(0.0, age_s) // size_s)
        if count:
            return f"{count} {unit}{'s' if unit == 'day' and count > 1 else ''} ago"
    return "now"
