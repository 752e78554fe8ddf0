"""gpuplan: what training a PyTorch model needs, takes and costs on every accelerator clouds sell.

`gpuplan.api` is the whole public surface; its names are re-exported here on first use, so that
`import gpuplan` stays instant.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # Type checkers and editors see the real signatures.
    from .api import *  # noqa: F403
    from .catalog.version import VERSION as __version__  # noqa: F401

PUBLIC = (
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
)
"""`api.__all__`, written out: to know a name must not import anything.

Tools ask this package for names of their own (pytest for `pytest_plugins`), and in a clone whose
folder is called `gpuplan-main` they import it under a name below which there is no `api`.
"""


def __getattr__(name: str) -> Any:
    """Return a public name of `gpuplan.api`, or the version, importing it on first use."""
    if name == "__version__":
        return import_module(".catalog.version", __name__).VERSION
    if name in PUBLIC:
        return getattr(import_module(".api", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """Return the public names too, before they are imported."""
    return sorted({*globals(), *PUBLIC})
