"""Run records: what was run and what it measured, one JSON object a line (docs/json.md).

Lenient where the world is wide (unknown keys are kept, nulls mean "not stated") and strict where a
wrong value would spoil every comparison: numbers must be positive and finite, degrees at least 1,
and no key may be a misspelt field.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from difflib import SequenceMatcher
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from ..catalog.errors import UsageError
from ..catalog.units import GIB
from ..catalog.vocabulary import FrozenPrecision, Recompute, Stack

MemoryMeaning = Literal["allocated", "reserved", "whole-device", "unknown"]
Degree = Annotated[int, Field(ge=1)]
Count = Annotated[int, Field(ge=1)]

SHOWN_PROBLEMS = 10
"""Bad lines named one by one before the rest is only counted."""
MISSPELT = 0.9
"""From which likeness on (`difflib`, 1 is equal) a key is a misspelt field: `step_time_ms` is like
`step_time_s` by 0.96, `step_time_p10_s`, which records have beside it, by 0.85."""


def _refuse_truth(value: object) -> object:
    """Refuse true and false where a number is asked for: they would be read as 1 and 0."""
    if isinstance(value, bool):
        raise ValueError("a number, not true or false")
    return value


Positive = Annotated[float, BeforeValidator(_refuse_truth), Field(gt=0, allow_inf_nan=False)]


def _drop_nulls(value: Any) -> Any:
    """Leave out what is null, so that the default of the field stands for "not stated"."""
    if isinstance(value, dict):
        return {key: item for key, item in value.items() if item is not None}
    return {} if value is None else value


class Recorded(BaseModel):
    """A frozen part of a record; keys that we do not know are kept and written back."""

    model_config = ConfigDict(frozen=True, extra="allow", protected_namespaces=())


class RecordedLayout(Recorded):
    """Degrees of parallelism as the record states them (names as in `planner.layout.Layout`)."""

    data: Degree | None = None
    shard: Degree | None = None
    zero_stage: Annotated[int, Field(ge=0, le=3)] | None = None
    tensor: Degree = 1
    pipeline: Degree = 1
    virtual_stages: Degree | None = None
    context: Degree = 1
    expert: Degree = 1
    sequence_parallel: bool = False


class Measured(Recorded):
    """What the run measured; None is "not measured". A step that ran out of memory has no time."""

    step_time_s: Positive | None = None
    peak_memory_gib: Positive | None = None
    memory_meaning: MemoryMeaning = "unknown"
    oom: bool = False

    @property
    def peak_memory_bytes(self) -> float | None:
        """The peak in bytes, or None where none was measured."""
        return None if self.peak_memory_gib is None else self.peak_memory_gib * GIB


class RunRecord(Recorded):
    """One run: model, machine, how it was run, and what it measured. None is "not stated"."""

    id: str
    source: str | None = None
    source_group: str = "unnamed"
    date: str | None = None
    model: str
    model_name: str = ""
    """What was trained, as published: "bert_base_squad"."""
    params: Annotated[dict[str, Any], BeforeValidator(_drop_nulls)] = Field(default_factory=dict)
    accelerator: str
    accelerators: Count = 1
    per_node: Count | None = None
    inter_node_gbit_s: Positive | None = None
    layout: Annotated[RecordedLayout, BeforeValidator(_drop_nulls)] = RecordedLayout()
    precision: str | None = None
    precision_label: str = ""
    """The precision in the words of the source: "fp16/apex O2"."""
    fp8_recipe: str | None = None
    """How 8-bit operands are scaled: "delayed", "tensorwise", "rowwise" or "blockwise"."""
    micro_batch: Count | None = None
    grad_accum: Count | None = None
    global_batch: Count | None = None
    pipeline_passes: Count | None = None
    """How often a step fills and drains its pipeline; None is once. Trainers that run torch's
    schedule on every local batch of a step do so for each."""
    recompute: Recompute | None = None
    recompute_share: Annotated[float, Field(gt=0, le=1)] | None = None
    """Which part of the repeated layers is recomputed; None is all of them. Megatron's "block"
    method with 21 layers of 80 is 0.2625."""
    attention: Literal["flash", "fused", "eager"] | None = None
    compile: bool | None = None
    stack: Stack | None = None
    optimizer: str | None = None
    offload: bool | None = None
    frozen_precision: FrozenPrecision | None = None
    """How parameters that are not trained were kept; None as the precision says."""
    measured: Annotated[Measured, BeforeValidator(_drop_nulls)]
    features: Annotated[tuple[str, ...], BeforeValidator(lambda value: value or ())] = ()
    assumed: tuple[str, ...] = ()

    @property
    def channels_last(self) -> bool | None:
        """Whether images were laid out channels-last, or None where the record does not say."""
        value = (self.model_extra or {}).get("channels_last")
        return value if isinstance(value, bool) else None

    @property
    def software_date(self) -> tuple[int, int] | None:
        """Year and month the software dates from, or None; month 1 where only the year is known."""
        return parse_software_date(self.date, self.accelerator)


def read_records(path: Path) -> tuple[RunRecord, ...]:
    """Return the run records of a JSON Lines file, in order.

    Raises:
        UsageError: the file cannot be read, or lines of it are not run records; every such line is
            named as file:line with what is wrong.
    """
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise UsageError(
            f"Cannot read the run records {path}: {reason}.",
            fix="give a JSON Lines file, one run record a line.",
        ) from None
    records: list[RunRecord] = []
    problems: list[str] = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            records.append(_parse_line(line, default_id=f"{path.name}:{number}"))
        except ValueError as error:
            problems.append(f"{path}:{number}: {error}")
    if problems:
        _refuse_whole_document("\n".join(lines), path)
        _raise_problems(problems)
    if not records:
        raise UsageError(
            f"{path} holds no run record.", fix="write one JSON object a line; see docs/json.md."
        )
    return tuple(records)


def parse_software_date(text: str | None, accelerator: str = "") -> tuple[int, int] | None:
    """Return (year, month) that a free-form date starts with, or None if it names none.

    Understands `2023-05`, `2023`, container releases such as `NGC 22.09`, and a text that dates
    several accelerators apart ("A100 tables 2023-05; H100 2023-10").

    >>> parse_software_date("NeMo 25.11")
    (2025, 11)
    """
    if not text:
        return None
    family = accelerator.split("-")[0]
    parts = [part for part in text.split(";") if family and family in part] or [text]
    for part in parts:
        calendar = re.search(r"\b((?:19|20)\d\d)(?:-(0[1-9]|1[0-2]))?", part)
        if calendar:
            return int(calendar[1]), int(calendar[2] or 1)
        release = re.search(r"\b([12]\d)\.(0[1-9]|1[0-2])\b", part)
        if release:
            return 2000 + int(release[1]), int(release[2])
        years = re.search(r"\b([12]\d)-[12]\d\b", part)
        if years:
            return 2000 + int(years[1]), 1
    return None


def _parse_line(line: str, *, default_id: str) -> RunRecord:
    """Return one record; a ValueError says in one line what is wrong with it."""
    try:
        fields = json.loads(line, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error.msg} at column {error.colno}") from None
    except RecursionError:
        raise ValueError("not a run record: nested too deep") from None
    if not isinstance(fields, dict):
        raise ValueError(f"a run record is a JSON object, this is {_json_kind(fields)}")
    fields = {k: v for k, v in fields.items() if v is not None or k not in RunRecord.model_fields}
    fields.setdefault("id", default_id)
    problems = list(_misspelt(fields))
    try:
        record = RunRecord.model_validate(fields)
    except ValidationError as error:
        problems += map(_describe, error.errors())
    else:
        problems += _contradictions(record)
        if not problems:
            return record
    raise ValueError("; ".join(problems))


def _misspelt(fields: Mapping[str, Any]) -> Iterable[str]:
    """Yield what is wrong with keys that are all but a field, where that field is not stated."""
    parts: dict[str, tuple[type[Recorded], object]] = {
        "": (RunRecord, fields),
        "layout.": (RecordedLayout, fields.get("layout")),
        "measured.": (Measured, fields.get("measured")),
    }
    for prefix, (kind, stated) in parts.items():
        if not isinstance(stated, dict):
            continue
        given = {key for key, value in stated.items() if value is not None}
        for key in sorted(given - kind.model_fields.keys()):
            likeness, field = max((_likeness(key, one), one) for one in kind.model_fields)
            if likeness >= MISSPELT and field not in given:
                yield f"{prefix}{key} is no field of a run record. Did you mean {prefix}{field}?"


def _likeness(key: str, field: str) -> float:
    return SequenceMatcher(None, key.lower(), field, autojunk=False).ratio()


def _contradictions(record: RunRecord) -> Iterable[str]:
    """Yield what cannot both be true of one run."""
    measured = record.measured
    if measured.oom and measured.step_time_s is not None:
        yield (
            f"measured.oom is true beside a step_time_s of {measured.step_time_s:g}: a step ran, or"
            " ran out of memory. Make two records of two runs"
        )


def _describe(problem: Any) -> str:
    name = ".".join(map(str, problem["loc"]))
    if problem["type"] == "missing":
        return f"{name} is missing"
    text = problem["msg"].removeprefix("Value error, ")
    text = text.removeprefix("Input should be ").removeprefix("a valid ")
    return f"{name} is {json.dumps(problem['input'], default=str)[:60]}; it must be {text}"


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number; leave what was not measured null")


def _json_kind(value: object) -> str:
    kinds = {
        dict: "an object",
        list: "a list",
        str: "a string",
        bool: "true or false",
        type(None): "null",
    }
    return kinds.get(type(value), "a number")


def _refuse_whole_document(text: str, path: Path) -> None:
    """Say what to do with a file that is one JSON document: a list, or an object over lines."""
    try:
        document = json.loads(text)
    except (json.JSONDecodeError, RecursionError):
        return
    if isinstance(document, list) or (isinstance(document, dict) and "\n" in text.strip()):
        every = ".[]" if isinstance(document, list) else "."
        raise UsageError(
            f"{path} is {_json_kind(document)} in JSON, not one run record a line.",
            fix=f"write each record on a line of its own: jq -c '{every}' {path} > runs.jsonl",
        )


def _raise_problems(problems: list[str]) -> NoReturn:
    shown = problems[:SHOWN_PROBLEMS]
    if len(problems) > len(shown):
        shown.append(f"and {len(problems) - len(shown)} more lines")
    raise UsageError(
        "\n".join(shown), fix="correct these lines; docs/json.md lists the fields of a run record."
    )
