"""Configurations of well-known Hugging Face models that come with gpuplan: a name is enough.

Only those whose licence allows it, with the keys that the size and the speed of training depend on;
`data/hf_configs/index.csv` has licence, parameters as published, and source of each.
"""

from __future__ import annotations

import csv
import json
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from ..catalog.errors import UsageError, did_you_mean

CONFIGS = Path(__file__).parent / "data" / "hf_configs"
MODEL_ID = re.compile(r"\w[\w.-]*/\w[\w.-]*")
"""The form of a name on huggingface.co: owner/model."""
MODEL_NAME = re.compile(r"\w[\w.-]*")
"""The same without its owner."""
GATED_OWNERS = frozenset({"meta-llama"})
GATED_MODELS = re.compile(r"google/(code|med|recurrent|shield)?gemma", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class TrainedLength:
    """How long the sequences were that a kind of model without positions was trained on."""

    tokens: int
    model: str
    """As people call it."""
    source: str

    @property
    def rule(self) -> str:
        """Return it in words, for the question."""
        return f"as {self.model} was trained"


LENGTH_KEYS = ("max_position_embeddings", "n_positions", "max_sequence_length", "max_seq_len")
"""Of a config that says it itself (user_model/hugging_face.py)."""
TRAINED_LENGTHS: dict[str, TrainedLength] = {
    "t5": TrainedLength(tokens=512, model="T5", source="arXiv:1910.10683, section 3.1.2"),
    "mt5": TrainedLength(tokens=1024, model="mT5", source="arXiv:2010.11934, section 3.2"),
    "bloom": TrainedLength(tokens=2048, model="BLOOM", source="arXiv:2211.05100, table 3"),
}
"""By `model_type`: relative positions and ALiBi leave a config without a length."""


@dataclass(frozen=True, kw_only=True)
class ShippedConfig:
    """One configuration that comes with gpuplan."""

    name: str
    """On huggingface.co, such as "Qwen/Qwen3-8B"."""
    licence: str
    parameters: int
    """As published."""
    source: str

    @property
    def path(self) -> Path:
        """Return its config.json."""
        return CONFIGS / self.name / "config.json"


@cache
def shipped_configs() -> tuple[ShippedConfig, ...]:
    """Return the configurations that come with gpuplan, by name."""
    with (CONFIGS / "index.csv").open(newline="", encoding="utf-8") as file:
        return tuple(
            ShippedConfig(
                name=row["name"],
                licence=row["licence"],
                parameters=int(row["parameters"]),
                source=row["source"],
            )
            for row in csv.DictReader(file)
        )


def shipped_config(name: str) -> ShippedConfig | None:
    """Return the configuration of this name, with or without its owner, in any case of letters."""
    wanted = name.lower()
    names = {each.name.lower(): each for each in shipped_configs()}
    names |= {each.name.lower().split("/")[1]: each for each in shipped_configs()}
    return names.get(wanted)


def config_path(place: str) -> Path | None:
    """Return the file that `hf:place` means where it is a name; None where a path is meant.

    Args:
        place: what follows "hf:"; a folder or file of this name comes first.

    Raises:
        UsageError: it is a name, but not of a configuration that comes with gpuplan.
    """
    if Path(place).expanduser().exists():
        return None
    found = shipped_config(place)
    if found is not None:
        return found.path
    known = [each.name for each in shipped_configs()]
    if MODEL_NAME.fullmatch(place) and not place.endswith(".json"):
        raise UsageError(
            f"There is no folder {place} here, and gpuplan comes with no configuration of this"
            f" name.{did_you_mean(place, [name.split('/')[1] for name in known])}",
            fix=f"give the whole name, hf:OWNER/{place}, a folder that holds a config.json, or the"
            " config.json itself.",
        )
    if not MODEL_ID.fullmatch(place) or place.endswith(".json"):
        return None
    folder = place.split("/")[1]
    gated = place.split("/")[0] in GATED_OWNERS or GATED_MODELS.match(place)
    login = " (accept its terms on huggingface.co first, and `hf auth login`)" if gated else ""
    raise UsageError(
        f"There is no folder {place} here, and gpuplan does not come with the configuration of"
        f" {place}.{did_you_mean(place, known)}",
        fix=f"hf download {place} config.json --local-dir {folder}    and then hf:{folder}{login}.",
    )


def stored_dtype(path: Path) -> str | None:
    """Return the dtype that a config.json gives the weights, such as "bfloat16"; None if none."""
    config = _keys(path)
    given = config.get("dtype") or config.get("torch_dtype")
    return given if isinstance(given, str) else None


def trained_length(path: Path) -> TrainedLength | None:
    """Return what such models were trained at; None: the config says a length, or nobody knows."""
    config = _keys(path)
    if any(isinstance(config.get(key), int) for key in LENGTH_KEYS):
        return None
    return TRAINED_LENGTHS.get(str(config.get("model_type")))


def _keys(path: Path) -> dict[str, Any]:
    """Return what a config.json holds; nothing where it cannot be read."""
    try:
        config = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return config if isinstance(config, dict) else {}
