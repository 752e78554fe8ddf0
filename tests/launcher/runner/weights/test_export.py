"""What an export writes of models of transformers: names, ties, adapters, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
import torch.distributed.checkpoint as dcp
from safetensors import safe_open
from torch import nn

from gpuplan import api
from gpuplan.catalog.errors import GpuplanError, UsageError
from gpuplan.launcher.runner.weights.files import stored_tensors
from gpuplan.launcher.runner.weights.model_facts import model_facts
from gpuplan.launcher.runner.weights.names import matched, names_of
from gpuplan.profiles.user_model.lora import add_adapters
from gpuplan.profiles.user_model.lora_settings import parse_lora

pytestmark = pytest.mark.slow


def llama() -> nn.Module:
    import transformers

    config = transformers.LlamaConfig(
        vocab_size=40,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
    )
    return transformers.LlamaForCausalLM(config)


def gpt2() -> nn.Module:
    import transformers

    config = transformers.GPT2Config(vocab_size=40, n_embd=16, n_layer=2, n_head=2, n_positions=16)
    return transformers.GPT2LMHeadModel(config)


def mixtral() -> nn.Module:
    import transformers

    config = transformers.MixtralConfig(
        vocab_size=40,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        num_local_experts=2,
    )
    return transformers.MixtralForCausalLM(config)


@pytest.mark.parametrize(
    ("build", "targets"), [(llama, "q_proj+v_proj"), (gpt2, "c_attn+c_proj")], ids=["llama", "gpt2"]
)
def test_merged_adapters_give_the_logits_of_the_run(tmp_path: Path, build, targets: str) -> None:
    model = build()
    add_adapters(model, parse_lora(f"r=2,targets={targets}"))
    for name, one in model.named_parameters():
        if name.endswith(".up.weight"):
            nn.init.normal_(one, std=0.1)
    checkpoint = _saved(model, tmp_path / "step-00000003")

    written = api.export_weights(checkpoint, "huggingface", folder=tmp_path / "out")

    read = type(model).from_pretrained(written.folder).eval()
    tokens = torch.arange(10)[None]
    with torch.no_grad():
        expected = model.eval()(input_ids=tokens).logits
        torch.testing.assert_close(read(input_ids=tokens).logits, expected, atol=1e-5, rtol=1e-4)
    assert written.step == 3
    assert not [name for name in stored_tensors(tmp_path / "out") if "base" in name]


def test_weights_of_the_hub_without_the_head_are_read(tmp_path: Path) -> None:
    """GPT-2 of the hub has the names of its body, masks that are no weights, and no head."""
    model = gpt2()
    model.transformer.save_pretrained(tmp_path)  # pyright: ignore
    names = names_of(model)

    found = matched(names, stored_tensors(tmp_path), place="here")

    assert found.renamed == "with 'transformer.' before the names in the files"
    assert set(found.stored) == set(names.shapes)


def test_weights_that_transformers_converts_as_it_loads_are_told_apart(tmp_path: Path) -> None:
    """Files of Mixtral have a tensor for each expert, its model and exports one for all."""
    model = mixtral()
    model.save_pretrained(tmp_path / "hub")  # pyright: ignore
    with pytest.raises(UsageError, match="t.MixtralForCausalLM.from_pretrained"):
        matched(names_of(model), stored_tensors(tmp_path / "hub"), place="hub")

    checkpoint = _saved(model, tmp_path / "step-00000001")
    written = api.export_weights(checkpoint, "huggingface", folder=tmp_path / "out")

    read = type(model).from_pretrained(written.folder).eval()  # pyright: ignore
    tokens = torch.arange(10)[None]
    with torch.no_grad():
        torch.testing.assert_close(
            read(input_ids=tokens).logits, model.eval()(input_ids=tokens).logits
        )


def test_names_of_a_plain_export_are_the_models(tmp_path: Path) -> None:
    model = llama()
    add_adapters(model, parse_lora("r=2"))
    checkpoint = _saved(model, tmp_path / "step-00000001")

    written = api.export_weights(checkpoint, "safetensors", folder=tmp_path / "out")

    with safe_open(Path(written.folder) / "model.safetensors", "pt") as file:
        assert set(file.keys()) == set(model.state_dict())
        assert file.metadata()["format"] == "pt"
    again = llama()
    add_adapters(again, parse_lora("r=2"))
    found = matched(names_of(again), stored_tensors(tmp_path / "out"), place="here")
    assert not found.begun_anew


def test_a_model_that_is_none_of_transformers_has_no_config(tmp_path: Path) -> None:
    checkpoint = _saved(nn.Linear(2, 2), tmp_path / "step-00000001")
    with pytest.raises(UsageError, match="no config of transformers"):
        api.export_weights(checkpoint, "huggingface", folder=tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000001"]


def test_a_damaged_checkpoint_leaves_nothing(tmp_path: Path) -> None:
    checkpoint = _saved(nn.Linear(2, 2), tmp_path / "step-00000001")
    for path in checkpoint.glob("*.distcp"):
        path.write_bytes(b"")
    with pytest.raises(GpuplanError, match="could not be read"):
        api.export_weights(checkpoint, "safetensors", folder=tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000001"]


def _saved(model: nn.Module, folder: Path) -> Path:
    facts = model_facts(model, names_of(model), None)
    dcp.save({"model": model.state_dict()}, checkpoint_id=folder, no_dist=True)  # pyright: ignore
    (folder / "run.json").write_text(json.dumps({"step": 3, "elapsed_s": 1.0, **facts}))
    return folder
