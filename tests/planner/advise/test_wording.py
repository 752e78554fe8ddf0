"""What a change saves, in words: no figure where nothing changes."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from gpuplan.planner.advise.wording import headline, saved_text, sentence

HOURS, USD = 10.0, 100.0


def told(*, hours: float, usd: float | None) -> str:
    change = SimpleNamespace(
        hours_saved=hours,
        usd_saved=usd,
        time_saved_share=hours / HOURS,
        cost_saved_share=None if usd is None else usd / USD,
    )
    today = SimpleNamespace(job=SimpleNamespace(hours=HOURS), likely_usd=USD)
    return saved_text(cast("Any", change), cast("Any", today))


@pytest.mark.parametrize(
    ("hours", "usd", "text"),
    [
        (1.0, 10.0, "saves 60 min and $10 of $100"),
        (-1.0, -10.0, "takes 60 min and $10 more"),
        (-1.0, 10.0, "saves $10 of $100, takes 60 min more"),
        (1.0, -10.0, "saves 60 min, costs $10 more"),
        # A second of ten hours is nobody's reason.
        (-1 / 3600, 10.0, "saves $10 of $100 in the same time"),
        (1 / 3600, -10.0, "costs $10 more in the same time"),
        (1.0, 0.2, "saves 60 min at the same cost"),
        (-1.0, -0.2, "takes 60 min more at the same cost"),
        (0.0, 0.0, "takes as long and costs as much"),
        (1.0, None, "saves 60 min"),
        (-1.0, None, "takes 60 min more"),
        (0.0, None, "takes the same time"),
    ],
)
def test_what_is_saved(hours: float, usd: float | None, text: str) -> None:
    assert told(hours=hours, usd=usd) == text


def test_the_risk_of_another_loss_is_said_before_what_is_saved() -> None:
    facts = {"kind": "optimizer", "gain": "saves $10 of $100", "risks": ("compare the loss",)}
    plan = SimpleNamespace(optimizer="sgd")
    same, altered = (
        sentence(cast("Any", SimpleNamespace(**facts, plan=plan, alters_training=alters)))
        for alters in (False, True)
    )
    assert same == "Take sgd as the optimizer: saves $10 of $100; risk: compare the loss"
    assert altered == (
        "Take sgd as the optimizer, if the loss allows it (compare the loss): saves $10 of $100"
    )


def test_a_share_of_nothing_has_no_sign() -> None:
    change = SimpleNamespace(hours_saved=None, time_saved_share=0.001, cost_saved_share=0.73)
    today = SimpleNamespace(job=None)
    told = saved_text(cast("Any", change), cast("Any", today))
    assert told == "0 % time, −73 % money a sample"  # noqa: RUF001


@pytest.mark.parametrize(
    ("single_usd", "said"),
    [
        (
            1799.0,
            "Several changes at once cost least: dp8 compile: gain; risk: none that is known.",
        ),
        (200.0, "Keep optimizer in host memory: gain; risk: none that is known."),
        (None, "No single change makes it fit here; several do: dp8 compile: gain; risk: none"),
    ],
)
def test_what_makes_it_fit_is_several_changes_where_one_costs_much_more(
    single_usd: float | None, said: str
) -> None:
    def change(kind: str, usd: float) -> Any:
        job = SimpleNamespace(usd=usd, usd_low=usd, usd_high=usd, beside_usd=0)
        plan = SimpleNamespace(whole_job=job, offloaded=("optimizer",))
        facts = {"risks": (), "gain": "gain", "alters_training": False, "text": "dp8 compile"}
        return SimpleNamespace(kind=kind, verdict="makes_it_fit", plan=plan, **facts)

    memory = SimpleNamespace(value=50 * 1024**3, capacity=40 * 1024**3)
    today = cast("Any", SimpleNamespace(peak_memory_bytes=memory))
    single = [] if single_usd is None else [change("offload", single_usd)]
    told = headline(today, single, change("together", 181.0), today_fits=False)
    assert told.startswith(f"It does not fit: 50.0/40.0 GiB. {said}")
    assert told.endswith(
        "Alone: Keep optimizer in host memory: gain; risk: none that is known."
    ) is (single_usd == 1799.0)
