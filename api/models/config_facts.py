"""What a Hugging Face config says besides its layers, and what it leaves open."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ...catalog.errors import UsageError
from ...catalog.vocabulary import FrozenPrecision, Precision
from ...profiles.hf_configs import TrainedLength, positions_of, stored_dtype, trained_length
from ...profiles.profile import NUMERICS_OF_PRECISION, Profile
from ...profiles.user_model.lora_settings import LORA
from ...profiles.user_model.spec import ModelSpec


def config_precision(spec: ModelSpec) -> Precision | None:
    """Return the precision that a config's dtype asks for; None where it asks for none of ours.

    `from_pretrained` loads weights in that dtype (transformers 5). float16 weights are not trained
    without a copy in fp32, so they ask for nothing. With adapters the weights are kept in it and
    not trained; peft keeps the adapters in fp32 (`autocast_adapter_dtype`), under autocast.
    """
    if spec.kind != "hf" or stored_dtype(spec.path) != "bfloat16":
        return None
    return "bf16-amp" if LORA in spec.params else "bf16"


def config_frozen(spec: ModelSpec | None, profile: Profile) -> FrozenPrecision | None:
    """Return how a config's dtype keeps what adapters leave as it is; None: it does not say.

    Args:
        spec: the model; None where only its Profile is known.
        profile: as traced; without the step of 16-bit frozen parameters nothing is said of it.
    """
    if spec is None or LORA not in spec.params or "frozen16" not in profile.numerics():
        return None
    return "bf16" if config_precision(spec) == "bf16-amp" else None


SEQ_LEN = "seq_len"
"""The param that sets how long the sequences of an `hf:` model are."""


def with_trained_length(spec: ModelSpec) -> ModelSpec:
    """Return a model whose config says no length with that of a rule, where there is one.

    It becomes a param: what is estimated is what `run` and `launch` train.

    Raises:
        UsageError: the sequences that were asked for are longer than the config has positions.
    """
    _refuse_too_long(spec)
    length = _trained_length(spec)
    if length is None or SEQ_LEN in spec.params:
        return spec
    return replace(spec, params={**spec.params, SEQ_LEN: length.tokens})


def param_rules(spec: ModelSpec | None) -> dict[str, str]:
    """Return the params that are as a rule has them, with the rule in words."""
    length = None if spec is None else _trained_length(spec)
    if spec is None or length is None or spec.params.get(SEQ_LEN) != length.tokens:
        return {}
    return {SEQ_LEN: length.rule}


def _trained_length(spec: ModelSpec) -> TrainedLength | None:
    return trained_length(spec.path, spec.params) if spec.kind == "hf" else None


def _refuse_too_long(spec: ModelSpec) -> None:
    """Raise UsageError for tokens without a position, which a trace, without values, lets pass."""
    table = positions_of(spec.path, spec.params) if spec.kind == "hf" else None
    asked = spec.params.get(SEQ_LEN)
    if table is None or not isinstance(asked, int) or asked <= table.tokens:
        return
    served = f"{table.rows:,} positions"
    if table.unused:
        served += f", of which it uses {table.tokens:,}"
    raise UsageError(
        f"{spec.text} has {served}: a step of --param {SEQ_LEN}={asked} would fail.",
        fix=f"give --param {SEQ_LEN}={table.tokens} or less, or more positions, which no"
        f" published weights have: --param {table.key}={asked + table.unused}.",
    )


def with_config_facts(profile: Profile, spec: ModelSpec, *, free_precision: bool) -> Profile:
    """Return the Profile of a config with its precision, and with notes on what was not given.

    Args:
        profile: as traced; that of any other kind of model stays as it is.
        spec: the model.
        free_precision: whether nobody asked for a precision, so that the config's counts.
    """
    if spec.kind != "hf":
        return profile
    own = config_precision(spec)
    if own is not None and NUMERICS_OF_PRECISION[own] in profile.numerics():
        profile = profile.model_copy(update={"file_precision": own})
    notes = _notes(profile, spec, told_precision=own if free_precision else None)
    return profile.model_copy(update={"notes": (*profile.notes, *notes)})


def _notes(profile: Profile, spec: ModelSpec, *, told_precision: Precision | None) -> Iterator[str]:
    if told_precision == "bf16" == profile.file_precision:
        yield (
            "the weights are kept in bfloat16, as the config's dtype says and from_pretrained loads"
            " them: give --precision bf16-amp to keep them in fp32"
        )
    length = _trained_length(spec)
    if length is not None and param_rules(spec):
        has_table = positions_of(spec.path, spec.params) is not None
        others = (
            "--param seq_len=… sets fewer"
            if has_table
            else ("the config says no length, and --param seq_len=… sets another")
        )
        yield f"sequences have {length.tokens:,} tokens, {length.rule} ({length.source}): {others}"
    if profile.tokens_per_sample is not None and SEQ_LEN not in spec.params:
        yield (
            f"every sample is counted as {profile.tokens_per_sample:,.0f} tokens without"
            " padding, as --param seq_len=… was not given (padded batches attend with a mask, which"
            " is slower)"
        )
