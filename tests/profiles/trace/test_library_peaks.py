"""The allocated peak of models of a popular library equals that of a real step, to the byte.

transformers is the library of the development environment. Its models are narrow and short here;
layers, operations and what they keep are those of the whole model.
"""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
import transformers
from real_steps import as_on_cpu, peak_bytes, record, stream_of

pytestmark = pytest.mark.slow

SAMPLES, TOKENS, VOCABULARY = 2, 32, 500
NARROW = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 128,
    "vocab_size": VOCABULARY,
}
GPT_2 = {"n_embd": 64, "n_layer": 2, "n_head": 4, "vocab_size": VOCABULARY}
GROUPED = NARROW | {"num_key_value_heads": 2, "head_dim": 16}
SEEN = {"image_size": 32, "patch_size": 8}


def text(samples: int) -> dict[str, torch.Tensor]:
    ids = torch.randint(VOCABULARY, (samples, TOKENS))
    return {"input_ids": ids, "labels": ids}


def images(samples: int) -> dict[str, torch.Tensor]:
    pixels = torch.randn(samples, 3, 32, 32)
    return {"pixel_values": pixels, "labels": torch.randint(2, (samples,))}


def pairs(samples: int) -> dict[str, torch.Tensor]:
    ids = torch.randint(VOCABULARY, (samples, 16))
    return {"input_ids": ids, "pixel_values": images(samples)["pixel_values"]}


def contrastive_loss(model: Any, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    return model(**batch, return_loss=True).loss


MODELS: dict[str, tuple[str, Any, dict[str, Any]]] = {
    "gpt2, dropout of fused attention": ("GPT2LMHeadModel", text, GPT_2),
    "gpt2, dropout of eager attention": (
        "GPT2LMHeadModel",
        text,
        GPT_2 | {"attn_implementation": "eager"},
    ),
    "llama, grouped queries": ("LlamaForCausalLM", text, GROUPED),
    "llama, grouped queries and dropout of attention": (
        "LlamaForCausalLM",
        text,
        GROUPED | {"attention_dropout": 0.1},
    ),
    "mistral, a sliding window": ("MistralForCausalLM", text, GROUPED | {"sliding_window": 16}),
    "qwen3, norms of heads": ("Qwen3ForCausalLM", text, GROUPED),
    "gemma2, soft caps": ("Gemma2ForCausalLM", text, GROUPED),
    "phi": ("PhiForCausalLM", text, NARROW),
    "bert": ("BertForMaskedLM", text, NARROW),
    "roberta": ("RobertaForMaskedLM", text, NARROW),
    "electra": ("ElectraForMaskedLM", text, NARROW | {"embedding_size": 32}),
    "t5, an encoder and a decoder": (
        "T5ForConditionalGeneration",
        text,
        {"d_model": 64, "d_ff": 128, "num_layers": 2, "num_heads": 4, "d_kv": 16}
        | {"vocab_size": VOCABULARY, "decoder_start_token_id": 0},
    ),
    "convnext": (
        "ConvNextForImageClassification",
        images,
        {"hidden_sizes": [16, 32], "depths": [2, 2], "num_stages": 2},
    ),
    "resnet": (
        "ResNetForImageClassification",
        images,
        {"embedding_size": 16, "hidden_sizes": [32, 64], "depths": [2, 2]},
    ),
    "clip": (
        "CLIPModel",
        pairs,
        {
            "text_config": NARROW | {"eos_token_id": 2},
            "vision_config": NARROW | SEEN,
            "projection_dim": 32,
        },
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_the_peak_equals_that_of_a_real_step(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class_name, make_batch, changes = MODELS[name]
    model_class = getattr(transformers, class_name)
    example = SimpleNamespace(
        build_model=lambda: model_class(model_class.config_class(**changes)),
        make_batch=make_batch,
        compute_loss=contrastive_loss
        if make_batch is pairs
        else lambda model, batch: model(**batch).loss,
    )
    as_on_cpu(monkeypatch)
    with torch.backends.mkldnn.flags(enabled=False):  # pyright: ignore[reportAttributeAccessIssue]
        real = record(example, {}, SAMPLES, device="cpu")
    traced = record(example, {}, SAMPLES, device="meta")
    assert peak_bytes(stream_of(real)) == peak_bytes(stream_of(traced)) > 10**5
