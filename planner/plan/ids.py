"""Names for plans and questions that are the same whenever their content is the same."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterable, Mapping
from datetime import date
from decimal import Decimal
from pathlib import PurePath
from typing import Any

import rfc8785
from pydantic import BaseModel

PLAN_ID_DIGITS = 10

NOT_CONTENT = frozenset(
    {
        "id",
        "position",
        "tie_with_previous",
        "why_not_runnable",
        "startable",
        "why_not_startable",
        "whole_job",
        "commitment",
        "credits",
        "currency",
        "energy",
        "p_oom",
        "bandwidth_share",
        "gathered_parameters",
        "needs_build",
        "usually_reserved",
        "stops",
        "deadline_ways",
    }
)
"""What a plan gets from the list it stands in, from what the runner can do, or from the rest of its
content: the same plan has the same id in every list."""

NEVER_CONTENT = frozenset(
    {
        "price_date_precision",
        "spot_status",
        "trained_samples",
        "trained_tokens",
        "limited_by",
        "budget_probability",
        "energy_kwh_low",
        "energy_kwh_high",
        "energy_basis",
        "kg_co2e_low",
        "kg_co2e_high",
        "list_usd_per_hour",
        "discount_percent",
        "tax_percent",
    }
)
"""Fields of a plan's parts that came after plans had ids, and say how well something is known, or
what follows from the others."""

FILLED_LATER = frozenset(
    {
        "expected_hours",
        "expected_usd",
        "goodput",
        "checkpoint_interval_s",
        "deadline_probability",
        "energy_kwh",
        "kg_co2e",
    }
)
"""Fields that were empty when plans got ids, and follow from the rest of a plan and from tables:
they count as empty, so that ids made before still hold."""

ADDED_LATER: Mapping[str, object] = {
    "offload": None,
    "offloaded": [],
    "host_memory_bytes": None,
    "host_comm_exposed": 0.0,
    "recompute_layers": None,
    "frozen_precision": None,
    "reduce_dtype": None,
}
"""Fields that came after plans had ids → the value, in JSON, that means nothing: with it they are
no content, so that ids made before still hold."""

_LARGEST_EXACT_INTEGER = 2**53 - 1


def plan_id(plan_fields: Mapping[str, object]) -> str:
    """Return a plan's id: 10 hex digits of the SHA-256 of its canonical JSON, price included.

    Args:
        plan_fields: Every field of the plan by name; those of `NOT_CONTENT` may be missing.

    >>> plan_id({"precision": "fp32", "position": 1}) == plan_id({"precision": "fp32"})
    True
    """
    content = {name: value for name, value in plan_fields.items() if name not in NOT_CONTENT}
    if "runnable" in content:
        content["runnable"] = None  # As when ids were first made: nobody looked.
    return content_hash(content)[:PLAN_ID_DIGITS]


def content_hash(content: object) -> str:
    """Return the SHA-256, as hex digits, of the canonical JSON (RFC 8785) of any plain value."""
    return hashlib.sha256(rfc8785.dumps(_as_json(content))).hexdigest()


def _as_json(value: object) -> Any:
    if value is None or isinstance(value, str | bool):
        return value
    if isinstance(value, int):
        # RFC 8785 knows only what every JSON reader can hold; larger integers become floats.
        return value if abs(value) <= _LARGEST_EXACT_INTEGER else float(value)
    if isinstance(value, float):
        return value
    if isinstance(value, BaseModel):
        return _as_object(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = (part.name for part in dataclasses.fields(value))
        return _as_object((name, getattr(value, name)) for name in names)
    if isinstance(value, Mapping):
        return _as_object((str(name), part) for name, part in value.items())
    if isinstance(value, list | tuple):
        return [_as_json(part) for part in value]
    if isinstance(value, set | frozenset):
        return sorted((_as_json(part) for part in value), key=rfc8785.dumps)
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, date | PurePath):
        return str(value)
    raise TypeError(f"{type(value).__name__} has no canonical JSON form")


def _as_object(fields: Iterable[tuple[str, object]]) -> dict[str, Any]:
    values = ((name, _as_json(part)) for name, part in fields)
    return {
        name: None if name in FILLED_LATER else value
        for name, value in values
        if name not in NEVER_CONTENT and (name not in ADDED_LATER or value != ADDED_LATER[name])
    }
