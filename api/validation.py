"""`gpuplan validate`: predict every run of a record file and compare with what it measured.

Records → what they leave open filled in → one Profile per model and params → predictions → errors.
A run that cannot be predicted is skipped with its reason; nothing else of the file suffers.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from importlib.resources import files
from pathlib import Path

from ..catalog.errors import GpuplanError
from ..catalog.names import assumption_about, resolve_accelerator
from ..catalog.snapshot import Catalogue, load_catalogue
from ..catalog.types import Instance
from ..catalog.version import VERSION
from ..planner.constants import Constants
from ..planner.hardware.cluster import Site
from ..planner.hardware.device import peak_flops
from ..planner.memory.rank_memory import RankMemory
from ..planner.plan.plan import Estimated
from ..planner.plan.setup import Setup
from ..planner.predict.model_cache import ModelCache
from ..planner.predict.peak_memory import memory_parts
from ..planner.predict.predict import Prediction, predict
from ..planner.predict.step_time import doubts_of, planned_step_s, step_parts
from ..planner.predict.supported import refuse_unsupported
from ..planner.predict.warm_up import FP32_FORWARD_FIRST
from ..planner.validation.errors import Observation, Validation, Verdict, prediction_errors
from ..planner.validation.folds import Protocol, held_out_accelerators, held_out_constants
from ..planner.validation.record_defaults import StatedRun, UnstatedError, state_run
from ..profiles.curves.choice import USUAL_CURVES, CurveChoice
from ..profiles.passes.optimizers import with_optimizer
from ..profiles.profile import NUMERICS_OF_PRECISION, Numerics, Profile
from ..profiles.records import RunRecord, read_records
from ..profiles.tracing_process.batch import Profiler, ProfileRequest, profile_all

EXAMPLES = "gpuplan.examples"
CONTRACT_FUNCTIONS = ("build_model", "make_batch")


@dataclass(kw_only=True)
class _Case:
    """One record on its way to an observation."""

    record: RunRecord
    accelerator: str
    run: StatedRun | None = None
    setup: Setup | None = None
    request: ProfileRequest | None = None
    skipped: str | None = None
    assumed: list[str] = field(default_factory=list)
    memory: RankMemory | None = None
    """Kept from one protocol to the next: no constant of the step model changes it."""


def validate(
    paths: Iterable[Path],
    *,
    profiler: Profiler = profile_all,
    catalogue: Catalogue | None = None,
    hold_out: Protocol | None = None,
    curve_choice: CurveChoice = USUAL_CURVES,
) -> Validation:
    """Return predictions for every run of these record files, with their errors and summaries.

    Args:
        paths: JSON Lines files of run records; a record's model file is looked for beside its
            record file, then among the examples that come with gpuplan.
        profiler: Makes the Profiles; default: trace in child processes, cached.
        catalogue: Where accelerators are looked up; default: the embedded one.
        hold_out: Predict every run with constants that were fitted without its fold.
        curve_choice: Which measurements of devices the predictions rest on.

    Raises:
        UsageError: a file cannot be read, or lines of it are not run records.
    """
    runs = RecordedRuns(paths, profiler=profiler, catalogue=catalogue, curve_choice=curve_choice)
    return runs.prediction_errors(hold_out)


class RecordedRuns:
    """Run records, predicted under several protocols; profiles and memory are computed once."""

    def __init__(
        self,
        paths: Iterable[Path],
        *,
        profiler: Profiler = profile_all,
        catalogue: Catalogue | None = None,
        curve_choice: CurveChoice = USUAL_CURVES,
    ) -> None:
        self._cases, profiles = _load(paths, profiler, catalogue or load_catalogue())
        self._benches = _Benches(profiles, curve_choice)

    @property
    def records(self) -> list[RunRecord]:
        """The records, in the order of their files."""
        return [case.record for case in self._cases]

    def observations(self, hold_out: Protocol | None = None) -> list[Observation]:
        """Return every run, predicted as `validate` does under this protocol."""
        return [_observe(case, self._benches, hold_out) for case in self._cases]

    def timed(self, ids: Container[str] | None = None) -> list[TimedRun]:
        """Return the runs that state a step time and can be predicted; of these ids, or all."""
        chosen = [case for case in self._cases if ids is None or case.record.id in ids]
        return [run for case in chosen if (run := _timed(case, self._benches)) is not None]

    def prediction_errors(self, hold_out: Protocol | None = None) -> Validation:
        """Return what `validate` returns under this protocol."""
        answer = prediction_errors(self.observations(hold_out), hold_out=hold_out)
        return answer.model_copy(update={"gpuplan_version": VERSION})


@dataclass(frozen=True, kw_only=True)
class TimedRun:
    """A run with a measured time, prepared so that it can be predicted repeatedly."""

    id: str
    source: str
    accelerator: str
    configuration: str
    measured_s: float
    cache: ModelCache
    site: Site
    setup: Setup

    def seconds(self) -> float:
        """Return the predicted step time."""
        return planned_step_s(self.cache, self.site, self.setup)

    def doubts(self) -> dict[str, float]:
        """Return what can be wrong with that time, as relative sizes by constant `doubt.*`."""
        parts = step_parts(self.cache, self.site, self.setup)
        return doubts_of(self.cache, self.site, self.setup, parts)

    def with_constants(self, constants: Constants) -> TimedRun:
        """Return the run, predicted with other constants."""
        return replace(self, cache=self.cache.with_constants(constants))

    def on_network(self, multiple: float) -> TimedRun:
        """Return the run, predicted for this multiple of the rate between nodes, if it is known."""
        link = self.site.inter_link
        if link.bytes_per_s is None:
            return self
        link = link.model_copy(update={"bytes_per_s": link.bytes_per_s * multiple})
        return replace(self, site=replace(self.site, inter_link=link))

    def held_out(self, protocol: Protocol) -> TimedRun:
        """Return the run, predicted as if it and all others of its fold had never been seen."""
        cache = _held_out(
            self.cache,
            protocol,
            configuration=self.configuration,
            source=self.source,
            accelerator=self.accelerator,
        )
        return replace(self, cache=cache)


def timed_runs(
    paths: Iterable[Path], *, profiler: Profiler = profile_all, catalogue: Catalogue | None = None
) -> list[TimedRun]:
    """Return the runs of these record files that state a step time and can be predicted."""
    return RecordedRuns(paths, profiler=profiler, catalogue=catalogue).timed()


def _timed(case: _Case, benches: _Benches) -> TimedRun | None:
    measured_s = case.record.measured.step_time_s
    if case.run is None or case.request is None or not measured_s:
        return None
    try:
        cache, setup = _on_bench(case, benches)
        run = TimedRun(
            id=case.record.id,
            source=case.record.source_group,
            accelerator=case.accelerator,
            configuration=_configuration(case.record),
            measured_s=measured_s,
            cache=cache,
            site=case.run.site,
            setup=setup,
        )
        run.seconds()
    except GpuplanError:
        return None
    return run


def _load(
    paths: Iterable[Path], profiler: Profiler, catalogue: Catalogue
) -> tuple[list[_Case], Mapping[str, Profile | GpuplanError]]:
    cases = [_prepare(record, path, catalogue) for path in paths for record in read_records(path)]
    profiles = profiler(_merged(case.request for case in cases if case.request is not None))
    return cases, profiles


def _prepare(record: RunRecord, path: Path, catalogue: Catalogue) -> _Case:
    """Return the record with its open fields filled in, or with the reason why it is skipped."""
    case = _Case(record=record, accelerator=record.accelerator)
    try:
        case.accelerator = resolve_accelerator(record.accelerator, catalogue=catalogue)
        accelerator = catalogue.accelerators.get(case.accelerator)
        if accelerator is None:
            raise UnstatedError(f"{case.accelerator} has no specification in the catalogue")
        model_path = _find_model(record.model, path.parent)
        case.run = run = state_run(
            record,
            accelerator,
            instances=_instances(catalogue, accelerator.name),
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
        case.skipped = _one_line(error)
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


def _instances(catalogue: Catalogue, name: str) -> list[Instance]:
    return [one for one in catalogue.instances.values() if one.accelerator == name]


def _merged(requests: Iterable[ProfileRequest]) -> list[ProfileRequest]:
    """Return one request per model and params, with the numerics that any run of it needs."""
    merged: dict[str, ProfileRequest] = {}
    for request in requests:
        known = merged.get(request.key)
        numerics = request.numerics | (known.numerics if known else frozenset())
        merged[request.key] = replace(request, numerics=numerics)
    return list(merged.values())


class _Benches:
    """One model cache per Profile and optimizer, made when it is first asked for."""

    def __init__(
        self,
        profiles: Mapping[str, Profile | GpuplanError],
        curve_choice: CurveChoice = USUAL_CURVES,
    ) -> None:
        self._profiles = profiles
        self._curve_choice = curve_choice
        self._benches: dict[tuple[str, str | None], ModelCache] = {}

    def cache(self, key: str, optimizer: str | None) -> ModelCache:
        """Return the cache of one model; raises the error that profiling it ended with."""
        if (key, optimizer) not in self._benches:
            profile = self._profiles[key]
            if isinstance(profile, GpuplanError):
                raise profile
            if optimizer not in (None, "none"):
                profile = with_optimizer(profile, optimizer)
            self._benches[key, optimizer] = ModelCache(profile, curve_choice=self._curve_choice)
        return self._benches[key, optimizer]


def _observe(case: _Case, benches: _Benches, hold_out: Protocol | None) -> Observation:
    """Return the observation of a run, predicted under a protocol unless it is skipped."""
    record = case.record
    base = Observation(
        id=record.id,
        source_group=record.source_group,
        accelerator=case.accelerator,
        stack=case.run.setup.stack if case.run else record.stack or "unknown",
        configuration=_configuration(record),
        assumed=tuple(case.assumed),
        skipped=case.skipped,
        measured_step_time_s=record.measured.step_time_s,
        measured_memory_bytes=record.measured.peak_memory_bytes,
        verdict_measured=_measured_verdict(record),
    )
    if case.run is None or case.setup is None or case.request is None:
        return base
    try:
        cache, setup = _on_bench(case, benches)
        cache = _held_out(
            cache,
            hold_out,
            configuration=base.configuration,
            source=base.source_group,
            accelerator=base.accelerator,
        )
        if case.memory is None:
            case.memory = memory_parts(cache, setup)
        site = case.run.site
        prediction = predict(cache.profile, site, setup, cache=cache, memory=case.memory)
        ideal_s = _ideal_step_time_s(case.run, cache)
    except GpuplanError as error:
        return replace(base, skipped=_one_line(error))
    timed = replace(base, predicted_step_time_s=prediction.step_time_s, ideal_step_time_s=ideal_s)
    unknown = _why_memory_is_unknown(case.run)
    if unknown is not None:
        return replace(timed, memory_skipped=unknown)
    memory, assumed = _memory_as_measured(record, prediction)
    return replace(
        timed,
        predicted_memory_bytes=memory,
        verdict_predicted="fits" if prediction.fits else "out_of_memory",
        assumed=(*base.assumed, *assumed),
    )


def _on_bench(case: _Case, benches: _Benches) -> tuple[ModelCache, Setup]:
    assert case.request is not None
    assert case.setup is not None
    setup = case.setup
    cache = benches.cache(case.request.key, setup.optimizer)
    if setup.optimizer != "none":
        setup = replace(setup, optimizer=None)  # The cache holds it already.
    return cache, setup


def _held_out(
    cache: ModelCache,
    protocol: Protocol | None,
    *,
    configuration: str,
    source: str,
    accelerator: str,
) -> ModelCache:
    """Return a cache that predicts a run as if it and all others of its fold were never seen."""
    constants = held_out_constants(
        protocol, configuration=configuration, source=source, accelerator=accelerator
    )
    hidden = held_out_accelerators(protocol, accelerator)
    return cache.with_constants(constants).with_curves(cache.curve_choice.without(hidden))


def _why_memory_is_unknown(run: StatedRun) -> str | None:
    if run.setup.stack == "xla":
        return "memory of XLA programs is not predicted yet"
    if "activation-offload" in run.setup.features and "activations" not in run.setup.offload:
        return "memory with activation-offload is predicted for data-parallel torch only"
    return None


def _configuration(record: RunRecord) -> str:
    """Return text that is equal for runs of one model in one layout."""
    parts = (record.model, record.params, record.layout.model_dump())
    return json.dumps(parts, sort_keys=True, default=str)


def _measured_verdict(record: RunRecord) -> Verdict | None:
    if record.measured.oom:
        return "out_of_memory"
    ran = record.measured.step_time_s or record.measured.peak_memory_gib
    return "fits" if ran else None


def _ideal_step_time_s(run: StatedRun, cache: ModelCache) -> float | None:
    """Return the step at 100 % of the device's peak, recomputed FLOPs counted, in seconds."""
    peak = peak_flops(run.site.accelerator, run.setup.precision)
    if not peak:
        return None
    layout = run.setup.layout
    flops = cache.hardware_flops(run.setup.precision, run.setup.recompute, run.setup.micro_batch)
    return flops * run.setup.grad_accum / (layout.tensor * layout.pipeline * layout.context) / peak


def _memory_as_measured(
    record: RunRecord, prediction: Prediction
) -> tuple[Estimated, tuple[str, ...]]:
    """Return the predicted peak in the meaning the record measured, and what was assumed."""
    peak = prediction.peak_memory_bytes
    meaning = record.measured.memory_meaning
    assumed: tuple[str, ...] = ()
    if meaning == "unknown" and record.measured.peak_memory_gib is not None:
        meaning, why = "allocated", "what logs print: max_memory_allocated"
        if record.stack == "megatron":
            # 4.5 GiB more than a model of 350 M parameters allocates (Sailor's runs).
            meaning, why = "whole-device", "small models hold what contexts and NCCL take"
        assumed = (f"measured.memory_meaning={meaning} ({why})",)
    values = {
        "allocated": prediction.peak_allocated_bytes,
        "reserved": prediction.peak_reserved_bytes,
    }
    value = values.get(meaning, peak.value)
    scale = value / peak.value
    scaled = Estimated(value=value, low=peak.low * scale, high=peak.high * scale, basis=peak.basis)
    return scaled, assumed


def _one_line(error: GpuplanError) -> str:
    return " ".join(error.message.split())
