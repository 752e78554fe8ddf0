"""One estimate for each value of a model's params."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

from ..catalog.errors import GpuplanError, UsageError
from ..planner.plan.answer.answer_parts import CatalogueFacts
from ..planner.plan.answer.estimate import Estimate
from ..planner.plan.answer.param_sweep import Sweep, SweepRow
from ..planner.plan.plan import Plan
from ..planner.plan.question import Question
from ..planner.search.progress import Progress, untold
from .answers import estimate, utc_now
from .models.inputs import Inputs, read_inputs

MOST_ROWS = 64
"""Combinations of values of one sweep: each is a trace and a search of some seconds."""


def sweep(
    model: str | Path,
    values: Mapping[str, Sequence[Any]],
    question: Question | None = None,
    *,
    params: Mapping[str, Any] | None = None,
    inputs: Iterable[str] = (),
    offers: Path | None = None,
    pricebook: Path | None = None,
    curves: Iterable[str | Path] = (),
    timeout_s: float | None = None,
    assume: Mapping[str, bool | int | str] | None = None,
    use_cache: bool = True,
    on_output: Callable[[str], None] | None = None,
    on_answer: Callable[[Inputs, Estimate], None] | None = None,
    on_progress: Progress | None = None,
    now: Callable[[], datetime] | None = None,
) -> Sweep:
    """Return one estimate for every combination of values of the model's params.

    A value that cannot be traced, or that has no feasible plan, is a row that says why.

    Args:
        model: A model as for `profile`, by its name.
        values: Param → the values to try; of several params every combination, at most 64 in all.
        question: The work, machines, layouts and money, as for `estimate`.
        params: Values of the other params.
        inputs: Shapes of the tensors of a plain module, such as "3,224,224".
        offers: The user's own machines and prices.
        pricebook: The user's own terms.
        curves: Curve files of `calibrate`.
        timeout_s: Longest time that one trace may take, seconds; default: 120.
        assume: As for `model`.
        use_cache: Whether to use the cache of Profiles.
        on_output: Called with what the user's code printed.
        on_answer: Called with each estimate as soon as it is there, to `keep` it for example.
        on_progress: Called with what is being done, how much of it is done, and of how much, as in
            `estimate`; what is done begins with "2 of 12, layers=24".
        now: The clock for `generated_at`; default: the current time in UTC.

    Raises:
        UsageError: There are no values, too many, or a param stands in both; or the first
            combination shows that the question, an option or the name of a param is at fault.
    """
    fixed = dict(params or {})
    _refuse_values(values, fixed)
    asked = _Asked(
        reading={
            "inputs": tuple(inputs),
            "offers": offers,
            "pricebook": pricebook,
            "curves": tuple(curves),
            "timeout_s": timeout_s,
            "assume": assume,
            "use_cache": use_cache,
            "on_output": on_output,
        },
        question=question or Question(),
        on_answer=on_answer,
    )
    rows: list[SweepRow] = []
    first: Estimate | None = None
    tell = on_progress or untold
    every = list(combinations(values))
    for combined in every:
        place = f"{len(rows) + 1} of {len(every)}"
        try:
            answer = asked.answer_of(model, {**fixed, **combined}, _telling(tell, place, combined))
        except GpuplanError as error:
            if isinstance(error, UsageError) and not rows:
                raise  # What is asked is at fault, and would be for every value.
            rows.append(SweepRow(params=combined, why_not=str(error)))
            continue
        first = first or answer
        rows.append(_row(combined, answer))
    return _whole(values, fixed, rows, first, now=now or utc_now)


@dataclass(frozen=True, kw_only=True)
class _Asked:
    """The question that is asked of every model, and how the file is read."""

    reading: Mapping[str, Any]
    question: Question
    on_answer: Callable[[Inputs, Estimate], None] | None

    def answer_of(
        self, model: str | Path, params: Mapping[str, Any], on_progress: Progress
    ) -> Estimate:
        on_progress("tracing the model", None, None)
        read = read_inputs(
            model,
            params=params,
            precisions=self.question.choices.precisions,
            machine=self.question.machine,
            **self.reading,
        )
        answer = estimate(read, self.question, on_progress=on_progress)
        if self.on_answer is not None:
            self.on_answer(read, answer)
        return answer


def _telling(on_progress: Progress, place: str, params: Mapping[str, Any]) -> Progress:
    """Return the callback that says for which of the values something is done."""
    named = ", ".join(f"{name}={value}" for name, value in params.items())
    return lambda stage, done, total: on_progress(f"{place}, {named}: {stage}", done, total)


def combinations(values: Mapping[str, Sequence[Any]]) -> Iterator[dict[str, Any]]:
    """Yield every combination of values, the last param changing first."""
    for combined in product(*values.values()):
        yield dict(zip(values, combined, strict=True))


def _refuse_values(values: Mapping[str, Sequence[Any]], fixed: Mapping[str, Any]) -> None:
    """Raise UsageError for values that make no sweep."""
    for name, several in values.items():
        if isinstance(several, str) or not several:
            raise UsageError(
                f"values[{name!r}] is {several!r}, and a sequence of values is taken.",
                fix=f'write values={{"{name}": (12, 24)}}.',
            )
        if name in fixed:
            raise UsageError(
                f"{name} has one value in params, and several in values.", fix="keep one of them."
            )
    count = prod(map(len, values.values()))
    if not values or count > MOST_ROWS:
        raise UsageError(
            f"{count:,} combinations of values are asked for; at least 1 param and at most"
            f" {MOST_ROWS} combinations are taken."
            if values
            else "No param has several values.",
            fix="leave some values out, or ask in several commands."
            if values
            else 'write values={"layers": (12, 24)}.',
        )


def _row(params: Mapping[str, Any], answer: Estimate) -> SweepRow:
    plan = _plan_of(answer)
    why_not = None
    if plan is None:
        why_not = " ".join(["No plan is feasible.", answer.nearest_miss or "", *answer.notes])
    return SweepRow(
        params=dict(params),
        workload=answer.workload,
        global_batch=None if answer.question is None else answer.question.global_batch,
        plan=plan,
        recommended=answer.recommended,
        feasible=answer.feasible,
        rejected=answer.rejected,
        why_not=None if why_not is None else " ".join(why_not.split()),
        notes=answer.notes,
    )


def _plan_of(answer: Estimate) -> Plan | None:
    """Return the recommended plan; else the first, of those that need no port if there is one."""
    if answer.best is not None:
        return answer.best
    ready = [plan for plan in answer.plans if not plan.stands_apart]
    return next(iter([*ready, *answer.plans]), None)


def _whole(
    values: Mapping[str, Sequence[Any]],
    fixed: Mapping[str, Any],
    rows: Sequence[SweepRow],
    first: Estimate | None,
    *,
    now: Callable[[], datetime],
) -> Sweep:
    from ..catalog.version import VERSION

    question = None
    if first is not None and first.question is not None:
        question = first.question.model_copy(update={"params": dict(fixed)})
    catalog: CatalogueFacts | None = None if first is None else first.catalog
    return Sweep(
        gpuplan_version=VERSION,
        generated_at=now().isoformat(timespec="seconds"),
        catalog=catalog,
        question=question,
        values={name: tuple(several) for name, several in values.items()},
        sweep=tuple(rows),
    )
