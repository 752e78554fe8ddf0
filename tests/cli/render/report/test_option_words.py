"""What the page says of an option beside the plan."""

import pytest
from budget_reports import small_report
from budget_rows import spread

from gpuplan.cli.render.report.words import beside_plan


@pytest.mark.parametrize(
    ("usd", "days", "words"),
    [
        (0, 0, "planned"),
        (-563, 31.6, "$563.00 less than planned, ends 31.6 days later"),
        (4678, -1.2, "$4,678.00 more than planned, ends 28.8 h earlier"),
        (-5, 0.001, "$5.00 less than planned"),
        (0, 2, "ends 48 h later"),
    ],
)
def test_an_option_is_told_by_what_differs(usd, days, words) -> None:
    options = small_report().options
    planned = next(one for one in options if one.is_planned)
    other = planned.model_copy(
        update={
            "is_planned": False,
            "total": spread(planned.total.usd + usd),
            "days": planned.days + days,
        }
    )
    assert beside_plan(other, options) == words
