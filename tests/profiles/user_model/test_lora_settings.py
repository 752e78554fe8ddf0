"""What `--lora` takes, what it refuses, and which layers it means by default."""

import json
from pathlib import Path

import pytest

from gpuplan.catalog.errors import UsageError
from gpuplan.profiles.user_model.lora_settings import (
    QUERY_AND_VALUE,
    TARGETS,
    parse_lora,
    resolved,
    with_lora,
)
from gpuplan.profiles.user_model.spec import parse_model_spec


def config(folder: Path, **keys: object) -> Path:
    path = folder / "config.json"
    path.write_text(json.dumps(keys))
    return path


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("r=16", "r=16,alpha=8"),
        ("targets=q_proj+v_proj", "r=8,alpha=8,targets=q_proj+v_proj"),
        (" r = 4 , alpha=0.5", "r=4,alpha=0.5"),
        ("r=4,targets=all-linear", "r=4,alpha=8,targets=all-linear"),
        ("r=4,targets=a+b+a", "r=4,alpha=8,targets=a+b"),
    ],
)
def test_settings_read_back_as_they_are_written(text: str, whole: str) -> None:
    settings = parse_lora(text)
    assert str(settings) == whole
    assert parse_lora(str(settings)) == settings


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("16", "'16' is not one of r="),
        ("", "an empty part"),
        ("rank=16", "'rank=16' is not one of"),
        ("r=0", "r=0 is not a whole number"),
        ("r=1.5", "r=1.5 is not a whole number"),
        ("r=-1", "r=-1 is not a whole number"),
        ("r=8,r=9", "r is given twice"),
        ("alpha=0", "alpha=0 is not a number above 0"),
        ("targets=q_proj+", "'' , which".replace(" ,", ",")),
        ("targets=q-proj", "'q-proj', which is not the name"),
        ("targets=all-linear+q_proj", "all-linear beside others"),
    ],
)
def test_settings_that_make_no_sense_are_refused(text: str, message: str) -> None:
    with pytest.raises(UsageError) as raised:
        parse_lora(text)
    assert message in raised.value.message
    assert raised.value.fix


def test_layers_that_are_not_named_are_those_of_peft(tmp_path: Path) -> None:
    llama = config(tmp_path, model_type="llama")
    assert resolved(parse_lora("r=16"), llama).words == "LoRA r=16 on q_proj, v_proj"
    given = parse_lora("r=16,targets=o_proj")
    assert resolved(given, llama) == given
    wrapped = config(tmp_path, model_type="no-such", text_config={"model_type": "gpt2"})
    assert resolved(parse_lora("r=2"), wrapped).targets == ("c_attn",)
    assert TARGETS["qwen3"] == ("q_proj", "v_proj")
    assert TARGETS["phi"] == ("q_proj", "v_proj", "fc1", "fc2")


@pytest.mark.parametrize("kind", QUERY_AND_VALUE)
def test_where_peft_names_no_layers_queries_and_values_are_adapted(
    tmp_path: Path, kind: str
) -> None:
    import transformers  # of the dev extra, as the tests are

    assert kind not in TARGETS
    found = resolved(parse_lora("r=16"), config(tmp_path, model_type=kind)).targets
    models = Path(transformers.__file__).parent / "models"
    source = (models / kind / f"modeling_{kind}.py").read_text(encoding="utf-8")
    assert found and all(f"self.{name} = nn.Linear(" in source for name in found)


def test_where_no_layers_are_known_they_must_be_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="model of type swin") as raised:
        resolved(parse_lora("r=16"), config(tmp_path, model_type="swin"))
    assert "targets=all-linear" in (raised.value.fix or "")


def test_adapters_are_a_param_of_the_model_with_every_default_spelled_out(tmp_path: Path) -> None:
    config(tmp_path, model_type="llama")
    named = f"hf:{tmp_path}"
    spec = parse_model_spec(named, params={"seq_len": 8}, lora="r=16")
    assert spec.params == {"seq_len": 8, "lora": "r=16,alpha=8,targets=q_proj+v_proj"}
    assert parse_model_spec(named, params={"lora": "r=16", "seq_len": 8}).params == spec.params
    with pytest.raises(UsageError, match="both given"):
        parse_model_spec(named, params={"lora": "r=8"}, lora="r=16")


def test_a_model_file_builds_its_own_adapters(tmp_path: Path) -> None:
    file = tmp_path / "model.py"
    with pytest.raises(UsageError, match=r"models that are named hf:…") as raised:
        with_lora("file", "model.py", file, {}, "r=16")
    assert "examples/lora.py" in (raised.value.fix or "")
    assert with_lora("file", "model.py", file, {"lora": True}, None) == {"lora": True}
