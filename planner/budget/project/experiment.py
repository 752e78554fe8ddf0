"""One experiment of a project: what is run, how often, under which conditions."""

from __future__ import annotations

from math import prod
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, field_validator, model_validator

from ....catalog.text.amounts import parse_batch
from ....catalog.text.quantity import format_duration
from ....catalog.units import SECONDS_PER_HOUR
from ....catalog.vocabulary import FrozenChoice, Precision, PurchaseWish, Stack
from .fields import (
    Count,
    Dollars,
    ModelParams,
    Names,
    OrText,
    Seconds,
    Share,
    WholeCount,
    Wholes,
    Written,
    listed,
    parsed_share,
    written_as,
)
from .months import Month

MOST_RUNS = 100_000
"""Runs of one experiment."""
MOST_NODES = 100_000
Every = Literal["week", "month", "quarter", "year"]


class Runs(Written):
    """How many runs an experiment has: seeds x combinations of the grid, or random draws of it."""

    seeds: WholeCount = 1
    """Repetitions of every setting."""
    grid: dict[str, tuple[Any, ...]] = {}
    """Param → values; every combination is a run. Params of the model file change the model;
    others, such as a learning rate, only the number of runs."""
    random: WholeCount | None = None
    """So many settings drawn at random instead of every combination."""

    @property
    def settings(self) -> int:
        """Settings that are run, each with every seed."""
        return self.random or prod(len(values) for values in self.grid.values())

    @property
    def count(self) -> int:
        """Runs in all."""
        return self.settings * self.seeds

    @field_validator("grid")
    @classmethod
    def _grid_has_values(cls, grid: dict[str, tuple[Any, ...]]) -> dict[str, tuple[Any, ...]]:
        for name, values in grid.items():
            if not values:
                raise ValueError(f"{name} has no values.")
            written = [str(value) for value in values]
            twice = next((one for one in written if written.count(one) > 1), None)
            if twice is not None:
                raise ValueError(f"{name} has {twice} twice; `seeds` repeat every setting.")
        return grid


class Retry(Written):
    """Runs that fail for other reasons than the machines, and are begun again."""

    failed_share: Annotated[float, BeforeValidator(parsed_share), written_as("10%")] = Field(lt=1)
    """Share of the runs begun that fail."""
    mean_progress_at_failure: Share = 0.5
    """How far such a run is on average."""

    @property
    def repeated_per_run(self) -> float:
        """Failed attempts for each run that succeeds: f / (1 - f)."""
        return self.failed_share / (1 - self.failed_share)


class StopEarly(Written):
    """Runs that are ended before their end because they lose against others."""

    share: Share
    """Share of the runs."""
    at_progress: Share
    """How far they are when they are ended."""

    @property
    def work_share(self) -> float:
        """Share of the whole work that is done."""
        return 1 - self.share * (1 - self.at_progress)


class Rung(Written):
    """One step of a ladder of models: params and work in place of the experiment's."""

    name: str | None = None
    params: ModelParams = {}
    tokens: Count | None = None
    samples: Count | None = None
    epochs: Count | None = None
    steps: WholeCount | None = None


class Setting(Written):
    """What an experiment asks, and `defaults` may state for all: as options of `estimate`."""

    owner: str | None = None
    """Whose it is."""
    stage: str | None = None
    """Part of the project: pre-training, ablations …"""
    provider: Names = ()
    region: Names = ()
    jurisdiction: Names = ()
    accelerator: Names = ()
    instance: Names = ()
    nodes: Wholes = ()
    max_nodes: WholeCount | None = None
    layout: Names = ()
    micro_batch: Wholes = ()
    precision: Annotated[tuple[Precision, ...], BeforeValidator(listed), OrText()] = ()
    recompute: Names = ()
    frozen_precision: Annotated[tuple[FrozenChoice, ...], BeforeValidator(listed), OrText()] = ()
    compile: bool | None = None
    stack: Stack | None = None
    optimizer: str | None = None
    purchase: PurchaseWish | None = None
    deadline: Seconds | None = None
    """Longest time of one run."""
    budget: Dollars | None = None
    """Most that one run may cost."""
    max_oom_risk: Share | None = None
    option: Literal["cheap", "normal", "fast"] = "normal"
    """Which of the plans is taken: the cheapest, the recommended or the fastest one."""
    runs: Runs = Runs()
    retry: Retry | None = None
    stop_early: StopEarly | None = None
    eval: Share = 0.0
    """Time for evaluation as a share of the training time, beside what `estimate` counts."""
    development: Annotated[float, written_as("2")] = Field(default=0.0, ge=0, le=100)
    """Cost of trials before the final runs, as a multiple of what these cost."""
    parallel: WholeCount = 1
    """Runs that go on at the same time."""
    priority: WholeCount = 1
    """What a day that it ends later counts beside those of others, where machines are scarce."""


class Experiment(Setting):
    """Runs of one model, of a ladder of models, of one kept plan, or hours of a fixed machine."""

    model: str | None = None
    """A model as `estimate` takes it; a file is looked for beside the project file."""
    params: ModelParams = {}
    """Values for the functions of the model file."""
    tokens: Count | None = None
    samples: Count | None = None
    epochs: Count | None = None
    dataset_size: WholeCount | None = None
    steps: WholeCount | None = None
    global_batch: Annotated[str, BeforeValidator(str), written_as("0.5M-tokens")] | None = None
    critical_batch: Count | None = None
    plan: str | None = None
    """Id of a kept plan, in place of a model."""
    hours: Count | None = None
    """Hours of a fixed machine, in place of a model: `provider`, `instance` and `nodes` name it."""
    ladder: tuple[Rung, ...] = ()
    """Models of growing size: each rung is run as `runs` says."""
    start: Month | None = None
    """First month; default: that of the project, or when what it comes after has ended."""
    after: Names = ()
    """Experiments that end before it begins."""
    every: Every | None = None
    """It is repeated so often …"""
    times: WholeCount = 1
    """… so many times."""

    @model_validator(mode="after")
    def _asks_one_thing(self) -> Experiment:
        given = [name for name in ("model", "plan", "hours") if getattr(self, name) is not None]
        if len(given) != 1:
            said = f"{' and '.join(given)} are given" if given else "it has no model"
            raise ValueError(f"{said}; give one of model, plan (an id) and hours.")
        if self.hours is not None and (len(self.instance) != 1 or len(self.nodes) > 1):
            raise ValueError("hours are of one machine: give `instance` and `nodes`, one of each.")
        if self.hours is not None:
            self._refuse_what_hours_say()
        if self.model is None:
            self._refuse_work()
        else:
            self._refuse_unclear_work()
        runs = self.runs.count * self.times * max(1, len(self.ladder))
        if runs > MOST_RUNS:
            raise ValueError(f"it has {runs:,} runs; at most {MOST_RUNS:,} are planned.")
        if max(self.nodes, default=1) > MOST_NODES:
            raise ValueError(f"nodes is {max(self.nodes):,}; at most {MOST_NODES:,}.")
        if self.times > 1 and self.every is None:
            raise ValueError("times is given without every; add `every: month`.")
        return self

    @field_validator("global_batch")
    @classmethod
    def _is_a_batch(cls, text: str | None) -> str | None:
        if text is not None:
            parse_batch(text)
        return text

    def _refuse_work(self) -> None:
        names = (*AMOUNTS, "dataset_size", "global_batch", "critical_batch", "params", "ladder")
        for name in names if self.hours is None else (*names, *OF_SETUPS):
            if getattr(self, name) not in (None, (), {}):
                raise ValueError(f"{name} is given, and there is no model that it is for.")

    def _refuse_what_hours_say(self) -> None:
        if self.max_nodes is not None:
            raise ValueError("max_nodes is given, and hours are of `nodes` machines; leave it out.")
        assert self.hours is not None
        if self.deadline is not None and self.hours * SECONDS_PER_HOUR > self.deadline:
            longest = format_duration(self.deadline / SECONDS_PER_HOUR)
            raise ValueError(
                f"hours is {self.hours:g}, and deadline, the longest time of a run, {longest};"
                " give fewer hours, or leave the deadline out."
            )

    def _refuse_unclear_work(self) -> None:
        given = [name for name in AMOUNTS if getattr(self, name) is not None]
        rungs = [
            [name for name in AMOUNTS if getattr(rung, name) is not None] for rung in self.ladder
        ]
        if len(given) > 1 or any(len(one) > 1 for one in rungs):
            raise ValueError("the amount of work is given twice; keep one of tokens, samples, …")
        if not given and (not rungs or not all(rungs)):
            raise ValueError("it has no amount of work; add tokens, samples, epochs or steps.")
        names = {*given, *(name for one in rungs for name in one)}
        if "epochs" in names and self.dataset_size is None:
            raise ValueError("epochs are given without dataset_size, the samples of the data set.")


AMOUNTS = ("tokens", "samples", "epochs", "steps")
OF_SETUPS = (
    "layout",
    "micro_batch",
    "precision",
    "recompute",
    "frozen_precision",
    "compile",
    "stack",
    "optimizer",
    "max_oom_risk",
)
"""How a model is trained: of hours of a machine nobody knows it."""
OF_SEARCHES = (*OF_SETUPS, "accelerator", "max_nodes", "deadline", "budget")
"""What a plan is searched by, and hours of a machine say already: defaults do not hold for them."""
OF_MACHINES = (*OF_SEARCHES, "instance", "nodes", "purchase")
"""What a kept plan says already. Where it may be, and of whom, holds for it too."""
