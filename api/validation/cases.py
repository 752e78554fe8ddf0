"""Run records on their way to a prediction: what they leave open filled in, their models found."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from importlib.resources import files
from pathlib import Path

from ...catalog.errors import GpuplanError
from ...catalog.names import assumption_about, resolve_accelerator
from ...catalog.snapshot import Catalogue
from ...catalog.types import Accelerator, Instance
from ...planner.memory.rank_memory import RankMemory
from ...planner.plan.setup import Setup
from ...planner.predict.memory.warm_up import FP32_FORWARD_FIRST
from ...planner.predict.supported import refuse_unsupported
from ...planner.validation.record_defaults import StatedRun, UnstatedError, state_run
from ...profiles.profile import NUMERICS_OF_PRECISION, Numerics, Profile
from ...profiles.records import RunRecord, read_records
from ...profiles.tracing_process.batch import Profiler, ProfileRequest

EXAMPLES = "gpuplan.examples"
CONTRACT_FUNCTIONS = ("build_model", "make_batch")


@dataclass(kw_only=True)
class Case:
    """One record on its way to an observation."""

    record: RunRecord
    accelerator: str
    run: StatedRun | None = None
    setup: Setup | None = None
    request: ProfileRequest | None = None
    skipped: str | None = None
    assumed: list[str] = field(default_factory=list)
    is_decided: bool = False
    """Whether it was looked at what an unstated recompute was."""
    fits_recomputed: bool = False
    """Whether the run fits with recompute alone, of which its source says nothing."""
    memory: RankMemory | None = None
    """Kept from one protocol to the next: no constant of the step model changes it."""


def load_cases(
    paths: Iterable[Path], profiler: Profiler, catalogue: Catalogue
) -> tuple[list[Case], Mapping[str, Profile | GpuplanError]]:
    """Return the records of these files, and the Profiles of their models by key.

    Raises:
        UsageError: a file cannot be read, or lines of it are not run records.
    """
    cases = [_prepare(record, path, catalogue) for path in paths for record in read_records(path)]
    profiles = profiler(_merged(case.request for case in cases if case.request is not None))
    return cases, profiles


def _prepare(record: RunRecord, path: Path, catalogue: Catalogue) -> Case:
    """Return the record with its open fields filled in, or with the reason why it is skipped."""
    case = Case(record=record, accelerator=record.accelerator)
    try:
        case.accelerator = resolve_accelerator(record.accelerator, catalogue=catalogue)
        accelerator = catalogue.accelerators.get(case.accelerator)
        if accelerator is None:
            raise UnstatedError(f"{case.accelerator} has no specification in the catalogue")
        model_path = _find_model(record.model, path.parent)
        case.run = run = state_run(
            record,
            accelerator,
            instances=_instances(catalogue, accelerator),
            model_takes=_params_taken(model_path),
        )
        case.assumed += [note for note in [assumption_about(record.accelerator)] if note]
        case.assumed += run.assumed
        case.setup = run.setup
        refuse_unsupported(run.site, case.setup)
        case.request = ProfileRequest(
            path=model_path,
            params=run.params,
            numerics=_numerics(run),
        )
    except GpuplanError as error:
        case.skipped = one_line(error)
    return case


def _numerics(run: StatedRun) -> frozenset[Numerics]:
    """Return the traces that predicting the run takes: of its storage, and of its kernels."""
    numerics = NUMERICS_OF_PRECISION[run.setup.precision]
    needed: set[Numerics] = {numerics}
    if not run.setup.autocast and numerics == "amp16":
        needed.add("pure16")
    if FP32_FORWARD_FIRST in run.setup.features:
        needed.add("fp32")
    return frozenset(needed)


def _find_model(model: str, folder: Path) -> Path:
    beside = folder / model
    if beside.is_file():
        return beside.resolve()
    example = Path(str(files(EXAMPLES).joinpath(model)))
    if example.is_file():
        return example
    raise UnstatedError(f"there is no model file {model} beside the records or in {EXAMPLES}")


@lru_cache(maxsize=64)
def _params_taken(path: Path) -> frozenset[str]:
    """Return the names of the params that the file's functions take, from its text alone."""
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, SyntaxError):
        return frozenset()  # The profiler says what is wrong with the file.
    functions = [
        node
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and node.name in CONTRACT_FUNCTIONS
    ]
    return frozenset(
        argument.arg
        for function in functions
        for argument in (*function.args.args, *function.args.kwonlyargs)
    )


def _instances(catalogue: Catalogue, accelerator: Accelerator) -> list[Instance]:
    """Return machines with the device; with its like where nobody rents it out (an H800: H100s).

    Modules alone are like one another: a card goes into machines of any kind.
    """
    own = [one for one in catalogue.instances.values() if one.accelerator == accelerator.name]
    if own or not (accelerator.form_factor or "").startswith(_MODULES):
        return own
    built = {
        name
        for name, one in catalogue.accelerators.items()
        if (one.arch, one.form_factor) == (accelerator.arch, accelerator.form_factor)
    }
    return [one for one in catalogue.instances.values() if one.accelerator in built]


_MODULES = ("SXM", "OAM")


def _merged(requests: Iterable[ProfileRequest]) -> list[ProfileRequest]:
    """Return one request per model and params, with the numerics that any run of it needs."""
    merged: dict[str, ProfileRequest] = {}
    for request in requests:
        known = merged.get(request.key)
        numerics = request.numerics | (known.numerics if known else frozenset())
        merged[request.key] = replace(request, numerics=numerics)
    return list(merged.values())


def one_line(error: GpuplanError) -> str:
    """Return what went wrong, without line breaks."""
    return " ".join(error.message.split())
