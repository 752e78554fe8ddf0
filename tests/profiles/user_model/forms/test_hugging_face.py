"""Hugging Face configs: the right class, the right batch, a real step on small models."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from gpuplan.catalog.errors import GpuplanError, UsageError, UserFileError
from gpuplan.profiles.user_model import forms
from gpuplan.profiles.user_model.contract import Workload, load_workload
from gpuplan.profiles.user_model.spec import parse_model_spec
from gpuplan.profiles.user_model.structure.tensor_plan import tensor_plan_of

pytestmark = pytest.mark.slow

SMALL: dict[str, dict[str, Any]] = {
    "LlamaForCausalLM": {
        "model_type": "llama", "hidden_size": 16, "intermediate_size": 32,
        "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 50,
        "max_position_embeddings": 8192,
    },
    "GPT2LMHeadModel": {
        "model_type": "gpt2", "n_embd": 16, "n_layer": 1, "n_head": 2, "vocab_size": 50,
        "n_positions": 24,
    },
    "T5ForConditionalGeneration": {
        "model_type": "t5", "d_model": 16, "d_ff": 32, "d_kv": 8, "num_layers": 1, "num_heads": 2,
        "vocab_size": 50, "decoder_start_token_id": 0,
    },
    "ViTForImageClassification": {
        "model_type": "vit", "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1,
        "num_attention_heads": 2, "image_size": 32, "patch_size": 16,
    },
}  # fmt: skip
BERT = {
    "model_type": "bert", "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1,
    "num_attention_heads": 2, "vocab_size": 50, "max_position_embeddings": 40,
}  # fmt: skip
for _task in (
    "MaskedLM", "PreTraining", "SequenceClassification", "TokenClassification",
    "QuestionAnswering",
):  # fmt: skip
    SMALL[f"BertFor{_task}"] = BERT


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


def load(folder: Path, config: dict[str, Any], **params: Any) -> Workload:
    (folder / "config.json").write_text(json.dumps(config))
    return load_workload(parse_model_spec(f"hf:{folder}", params=params))


@pytest.mark.parametrize("architecture", SMALL)
def test_a_step_of_each_task(architecture: str, tmp_path: Path) -> None:
    config = {**SMALL[architecture], "architectures": [architecture]}
    is_text = "Image" not in architecture
    workload = load(tmp_path, config, **({"seq_len": 8} if is_text else {}))
    model = workload.build_model()
    assert type(model).__name__ == architecture
    batch = workload.make_batch(3)
    assert isinstance(batch, dict)
    assert {value.shape[0] for value in batch.values()} == {3}
    assert workload.tokens_per_sample == (8 if is_text else None)
    workload.compute_loss(model, batch).backward()
    assert any(parameter.grad is not None for parameter in model.parameters())


@pytest.mark.parametrize(
    ("architecture", "seq_len"), [("LlamaForCausalLM", 4096), ("GPT2LMHeadModel", 24)]
)
def test_the_length_is_the_models_own_up_to_4096(
    architecture: str, seq_len: int, tmp_path: Path
) -> None:
    workload = load(tmp_path, {**SMALL[architecture], "architectures": [architecture]})
    assert workload.tokens_per_sample == seq_len
    batch = workload.make_batch(1)
    assert isinstance(batch, dict)
    assert batch["input_ids"].shape == (1, seq_len)


def test_a_param_replaces_a_key_of_the_config(tmp_path: Path) -> None:
    config = {**SMALL["LlamaForCausalLM"], "architectures": ["LlamaForCausalLM"]}
    counts = [
        sum(1 for _ in load(tmp_path, config, num_hidden_layers=n).build_model().parameters())
        for n in (1, 2, 3)
    ]
    assert counts[2] - counts[1] == counts[1] - counts[0] > 0


@pytest.mark.parametrize(
    ("change", "params", "message"),
    [
        ({}, {"num_hiden_layers": 2}, "Did you mean num_hidden_layers"),
        ({}, {"seq_len": 0}, "seq_len=0 is not a number of tokens"),
        ({"architectures": []}, {}, "names no architecture"),
        ({"architectures": ["NoSuchModel"]}, {}, "names NoSuchModel"),
        ({"architectures": ["LlamaModel"]}, {}, "does not know what LlamaModel is trained on"),
        ({"model_type": "no-such-type"}, {}, "is not a config that transformers"),
    ],
)
def test_a_config_that_cannot_be_used(
    change: dict[str, Any], params: dict[str, Any], message: str, tmp_path: Path
) -> None:
    config = {**SMALL["LlamaForCausalLM"], "architectures": ["LlamaForCausalLM"], **change}
    with pytest.raises((UsageError, UserFileError)) as raised:
        load(tmp_path, config, **params)
    assert message in raised.value.message


def test_without_transformers_the_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    monkeypatch.delitem(
        sys.modules, "gpuplan.profiles.user_model.forms.hugging_face", raising=False
    )
    monkeypatch.delattr(forms, "hugging_face", raising=False)
    with pytest.raises(GpuplanError, match="needs the transformers package") as raised:
        load(tmp_path, SMALL["LlamaForCausalLM"])
    assert raised.value.fix == "pip install 'gpuplan[hf]'"


def test_adapters_stand_in_a_config_s_model_and_alone_train(tmp_path: Path) -> None:
    config = {**SMALL["LlamaForCausalLM"], "architectures": ["LlamaForCausalLM"]}
    plain = load(tmp_path, config, seq_len=8).build_model()
    workload = load(tmp_path, config, seq_len=8, lora="r=2")
    model = workload.build_model()
    trained = {n: p.numel() for n, p in model.named_parameters() if p.requires_grad}
    assert sum(trained.values()) == 2 * 2 * (16 + 16)
    assert sum(p.numel() for p in model.parameters()) == sum(
        p.numel() for p in plain.parameters()
    ) + sum(trained.values())
    assert tensor_plan_of(workload, plain) and not tensor_plan_of(workload, model)
    workload.compute_loss(model, workload.make_batch(2)).backward()
    assert {n for n, p in model.named_parameters() if p.grad is not None} == set(trained)


def test_gpt2_s_transposed_layers_take_adapters(tmp_path: Path) -> None:
    config = {**SMALL["GPT2LMHeadModel"], "architectures": ["GPT2LMHeadModel"]}
    workload = load(tmp_path, config, seq_len=8, lora="r=2,targets=all-linear")
    model = workload.build_model()
    # c_attn, the two c_proj and c_fc.
    sizes = ((16, 48), (16, 16), (64, 16), (16, 64))
    assert sum(p.numel() for p in model.parameters() if p.requires_grad) == sum(
        2 * (into + out) for into, out in sizes
    )
    workload.compute_loss(model, workload.make_batch(2)).backward()
