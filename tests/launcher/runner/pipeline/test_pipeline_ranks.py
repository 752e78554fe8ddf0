"""Real pipeline ranks train the same weights as one process with gradient accumulation.

The sums are the same numbers added in another order, so fp32 weights agree to 1e-5 after five
steps of AdamW, and losses to 1e-6 of their value.
"""

from pathlib import Path
from typing import Any

import pytest
import torch
from pipeline_ranks import Case, alone, together

import gpuplan

pytestmark = [pytest.mark.slow, pytest.mark.spread]
EXAMPLES = Path(gpuplan.__file__).parent / "examples"
GPT2: dict[str, Any] = {
    "model": str(EXAMPLES / "gpt2.py"),
    "params": {"layers": 4, "hidden": 32, "heads": 4, "vocab": 64, "seq_len": 16},
}
DECODER: dict[str, Any] = {
    "model": str(EXAMPLES / "decoder.py"),
    "params": GPT2["params"] | {"kv_heads": 2, "ffn": 64},
}
LLAMA: dict[str, Any] = {
    "model": f"hf:{EXAMPLES / 'hf_llama_config'}",
    "params": {
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "vocab_size": 64,
        "seq_len": 16,
    },
}
CASES = {
    "two ranks": Case(**GPT2),
    "four ranks": Case(**DECODER, pipeline=4),
    "interleaved": Case(**DECODER, virtual=2),
    "tied interleaved recomputed": Case(**GPT2, virtual=2, recompute="after"),
    "llama": Case(**LLAMA),
    "llama recomputed": Case(**LLAMA, recompute="before"),
    "tied and sharded": Case(**GPT2, data=2),
    "llama interleaved, sharded, recomputed": Case(**LLAMA, virtual=2, data=2, recompute="after"),
    "tied and replicated": Case(**GPT2, data=2, replicas=2),
    "gpipe, autocast, scaled loss": Case(**GPT2, kind="gpipe", bf16=True, scale=1024.0),
    "stages without blocks": Case(
        model=GPT2["model"], params=GPT2["params"] | {"layers": 2}, pipeline=4
    ),
    "compiled blocks": Case(**GPT2, compiled=True, steps=3),
}


REPEATED = {
    "two ranks",
    "interleaved",
    "llama",
    "llama interleaved, sharded, recomputed",
}
"""Cases of which each part is in another."""


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.repeats if name in REPEATED else ()) for name in CASES],
)
def test_ranks_train_what_one_process_does(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    expected = alone(case)
    found = together(case, tmp_path)
    assert set(found.parameters) | {"head.weight"} == set(expected.parameters) | {"head.weight"}
    # Processors with units for bf16 round a product by the shape of its micro-batch.
    apart, losses_apart = (1e-3, 1e-3) if case.bf16 else (1e-5, 1e-6)
    for key, value in found.parameters.items():
        torch.testing.assert_close(value, expected.parameters[key], rtol=1e-5, atol=apart)
    if case.data == 1:  # Else each data-parallel rank knows the loss of its own samples.
        assert found.losses == pytest.approx(expected.losses, rel=losses_apart)
    assert len(found.losses) == case.steps
    assert found.state_keys == expected.state_keys


def test_weights_are_not_held_by_every_rank(tmp_path: Path) -> None:
    found = together(Case(**DECODER, virtual=2, steps=1), tmp_path)
    first, second = (set(names) for names in found.held)
    assert not first & second
    assert {name.split(".")[1] for name in first if name.startswith("blocks")} == {"0", "2"}
    assert {name.split(".")[1] for name in second if name.startswith("blocks")} == {"1", "3"}
    assert "embedding.weight" in first
    assert {"norm.weight", "head.weight"} <= second
