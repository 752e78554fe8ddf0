"""The last line of an answer: what to type next."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from rich.text import Text

from ....planner.plan.answer.estimate import Estimate
from ....planner.plan.plan import Plan
from ..text.columns import packed

NEXT_SEPARATORS = ("   ·   ", "  ·  ")
LABEL = "Next: "
WITH_STORE = "GPUPLAN_HOME=FOLDER gpuplan … (one that can be written) to launch it"


def next_step(answer: Estimate, model: str, width: int, *, is_kept: bool) -> Iterator[Text]:
    """Yield what to type next, as lines.

    Args:
        answer: The estimate, with plans.
        model: The model as it was typed.
        width: Columns of the terminal.
        is_kept: Whether `show` and `launch` find its plans: where nothing can be stored, only the
            same command says more.
    """
    commands = _commands(answer, model) if is_kept else _without_store(answer, model)
    missed = answer.near_miss
    if missed is not None and missed.options is not None:
        commands.append(f"the same with {missed.options}")
    else:
        commands.append("the same with --top all")
    separator = NEXT_SEPARATORS[0]
    has_work = any(plan.run for plan in answer.plans)
    if missed is None and has_work and answer.plans[0].amount_text is None:
        with_pareto = [*commands[:-1], f"{commands[-1]} or --pareto"]
        fitting = [
            one for one in NEXT_SEPARATORS if len(one.join(with_pareto)) + len(LABEL) <= width
        ]
        if fitting:
            commands, separator = with_pareto, fitting[0]
    first, *more = packed(commands, width=width, indent=len(LABEL), separator=separator)
    yield Text(f"{LABEL}{first.strip()}")
    yield from (Text(line) for line in more)


def _commands(answer: Estimate, model: str) -> list[str]:
    """Return how to launch and to see the plan to look at first."""
    return [
        *_first_command(answer, model),
        f"gpuplan show {(answer.first_look or answer.plans[0]).id}",
    ]


def _without_store(answer: Estimate, model: str) -> list[str]:
    """Return what shows the plan where it is not kept, and what would keep it."""
    plan = answer.first_look or answer.plans[0]
    explained = f"the same with --explain {plan.position}"
    if not any(one.run for one in answer.plans):
        return [*_first_command(answer, model), explained]
    return [explained, WITH_STORE]


def _first_command(answer: Estimate, model: str) -> Iterator[str]:
    """Yield how to launch what is recommended, where `launch` would not refuse it."""
    if not any(plan.run for plan in answer.plans):
        amount = "--samples 1M" if answer.workload.tokens_per_sample is None else "--tokens 10B"
        yield f"gpuplan estimate {shlex.quote(model)} {amount}"
        return
    plan = answer.first_look or answer.plans[0]
    if answer.near_miss is None and plan.runnable is not False and not plan.needs_port:
        yield _start(plan, model)


def _start(plan: Plan, model: str) -> str:
    """Return how to start a plan: SkyPilot rents no machine of one's own."""
    if not plan.offer.is_own:
        return f"gpuplan launch {plan.id}"
    if plan.nodes > 1:
        return f"gpuplan export {plan.id} --to torchrun"
    return f"on it: gpuplan run {shlex.quote(model)} --plan {plan.id}"
