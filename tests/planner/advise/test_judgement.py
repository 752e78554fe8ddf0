"""Which differences can be told, and which of several sizes is proposed."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from gpuplan.planner.advise.answer import Change, Verdict
from gpuplan.planner.advise.judgement import Span, ranked


@pytest.mark.parametrize(
    ("before", "after", "differs"),
    [
        (Span(100, 90, 110), Span(99, 89, 109), False),  # Less than 2 %.
        (Span(100, 60, 150), Span(95, 57, 143), False),  # The shorter interval lies in the other.
        (Span(100, 90, 110), Span(90, 81, 99), True),
        (Span(100, 90, 110), Span(110, 100, 120), True),
        (Span(100, 100, 100), Span(95, 95, 95), True),  # Nothing is uncertain.
    ],
)
def test_a_difference_is_told_where_it_is_not_noise(
    before: Span, after: Span, differs: bool
) -> None:
    assert before.differs(after) is differs
    assert after.differs(before) is differs


def test_what_alters_the_training_comes_after_all_else_that_helps() -> None:
    def change(verdict: Verdict, usd: float, *, alters: bool) -> Change:
        job = SimpleNamespace(
            usd=usd,
            usd_low=usd,
            usd_high=usd,
            beside_usd=0,
            hours=1,
            hours_low=1,
            hours_high=1,
        )
        return Change.model_construct(
            verdict=verdict,
            plan=cast("Any", SimpleNamespace(whole_job=job, p_oom=None)),
            alters_training=alters,
            text=f"{verdict} {usd}",
        )

    changes = [
        change("worse", 9, alters=True),
        change("worse", 8, alters=False),
        change("saves", 1, alters=True),
        change("trades", 3, alters=False),
        change("saves", 2, alters=False),
    ]
    order = [one.text for one in ranked(changes, max_oom=0.02)]
    assert order == ["saves 2", "trades 3", "saves 1", "worse 8", "worse 9"]


def test_what_is_saved_is_a_share_of_what_was() -> None:
    assert Span(4, 4, 4).saved_share(Span(3, 3, 3)) == 0.25
    assert Span(4, 4, 4).saved_share(Span(5, 5, 5)) == -0.25
