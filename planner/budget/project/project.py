"""A project as its file `gpuplan.yaml` states it: what is to be run, when, for whose money.

`api/projects/project_file.py` reads it; docs/budget.md explains every field. Names of an
experiment are those of the options of `gpuplan estimate`, with underscores.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, field_validator, model_validator

from ....catalog.text.amounts import parse_share
from .experiment import Experiment, Setting
from .fields import Share, WholeCount, Written
from .lines import BudgetLimits, Egress, Extra, Funding, Idle, OwnRate, Storage
from .months import Month

PROJECT_FILE = "gpuplan.yaml"
"""Name of the file that states a project."""
MOST_EXPERIMENTS = 500
MOST_MONTHS = 120


class Project(Written):
    """A project: what is to be run, when, and the money for it."""

    name: str
    owner: str | None = None
    """Who answers for the money; also the owner of what names none."""
    team: str | None = None
    start: Month
    """The first month, 2027-01."""
    months: WholeCount
    """How many months are planned."""
    currency: OwnRate | None = None
    pricebook: str | None = None
    """The user's own terms, a file beside this one (docs/pricebook.md)."""
    offers: str | None = None
    """The user's own machines, a file beside this one."""
    funding: tuple[Funding, ...] = ()
    have: dict[str, WholeCount] = {}
    """Name → how many accelerators there are, in an own cluster, a reservation or a quota."""
    defaults: Setting = Setting()
    """What experiments have that do not say otherwise."""
    experiments: dict[str, Experiment]
    """Name → experiment."""
    storage: tuple[Storage, ...] = ()
    egress: tuple[Egress, ...] = ()
    idle: tuple[Idle, ...] = ()
    extras: tuple[Extra, ...] = ()
    contingency: Share = 0.0
    """Added to the total for what nobody planned, as a share of it."""
    price_trend: Annotated[float, BeforeValidator(lambda text: _signed_share(text))] = 0.0
    """Change of the prices of machines a year, as a share: -10% or 5%."""
    limits: BudgetLimits = BudgetLimits()

    @field_validator("experiments", mode="before")
    @classmethod
    def _has_experiments(cls, experiments: object) -> object:
        if not experiments:
            raise ValueError("there are none; add at least one, as `name: {model: model.py, …}`.")
        return experiments

    @model_validator(mode="after")
    def _fits_together(self) -> Project:
        if self.months > MOST_MONTHS:
            raise ValueError(f"months is {self.months}; at most {MOST_MONTHS}.")
        if len(self.experiments) > MOST_EXPERIMENTS:
            raise ValueError(f"there are more than {MOST_EXPERIMENTS} experiments.")
        return self

    @property
    def end(self) -> Month:
        """The last month."""
        return self.start.plus(self.months - 1)


SIGNS = tuple("+-−")  # noqa: RUF001


def _signed_share(value: object) -> float:
    text = str(value).strip()
    sign = -1 if text.startswith(("-", "−")) else 1  # noqa: RUF001
    try:
        return sign * parse_share(text[1:] if text[:1] in SIGNS else text, least=0)
    except ValueError:
        # What was written is said with its sign: "150%" is not what stands in the file.
        raise ValueError(f"{text!r} is no share from -1 to 1: write -0.1 or -10%.") from None
