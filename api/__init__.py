"""The use cases of gpuplan: typed values in, typed values out, nothing printed.

>>> from gpuplan import api
>>> question = api.Question(machine=api.Machine(accelerators=("A100",), max_nodes=2))
>>> answer = api.estimate("examples/gpt2.py", question)  # doctest: +SKIP
>>> answer.plans[0].string  # doctest: +SKIP
'dp8 mb8 bf16-amp'
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..catalog.errors import GpuplanError
    from ..planner.budget.difference.causes import Difference
    from ..planner.budget.project.project import Project
    from ..planner.budget.report.report import BudgetReport
    from ..planner.plan.answer.estimate import Estimate
    from ..planner.plan.answer.param_sweep import Sweep
    from ..planner.plan.layout import Layout, parse_layout
    from ..planner.plan.plan import Plan
    from ..planner.plan.question import Choices, Machine, Money, Question, Work
    from ..profiles.profile import Profile
    from ..profiles.user_model.spec import ModelSpec
    from . import launches, prices
    from .account.account_capacity import capacity
    from .account.billing import BillingImport, import_actuals
    from .account.startable import by_capacity, refuse_without_capacity
    from .advice import advise
    from .answers import check, doctor, estimate, sources, timeline, validate
    from .calibration.curves import calibrate, check_curves
    from .calibration.own_runs import calibrate_from_store
    from .catalogue import export_prices, gpu, gpus, offers
    from .difference import diff
    from .jobs import actuals, export, export_weights, run, run_script
    from .kept import keep, kept_estimates, kept_plan
    from .launch_plan import launch, next_plan
    from .memory_fit import fits
    from .models.inputs import Inputs, measure, model, profile, read_inputs
    from .models.model_file import init, init_project
    from .models.step import step_summary
    from .param_sweep import sweep
    from .pareto import frontier
    from .projects.project_capacity import capacity_over_time
    from .projects.reports import kept_reports, read_project, report, report_of_plans

__all__ = [
    "BillingImport",
    "BudgetReport",
    "Choices",
    "Difference",
    "Estimate",
    "GpuplanError",
    "Inputs",
    "Layout",
    "Machine",
    "ModelSpec",
    "Money",
    "Plan",
    "Profile",
    "Project",
    "Question",
    "Sweep",
    "Work",
    "actuals",
    "advise",
    "by_capacity",
    "calibrate",
    "calibrate_from_store",
    "capacity",
    "capacity_over_time",
    "check",
    "check_curves",
    "diff",
    "doctor",
    "estimate",
    "export",
    "export_prices",
    "export_weights",
    "fits",
    "frontier",
    "gpu",
    "gpus",
    "import_actuals",
    "init",
    "init_project",
    "keep",
    "kept_estimates",
    "kept_plan",
    "kept_reports",
    "launch",
    "launches",
    "measure",
    "model",
    "next_plan",
    "offers",
    "parse_layout",
    "prices",
    "profile",
    "read_inputs",
    "read_project",
    "refuse_without_capacity",
    "report",
    "report_of_plans",
    "run",
    "run_script",
    "sources",
    "step_summary",
    "sweep",
    "timeline",
    "validate",
]

_NAMES = {
    "..catalog.errors": "GpuplanError",
    "..planner.budget.difference.causes": "Difference",
    "..planner.budget.project.project": "Project",
    "..planner.budget.report.report": "BudgetReport",
    "..planner.plan.layout": "Layout parse_layout",
    "..planner.plan.answer.param_sweep": "Sweep",
    "..planner.plan.answer.estimate": "Estimate",
    "..planner.plan.plan": "Plan",
    "..planner.plan.question": "Choices Machine Money Question Work",
    "..profiles.profile": "Profile",
    "..profiles.user_model.spec": "ModelSpec",
    ".account.account_capacity": "capacity",
    ".account.billing": "BillingImport import_actuals",
    ".account.startable": "by_capacity refuse_without_capacity",
    ".advice": "advise",
    ".answers": "check doctor estimate sources timeline validate",
    ".calibration.curves": "calibrate check_curves",
    ".calibration.own_runs": "calibrate_from_store",
    ".catalogue": "export_prices gpu gpus offers",
    ".difference": "diff",
    ".jobs": "actuals export export_weights run run_script",
    ".kept": "keep kept_estimates kept_plan",
    ".launch_plan": "launch next_plan",
    ".models.inputs": "Inputs measure model profile read_inputs",
    ".models.model_file": "init init_project",
    ".models.step": "step_summary",
    ".param_sweep": "sweep",
    ".memory_fit": "fits",
    ".pareto": "frontier",
    ".projects.project_capacity": "capacity_over_time",
    ".projects.reports": "kept_reports read_project report report_of_plans",
}
"""Every public name by the module that has it. A module is imported when one of its names is first
used: an estimate needs nothing of reports, billing or launches."""
_HOMES = {name: module for module, names in _NAMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    """Return a public name, importing it on first use."""
    if name in ("launches", "prices"):
        return import_module(f".{name}", __name__)
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(_HOMES[name], __name__), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    """Return the public names too, before they are imported."""
    return sorted({*globals(), *__all__})
