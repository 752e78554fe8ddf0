"""Step times of split candidates on one site, whose collectives are timed once for all of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from ...hardware.cluster import Site
from ...plan.setup import Setup
from ...predict.kept.model_cache import ModelCache
from ...predict.split_step import Candidates, split_parts
from ...predict.step_time import wire_of
from ...step.data_parallel_comm import Traffic, straggling, traffic_of
from ...step.data_parallel_step import StepTimes
from ...step.kernels.kernel_totals import MicroBatchTimes
from ...step.model_parallel_step import SECONDS
from ...step.slotted_calls import WireBytes
from .candidates import Fitting
from .rows import SplitRows
from .tables import SplitTables


@dataclass
class SplitSteps:
    """Predicts the steps of candidates on one site."""

    cache: ModelCache
    rows: SplitRows
    tables: SplitTables
    site: Site
    bases: Sequence[Setup]
    """Precision and software; a candidate says which of them it runs under."""
    asked: np.ndarray
    """All rows that candidates may have, whose collectives are timed together."""
    _traffic: dict[WireBytes, Traffic] = field(default_factory=dict)

    def least_s(self, these: Fitting) -> np.ndarray:
        """Return seconds that no step of the candidates is shorter than."""
        least = np.empty(len(these.row))
        facts = self.rows.facts
        waits = np.where(facts["pipeline"] > 1, 1 / facts["virtual_stages"], 0.0)
        for base, own in self._by_base(these):
            stages = self.tables.stages(self.site, base)
            some = these.at(own)
            forward_s, backward_s, others_s = some.seconds(
                stages.seconds["forward_s"], stages.seconds["backward_s"], stages.others_s
            )
            passes_s = some.accum * (forward_s + backward_s)
            least[own] = passes_s + waits[some.row] * others_s
        return least

    def step_s(self, these: Fitting, part: np.ndarray) -> np.ndarray:
        """Return the step times of those of the candidates that are in these places."""
        seconds = np.empty(len(part))
        chosen = these.at(part)
        for base, own in self._by_base(chosen):
            seconds[own] = self._parts(base, chosen.at(own)).total_s
        return seconds

    def parts_of(self, these: Fitting, part: np.ndarray) -> list[StepTimes]:
        """Return the parts of the step, [1, 1], of each of these candidates."""
        found: dict[int, StepTimes] = {}
        chosen = these.at(part)
        for base, own in self._by_base(chosen):
            parts = self._parts(base, chosen.at(own))
            found.update({at: parts.at(i) for i, at in enumerate(own.tolist())})
        return [found[at] for at in range(len(part))]

    def _by_base(self, these: Fitting) -> Iterator[tuple[Setup, np.ndarray]]:
        """Yield each base with the places of the candidates that run under it."""
        for i, base in enumerate(self.bases):
            own = np.flatnonzero(these.base == i)
            if len(own):
                yield base, own

    def _parts(self, base: Setup, these: Fitting) -> StepTimes:
        """Return the steps of candidates of one software, [candidates]."""
        facts = {name: self.rows.facts[name][these.row] for name in LOOKED_UP}
        stages = self.tables.stages(self.site, base)
        *of_stage, others_s = these.seconds(
            *(stages.seconds[name] for name in SECONDS), stages.others_s
        )
        taken = dict(zip(SECONDS, of_stage, strict=True))
        sent = stages.boundary_bytes[facts["split"]] * self.tables.micro_batches[these.size]
        candidates = Candidates(
            micro_batch=MicroBatchTimes(
                taken["forward_s"], taken["backward_s"], taken["compute_s"], taken["memory_s"]
            ),
            communication={name: taken[name] for name in SECONDS if name.endswith("_comm_s")},
            others_s=others_s,
            boundary_bytes=sent,
            sent_parts=stages.sent_parts[facts["split"]],
            on_fast_link=facts["accelerators"] <= self.site.domain,
            pipeline=facts["pipeline"],
            virtual_stages=facts["virtual_stages"],
            traffic=self._traffic_of(base, facts["traffic"], facts["accelerators"]),
            stepped=facts["stepped"],
            accumulated=facts["accumulated"],
            grad_accum=these.accum,
        )
        return split_parts(self.cache, self.site, base, candidates)

    def _traffic_of(self, base: Setup, rows: np.ndarray, accelerators: np.ndarray) -> Traffic:
        """Return the collectives of the data dimension of candidates."""
        table, place = self.cache.shared(
            ("traffic", self.rows.key, self._asked_key), lambda: self.rows.traffic(self.asked)
        )
        links, wire = self.cache.links(self.site), wire_of(base, self.cache.steps)
        if wire not in self._traffic:
            self._traffic[wire] = traffic_of(table, links, wire)
        found = self._traffic[wire].rows(place[rows])
        return replace(found, straggling=straggling(accelerators, links.constants))

    @cached_property
    def _asked_key(self) -> bytes:
        return self.asked.tobytes()


LOOKED_UP = (
    "split",
    "pipeline",
    "virtual_stages",
    "accelerators",
    "stepped",
    "accumulated",
    "traffic",
)
"""Facts of a row that its step follows from."""
