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

from ..catalog.errors import UsageError, did_you_mean

CONFIGS = Path(__file__).parent / "data" / "hf_configs"
MODEL_ID = re.compile(r"\w[\w.-]*/\w[\w.-]*")
"""The form of a name on huggingface.co: owner/model."""
GATED_OWNERS = frozenset({"meta-llama"})
GATED_MODELS = re.compile(r"google/(code|med|recurrent|shield)?gemma", re.IGNORECASE)


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
    if not MODEL_ID.fullmatch(place) or place.endswith(".json"):
        return None
    folder = place.split("/")[1]
    known = [each.name for each in shipped_configs()]
    gated = place.split("/")[0] in GATED_OWNERS or GATED_MODELS.match(place)
    login = " (accept its terms on huggingface.co first, and `hf auth login`)" if gated else ""
    raise UsageError(
        f"There is no folder {place} here, and gpuplan does not come with the configuration of"
        f" {place}.{did_you_mean(place, known)}",
        fix=f"hf download {place} config.json --local-dir {folder}    and then hf:{folder}{login}.",
    )


def stored_dtype(path: Path) -> str | None:
    """Return the dtype that a config.json gives the weights, such as "bfloat16"; None if none."""
    try:
        config = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    given = config.get("dtype") or config.get("torch_dtype") if isinstance(config, dict) else None
    return given if isinstance(given, str) else None
