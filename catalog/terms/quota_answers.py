"""How long a provider usually takes to answer who asks for quota: `curated/quota_answers.csv`."""

from __future__ import annotations

from functools import cache

from ..csv_rows import build_row, columns_of, read_rows
from ..embedded import CURATED_DIR
from ..types import CatalogueRow

COLUMNS = columns_of("provider,answer_days,source")


class QuotaAnswer(CatalogueRow):
    """The time that one provider states itself."""

    provider: str
    answer_days: int
    """Working days."""
    source: str


def answer_days_of(provider: str) -> int | None:
    """Return the working days of a provider; None where it does not state them.

    AWS says that small requests are granted at once and that others take longer, with no number;
    of Azure no number was read.
    """
    row = _by_provider().get(provider)
    return None if row is None else row.answer_days


@cache
def _by_provider() -> dict[str, QuotaAnswer]:
    rows = read_rows(CURATED_DIR / "quota_answers.csv", COLUMNS)
    return {row.provider: row for row in (build_row(QuotaAnswer, one, True) for one in rows)}
