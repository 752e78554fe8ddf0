"""The stored estimates, and their plans."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from ..catalog.errors import UsageError
from ..planner.plan.answer.estimate import Estimate
from ..planner.plan.question import Question
from .models.inputs import Inputs

if TYPE_CHECKING:
    from ..launcher.store.sourced_plan import SourcedPlan


def keep(
    answer: Estimate, *, inputs: Inputs, question: Question, folder: Path | None = None
) -> None:
    """Keep an estimate, so that its plans can be found again by their id.

    Args:
        answer: What `estimate` returned.
        inputs: What it was made from.
        question: What was asked.
        folder: Where it was made; default: the current one. `launch` looks there.

    Raises:
        StoreError: The store cannot be written; the estimate itself is none the worse.
    """
    from ..launcher.store.estimates import Store
    from ..launcher.store.origin import origin_of
    from ..planner.plan.ids import content_hash

    folder = folder or Path.cwd()
    origin = None
    if inputs.spec is not None:
        origin = origin_of(
            inputs.spec,
            question,
            folder=folder,
            offers=inputs.offers,
            pricebook=inputs.pricebook,
            curve_choice=inputs.curve_choice,
        )
    asked = {
        "folder": str(folder),
        "source": inputs.profile.source_hash,
        "name": inputs.profile.name,
        "params": inputs.profile.params,
        **({"assumed": inputs.spec.assumed} if inputs.spec and inputs.spec.assumed else {}),
        "question": question,
        "snapshot_date": answer.catalog.snapshot_date,
        **answer.catalog.source.key,
        "offers": answer.catalog.offers,
        "gpuplan_version": answer.gpuplan_version,
    }
    Store().keep(answer, inputs_hash=content_hash(asked), origin=origin)


def kept_estimates(
    *, limit: int | None = None, on_note: Callable[[str], None] | None = None
) -> list[Estimate]:
    """Return the kept estimates with their first plans, newest first, as far as they can be read.

    Args:
        limit: How many; default: all.
        on_note: Called with what cannot be read, and how it is replaced.
    """
    from ..launcher.store.estimates import Store

    tell = on_note or (lambda _text: None)
    return Store().estimates(limit=limit, leave_out=lambda error: tell(str(error)))


def kept_plan(prefix: str | None = None, *, folder: Path | None = None) -> SourcedPlan:
    """Return the one kept plan whose id begins with `prefix`, with the estimate it is from.

    Args:
        prefix: The first characters of an id; None: of the last estimate made in a folder the plan
            to look at first: the recommended one, else the nearest to that, else the first.
        folder: Where that was made; default: the current one.

    Raises:
        UsageError: No kept plan or several begin with it, or no plan was found there.
    """
    from ..launcher.store.estimates import Store
    from ..launcher.store.sourced_plan import SourcedPlan

    if prefix is not None:
        return Store().find_plan(prefix)
    kept = Store().newest_of(folder or Path.cwd())
    plan = None if kept is None else kept.estimate.first_look
    if kept is None or plan is None:
        if kept is None:
            made, first = "no estimate was made in this folder", "here first"
        else:
            made, first = "the last estimate in this folder found none", "with wider limits"
        raise UsageError(
            f"No plan is named, and {made}.",
            fix=f"run `gpuplan estimate model.py` {first}, or name a plan of `gpuplan plans`.",
        )
    return SourcedPlan(plan=plan, estimate=kept.estimate, origin=kept.origin)
