"""Which plan is meant: one that is kept, or one in a JSON file."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from ...catalog.errors import UsageError
from ...planner.plan.answer.estimate import Estimate
from ...planner.plan.ids import plan_id
from ...planner.plan.plan import Plan
from .estimates import Store, StoreError
from .sourced_plan import SourcedPlan

SHOWN_IDS = 5
WRITE_ONE = "write one with `gpuplan show PLAN-ID --format json --out-file plan.json`."


def given_plan(text: str | Plan) -> SourcedPlan:
    """Return the plan that a person named or holds.

    Args:
        text: the id of a kept plan or its beginning; `plan.json`, a plan or an estimate; or
            `estimate.json#ID` for one plan of several. Of a plan itself it is looked up what it
            was made from.

    Raises:
        UsageError: there is no such plan, or the file holds none, or several.
    """
    if isinstance(text, Plan):
        return _held_plan(text)
    place, _, wanted = text.partition("#")
    if not (wanted or place.endswith(".json") or "/" in place or Path(place).is_file()):
        return Store().find_plan(text)
    values = _read(Path(place))
    if "plans" in values:
        return _of_estimate(place, values, wanted)
    try:
        plan = Plan.model_validate(values)
    except ValidationError as error:
        raise UsageError(f"{place} is not a plan: {_first_fault(error)}.", fix=WRITE_ONE) from None
    if wanted and not plan.id.startswith(wanted.lower()):
        raise UsageError(f"{place} holds plan {plan.id}, not {wanted}.", fix=f"give {place} alone.")
    return SourcedPlan(plan=plan, estimate=None)


def _held_plan(plan: Plan) -> SourcedPlan:
    """Return a plan with what the store knows of it, where it was kept and is still the same."""
    try:
        kept = Store().find_plan(plan.id)
    except (UsageError, StoreError):
        return SourcedPlan(plan=plan, estimate=None)
    if plan_id(dict(kept.plan)) != plan_id(dict(plan)):
        return SourcedPlan(plan=plan, estimate=None)
    return replace(kept, plan=plan)


def _of_estimate(place: str, values: dict[str, Any], wanted: str) -> SourcedPlan:
    try:
        answer = Estimate.model_validate(values)
    except ValidationError as error:
        raise UsageError(
            f"{place} is not an estimate: {_first_fault(error)}.",
            fix="write one with `gpuplan estimate model.py --format json --out-file answer.json`.",
        ) from None
    found = [plan for plan in answer.plans if plan.id.startswith(wanted.lower())]
    if len(found) == 1:
        return SourcedPlan(plan=found[0], estimate=answer)
    if not answer.plans:
        raise UsageError(f"{place} holds no plan.", fix="make an estimate that has one.")
    ids = [plan.id for plan in found or answer.plans]
    listed = ", ".join(ids[:SHOWN_IDS]) + (" …" if len(ids) > SHOWN_IDS else "")
    if not found:
        said = f"{place} holds no plan {wanted}; it holds {listed}."
    elif wanted:
        said = f"Several plans of {place} begin with {wanted}: {listed}."
    else:
        said = f"{place} holds {len(ids)} plans: {listed}."
    raise UsageError(said, fix=f"name one of them in its place: {place}#{ids[0]}.")


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.expanduser().read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(
            f"{path} cannot be read: {error.strerror or error}.",
            fix="give the path of a plan.json, or the id of a kept plan (`gpuplan plans`).",
        ) from None
    except ValueError:
        if path.suffix == ".py":
            raise UsageError(
                f"{path} is a model file, and a plan is asked for.",
                fix=f"make plans for it with `gpuplan estimate {shlex.quote(str(path))}`; the"
                " recommended one of the last estimate here needs no name.",
            ) from None
        raise UsageError(f"{path} is not JSON.", fix=WRITE_ONE) from None
    if not isinstance(found, dict):
        raise UsageError(f"{path} holds no plan.", fix=WRITE_ONE)
    return found


def _first_fault(error: ValidationError) -> str:
    fault = error.errors()[0]
    where = ".".join(map(str, fault["loc"]))
    said = "is missing" if fault["type"] == "missing" else f"is wrong ({fault['msg']})"
    return f"{where} {said}" if where else fault["msg"]
