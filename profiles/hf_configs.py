"""Configurations of well-known Hugging Face models that come with gpuplan: a name is enough.

Only those whose licence allows it, with the keys that the size and the speed of training depend on;
`data/hf_configs/index.csv` has licence, parameters as published, and source of each.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from ..catalog.errors import UsageError, did_you_mean
from .hf_positions import LearnedPositions, learned_positions

CONFIGS = Path(__file__).parent / "data" / "hf_configs"
MODEL_ID = re.compile(r"\w[\w.-]*/\w[\w.-]*")
"""The form of a name on huggingface.co: owner/model."""
MODEL_NAME = re.compile(r"\w[\w.-]*")
"""The same without its owner."""
GATED_OWNERS = frozenset({"meta-llama"})
GATED_MODELS = re.compile(r"google/(code|med|recurrent|shield)?gemma", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class TrainedLength:
    """How long sequences are where nobody says it and the config does not."""

    tokens: int
    rule: str
    """In words, for the question."""
    source: str


LENGTH_KEYS = ("max_position_embeddings", "n_positions", "max_sequence_length", "max_seq_len")
"""Of a config that says it itself (user_model/hugging_face.py)."""
LONGEST_DEFAULT_SEQ_LEN = 4096
"""Where nobody says a length, and the config a longer one (user_model/forms/hugging_face.py)."""
TRAINED_LENGTHS: dict[str, TrainedLength] = {
    "t5": TrainedLength(
        tokens=512, rule="as T5 was trained", source="arXiv:1910.10683, section 3.1.2"
    ),
    "mt5": TrainedLength(
        tokens=1024, rule="as mT5 was trained", source="arXiv:2010.11934, section 3.2"
    ),
    "bloom": TrainedLength(
        tokens=2048, rule="as BLOOM was trained", source="arXiv:2211.05100, table 3"
    ),
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


def trained_length(path: Path, params: Mapping[str, Any] | None = None) -> TrainedLength | None:
    """Return how long sequences are by a rule; None: the config says it, or nobody knows.

    Args:
        path: of the config.json.
        params: what was set of it.
    """
    config = _keys(path)
    table = positions_of(path, params or {})
    if table is not None and table.tokens < min(table.rows, LONGEST_DEFAULT_SEQ_LEN):
        return TrainedLength(
            tokens=table.tokens,
            rule=f"as many as its {table.rows:,} positions serve",
            source="the first is that after padding's",
        )
    if any(isinstance(config.get(key), int) for key in LENGTH_KEYS):
        return None
    return TRAINED_LENGTHS.get(str(config.get("model_type")))


def positions_of(path: Path, params: Mapping[str, Any]) -> LearnedPositions | None:
    """Return the learned positions of a config.json with these params; None: none are known."""
    return learned_positions(_keys(path), params)


def _keys(path: Path) -> dict[str, Any]:
    """Return what a config.json holds; nothing where it cannot be read."""
    try:
        config = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return config if isinstance(config, dict) else {}
