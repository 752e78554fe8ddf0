"""What every question starts from: a model's Profile, traced or measured, and the catalogue."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from ...catalog.errors import UsageError
from ...catalog.vocabulary import Precision
from ...planner.plan.question import Machine, Work
from ...planner.plan.refusals import refuse_other_word
from ...profiles.curves.choice import USUAL_CURVES, CurveChoice
from ...profiles.hf_configs import config_path
from ...profiles.profile import NUMERICS_OF_PRECISION, Numerics, Profile
from ...profiles.user_model.spec import (
    DEFAULT_TIMEOUT_S,
    ModelSpec,
    parse_model_spec,
    refuse_unreadable,
)
from .config_facts import config_precision, with_config_facts, with_trained_length
from .double_precision import with_fp64_note

if TYPE_CHECKING:
    from ...catalog.snapshot import Catalogue
    from ...profiles.measure.measure import MeasureRequest
    from ...profiles.measured import MeasuredProfile
    from ...profiles.tracing_process.service import PendingProfile

DEFAULT_NUMERICS: tuple[Numerics, ...] = ("amp16", "fp32", "pure16")
"""What is traced when no precision is asked for: the planner is then free to take either."""


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """What every question about one model starts from; read it once, ask often."""

    profile: Profile
    catalogue: Catalogue
    spec: ModelSpec | None = None
    """The model as it was named; None where the Profile came from elsewhere."""
    offers: Path | None = None
    """The user's own machines and prices that the catalogue holds."""
    pricebook: Path | None = None
    """The user's own terms that its prices are at."""
    curve_choice: CurveChoice = USUAL_CURVES
    """Which measurements of devices predictions rest on."""


def counted_in_tokens(inputs: Inputs, work: Work) -> tuple[Inputs, tuple[str, ...]]:
    """Return the inputs with the tokens of a sample where work is in tokens, and a note of it.

    A file that does not say how many its samples have is taken at the length of its sequences;
    nothing is assumed where that is not clear, or where nobody speaks of tokens.
    """
    profile = inputs.profile
    asked = work.tokens is not None or work.global_batch_tokens is not None
    if profile.tokens_per_sample is not None or not asked:
        return inputs, ()
    from ...profiles.trace.token_count import tokens_of_batch  # It imports torch.

    tokens = tokens_of_batch(profile.batch_tensors)
    if tokens is None:
        return inputs, ()
    counted = profile.model_copy(update={"tokens_per_sample": float(tokens)})
    note = (
        f"a sample counts as {tokens:,} tokens, the length of the sequences of make_batch()"
        " (where it is another number, set TOKENS_PER_SAMPLE in the file)"
    )
    return replace(inputs, profile=counted), (note,)


def model(
    model: str | Path | ModelSpec,
    *,
    params: Mapping[str, Any] | None = None,
    inputs: Iterable[str] = (),
    timeout_s: float | None = None,
    lora: str | None = None,
    assume: Mapping[str, bool | int | str] | None = None,
) -> ModelSpec:
    """Return a model as every use case takes it: its file with the params for its functions.

    Args:
        model: `model.py`, `model.py:ClassName`, `hf:<name, folder or config.json>` or a
            written Profile;
            what this function returned stays as it is, apart from the time limit.
        params: Values for the functions of the file.
        inputs: Shapes of the tensors of a plain module, such as "3,224,224".
        timeout_s: Longest time the file may take, seconds; default: 120, or what `model` says.
        lora: Train low-rank adapters of an `hf:` model alone: "r=16" for the layers that peft
            adapts by default, or "r=16,targets=q_proj+v_proj".
        assume: What a trace takes for values of tensors, by line: `{"model.py:12": False}` for a
            condition, `{"model.py:31": "50%"}` (or 64, or "64/sample") for how many are found.

    Raises:
        UsageError: The file cannot be read, an argument makes no sense, or params, inputs, lora or
            assume are given beside a model that has its own.
    """
    if not isinstance(model, ModelSpec):
        limit_s = DEFAULT_TIMEOUT_S if timeout_s is None else timeout_s
        return _parsed(
            str(model), params=params, inputs=inputs, timeout_s=limit_s, lora=lora, assume=assume
        )
    if params or tuple(inputs) or lora is not None or assume:
        raise UsageError(
            f"params, inputs, lora or assume are given beside {model.text}, which has its own.",
            fix='give them once: gpuplan.model("model.py", params=…, inputs=…).',
        )
    refuse_unreadable(model)
    return model if timeout_s is None else replace(model, timeout_s=timeout_s)


def _parsed(
    text: str,
    *,
    params: Mapping[str, Any] | None,
    inputs: Iterable[str],
    timeout_s: float,
    lora: str | None,
    assume: Mapping[str, bool | int | str] | None,
) -> ModelSpec:
    """Return a model that was named; `hf:` also takes the name of a config that we come with."""
    place = config_path(text.removeprefix("hf:")) if text.startswith("hf:") else None
    named = text if place is None else f"hf:{place}"
    spec = parse_model_spec(
        named, params=params, inputs=inputs, timeout_s=timeout_s, lora=lora, assume=assume
    )
    if spec.kind == "file" and spec.path.suffix not in ("", ".py"):
        raise UsageError(
            f"{text} is not a Python file.",
            fix="give a .py file with build_model() and make_batch(); `gpuplan init` writes one.",
        )
    return with_trained_length(spec if place is None else replace(spec, text=text))


# The use cases below have an argument of the same name.
_model = model


def profile(
    model: str | Path | ModelSpec,
    *,
    params: Mapping[str, Any] | None = None,
    inputs: Iterable[str] = (),
    precision: Precision | None = None,
    numerics: Iterable[Numerics] | None = None,
    optimizer: str | None = None,
    timeout_s: float | None = None,
    lora: str | None = None,
    assume: Mapping[str, bool | int | str] | None = None,
    use_cache: bool = True,
    on_output: Callable[[str], None] | None = None,
    on_slow: Callable[[str], None] | None = None,
) -> Profile:
    """Return the Profile of a model file: FLOPs, bytes and memory of one step, traced with no GPU.

    Args:
        model: What `model` returned, or names: `model.py`, `model.py:ClassName`,
            `hf:<name, folder or config.json>` or a written Profile.
        params: Values for the functions of the file.
        inputs: Shapes of the tensors of a plain module, such as "3,224,224".
        precision: The precision to trace the step for; default: the file's own.
        numerics: Which storage and compute dtypes to trace; default: those of `precision`.
        optimizer: An optimizer to trace instead of the file's.
        timeout_s: Longest time the file may take, seconds; default: the model's own, else 120.
        lora: As for `model`.
        assume: As for `model`.
        use_cache: Whether to look for the Profile in the cache, and to keep it there.
        on_output: Called with what the user's code printed.
        on_slow: Called once, while a trace takes long, with what makes it long and what to do.

    Raises:
        UserFileError: The file failed, took too long, or does not follow the contract.
        UsageError: The file cannot be read, or a param is taken by none of its functions.
    """
    from ...profiles.tracing_process.service import make_profile

    spec = _model(
        model, params=params, inputs=inputs, timeout_s=timeout_s, lora=lora, assume=assume
    )
    if precision is not None:
        refuse_other_word("precision", precision, get_args(Precision))
    wanted = precision or config_precision(spec)
    if numerics is None and wanted is not None:
        numerics = (NUMERICS_OF_PRECISION[wanted],)
    traced = make_profile(
        spec,
        numerics=None if numerics is None else tuple(sorted(numerics)),
        optimizer=optimizer,
        use_cache=use_cache,
        on_output=on_output,
        on_slow=on_slow,
    )
    return with_fp64_note(with_config_facts(traced, spec, free_precision=precision is None))


def measure(
    model: str | Path | ModelSpec,
    request: MeasureRequest | None = None,
    *,
    params: Mapping[str, Any] | None = None,
    inputs: Iterable[str] = (),
    timeout_s: float | None = None,
    lora: str | None = None,
    assume: Mapping[str, bool | int | str] | None = None,
    use_cache: bool = True,
    on_progress: Callable[[str, int | None, int | None], None] | None = None,
    on_output: Callable[[str], None] | None = None,
) -> MeasuredProfile:
    """Return the Profile of a model with what real steps of it took on this machine.

    Args:
        model: A model as for `profile`, but no written Profile.
        request: What to run; default: 20 steps on the CUDA device, else on the processor.
        params: Values for the functions of the file.
        inputs: Shapes of the tensors of a plain module.
        timeout_s: Longest time each thing that is done may take, seconds; default: the model's
            own, else 120.
        lora: As for `model`.
        assume: As for `model`.
        use_cache: Whether the trace may come from the cache; nothing measured does.
        on_progress: Called with what is being done, how far it is, and of how much.
        on_output: Called with what the user's code printed.

    Raises:
        UserFileError: The file failed, took too long, or a step of it did not fit in memory.
        UsageError: What is asked for cannot be run on this machine.
    """
    from ...profiles.measure.measure import MeasureRequest
    from ...profiles.measure.measure import measure as run_steps

    return run_steps(
        _model(model, params=params, inputs=inputs, timeout_s=timeout_s, lora=lora, assume=assume),
        request or MeasureRequest(),
        use_cache=use_cache,
        on_progress=on_progress,
        on_output=on_output,
    )


def read_inputs(
    model: str | Path | ModelSpec,
    *,
    params: Mapping[str, Any] | None = None,
    inputs: Iterable[str] = (),
    precisions: Iterable[Precision] = (),
    machine: Machine | None = None,
    offers: Path | None = None,
    pricebook: Path | None = None,
    curves: Iterable[str | Path] = (),
    without_curves_of: Iterable[str] = (),
    timeout_s: float | None = None,
    lora: str | None = None,
    assume: Mapping[str, bool | int | str] | None = None,
    use_cache: bool = True,
    on_output: Callable[[str], None] | None = None,
    on_slow: Callable[[str], None] | None = None,
) -> Inputs:
    """Return the Profile of a model and the catalogue, read at the same time.

    Args:
        model: As for `profile`, like all arguments that are not listed here.
        params: Values for the functions of the file.
        inputs: Shapes of the tensors of a plain module.
        precisions: Those that will be asked about; default: any that a free planner may choose.
        machine: Names to check against the catalogue, before the trace has ended.
        offers: The user's own machines and prices, a YAML or CSV file.
        pricebook: The user's own terms, a YAML file: discounts, reservations, credits, tax.
        curves: Curve files of `calibrate`, each used for the accelerator it was measured on before
            all others.
        without_curves_of: Accelerators predicted from their nearest relative, as if nobody had
            measured them.
        timeout_s: Longest time the file may take, seconds; default: the model's own, else 120.
        lora: As for `model`.
        assume: As for `model`.
        use_cache: Whether to use the cache of Profiles.
        on_output: Called with what the user's code printed.
        on_slow: Called once, while a trace takes long, with what makes it long and what to do.

    Raises:
        GpuplanError: What `profile` raises; a name, the offers file or a curve file is not
            understood.
    """
    from ...profiles.tracing_process.service import begin_profile

    spec = _model(
        model, params=params, inputs=inputs, timeout_s=timeout_s, lora=lora, assume=assume
    )
    asked = tuple(precisions)
    numerics, dispensable = _numerics(asked)
    pending = begin_profile(
        spec,
        numerics=numerics,
        dispensable=dispensable,
        use_cache=use_cache,
        on_output=on_output,
        on_slow=on_slow,
    )
    with _ended(pending):
        catalogue = _read_catalogue(offers, pricebook, machine)
        curve_choice = chosen_curves(curves, without_curves_of, catalogue=catalogue)
        # The search is imported here because the child process is still tracing meanwhile.
        from ...planner.search import search as _search  # noqa: F401

        traced = pending.result()
    return Inputs(
        profile=with_fp64_note(with_config_facts(traced, spec, free_precision=not asked)),
        catalogue=catalogue,
        spec=spec,
        offers=offers,
        pricebook=pricebook,
        curve_choice=curve_choice,
    )


def chosen_curves(
    curves: Iterable[str | Path] = (),
    without_curves_of: Iterable[str] = (),
    *,
    catalogue: Catalogue | None = None,
) -> CurveChoice:
    """Return the choice of curves that the options of a use case make; `read_inputs` has them.

    Raises:
        GpuplanError: A file is not a curve file, or an accelerator is not known.
    """
    from ...catalog.names import resolve_accelerator
    from ...profiles.curves.user_curves import refuse_unreadable

    left_out = [resolve_accelerator(name, catalogue=catalogue) for name in without_curves_of]
    given = tuple(Path(path) for path in curves)
    choice = CurveChoice(given=given, left_out=frozenset(left_out))
    refuse_unreadable(choice)
    return choice


def _numerics(precisions: Iterable[Precision]) -> tuple[tuple[Numerics, ...], set[Numerics]]:
    """Return what to trace for these precisions, and what of it an answer can do without.

    FSDP runs mixed precision on 16-bit layers. A step that autocast alone keeps right (a loss in
    fp32, a float schedule of noise) fails in them, and is planned without FSDP then. One that fails
    under autocast too (rows written into a buffer of another dtype) is planned in fp32; one that
    only the file's own autocast keeps right (a base that it loads in bf16), under autocast.
    """
    asked: set[Numerics] = {NUMERICS_OF_PRECISION[precision] for precision in precisions}
    wanted = set(asked or DEFAULT_NUMERICS)
    if "amp16" in wanted:
        wanted.add("pure16")
    dispensable: set[Numerics] = {"pure16"}
    if "fp32" in wanted:
        dispensable |= {"amp16", "fp32"} if "amp16" in wanted else {"amp16"}
    return tuple(sorted(wanted)), dispensable - asked


@contextmanager
def _ended(pending: PendingProfile) -> Iterator[PendingProfile]:
    """Hand out a profile that is being made; whatever goes wrong, its process does not outlive."""
    try:
        yield pending
    except BaseException:
        pending.cancel()
        raise


def _read_catalogue(
    offers: Path | None, pricebook: Path | None, machine: Machine | None
) -> Catalogue:
    from ...catalog.listing.own_machine import with_own_machines
    from ...catalog.listing.query import parse_filter
    from ...catalog.snapshot import load_catalogue

    catalogue = load_catalogue(offers, pricebook)
    if machine is not None:
        wanted = parse_filter(
            catalogue,
            accelerators=machine.accelerators,
            providers=[name for name in machine.providers if name != "all"],
            regions=machine.regions,
            jurisdictions=machine.jurisdictions,
            instance_types=machine.instances,
        )
        catalogue = with_own_machines(catalogue, wanted)
    return catalogue
