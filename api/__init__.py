"""The use cases of gpuplan: typed values in, typed values out, nothing printed.

>>> from gpuplan import api
>>> question = api.Question(machine=api.Machine(accelerators=("A100",), max_nodes=2))
>>> answer = api.estimate("examples/gpt2.py", question)  # doctest: +SKIP
>>> answer.plans[0].string  # doctest: +SKIP
'dp8 mb8 bf16-amp'
"""

from ..catalog.errors import GpuplanError
from ..planner.plan.layout import Layout, parse_layout
from ..planner.plan.param_sweep import Sweep
from ..planner.plan.plan import Estimate, Plan
from ..planner.plan.question import Choices, Machine, Money, Question, Work
from ..profiles.profile import Profile
from ..profiles.user_model.spec import ModelSpec
from . import launches
from .advice import advise
from .answers import check, doctor, estimate, fits, sources, timeline, validate
from .catalogue import export_prices, gpu, gpus, offers
from .curves import calibrate, check_curves
from .inputs import Inputs, measure, model, profile, read_inputs
from .jobs import actuals, export, launch, next_plan, run, run_script
from .kept import keep, kept_estimates, kept_plan
from .model_file import init
from .param_sweep import sweep
from .pareto import frontier
from .step import step_summary

__all__ = [
    "Choices",
    "Estimate",
    "GpuplanError",
    "Inputs",
    "Layout",
    "Machine",
    "ModelSpec",
    "Money",
    "Plan",
    "Profile",
    "Question",
    "Sweep",
    "Work",
    "actuals",
    "advise",
    "calibrate",
    "check",
    "check_curves",
    "doctor",
    "estimate",
    "export",
    "export_prices",
    "fits",
    "frontier",
    "gpu",
    "gpus",
    "init",
    "keep",
    "kept_estimates",
    "kept_plan",
    "launch",
    "launches",
    "measure",
    "model",
    "next_plan",
    "offers",
    "parse_layout",
    "profile",
    "read_inputs",
    "run",
    "run_script",
    "sources",
    "step_summary",
    "sweep",
    "timeline",
    "validate",
]
