"""What a checkpoint says of its model, so that an export of its weights needs no model file."""

from __future__ import annotations

import json
import os
from typing import Any

from torch import nn

from ....profiles.user_model.lora import LowRankAdapter
from .initial import PretrainedWeights
from .names import ModelNames

TIED, CONFIG, ADAPTERS = "tied", "huggingface_config", "adapters"
WEIGHTS = "pretrained_weights"


def model_facts(
    model: nn.Module, names: ModelNames, weights: PretrainedWeights | None
) -> dict[str, Any]:
    """Return, as JSON, what an export needs to know of a model.

    Args:
        model: whole, before it is spread: its class and its modules change afterwards.
        names: of it.
        weights: that the run began from; None where it began anew.

    Returns:
        `tied`: the names of each weight that has several; `huggingface_config`: the config.json of
        a model of transformers, null of any other; `adapters`: of each adapter of `--lora`, its
        scale, and whether its layer keeps the weight transposed (GPT-2's Conv1D);
        `pretrained_weights`: their path, null where there were none.
    """
    return {
        TIED: [list(group) for group in names.ties],
        CONFIG: _config(model),
        ADAPTERS: {
            path: {"scale": one.scale, "is_transposed": not isinstance(one.base, nn.Linear)}
            for path, one in model.named_modules()
            if isinstance(one, LowRankAdapter)
        },
        WEIGHTS: None if weights is None else os.path.abspath(weights.place),
    }


def _config(model: nn.Module) -> dict[str, Any] | None:
    """Return the config of a model of transformers, naming its class as `save_pretrained` does."""
    config = getattr(model, "config", None)
    to_json_string = getattr(config, "to_json_string", None)
    if not callable(to_json_string) or not callable(getattr(model, "save_pretrained", None)):
        return None
    found = json.loads(str(to_json_string()))
    return {**found, "architectures": [type(model).__name__]} if isinstance(found, dict) else None
