"""A risk of running out of memory counts against a change where it is larger than today's."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from gpuplan.planner.advise.answer import Change, Verdict
from gpuplan.planner.advise.judgement import ranked
from gpuplan.planner.advise.oom_risk import accepted_risk, ends_risk, risk_notes, risk_texts
from gpuplan.planner.plan.plan import Plan

GIB = 1024**3
LIMIT = 0.02


def plan(p_oom: float | None, usd: float = 100.0, *, fits: bool = True) -> Plan:
    job = SimpleNamespace(usd=usd, usd_low=usd, usd_high=usd, beside_usd=0)
    job.hours = job.hours_low = job.hours_high = 1.0
    memory = SimpleNamespace(value=40 * GIB, capacity=(79 if fits else 39) * GIB)
    facts = {"peak_memory_bytes": memory, "host_memory_bytes": None, "whole_job": job}
    return cast("Any", SimpleNamespace(p_oom=p_oom, **facts))


def change(text: str, usd: float, p_oom: float, verdict: Verdict = "saves", **more: Any) -> Change:
    facts = {"kind": "precision", "alters_training": False, "gain": f"costs ${usd}"} | more
    made = plan(p_oom, usd)
    ends = ends_risk(made, plan(0.044), LIMIT)
    return Change.model_construct(
        text=text, verdict=verdict, plan=made, ends_oom_risk=ends, **facts
    )


def test_a_change_that_does_not_raise_todays_risk_is_not_later_for_it() -> None:
    """As of a mixture of experts on 40 GB: bf16-amp saved most, and stood last."""
    changes = [change("zero1", 621, 0.001), change("bf16-amp", 353, 0.029)]
    order = [one.text for one in ranked(changes, max_oom=accepted_risk(plan(0.044), LIMIT))]
    assert order == ["bf16-amp", "zero1"]
    riskier = [*changes, change("larger", 300, 0.2)]
    accepted = accepted_risk(plan(0.044), LIMIT)
    assert [one.text for one in ranked(riskier, max_oom=accepted)][-1] == "larger"


@pytest.mark.parametrize("today", [plan(0.001), plan(None), plan(0.99, fits=False)])
def test_otherwise_the_limit_counts(today: Plan) -> None:
    changes = [change("safe", 621, 0.001), change("risky", 353, 0.029)]
    order = [one.text for one in ranked(changes, max_oom=accepted_risk(today, LIMIT))]
    assert order == ["safe", "risky"]


def test_a_risk_is_told_beside_todays() -> None:
    [told] = risk_texts(plan(0.029), plan(0.044))
    assert told == "it runs out of memory with a chance of 2.9 % (today's setting: 4.4 %)"
    [alone] = risk_texts(plan(0.029), plan(0.9, fits=False))
    assert alone == "it runs out of memory with a chance of 2.9 %"
    assert not [*risk_texts(plan(0.0001), plan(0.044))]


def test_the_note_names_the_cheapest_change_that_ends_the_risk() -> None:
    changes = [
        change("elsewhere", 1, 0.0, kind="machine"),
        change("another optimizer", 50, 0.0, alters_training=True),
        change("bf16-amp", 353, 0.029),
        change("micro-batch 4 → 2", 800, 0.0, "worse"),
        change("zero1", 621, 0.001),
    ]
    [note] = risk_notes(plan(0.044), changes, LIMIT)
    assert note == (
        "today's setting runs out of memory with a chance of 4.4 %, more than the 2 % that is"
        " accepted; the cheapest change that ends that: zero1 (costs $621)"
    )
    [none] = risk_notes(plan(0.044), changes[:1], LIMIT)
    assert none.endswith("; no single change on this machine ends that")
    assert not [*risk_notes(plan(0.01), changes, LIMIT)]
