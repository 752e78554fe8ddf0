"""Whether layouts that split the model are searched on a device, and the predictor that does it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import cast

from ....catalog.types import Accelerator
from ....catalog.vocabulary import Precision, Stack
from ....profiles.profile import NUMERICS_OF_PRECISION
from ...hardware.cluster import Site
from ...hardware.device import capacity_bytes
from ...plan.layout import Layout
from ...plan.setup import Setup
from ...predict.kept.kept_values import setup_text
from ...predict.kept.model_cache import ModelCache
from ...predict.memory.peak_memory import memory_parts
from ...software.stack import casts_layers
from ..progress import Progress, untold
from ..search_space import Space
from .kept_outcomes import KeptOutcomes
from .outcome import Asked, Outcome
from .predictor import SplitPredictor
from .rows import Kind

ROOMY = 0.5
"""Share of a device's memory below which a whole model leaves room enough not to be split."""


@dataclass
class SplitSearch:
    """The split layouts of one question; what predicts them is made when it is first needed."""

    cache: ModelCache
    space: Space
    kept: KeptOutcomes
    base: Callable[..., Setup]
    """(precision, stack, autocast=…) → the setup without its layout and batch."""
    given: bool
    """Whether the user gave layouts, or more than the optimizer is offloaded: none are searched."""
    on_progress: Progress = untold
    """Told when its tables are made: for a large model that takes longer than all devices."""
    kinds: Sequence[Kind] = ()
    """Of nodes of all sites that may be asked for."""
    _predictors: dict[Stack, SplitPredictor | None] = field(default_factory=dict)
    _least_bytes: dict[Stack, float] = field(default_factory=dict)
    _legal: dict[Stack, bool] = field(default_factory=dict)
    _named: dict[tuple[Precision, Stack], str] = field(default_factory=dict)

    def may_help(self, accelerator: Accelerator, precision: Precision, stack: Stack) -> bool:
        """Return whether layouts that split the model are searched on a device.

        Not where the whole training state, and the activations of the smallest step, take less than
        `ROOMY` of its memory: then nothing has to be split, and what a data-parallel plan may lose
        is the exposed part of one reduction of the gradients a step. Not for hosts, for a fixed
        plan, for layouts given by hand, or where more than the optimizer is offloaded; nor where
        the global batch is free, for then no two steps are the same work.
        """
        fixed = self.given or self.space.fixed or self.space.global_batch is None
        if fixed or accelerator.is_cpu or not self.cache.profile.blocks:
            return False
        bases = self._bases(precision, stack)
        if not bases:
            return False
        if stack not in self._least_bytes:
            base = bases[-1]

            def least(base: Setup = base) -> float:
                return min(
                    memory_parts(self.cache, replace(base, recompute=one)).peak_bytes.item()
                    for one in self.space.recomputes
                )

            key = ("least", setup_text(base), self.space.recomputes)
            self._least_bytes[stack] = cast(float, self.cache.values.value(key, least))
        is_roomy = self._least_bytes[stack] <= ROOMY * capacity_bytes(accelerator)
        return not is_roomy and self._any_legal(precision, stack)

    def _any_legal(self, precision: Precision, stack: Stack) -> bool:
        """Return whether any layout that splits the model is legal on the nodes of all sites."""
        if stack not in self._legal:
            software = self._software(precision, stack)
            self._legal[stack] = self.kept.flag(
                ("legal", software, tuple(self.kinds), self.space.node_counts),
                lambda: self._predictor(precision, stack) is not None,
            )
        return self._legal[stack]

    def outcomes(
        self,
        site: Site,
        precisions: Sequence[Precision],
        stack: Stack,
        asked: Sequence[Asked],
        *,
        max_oom: float,
    ) -> list[tuple[Outcome, ...]]:
        """Return the best split layouts of each number of nodes, in each precision.

        What one precision reaches is what the next has to beat.
        """
        columns = []
        for precision in precisions:
            columns.append(self.best(site, precision, stack, asked, max_oom=max_oom))
            steps = ([one.step_s for one in outcome.found] for outcome in columns[-1])
            asked = [
                one._replace(bound_s=min([one.bound_s, *own]))
                for one, own in zip(asked, steps, strict=True)
            ]
        return list(zip(*columns, strict=True))

    def best(
        self,
        site: Site,
        precision: Precision,
        stack: Stack,
        asked: Sequence[Asked],
        *,
        max_oom: float,
    ) -> list[Outcome]:
        """Return the best split layouts of each number of nodes (`SplitPredictor.best`)."""

        def make(missing: list[int]) -> list[Outcome]:
            predictor = self._predictor(precision, stack)
            assert predictor is not None, "asked for only where it may help"
            bases = self._bases(precision, stack)
            return predictor.best(site, bases, [asked[i] for i in missing], max_oom=max_oom)

        software, machine = self._software(precision, stack), self.kept.site(site)
        keys = [("best", machine, one.nodes, software, one.bound_s, max_oom) for one in asked]
        return self.kept.outcomes(keys, make)

    def _software(self, precision: Precision, stack: Stack) -> str:
        """Return what tells precision and software from others."""
        key = precision, stack
        if key not in self._named:
            self._named[key] = "".join(map(setup_text, self._bases(precision, stack)))
        return self._named[key]

    def _predictor(self, precision: Precision, stack: Stack) -> SplitPredictor | None:
        """Return what predicts split layouts under a stack; None where none is legal."""
        if stack not in self._predictors:
            self.on_progress("making tables of layouts that split the model", None, None)
            base = self.base(precision, stack, autocast=True)
            self._predictors[stack] = SplitPredictor.of(self.cache, self.space, base, self.kinds)
        return self._predictors[stack]

    def _bases(self, precision: Precision, stack: Stack) -> list[Setup]:
        """Return the traced setups whose kernels differ: with autocast's casts and without."""
        offload = self.base(precision, stack, autocast=True).offload
        layouts = [Layout(data=2, shard=2, zero_stage=stage) for stage in range(4)]
        casts = {casts_layers(stack, one, offload) for one in layouts}
        if NUMERICS_OF_PRECISION[precision] != "amp16":
            casts = {True}
        held = [one for one in sorted(casts) if self.cache.holds(precision, autocast=one)]
        bases = (self.base(precision, stack, autocast=one) for one in held)
        return [replace(base, by_block=True) for base in bases]
