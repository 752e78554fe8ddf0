"""What the options of `gpuplan estimate` hold."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from .inputs import InputsOptions
from .question import QuestionOptions


@dataclass(frozen=True, kw_only=True)
class EstimateOptions(QuestionOptions, InputsOptions):
    """What the options of `gpuplan estimate` hold."""

    curves: Path | None
    pricebook: Path | None
    """The user's own terms."""
    pareto: bool
    explain: int | None
    trace: str | None
    check_capacity: bool
    reprice: bool
    offline: bool
