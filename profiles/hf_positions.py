"""How many tokens the learned positions of a Hugging Face config serve: a step of more fails."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_FROM_THE_FIRST = frozenset(
    {
        "albert",
        "bart",
        "bert",
        "bert-generation",
        "big_bird",
        "biogpt",
        "blenderbot",
        "blenderbot-small",
        "convbert",
        "ctrl",
        "distilbert",
        "electra",
        "ernie",
        "flaubert",
        "fnet",
        "gpt2",
        "gpt_bigcode",
        "gpt_neo",
        "layoutlm",
        "mbart",
        "megatron-bert",
        "mobilebert",
        "mra",
        "mvp",
        "nystromformer",
        "openai-gpt",
        "opt",
        "pegasus",
        "plbart",
        "rembert",
        "roc_bert",
        "roformer",
        "splinter",
        "squeezebert",
        "xlm",
        "yoso",
    }
)
"""Pegasus' and RoFormer's tables are of sines, and end as those that are learned do."""
_AFTER_PADDING = frozenset(
    {
        "camembert",
        "data2vec-text",
        "ibert",
        "longformer",
        "mpnet",
        "roberta",
        "roberta-prelayernorm",
        "xlm-roberta",
        "xlm-roberta-xl",
    }
)
"""Kinds whose first position is that after `pad_token_id`: RoBERTa's table of 514 serves 512 tokens
(transformers, `create_position_ids_from_input_ids`)."""
_PADDING = 1
"""`pad_token_id` of these kinds where a config leaves it out."""
_KEYS = ("n_positions", "max_position_embeddings")


@dataclass(frozen=True, kw_only=True)
class LearnedPositions:
    """A table with a row for every position. Both lists were held to transformers 5.23."""

    key: str
    """Of the config, for the number of rows."""
    rows: int
    unused: int = 0
    """Rows before the first token's."""

    @property
    def tokens(self) -> int:
        """Return the longest sequence that it serves."""
        return self.rows - self.unused


def learned_positions(
    config: Mapping[str, Any], params: Mapping[str, Any]
) -> LearnedPositions | None:
    """Return the table of positions of a config; None: it has none, or its size is not known.

    Args:
        config: what config.json holds.
        params: what was set of it.
    """
    kind = config.get("model_type")
    if kind not in _FROM_THE_FIRST | _AFTER_PADDING:
        return None
    keys = {**config, **params}
    for key in _KEYS:
        rows = keys.get(key)
        if isinstance(rows, int) and rows > 0:
            padding = keys.get("pad_token_id", _PADDING)
            unused = padding + 1 if kind in _AFTER_PADDING and isinstance(padding, int) else 0
            return LearnedPositions(key=key, rows=rows, unused=unused)
    return None
