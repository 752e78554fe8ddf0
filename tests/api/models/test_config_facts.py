"""A Hugging Face config by name: its dtype is the precision, what it leaves open is said."""

from pathlib import Path

import pytest

from gpuplan import api
from gpuplan.api.models.config_facts import config_frozen, config_precision
from gpuplan.profiles.profile import Profile
from gpuplan.profiles.tracing_process import service

SMALL = {"num_hidden_layers": 1, "vocab_size": 512}


def test_a_name_stays_what_was_typed_and_its_file_is_ours() -> None:
    spec = api.model("hf:Qwen3-8B", params=SMALL)
    assert (spec.text, spec.name, spec.kind) == ("hf:Qwen3-8B", "Qwen3-8B", "hf")
    assert spec.path.is_file() and spec.params == SMALL


def test_only_bfloat16_is_a_precision_to_train_in() -> None:
    found = [config_precision(api.model(f"hf:{name}")) for name in ("Qwen3-8B", "phi-2", "gpt2")]
    assert found == ["bf16", None, None]


def test_adapters_train_under_autocast_on_weights_in_the_config_s_dtype() -> None:
    spec = api.model("hf:Qwen3-8B", lora="r=16")
    assert spec.params == {"lora": "r=16,alpha=8,targets=q_proj+v_proj"}
    assert config_precision(spec) == "bf16-amp"
    assert config_precision(api.model("hf:gpt2", lora="r=16,targets=c_attn")) is None


@pytest.mark.slow
def test_fits_advise_and_profile_keep_the_base_as_it_is_loaded() -> None:
    """They counted it in fp32: "136 GiB" for an 8B base that people train on one A100."""
    spec = api.model("hf:Qwen3-0.6B", params=SMALL | {"seq_len": 64}, lora="r=4")
    inputs = api.read_inputs(spec)
    assert inputs.profile.file_precision == "bf16-amp"
    assert config_frozen(spec, inputs.profile) == "bf16"
    assert config_frozen(None, inputs.profile) is None
    answer = api.fits(inputs, "A10G")
    assert (answer.precision, answer.frozen_precision) == ("bf16-amp", "bf16")
    assert any("kept in bf16, as the config's dtype says" in note for note in answer.notes)
    other = api.fits(inputs, "A10G", frozen_precision="fp32")
    assert other.frozen_precision is None
    assert answer.memory_breakdown_bytes.parameters < 0.6 * other.memory_breakdown_bytes.parameters
    today = api.Question(machine=api.Machine(accelerators=("A10G",)))
    advice = api.advise(inputs, today)
    assert advice.today.frozen_precision == "bf16"
    assert "what is not trained in bf16, as the config's dtype says" in advice.assumed
    step = api.step_summary(inputs.profile, model=spec)
    assert (step.precision, step.frozen_precision) == ("bf16-amp", "bf16")


class Traced:
    """Stands for the tracer: returns one Profile whatever is asked."""

    def __init__(self, profile: Profile) -> None:
        self.profile = profile

    def result(self) -> Profile:
        return self.profile


@pytest.mark.slow
def test_the_config_s_dtype_is_honoured_and_what_was_not_given_is_said() -> None:
    traced = api.profile("hf:Qwen3-0.6B", params=SMALL | {"seq_len": 64})
    assert traced.numerics() == ("pure16",) and traced.file_precision == "bf16"
    inputs = api.read_inputs("hf:Qwen3-0.6B", params=SMALL)
    assert inputs.profile.file_precision == "bf16"
    assert any("--precision bf16-amp" in note for note in inputs.profile.notes)
    assert any("sequences have 4,096 tokens" in note for note in inputs.profile.notes)
    asked = api.read_inputs("hf:Qwen3-0.6B", params=SMALL | {"seq_len": 64}, precisions=["tf32"])
    assert asked.profile.notes == ()


def test_other_models_stay_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "model.py"
    file.write_text("")
    profile = object()
    monkeypatch.setattr(service, "begin_profile", lambda *_, **__: Traced(profile))  # pyright: ignore
    assert api.profile(file) is profile
