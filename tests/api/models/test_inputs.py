"""A model travels whole: what `api.model` returns is taken wherever a file's name is."""

from pathlib import Path

import pytest

from gpuplan import api
from gpuplan.catalog.errors import UsageError

LINEAR = (
    "import torch\n"
    "def build_model(width=64): return torch.nn.Linear(width, width)\n"
    "def make_batch(batch_size, width=64): return (torch.randn(batch_size, width),)\n"
    "def compute_loss(model, batch): return model(*batch).square().mean()\n"
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "linear.py"
    path.write_text(LINEAR)
    return path


def test_a_model_holds_its_params_inputs_and_time_limit(file: Path) -> None:
    spec = api.model(file, params={"width": 8}, inputs=["3,224:int64"], timeout_s=7)
    assert (spec.path, spec.params, spec.timeout_s) == (file, {"width": 8}, 7.0)
    assert spec.inputs[0].shape == (3, 224)
    assert api.model(file).timeout_s == 120.0


def test_a_model_that_was_named_stays_as_it_is(file: Path) -> None:
    spec = api.model(file, params={"width": 8}, timeout_s=7)
    assert api.model(spec) is spec
    assert api.model(spec, timeout_s=9).timeout_s == 9


def test_params_beside_a_model_that_has_its_own_are_refused(file: Path) -> None:
    spec = api.model(file)
    with pytest.raises(UsageError, match="which has its own"):
        api.profile(spec, params={"width": 8})
    with pytest.raises(UsageError, match="which has its own"):
        api.read_inputs(spec, inputs=["3,224"])


def test_a_model_whose_file_is_gone_is_refused_as_when_it_is_named(file: Path) -> None:
    spec = api.model(file)
    file.unlink()
    with pytest.raises(UsageError, match=r"There is no file .*linear\.py"):
        api.profile(spec)


@pytest.mark.slow
def test_every_question_takes_a_model_or_its_file(file: Path) -> None:
    spec = api.model(file, params={"width": 8})
    assert api.profile(spec) == api.profile(file, params={"width": 8})
    inputs = api.read_inputs(spec)
    assert inputs.spec is spec
    question = api.Question(machine=api.Machine(accelerators=("T4",), providers=("aws",)))
    assert api.estimate(spec, question).plans == api.estimate(inputs, question).plans
    assert api.fits(spec, "T4") == api.fits(inputs, "T4")


@pytest.mark.slow
def test_a_step_is_summed_up_at_the_micro_batch_and_recompute_asked_for(file: Path) -> None:
    traced = api.profile(api.model(file))
    step = api.step_summary(traced, micro_batch=4)
    assert (step.precision, step.micro_batch, step.recompute) == ("fp32", 4, "none")
    # One Linear of 64 × 64 on 4 samples, forward and the gradient of its weights.
    products = [one for one in step.kernels if one.kind == "gemm"]
    assert {one.flops for one in products} == {2 * 4 * 64 * 64}
    times = [one.device_s for one in step.kernels]
    assert times == sorted(times, reverse=True)
    assert step.flops >= 2 * products[0].flops
    assert step.peak_phase is not None
    with pytest.raises(UsageError, match="holds no trace for bf16-amp"):
        api.step_summary(traced, precision="bf16-amp")


@pytest.mark.slow
def test_work_in_tokens_counts_the_sequences_of_a_batch_that_says_nothing(tmp_path: Path) -> None:
    path = tmp_path / "words.py"
    path.write_text(
        "import torch\n"
        "from torch import nn\n"
        "def build_model(): return nn.Sequential(nn.Embedding(50, 64), nn.Linear(64, 50))\n"
        "def make_batch(batch_size): return torch.randint(50, (batch_size, 256)),\n"
        "def compute_loss(model, batch): return model(*batch).square().mean()\n"
    )
    inputs = api.read_inputs(api.model(path))
    machine = api.Machine(accelerators=("T4",), providers=("aws",))
    found = api.estimate(inputs, api.Question(machine=machine, work=api.Work(tokens=256e6)))
    assert found.workload.tokens_per_sample == 256
    assert found.plans[0].run is not None and found.plans[0].run.trained_samples == pytest.approx(
        1e6, rel=1e-3
    )
    assert [note for note in found.notes if "a sample counts as 256 tokens" in note]
    # Where nobody speaks of tokens, none are counted.
    assert api.estimate(inputs, api.Question(machine=machine)).workload.tokens_per_sample is None
    advice = api.advise(
        inputs, api.Question(machine=api.Machine(accelerators=("T4:1",))), work=api.Work(tokens=1e8)
    )
    assert [note for note in advice.notes if "a sample counts as 256 tokens" in note]
