"""The use cases of gpuplan: typed values in, typed values out, nothing printed.

>>> from gpuplan import api
>>> question = api.Question(machine=api.Machine(accelerators=("A100",), max_nodes=2))
>>> answer = api.estimate("examples/gpt2.py", question)  # doctest: +SKIP
>>> answer.plans[0].string  # doctest: +SKIP
'dp8 mb8 bf16-amp'
"""

from ..catalog.errors import GpuplanError
from ..planner.budget.difference.causes import Difference
from ..planner.budget.project.project import Project
from ..planner.budget.report.report import BudgetReport
from ..planner.plan.layout import Layout, parse_layout
from ..planner.plan.param_sweep import Sweep
from ..planner.plan.plan import Estimate, Plan
from ..planner.plan.question import Choices, Machine, Money, Question, Work
from ..profiles.profile import Profile
from ..profiles.user_model.spec import ModelSpec
from . import launches, prices
from .advice import advise
from .answers import check, doctor, estimate, fits, sources, timeline, validate
from .billing import BillingImport, import_actuals
from .capacity import capacity
from .catalogue import export_prices, gpu, gpus, offers
from .curves import calibrate, check_curves
from .difference import diff
from .inputs import Inputs, measure, model, profile, read_inputs
from .jobs import actuals, export, launch, next_plan, run, run_script
from .kept import keep, kept_estimates, kept_plan
from .model_file import init, init_project
from .own_runs import calibrate_from_store
from .param_sweep import sweep
from .pareto import frontier
from .report import kept_reports, read_project, report, report_of_plans
from .startable import by_capacity, refuse_without_capacity
from .step import step_summary

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
    "check",
    "check_curves",
    "diff",
    "doctor",
    "estimate",
    "export",
    "export_prices",
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
