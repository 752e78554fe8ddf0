"""Answers of a project's experiments on disk: the same question is searched once.

A report is made again and again while a project is planned, and most of its experiments stay as
they were. What is kept holds the plans that a report shows: the three options and the front.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterable
from datetime import date
from pathlib import Path

from pydantic import ValidationError

from ...catalog.errors import GpuplanError
from ...planner.plan.answer.estimate import Estimate
from ...planner.plan.ids import content_hash
from ...planner.plan.question import Question
from ..answers import known_runs, known_stops
from ..kept import kept_plan
from ..models.inputs import Inputs
from ..tables_on_disk import TablesOnDisk


class KeptAnswers:
    """Answers by what they rest on: model, question, prices, terms, runs so far, code."""

    def __init__(self, today: date) -> None:
        self._today = today
        self._tables = TablesOnDisk()
        self._stops = repr(known_stops())

    def get(self, read: Inputs, question: Question) -> Estimate | None:
        """Return the answer to a question; None where there is none, or its plans are gone.

        A plan of a report can be shown and launched: the store must have it.
        """
        content = self._tables.get(self._key(read, question))
        if content is None:
            return None
        try:
            answer = Estimate.model_validate_json(zlib.decompress(content))
            for plan in answer.plans:
                kept_plan(plan.id)
        except (zlib.error, ValidationError, GpuplanError):
            return None
        return answer

    def put(self, read: Inputs, question: Question, answer: Estimate, plans: Iterable[str]) -> None:
        """Keep an answer with the plans of these ids."""
        wanted = set(plans)
        kept = tuple(plan for plan in answer.plans if plan.id in wanted)
        text = answer.model_copy(update={"plans": kept}).model_dump_json()
        self._tables.put(self._key(read, question), zlib.compress(text.encode(), 1))

    def _key(self, read: Inputs, question: Question) -> str:
        profile = read.profile
        rests_on = {
            "source": profile.source_hash,
            "name": profile.name,
            "params": profile.params,
            "numerics": sorted(map(str, question.choices.precisions)),
            "question": question,
            "snapshot_date": read.catalogue.snapshot_date,
            **read.catalogue.price_source.key,
            "offers": _hash_of(read.offers),
            "pricebook": _hash_of(read.pricebook),
            # Credits expire: terms of one's own hold for a day.
            "day": None if read.pricebook is None else self._today,
            "curves": repr(read.curve_choice),
            "runs": repr(known_runs(read)),
            "stops": self._stops,
        }
        return f"answer {content_hash(rests_on)}"


def _hash_of(file: Path | None) -> str | None:
    return None if file is None else hashlib.sha256(file.read_bytes()).hexdigest()
