"""A Hugging Face config by name: its dtype is the precision, what it leaves open is said."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from forked_traces import forked_with

from gpuplan import api
from gpuplan.api.models.config_facts import config_frozen, config_precision, param_rules
from gpuplan.profiles.profile import Profile, StepTrace
from gpuplan.profiles.tracing_process import service

SMALL = {"num_hidden_layers": 1, "vocab_size": 512}


@pytest.fixture(scope="module")
def forked_with_transformers() -> Iterator[None]:
    with forked_with("transformers.models.qwen3.modeling_qwen3"):
        yield


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
@pytest.mark.usefixtures("forked_with_transformers")
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
@pytest.mark.usefixtures("forked_with_transformers")
def test_the_config_s_dtype_is_honoured_and_what_was_not_given_is_said() -> None:
    traced = api.profile("hf:Qwen3-0.6B", params=SMALL | {"seq_len": 64})
    assert traced.numerics() == ("pure16",) and traced.file_precision == "bf16"
    inputs = api.read_inputs("hf:Qwen3-0.6B", params=SMALL)
    assert inputs.profile.file_precision == "bf16"
    assert any("--precision bf16-amp" in note for note in inputs.profile.notes)
    assert any("every sample is counted as 4,096 tokens" in note for note in inputs.profile.notes)
    asked = api.read_inputs("hf:Qwen3-0.6B", params=SMALL | {"seq_len": 64}, precisions=["tf32"])
    assert asked.profile.notes == ()


def test_other_models_stay_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "model.py"
    file.write_text("")
    profile = Profile.model_construct(steps=(StepTrace.model_construct(segments=()),))
    monkeypatch.setattr(service, "begin_profile", lambda *_, **__: Traced(profile))  # pyright: ignore
    assert api.profile(file) is profile


@pytest.fixture
def t5(tmp_path: Path) -> str:
    """A config of an encoder-decoder with relative positions: it says no length."""
    config = {
        "model_type": "t5", "architectures": ["T5ForConditionalGeneration"], "d_model": 64,
        "d_kv": 16, "d_ff": 128, "num_layers": 1, "num_heads": 4, "vocab_size": 512,
        "decoder_start_token_id": 0, "pad_token_id": 0,
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))
    return f"hf:{tmp_path}"


def test_a_config_without_a_length_is_trained_at_that_of_its_kind(t5: str) -> None:
    """It was planned at 4,096 tokens: T5 is trained at 512, for a quarter of the dollars."""
    spec = api.model(t5)
    assert spec.params == {"seq_len": 512}
    assert param_rules(spec) == {"seq_len": "as T5 was trained"}
    given = api.model(t5, params={"seq_len": 64})
    assert given.params == {"seq_len": 64} and param_rules(given) == {}
    assert param_rules(None) == param_rules(api.model("hf:gpt2")) == {}


@pytest.mark.slow
@pytest.mark.usefixtures("forked_with_transformers")
def test_the_question_and_a_note_say_how_long_sequences_are_by_the_rule(t5: str) -> None:
    machine = api.Machine(accelerators=("A10G",), nodes=(1,))
    answer = api.estimate(t5, api.Question(work=api.Work(tokens=1e8), machine=machine))
    assert answer.question is not None
    assert "seq_len=512 (as T5 was trained)" in answer.asked_text
    assert any("sequences have 512 tokens, as T5 was trained" in note for note in answer.notes)
