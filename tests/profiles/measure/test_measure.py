"""Real steps on the processor: what they took, what did not fit, and what else was going on."""

from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest

from gpuplan.catalog.errors import UsageError, UserFileError
from gpuplan.profiles.measure.measure import MeasureRequest, measure
from gpuplan.profiles.measured import MeasuredProfile
from gpuplan.profiles.profile import Profile
from gpuplan.profiles.tracing_process.service import make_profile
from gpuplan.profiles.user_model.spec import parse_model_spec

MODEL = """
    import torch

    class Numbers(torch.utils.data.Dataset):
        def __len__(self):
            return 64

        def __getitem__(self, index):
            return torch.full((32,), float(index))

    def build_model():
        return torch.nn.Sequential(torch.nn.Linear(32, 128), torch.nn.LayerNorm(128))

    def make_batch(batch_size=16):
        return (torch.randn(batch_size, 32),)

    def compute_loss(model, batch):
        return model(*batch).square().mean()
"""
WITH_DATA = MODEL + "\n    def build_dataset():\n        return Numbers()\n"
HUNGRY = """
    import torch

    def build_model():
        return torch.nn.Linear(8, 8)

    def make_batch(batch_size):
        return (torch.randn(batch_size, 8),)

    def compute_loss(model, batch):
        # Address space that is asked for and never touched: it costs the machine nothing.
        scratch = torch.empty(len(batch[0]) * 2**31, dtype=torch.uint8, device=batch[0].device)
        return model(*batch).square().mean()
"""


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str], Path]:
    """Return a function that writes a model file."""

    def write(text: str) -> Path:
        file = tmp_path / "model.py"
        file.write_text(dedent(text))
        return file

    return write


def run(file: Path, **request: object) -> MeasuredProfile:
    values = {"device": "cpu", "steps": 3, **request}
    return measure(parse_model_spec(str(file)), MeasureRequest(**values))  # pyright: ignore


@pytest.mark.slow
def test_a_step_is_timed_and_told_by_kernel_kind(write: Callable[[str], Path]) -> None:
    stages: list[str] = []
    spec = parse_model_spec(str(write(WITH_DATA)))
    request = MeasureRequest(device="cpu", steps=4, precision="bf16-amp", micro_batch=8)
    found = measure(spec, request, on_progress=lambda stage, _done, _total: stages.append(stage))

    measured = found.measured
    assert (measured.micro_batch, measured.precision) == (8, "bf16-amp")
    assert measured.step_time.steps == 4
    assert 0 < measured.step_time.p10_s <= measured.step_time.median_s <= measured.step_time.p90_s
    seconds = {kernel.kind: kernel.seconds for kernel in measured.kernels}
    assert {"gemm", "norm", "optimizer", "copy"} <= seconds.keys()
    assert all(value > 0 for value in seconds.values())
    assert measured.memory.peak_allocated_bytes is None, "nobody counts on a processor"
    assert (measured.memory.process_peak_bytes or 0) > 50 * 2**20, "torch alone is larger"
    assert measured.input is not None
    assert [speed.workers for speed in measured.input.speeds][:2] == [0, 1]
    assert min(speed.samples_per_s for speed in measured.input.speeds) > 0
    assert found.parameters == 32 * 128 + 128 + 2 * 128
    assert set(found.numerics()) == {"amp16", "fp32", "pure16"}
    assert stages[0] == "tracing"
    assert {"warming up", "measuring", "profiling kernels"} <= set(stages)


@pytest.mark.slow
def test_too_much_is_answered_with_what_fits(write: Callable[[str], Path]) -> None:
    file = write(HUNGRY)
    with pytest.raises(UserFileError, match=r"the largest that runs here is [1-9]") as raised:
        run(file, micro_batch=5000)
    assert raised.value.fix and "--micro-batch" in raised.value.fix

    largest = run(file, micro_batch=1, largest_micro_batch=True).measured.largest_micro_batch
    assert largest is not None and largest.fails_at is not None
    assert 1 <= largest.samples < largest.fails_at < 5000
    # Exact below 64 samples; the limit moves with what other processes take of the memory.
    assert largest.fails_at - largest.samples <= max(1, largest.samples // 64)


@pytest.mark.slow
def test_a_step_that_fails_in_16_bit_layers_is_measured(write: Callable[[str], Path]) -> None:
    """It was an error to correct, of a file that trains and that `estimate` plans."""
    product = "(torch.randn(4, 32) @ model[0].weight.T).mean() + model(*batch)"
    floats = MODEL.replace("model(*batch)", product)
    spec = parse_model_spec(str(write(floats)))
    found = measure(spec, MeasureRequest(device="cpu", steps=1), use_cache=False)
    assert found.measured.step_time.median_s > 0
    assert set(found.numerics()) == {"amp16", "fp32"}
    assert any("16-bit layers" in note for note in found.notes)


def test_a_model_that_raises_is_one_error_with_its_line(write: Callable[[str], Path]) -> None:
    file = write(MODEL.replace("return model(*batch)", "return missing(*batch)"))
    with pytest.raises(UserFileError, match=r"model.py:\d+, in compute_loss: NameError"):
        run(file)


@pytest.mark.slow
@pytest.mark.usefixtures("own_trace_processes")  # The file asks which process runs it.
def test_what_only_real_steps_reveal_is_one_error_too(write: Callable[[str], Path]) -> None:
    only_here = """
        import sys
        if sys.modules["__main__"].__spec__.name.endswith("measure.child_main"):
            raise KeyError(7)
        return model(*batch)"""
    file = write(MODEL.replace("\n        return model(*batch)", only_here))
    with pytest.raises(UserFileError, match="KeyError: 7"):
        run(file)


@pytest.mark.slow
def test_cuda_without_a_device_is_one_clear_error(write: Callable[[str], Path]) -> None:
    import torch

    if torch.cuda.is_available():
        assert run(write(MODEL), device="cuda").measured.memory.peak_allocated_bytes
        return
    with pytest.raises(UsageError, match="sees no CUDA device here") as raised:
        run(write(MODEL), device="cuda")
    assert raised.value.fix and "--device cpu" in raised.value.fix


@pytest.mark.slow
def test_a_measured_file_reads_as_a_profile(write: Callable[[str], Path], tmp_path: Path) -> None:
    found = run(write(MODEL))
    assert found.measured.input is None, "the file has no build_dataset"
    path = tmp_path / "measured.json"
    path.write_text(found.model_dump_json())
    read = make_profile(parse_model_spec(str(path)))
    assert read == found
    assert Profile.model_validate_json(path.read_bytes()).flops == found.flops
    with pytest.raises(UsageError, match="finished profile"):
        measure(parse_model_spec(str(path)), MeasureRequest())


def test_fp8_is_refused(write: Callable[[str], Path]) -> None:
    with pytest.raises(UsageError, match="fp8"):
        run(write(MODEL), precision="fp8")


def test_another_precision_than_the_files_own_is_refused() -> None:
    from gpuplan.profiles.measure.measure import _precision

    own = Profile.model_construct(file_precision="bf16-amp")
    assert _precision(None, own) == "bf16-amp"
    assert _precision("bf16-amp", own) == "bf16-amp"
    with pytest.raises(UsageError, match="sets bf16-amp itself"):
        _precision("fp32", own)
    assert _precision(None, Profile.model_construct(file_precision=None)) == "fp32"
