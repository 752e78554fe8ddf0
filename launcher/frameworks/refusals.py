"""Plans that a framework cannot run: a table of rules, of which the first that applies refuses."""

from __future__ import annotations

from ...catalog.errors import UsageError
from ...planner.plan.plan import Plan

Rule = tuple[bool, str, str]
"""Whether it applies, what the plan does that the framework cannot, and how to fix it."""


def refuse(framework: str, plan: Plan, *rules: Rule) -> None:
    """Refuse a plan to which a rule applies.

    Raises:
        UsageError: the first of them.
    """
    for applies, reason, fix in rules:
        if applies:
            raise UsageError(f"{framework} cannot run {plan.layout}: it {reason}.", fix=fix)
