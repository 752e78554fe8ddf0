"""Projects with runs whose costs are plain numbers, for tests of the budget."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Any

from gpuplan.planner.budget.ledger import Books
from gpuplan.planner.budget.planned import PlannedRuns, RunCostOf, RunLine
from gpuplan.planner.budget.project.experiment import Experiment
from gpuplan.planner.budget.project.project import Project
from gpuplan.planner.budget.report.build import Made
from gpuplan.planner.cost.run_cost import UNIT

MADE = Made(
    gpuplan_version="1",
    generated_at="2026-11-23T00:00:00+00:00",
    today=date(2026, 11, 23),
    snapshot_date=date(2026, 11, 20),
    file="gpuplan.yaml",
)


def make_project(**fields: Any) -> Project:
    """Return a project of half a year with one experiment, changed by fields."""
    given = {
        "name": "study",
        "owner": "Ada",
        "start": "2027-01",
        "months": 6,
        "experiments": {"a": {"model": "a.py", "tokens": "1B", "owner": "Ada"}},
    }
    return Project.model_validate({**given, **fields})


def project_with(**experiment: Any) -> Project:
    """Return such a project with its experiment changed by fields."""
    given = {"model": "a.py", "tokens": "1B", "owner": "Ada"}
    return make_project(experiments={"a": {**given, **experiment}})


def make_run_cost(
    *,
    hours: float = 10.0,
    usd_per_hour: str = "2",
    spread: float = 1.0,
    accelerators: int = 8,
    nodes: int = 1,
    tax: str | None = None,
    list_usd_per_hour: str | None = None,
    **fields: Any,
) -> RunCostOf:
    """Return the cost of a run: a tenth of its hours is its start; the interval is ×÷ spread."""
    price = Decimal(usd_per_hour)
    start, training = 0.1 * hours * nodes, 0.9 * hours * nodes
    listed = None if list_usd_per_hour is None else Decimal(list_usd_per_hour)
    paid: dict[str, Any] = {"unit": UNIT, "unit_usd": price, "list_unit_usd": listed}
    lines = [
        RunLine(kind="start-up", name="setup", quantity=start, **paid),
        RunLine(kind="accelerators", name="training", quantity=training, **paid),
    ]
    usd = Decimal(str(hours * nodes)) * price
    if tax is not None:
        net = float(usd)
        lines.append(
            RunLine(kind="tax", name="tax", quantity=net, unit="USD", unit_usd=Decimal(tax))
        )
    given = {
        "plan": None,
        "provider": "aws",
        "region": "us-east-1",
        "sku": "p4d.24xlarge on-demand",
        "rent": f"aws {nodes} x p4d.24xlarge us-east-1",
        "accelerator": "A100-40GB-SXM",
        "accelerators": accelerators,
        "nodes": nodes,
        "hours": hours,
        "hours_low": hours / spread,
        "hours_high": hours * spread,
        "usd": usd,
        "usd_low": round(usd / Decimal(str(spread)), 2),
        "usd_high": round(usd * Decimal(str(spread)), 2),
        "lines": tuple(lines),
    }
    return RunCostOf(**{**given, **fields})


def make_planned(
    project: Project, name: str = "a", cost: RunCostOf | None = None, **fields: Any
) -> PlannedRuns:
    """Return the runs of an experiment; all its options cost the same unless they are given."""
    spec: Experiment = project.experiments[name.split("/")[0]]
    cost = cost or make_run_cost()
    given = {
        "name": name,
        "experiment": name.split("/")[0],
        "spec": spec,
        "runs": spec.runs.count,
        "model": "a",
        "work": "1B tokens",
        "options": {"cheap": cost, "normal": cost, "fast": cost},
    }
    return PlannedRuns(**{**given, **fields})


def make_books(project: Project | None = None, **costs: RunCostOf) -> Books:
    """Return a project with the runs of all its experiments, at these costs by name."""
    project = project or make_project()
    planned = tuple(make_planned(project, name, costs.get(name)) for name in project.experiments)
    return Books(project=project, planned=planned)


def make_options_books(**fields) -> Books:
    """Return a project of one run: 10 h for $20; cheap 20 h for $16, fast 2 h for $60."""
    project = make_project(**fields)
    options = {
        "cheap": make_run_cost(hours=20, usd_per_hour="0.8"),
        "normal": make_run_cost(),
        "fast": make_run_cost(hours=2, usd_per_hour="30", accelerators=64),
    }
    return Books(project=project, planned=(make_planned(project, options=options),))
