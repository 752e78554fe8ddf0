"""8-bit copies of weights that a rank keeps beside them, from one micro-batch to the next."""

from __future__ import annotations

from collections.abc import Iterable

from ...parallelism.fsdp import Unit
from ...parallelism.rank_parameters import RankUnits
from ...plan.setup import Setup
from ...software.fp8_operands import cached_weight_bytes


def cached_bytes(setup: Setup, units: Iterable[Unit] | RankUnits) -> float:
    """Return bytes of the copies of the weights of blocks; none where FSDP gathers those anew.

    Args:
        setup: of the run.
        units: parameters of the rank.
    """
    width = cached_weight_bytes(setup.stack, setup.precision, setup.features)
    if not width or setup.layout.zero_stage == 3:
        return 0.0
    own = (*units.dense, *units.experts) if isinstance(units, RankUnits) else units
    return width * sum(unit.count * unit.parameters for unit in own if unit.name is not None)
