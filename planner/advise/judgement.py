"""What a change is worth: what it saves, whether that can be told, and the order of changes."""

from __future__ import annotations

from ..plan.plan import Plan
from ..plan.question import MOST_OOM
from .answer import HELPING, Change, Verdict
from .changes import Proposal
from .oom_risk import ends_risk, risk_texts
from .time_and_cost import Span, cost_of, time_of
from .today.setting import fits
from .wording import gain_text

ORDER: tuple[Verdict, ...] = (
    "makes_it_fit",
    "saves",
    "trades",
    "no_difference",
    "worse",
    "does_not_fit",
)


def judged(proposal: Proposal, plan: Plan, today: Plan, *, max_oom: float = MOST_OOM) -> Change:
    """Return a change with what it saves and risks, given its plan and today's.

    Args:
        proposal: the change.
        plan: what comes of it.
        today: today's plan.
        max_oom: the largest chance of running out of memory that is wanted.
    """
    comparable = fits(today) and fits(plan)
    before, after = time_of(today), time_of(plan)
    usd_before, usd_after = cost_of(today), cost_of(plan)
    priced = comparable and usd_before is not None and usd_after is not None
    worked = today.whole_job is not None
    change = Change(
        kind=proposal.kind,
        text=proposal.text,
        verdict=_verdict(plan, today),
        gain="",
        alters_training=proposal.alters_training,
        hours_saved=before.value - after.value if comparable and worked else None,
        usd_saved=usd_before.value - usd_after.value
        if priced and worked and usd_before and usd_after
        else None,
        time_saved_share=before.saved_share(after) if comparable else None,
        cost_saved_share=usd_before.saved_share(usd_after)
        if priced and usd_before and usd_after
        else None,
        ends_oom_risk=ends_risk(plan, today, max_oom),
        risks=(*proposal.risks, *_plan_risks(plan, today)),
        lines=proposal.lines,
        plan=plan,
    )
    return change.model_copy(update={"gain": gain_text(change, today)})


def _verdict(plan: Plan, today: Plan) -> Verdict:
    if not fits(plan):
        return "does_not_fit"
    if not fits(today):
        return "makes_it_fit"
    gains = [_gain(time_of(today), time_of(plan))]
    usd_before, usd_after = cost_of(today), cost_of(plan)
    if usd_before is not None and usd_after is not None:
        gains.append(_gain(usd_before, usd_after))
    if max(gains) > 0:
        return "trades" if min(gains) < 0 else "saves"
    return "worse" if min(gains) < 0 else "no_difference"


def _gain(before: Span, after: Span) -> int:
    """Return 1 for less, -1 for more, 0 where no difference can be told."""
    if not before.differs(after):
        return 0
    return 1 if after.value < before.value else -1


def _plan_risks(plan: Plan, today: Plan) -> list[str]:
    risks = [*risk_texts(plan, today)]
    if plan.needs_build is not None:
        risks.append("the device needs another build of torch")
    if plan.usually_reserved:
        risks.append("such machines are usually had by reservation only")
    return risks


def ranked(changes: list[Change], *, max_oom: float) -> tuple[Change, ...]:
    """Return the changes, those first that help, and of them those that save most.

    Those that help and alter the training come after the others that help, however much they save:
    dollars do not say what another loss is worth.

    Args:
        changes: all of them; money counts first, then time.
        max_oom: those that run out of memory with a larger chance come after those that do not:
            what is accepted (`accepted_risk`).
    """

    def order(change: Change) -> tuple[float, ...]:
        cost, time = cost_of(change.plan), time_of(change.plan)
        helps = change.verdict in HELPING
        return (
            not helps,
            helps and change.alters_training,
            ORDER.index(change.verdict),
            is_risky(change, max_oom),
            float("inf") if cost is None else cost.value,
            time.value,
        )

    return tuple(sorted(changes, key=order))


def is_risky(change: Change, max_oom: float) -> bool:
    """Return whether a change runs out of memory with a larger chance than is accepted."""
    return (change.plan.p_oom or 0.0) > max_oom


def best_sizes(changes: list[Change], *, max_oom: float) -> list[Change]:
    """Return the changes with one micro-batch and one global batch: the best of those tried.

    Of sizes between which no difference can be told, the first that was tried stays.

    Args:
        changes: all of them.
        max_oom: as for `ranked`.
    """
    kept: list[Change] = []
    places: dict[str, int] = {}
    for change in changes:
        place = places.get(change.kind)
        if change.kind not in ("micro_batch", "global_batch") or place is None:
            places[change.kind] = len(kept)
            kept.append(change)
        elif _is_better(change, kept[place], max_oom):
            kept[place] = change
    return kept


def _is_better(change: Change, other: Change, max_oom: float) -> bool:
    def grade(one: Change) -> tuple[bool, bool]:
        return fits(one.plan), not is_risky(one, max_oom)

    if grade(change) != grade(other):
        return grade(change) > grade(other)
    return _gain(time_of(other.plan), time_of(change.plan)) > 0
