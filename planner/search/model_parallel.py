"""Layouts that split the model, given by hand: every setup of them is predicted by itself.

Unlike for data-parallel layouts, the kernels of a rank depend on the layout, so nothing is shared
between layouts; there are few, because the user typed them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from ..hardware.cluster import Site
from ..hardware.device import capacity_bytes
from ..plan.errors import UnsupportedError
from ..plan.layout import Layout
from ..plan.setup import Setup
from ..predict.kept.model_cache import ModelCache
from ..predict.memory.peak_memory import framework_of, memory_parts
from ..predict.step_time import step_parts
from ..predict.supported import refuse_unsupported
from ..step.data_parallel_step import StepTimes
from .found import Found
from .search_space import Space, few_micro_batches
from .step_doubt import mean_over_likely


@dataclass(frozen=True, kw_only=True)
class Trial:
    """What became of one layout on one site: its fastest setup that fits, and counts."""

    found: Found | None
    fitting: int
    out_of_memory: int
    indivisible: int
    refusal: str | None = None
    """Why the layout cannot be predicted for this model, if it cannot."""

    @property
    def setups(self) -> int:
        """How many setups were predicted."""
        return self.fitting + self.out_of_memory + self.indivisible


@dataclass
class HandLayouts:
    """Predicts hand-given layouts; memory, which no device changes, is made once."""

    cache: ModelCache
    space: Space
    _peaks: dict[Setup, float] = field(default_factory=dict)

    def try_layout(
        self, site: Site, base: Setup, layout: Layout, *, usual: float, headroom: float = 1.0
    ) -> Trial:
        """Return the fastest setup of a layout that fits on a site.

        Args:
            site: nodes enough for the layout.
            base: precision, stack and whether layers are cast.
            layout: splits more than the data.
            usual: reserved over allocated bytes that the search assumes.
            headroom: share of the device's memory that may be used.
        """
        best, best_rate = None, 0.0
        fitting = short = uneven = 0
        outside = framework_of(site, replace(base, layout=layout))
        room = headroom * capacity_bytes(site.accelerator) - outside
        try:
            for setup in self._setups(base, layout):
                if setup is None:
                    uneven += 1
                    continue
                refuse_unsupported(site, setup)
                if self._peak_bytes(setup) * usual > room:
                    short += 1
                    continue
                fitting += 1
                parts = step_parts(self.cache, site, setup)
                rate = setup.micro_batch * setup.grad_accum / parts.total_s.item()
                if rate > best_rate:
                    best, best_rate = (setup, parts), rate
        except UnsupportedError as error:
            return Trial(
                found=None,
                fitting=0,
                out_of_memory=0,
                indivisible=0,
                refusal=error.message.removesuffix("."),
            )
        return Trial(
            found=None if best is None else self._found(site, base, *best),
            fitting=fitting,
            out_of_memory=short,
            indivisible=uneven,
        )

    def _found(self, site: Site, base: Setup, setup: Setup, parts: StepTimes) -> Found:
        return Found(
            base=base,
            layout=setup.layout,
            micro_batch=setup.micro_batch,
            grad_accum=setup.grad_accum,
            recompute=setup.recompute,
            recompute_share=base.recompute_share,
            step_s=parts.total_s.item(),
            over_likely=mean_over_likely(self.cache, site, setup, parts),
        )

    def _setups(self, base: Setup, layout: Layout) -> Iterator[Setup | None]:
        """Yield the setups to try; None stands for one that misses the global batch."""
        for recompute in self.space.recomputes:
            for size in few_micro_batches(self.space.micro_batches):
                accum = self._accumulation(layout, size)
                if accum is None:
                    yield None
                else:
                    yield replace(
                        base,
                        layout=layout,
                        recompute=recompute,
                        micro_batch=size,
                        grad_accum=accum,
                    )

    def _accumulation(self, layout: Layout, size: int) -> int | None:
        wanted = self.space.global_batch
        given = self.space.grad_accums[0] if self.space.grad_accums else None
        if wanted is None:
            return given or 1
        accum = given or max(1, wanted // (size * layout.data))
        return accum if accum * size * layout.data == wanted else None

    def _peak_bytes(self, setup: Setup) -> float:
        if setup not in self._peaks:
            self._peaks[setup] = float(np.max(memory_parts(self.cache, setup).peak_bytes))
        return self._peaks[setup]
