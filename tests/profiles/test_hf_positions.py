"""A learned table of positions serves so many tokens; a step of more fails."""

import json
from pathlib import Path

import pytest
import torch
import transformers

from gpuplan import api
from gpuplan.catalog.errors import UsageError
from gpuplan.profiles.hf_configs import shipped_configs, trained_length
from gpuplan.profiles.hf_positions import learned_positions


@pytest.mark.parametrize(
    ("config", "params", "tokens"),
    [
        ({"model_type": "gpt2", "n_positions": 1024}, {}, 1024),
        ({"model_type": "gpt2", "n_positions": 1024}, {"n_positions": 2048}, 2048),
        ({"model_type": "gpt2"}, {}, None),
        ({"model_type": "opt", "max_position_embeddings": 2048, "pad_token_id": 1}, {}, 2048),
        ({"model_type": "roberta", "max_position_embeddings": 514}, {}, 512),
        ({"model_type": "roberta", "max_position_embeddings": 64, "pad_token_id": 0}, {}, 63),
        ({"model_type": "llama", "max_position_embeddings": 2048}, {}, None),
        ({"model_type": "t5", "n_positions": 512}, {}, None),
        ({}, {}, None),
    ],
)
def test_tokens_that_a_table_serves(
    config: dict[str, object], params: dict[str, object], tokens: int | None
) -> None:
    found = learned_positions(config, params)
    assert (found.tokens if found else None) == tokens


@pytest.mark.parametrize(
    "kind",
    [
        "gpt2", "roberta", "opt", "mpnet", "albert", "bert", "bert-generation", "big_bird",
        "blenderbot", "blenderbot-small", "convbert", "distilbert", "electra", "ernie", "flaubert",
        "fnet", "layoutlm", "megatron-bert", "mobilebert", "mra", "mvp", "nystromformer",
        "openai-gpt", "pegasus", "plbart", "rembert", "roc_bert", "roformer", "splinter",
        "squeezebert", "xlm", "yoso",
    ],
)  # fmt: skip
def test_a_real_step_takes_so_many_and_no_more(kind: str) -> None:
    key = "n_positions" if kind in ("gpt2", "openai-gpt") else "max_position_embeddings"
    sizes = {
        32: "hidden_size intermediate_size ffn_dim word_embed_proj_dim embedding_size dim emb_dim"
        " hidden_dim n_embd d_model encoder_ffn_dim decoder_ffn_dim",
        1: "num_hidden_layers n_layers n_layer encoder_layers decoder_layers",
        2: "num_attention_heads n_heads n_head encoder_attention_heads decoder_attention_heads",
        100: "vocab_size",
    }
    usual = transformers.AutoConfig.for_model(kind)
    small = {
        name: size for size, names in sizes.items() for name in names.split()
        if hasattr(usual, name)
    }  # fmt: skip
    config = transformers.AutoConfig.for_model(kind, **small, **{key: 16})
    table = learned_positions({**config.to_dict(), "model_type": kind}, {})
    assert table is not None
    model = transformers.AutoModel.from_config(config)
    parts = ["input_ids", *(["decoder_input_ids"] if config.is_encoder_decoder else [])]
    model(**dict.fromkeys(parts, torch.full((1, table.tokens), 7)))
    with pytest.raises((IndexError, RuntimeError)):
        model(**dict.fromkeys(parts, torch.full((1, table.tokens + 1), 7)))


@pytest.fixture
def roberta(tmp_path: Path) -> str:
    config = {"model_type": "roberta", "architectures": ["RobertaForMaskedLM"]}
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config | {"max_position_embeddings": 514, "pad_token_id": 1}))
    return f"hf:{tmp_path}"


def test_longer_sequences_are_refused_with_what_would_do(roberta: str) -> None:
    with pytest.raises(UsageError, match="hf:gpt2 has 1,024 positions") as found:
        api.model("hf:gpt2", params={"seq_len": 2048})
    assert "--param n_positions=2048" in str(found.value)
    assert api.model("hf:gpt2", params={"seq_len": 2048, "n_positions": 2048})
    with pytest.raises(UsageError, match="514 positions, of which it uses 512") as found:
        api.model(roberta, params={"seq_len": 513})
    assert "max_position_embeddings=515" in str(found.value)


def test_where_nobody_says_a_length_all_positions_that_serve_are_used(roberta: str) -> None:
    assert api.model(roberta).params == {"seq_len": 512}
    assert api.model(roberta, params={"seq_len": 128}).params == {"seq_len": 128}


def test_a_table_longer_than_the_usual_length_leaves_that(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"model_type": "roberta", "max_position_embeddings": 8194}))
    assert trained_length(path) is None
    assert not any(trained_length(each.path) for each in shipped_configs())
