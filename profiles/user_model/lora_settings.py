"""What `--lora` says: rank, scale and layers of the low-rank adapters of a Hugging Face model.

Standard library only: the command line reads it before torch is needed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...catalog.errors import UsageError, did_you_mean

LORA = "lora"
"""The param that carries the settings, so that traces, records and jobs have them."""
ALL_LINEAR = "all-linear"
"""Every linear layer but the output head: peft's word, and what QLoRA adapts (Dettmers et al. 2023,
arXiv:2305.14314, section 4)."""
DEFAULT_RANK = 8
DEFAULT_ALPHA = 8.0
"""`r` and `lora_alpha` of peft's LoraConfig (huggingface.co/docs/peft, package_reference/lora)."""
KEYS = ("r", "alpha", "targets")
_EXAMPLE = "write --lora r=16 or --lora r=16,targets=q_proj+v_proj."

_QUERY_VALUE = ("q_proj", "v_proj")
TARGETS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(
        (
            "bart", "gemma", "gemma2", "gemma3_text", "gpt_neo", "gptj", "llama", "llama4",
            "mistral", "mixtral", "opt", "qwen2", "qwen3", "stablelm",
        ),
        _QUERY_VALUE,
    ),
    **dict.fromkeys(("bert", "electra", "layoutlm", "roberta", "xlm-roberta"), ("query", "value")),
    **dict.fromkeys(("bloom", "falcon", "gpt_neox"), ("query_key_value",)),
    **dict.fromkeys(("gpt2", "gpt_bigcode"), ("c_attn",)),
    **dict.fromkeys(("t5", "mt5"), ("q", "v")),
    "codegen": ("qkv_proj",),
    "deberta": ("in_proj",),
    "deberta-v2": ("query_proj", "value_proj"),
    "mpt": ("Wqkv",),
    "phi": ("q_proj", "v_proj", "fc1", "fc2"),
}  # fmt: skip
"""`model_type` of a config → names of the layers that peft adapts where none are given:
TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING in
github.com/huggingface/peft/blob/00073fe85ca790515f0b70caa69bea4c477d9db7/src/peft/utils/constants.py"""

QUERY_AND_VALUE: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(
        (
            "beit", "clip", "cohere", "deit", "dinov2", "glm", "glm4", "gpt_oss", "granite", "olmo",
            "olmo2", "olmo3", "qwen2_moe", "qwen3_moe", "siglip", "smollm3", "starcoder2", "vit",
            "whisper",
        ),
        _QUERY_VALUE,
    ),
    "distilbert": ("q_lin", "v_lin"),
    "phi3": ("qkv_proj",),
}  # fmt: skip
"""The same where peft names none: the layers that make queries and values, which the paper adapts
(Hu et al. 2021, section 4.2), as transformers 5.23 names them (models/*/modeling_*.py)."""


@dataclass(frozen=True, kw_only=True)
class LoraSettings:
    """Low-rank adapters (Hu et al. 2021, arXiv:2106.09685)."""

    rank: int = DEFAULT_RANK
    alpha: float = DEFAULT_ALPHA
    """The adapters' product is multiplied by `alpha / rank`."""
    targets: tuple[str, ...] = ()
    """Last parts of the names of the layers that get one; empty: peft's choice for the model."""

    def __str__(self) -> str:
        """Return the settings as `--lora` takes them."""
        targets = f",targets={'+'.join(self.targets)}" if self.targets else ""
        return f"r={self.rank},alpha={self.alpha:g}{targets}"

    @property
    def words(self) -> str:
        """Return them as an answer shows them: "LoRA r=16 on q_proj, v_proj"."""
        return f"LoRA r={self.rank} on {', '.join(self.targets) or 'its usual layers'}"


def parse_lora(text: str) -> LoraSettings:
    """Return the settings that `--lora r=16,alpha=16,targets=q_proj+v_proj` gives.

    >>> parse_lora("r=16,targets=q_proj+v_proj").words
    'LoRA r=16 on q_proj, v_proj'

    Raises:
        UsageError: a part is not key=value, or a value makes no sense.
    """
    given: dict[str, str] = {}
    for part in str(text).split(","):
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if key not in KEYS or not equals or not value:
            raise UsageError(
                f"--lora {text}: {part.strip() or 'an empty part'!r} is not one of"
                f" {', '.join(f'{name}=…' for name in KEYS)}.{did_you_mean(key, KEYS)}",
                fix=_EXAMPLE,
            )
        if key in given:
            raise UsageError(f"--lora {text}: {key} is given twice.", fix=f"keep one {key}=….")
        given[key] = value
    return LoraSettings(
        rank=_rank(text, given.get("r")),
        alpha=_alpha(text, given.get("alpha")),
        targets=_targets(text, given.get("targets")),
    )


def resolved(settings: LoraSettings, config: Path) -> LoraSettings:
    """Return the settings with the layers that are adapted by default, where none are named.

    They are those of peft, else queries and values.

    Args:
        settings: as given.
        config: the config.json of the model.

    Raises:
        UsageError: no layers are known for this kind of model.
    """
    if settings.targets:
        return settings
    kinds = _model_types(config)
    known = {**QUERY_AND_VALUE, **TARGETS}
    found = next((known[kind] for kind in kinds if kind in known), None)
    if found is None:
        kind = kinds[0] if kinds else "of no model_type"
        raise UsageError(
            f"peft names no layers to adapt in a model of type {kind}, and --lora names none.",
            fix=f"name them, such as --lora r={settings.rank},targets=q_proj+v_proj (the error of a"
            " name that the model has not lists its layers), or take every linear layer:"
            f" targets={ALL_LINEAR}.",
        )
    return LoraSettings(rank=settings.rank, alpha=settings.alpha, targets=found)


def with_lora(
    kind: str, text: str, path: Path, params: Mapping[str, Any], lora: str | None
) -> dict[str, Any]:
    """Return the params of a model with its adapters among them, every default spelled out.

    Args:
        kind: of the model: only "hf" takes adapters.
        text: the model as it was named.
        path: its file.
        params: as given; `lora` may be among them.
        lora: what `--lora` says; None where it was not given.

    Raises:
        UsageError: the settings make no sense, or the model is no Hugging Face config.
    """
    params = dict(params)
    if kind != "hf":
        if lora is not None:
            raise UsageError(
                f"--lora is for models that are named hf:…; {text} builds its own layers.",
                fix="write the adapters in its build_model, as examples/lora.py does, and leave"
                " --lora out.",
            )
        return params
    if lora is not None and LORA in params:
        raise UsageError("--lora and --param lora=… are both given.", fix="keep --lora.")
    wanted = params.get(LORA) if lora is None else lora
    if wanted is not None:
        params[LORA] = str(resolved(parse_lora(str(wanted)), path))
    return params


def _rank(text: str, value: str | None) -> int:
    if value is None:
        return DEFAULT_RANK
    if not re.fullmatch(r"[1-9]\d{0,5}", value):
        raise UsageError(f"--lora {text}: r={value} is not a whole number above 0.", fix=_EXAMPLE)
    return int(value)


def _alpha(text: str, value: str | None) -> float:
    if value is None:
        return DEFAULT_ALPHA
    if not re.fullmatch(r"\d+(\.\d+)?", value) or float(value) == 0:
        raise UsageError(
            f"--lora {text}: alpha={value} is not a number above 0.",
            fix="write --lora r=16,alpha=16.",
        )
    return float(value)


def _targets(text: str, value: str | None) -> tuple[str, ...]:
    if value is None:
        return ()
    names = tuple(dict.fromkeys(name.strip() for name in value.split("+")))
    wrong = [name for name in names if name != ALL_LINEAR and not re.fullmatch(r"\w[\w.]*", name)]
    if wrong or (ALL_LINEAR in names and len(names) > 1):
        shown = wrong[0] if wrong else f"{ALL_LINEAR} beside others"
        raise UsageError(
            f"--lora {text}: targets has {shown!r}, which is not the name of a layer.",
            fix="join the names of layers with +, such as targets=q_proj+v_proj, or write"
            f" targets={ALL_LINEAR}.",
        )
    return names


def _model_types(config: Path) -> list[str]:
    """Return the `model_type` of a config and of the text model inside it, as far as given."""
    try:
        read = json.loads(config.read_bytes())
    except (OSError, ValueError):
        return []
    inner = read.get("text_config") if isinstance(read, dict) else None
    kinds = [one.get("model_type") for one in (read, inner) if isinstance(one, dict)]
    return [kind for kind in kinds if isinstance(kind, str)]
