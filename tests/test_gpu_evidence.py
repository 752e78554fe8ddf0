"""The command that measures real steps, tried on the CPU and with a stand-in for the device."""

import importlib
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from gpuplan.api.validation import validate
from gpuplan.catalog.names import resolve_accelerator
from gpuplan.planner.software.kept_memory import BUILT_IN_FP32
from gpuplan.profiles.passes.recompute import KEPT_KINDS
from gpuplan.profiles.records import read_records
from gpuplan.profiles.trace.kernels.count import kind_of

ROOT = Path(__file__).parents[1]
COMMAND = ROOT / "benchmarks" / "gpu_evidence.py"
sys.path.append(str(COMMAND.parent))  # Where Python puts it when the command itself is run.
command = importlib.import_module("gpu_evidence")
kernels = importlib.import_module("gpu_kernels")
cases = importlib.import_module("evidence.cases")
meters = importlib.import_module("evidence.meters")
pool = importlib.import_module("evidence.pool")
step = importlib.import_module("evidence.step")
worker = importlib.import_module("evidence.worker")

TINY_GPT2 = {"layers": 2, "hidden": 32, "heads": 2, "vocab": 64, "seq_len": 16}

TINY_DECODER = {"layers": 2, "hidden": 32, "heads": 2, "kv_heads": 1, "ffn": 64}
SMALLER: dict[str, dict[str, Any]] = {
    # The same model files, small enough for a processor.
    "gpt2.py": TINY_GPT2,
    "bert.py": {"layers": 2, "hidden": 32, "heads": 2, "ffn": 64, "vocab": 64, "seq_len": 16},
    "resnet50.py": {"channels_last": True, "image": 32},
    "vit.py": {"layers": 2, "hidden": 32, "heads": 2, "ffn": 64, "image": 32},
    "unet_diffusion.py": {"channels": 32, "multipliers": [1, 1], "image": 8, "attention_at": 4},
    "unet3d_medical.py": {"features": [4, 8], "patch": 8},
    "lstm.py": {"hidden": 16, "vocab": 64},
    "dlrm.py": {"rows": [10, 20, 30]},
    "gnn.py": {"hidden": 16},
    "decoder.py": {**TINY_DECODER, "vocab": 64, "seq_len": 16, "tied_embeddings": True},
    "lora.py": {**TINY_DECODER, "vocab": 64, "seq_len": 16},
}
KINDS_OF_STEP = sorted({(c.model, c.precision, c.recompute) for c in cases.all_cases()})


def tiny(**how: Any) -> Any:
    given = {"name": "tiny", "model": "gpt2.py", "params": TINY_GPT2, "micro_batch": 2}
    return cases.Case(**{**given, "precision": "fp32", "attention": "fused", **how})


def cases_file(folder: Path, *chosen: Any) -> Path:
    path = folder / "cases.json"
    path.write_text(json.dumps([json.loads(case.to_json()) for case in chosen]), encoding="utf-8")
    return path


def test_each_case_names_one_step_of_an_example() -> None:
    listed = cases.all_cases()
    assert len({case.id for case in listed}) == len(listed) >= 60
    assert {case.id for case in listed[: len(cases.MODELS)]} >= {"gpt2-124m.bf16-amp.mb16"}
    assert {case.precision for case in listed} == set(cases.PRECISIONS)
    assert {case.recompute for case in listed} == set(cases.RECOMPUTES)
    assert all((ROOT / "examples" / case.model).is_file() for case in listed)


@pytest.mark.parametrize("name", list(cases.MODELS))
def test_every_model_takes_its_params(name: str) -> None:
    case = next(case for case in cases.all_cases() if case.name == name)
    assert step.load_model_file(case).name == Path(case.model).stem


@pytest.mark.slow
@pytest.mark.parametrize(("model", "precision", "recompute"), KINDS_OF_STEP)
def test_every_kind_of_step_in_the_list_runs(
    model: str, precision: str, recompute: str, require: Callable[[str, str], None]
) -> None:
    if (model, precision) == ("lstm.py", "bf16-amp"):
        require("bf16-lstm", "a processor on which oneDNN has an LSTM in bf16 (AVX-512)")
    how = {"model": model, "params": SMALLER[model], "precision": precision}
    training = step.TrainingStep(tiny(**how, recompute=recompute), "cpu")
    training()
    assert torch.isfinite(training.forward())
    assert bool(training.blocks) == (recompute != "none")


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("{}", "list of objects"),
        ('[{"name": "a", "model": "gpt2.py"}]', "missing key 'micro_batch'"),
        ('[{"name": "a", "model": "m", "micro_batch": 1, "size": 2}]', "unknown key 'size'"),
        ('[{"name": "a", "model": "m", "micro_batch": 0}]', "micro_batch is 0"),
        ('[{"name": "a", "model": "m", "micro_batch": 1, "precision": "fp4"}]', "allowed: fp32"),
        ("[%s, %s]" % (('{"name": "a", "model": "m", "micro_batch": 1}',) * 2), "rename one"),
    ],
)
def test_a_wrong_file_of_cases_is_explained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, wrong: str
) -> None:
    path = tmp_path / "cases.json"
    path.write_text(text, encoding="utf-8")
    assert command.main(["--cases", str(path), "--list"]) == 2
    assert wrong in capsys.readouterr().err


def test_the_list_shows_what_only_asks_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--list", "--only", "lstm"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown and all(line.startswith("lstm.") for line in shown)
    assert command.main(["--list", "--only", "nonsense"]) == 2


@pytest.mark.parametrize("precision", cases.PRECISIONS)
def test_a_step_trains_in_every_precision(precision: str) -> None:
    training = step.TrainingStep(tiny(precision=precision), "cpu")
    before = [p.detach().clone() for p in training.module.parameters()]
    training()
    stored = torch.bfloat16 if precision == "bf16" else torch.float32
    assert all(p.dtype == stored and p.grad is None for p in training.module.parameters())
    changed = [
        not torch.equal(a, b) for a, b in zip(before, training.module.parameters(), strict=True)
    ]
    assert any(changed), "the optimizer took no step"
    assert (training.loss_scale() is not None) == (precision == "fp16-amp")
    assert training.built_in_fp32 == (precision == "bf16")


@pytest.mark.parametrize("recompute", ["selective", "full"])
def test_recompute_saves_less_and_changes_no_gradient(recompute: str) -> None:
    def gradients_and_saved(how: str) -> tuple[list[torch.Tensor], int]:
        torch.manual_seed(0)
        training = step.TrainingStep(tiny(recompute=how), "cpu")
        torch.manual_seed(1)
        saved = 0

        def count(tensor: torch.Tensor) -> torch.Tensor:
            nonlocal saved
            saved += 0 if isinstance(tensor, nn.Parameter) else tensor.numel()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
            loss = training.forward()
        training.backward(loss)
        return [p.grad for p in training.module.parameters() if p.grad is not None], saved

    expected, saved_by_all = gradients_and_saved("none")
    found, saved = gradients_and_saved(recompute)
    assert saved < saved_by_all
    for left, right in zip(expected, found, strict=True):
        torch.testing.assert_close(left, right)


def test_selective_recompute_keeps_what_the_planner_says_it_keeps() -> None:
    assert {kind_of(name) for name in step.KEPT_OPERATIONS} == KEPT_KINDS - {"rnn"}


def test_recompute_of_a_model_without_blocks_is_refused() -> None:
    case = tiny(model="lstm.py", params={"hidden": 8, "vocab": 16}, recompute="full")
    outcome = worker.run_case(case, meters.CpuMeter(), measure_s=0.01)
    assert outcome.kind == "failed" and "repeats no block" in outcome.error


def test_a_step_that_does_not_fit_is_an_outcome() -> None:
    outcome = worker.run_case(tiny(micro_batch=10**12), meters.CpuMeter(), measure_s=0.01)
    assert outcome.kind == "oom"
    assert not outcome.clean, "the process is not used again"


def test_spread_of_step_times() -> None:
    summary = worker.summary_of([5.0, 1.0, 2.0, 3.0, 4.0])
    assert summary["step_time_s"] == 3.0
    assert summary["step_time_p10_s"] == pytest.approx(1.4)
    assert summary["step_time_p90_s"] == pytest.approx(4.6)


class Device:
    """Stands in for torch.cuda: a clock that steps move, and a pool."""

    def __init__(self) -> None:
        self.now_ms = 0.0
        self.allocated = self.peak = self.reserved = 0
        self.workspace = 8 * 2**20

    def hold(self, size: int) -> None:
        self.allocated += size
        self.peak = max(self.peak, self.allocated)
        self.reserved = max(self.reserved, self.allocated)

    def step(self) -> None:
        self.hold(100 * 2**20)
        self.now_ms += 20.0
        self.allocated -= 100 * 2**20


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Device:
    made = Device()

    class Event:
        def __init__(self, enable_timing: bool) -> None:
            assert enable_timing

        def record(self) -> None:
            self.at_ms = made.now_ms

        def elapsed_time(self, end: "Event") -> float:
            return end.at_ms - self.at_ms

    def reset_peak() -> None:
        made.peak = made.allocated

    answers: dict[str, Any] = {
        "init": lambda: None,
        "synchronize": lambda: None,
        "Event": Event,
        "memory_allocated": lambda: made.allocated,
        "max_memory_allocated": lambda: made.peak,
        "memory_reserved": lambda: made.reserved,
        "max_memory_reserved": lambda: made.reserved,
        "reset_peak_memory_stats": reset_peak,
        "reset_accumulated_memory_stats": lambda: None,
        "memory_stats": lambda: {"num_alloc_retries": 3},
        "mem_get_info": lambda: (10 * 2**30 - made.reserved - 2**29, 10 * 2**30),
        "empty_cache": lambda: None,
        "get_device_name": lambda _index: "NVIDIA H200",
        "get_device_properties": lambda _index: SimpleNamespace(
            major=9, minor=0, multi_processor_count=132
        ),
    }
    for name, answer in answers.items():
        assert hasattr(torch.cuda, name), f"torch.cuda has no {name}"
        monkeypatch.setattr(torch.cuda, name, answer)
    monkeypatch.setattr(
        torch._C,
        "_cuda_clearCublasWorkspaces",
        lambda: setattr(made, "allocated", made.allocated - made.workspace),
        raising=False,
    )
    monkeypatch.setattr(meters, "query_driver", lambda fields: dict.fromkeys(fields, 1.0))
    return made


def test_the_device_meter_reads_its_own_clock_and_peaks(device: Device) -> None:
    meter = meters.CudaMeter()
    device.hold(device.workspace)
    device.hold(900 * 2**20)
    device.allocated -= 900 * 2**20
    assert meter.interval_s(device.step) == pytest.approx(0.02)
    meter.reset_peak()
    times_s, _ = meter.intervals_s(device.step, 3)
    assert times_s == pytest.approx([0.02] * 3)
    peak = meter.peak()
    assert peak["peak_memory_gib"] == pytest.approx(108 / 1024), "only since the reset"
    assert peak["peak_reserved_gib"] == pytest.approx(908 / 1024)
    assert peak["outside_pool_gib"] == pytest.approx(0.5)
    assert peak["allocator_retries"] == 3
    assert not meter.is_clean(0)
    assert meter.release() == device.workspace
    assert meter.is_clean(0)


def test_the_device_meter_says_what_it_measures_on(device: Device) -> None:
    facts = meters.CudaMeter().environment()
    assert facts["device_name"] == "NVIDIA H200" and facts["compute_capability"] == "9.0"
    assert facts["visible_memory_bytes"] == 10 * 2**30 and facts["driver"] == 1.0
    assert not [key for key in facts if "host" in key and "name" in key]


def test_clocks_are_read_while_steps_run(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    line = "1755, 3201, 61, 699.5, 0x0000000000000004"
    script = f"import time; time.sleep(0.2); print('{line}')"
    monkeypatch.setattr(
        meters.nvidia_smi, "query_command", lambda _fields: [sys.executable, "-c", script]
    )
    meters._load_fields.cache_clear()
    told = meters.CudaMeter().under_load(device.step)
    meters._load_fields.cache_clear()
    assert told["sm_clock_mhz"] == 1755 and told["power_w"] == 699.5
    assert told["slowed_by"] == ["power cap"]
    assert device.now_ms > 0, "no step ran meanwhile"


def test_names_that_devices_give_themselves_are_the_catalogues() -> None:
    for name in ("NVIDIA H200", "NVIDIA A100-SXM4-80GB", "NVIDIA H100 80GB HBM3", "NVIDIA L4"):
        assert command.accelerator_named(name) == resolve_accelerator(name)
    with pytest.raises(pool.EvidenceError, match="--accelerator"):
        command.accelerator_named("NVIDIA Something 9000")


def outcome_of(**measured: Any) -> dict[str, Any]:
    times = {"step_time_s": 0.02, "step_time_p10_s": 0.019, "step_time_p90_s": 0.022, "steps": 40}
    peak = {"peak_memory_gib": 1.5, "peak_reserved_gib": 2.0, "memory_meaning": "allocated"}
    facts = {"parameters": 134144, "optimizer_built": "AdamW"}
    whole = {**times, **peak, "oom": False, **measured}
    return {"kind": "measured", "measured": whole, "facts": facts, "error": None, "clean": True}


def test_a_record_is_what_validate_reads(tmp_path: Path) -> None:
    path = tmp_path / "own.jsonl"
    records = command.Records(path)
    environment = {"device_name": "NVIDIA T4", "torch": "2.11.0+cu130"}
    for case, outcome in (
        (tiny(precision="fp16-amp"), outcome_of()),
        (tiny(micro_batch=64), {**outcome_of(), "kind": "oom", "error": "out of memory"}),
    ):
        records.put(command.run_record(case, outcome, environment, "T4", tmp_path))
    measured, oom = read_records(path)
    assert measured.id == "own/T4/tiny.fp16-amp.mb2" and measured.source_group == "own-T4"
    assert measured.features == ("grad_scaler", "freed-logits") and measured.params == TINY_GPT2
    assert measured.software_date == (2026, 3)  # Of torch, not of the day.
    assert measured.measured.memory_meaning == "allocated"
    assert measured.measured.peak_memory_bytes == 1.5 * 2**30
    assert (measured.measured.model_extra or {})["peak_reserved_gib"] == 2.0
    assert oom.measured.oom and oom.measured.step_time_s is None
    assert str(ROOT) not in path.read_text(encoding="utf-8")
    cast = command.features_of(tiny(precision="bf16"), built_in_fp32=True)
    assert cast == ["freed-logits", BUILT_IN_FP32]


def test_what_we_measured_ourselves_can_be_predicted() -> None:
    records = read_records(ROOT / "tests" / "published" / "own_gpu.jsonl")
    assert len(records) >= 46 and len({one.id for one in records}) == len(records)
    listed = {case.id for case in cases.all_cases()}
    for one in records:
        assert one.id.split("/")[-1] in listed
        assert one.measured.step_time_s and one.measured.memory_meaning == "allocated"
        assert one.software_date is not None and one.software_date >= (2026, 3)
    convolve = [one for one in records if one.model in ("resnet50.py", "lstm.py")]
    # Those in fp32 were measured with TF32 off in convolutions, which no plan is.
    assert convolve and all(one.precision != "fp32" for one in convolve)


def test_a_file_of_something_else_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("my notes\n", encoding="utf-8")
    with pytest.raises(pool.EvidenceError, match="something else"):
        command.Records(path)
    assert path.read_text(encoding="utf-8") == "my notes\n"


@pytest.mark.slow
def test_the_whole_command_on_the_cpu(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # Tiny kernels wait for each other otherwise.
    out = tmp_path / "own.jsonl"
    lstm = {"hidden": 16, "vocab": 50}
    chosen = (
        tiny(),
        tiny(micro_batch=10**12),
        tiny(name="tiny-lstm", model="lstm.py", params=lstm, attention=None),
    )
    words = ["--cases", str(cases_file(tmp_path, *chosen)), "--device", "cpu", "--out", str(out)]
    words += ["--measure-s", "0.05"]
    assert command.main(words) == 0
    assert "2 measured, 1 oom" in capsys.readouterr().out
    assert {record.accelerator for record in read_records(out)} == {"CPU"}
    text = out.read_text(encoding="utf-8")
    assert command.main(words) == 0
    assert "3 known" in capsys.readouterr().out
    assert out.read_text(encoding="utf-8") == text
    assert command.main([*words, "--again", "--budget-s", "0"]) == 0
    assert "3 no time" in capsys.readouterr().out

    # A processor is no accelerator: as if these had been measured on an L4, each is predicted.
    as_on_l4 = tmp_path / "l4.jsonl"
    as_on_l4.write_text(text.replace('"accelerator": "CPU"', '"accelerator": "L4"'), "utf-8")
    rows = [row for row in validate([as_on_l4]).rows if row.quantity == "step_time_s"]
    assert len([row for row in rows if row.predicted is not None]) == 2


@pytest.mark.slow
def test_it_runs_where_only_torch_is_installed(tmp_path: Path) -> None:
    for name in ("pydantic", "click", "rich", "sqlalchemy", "yaml", "platformdirs"):
        (tmp_path / f"{name}.py").write_text("raise ImportError('not here')\n", encoding="utf-8")
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\nsys.meta_path = [f for f in sys.meta_path if 'editable' not in repr(f)]\n",
        encoding="utf-8",
    )
    files = cases_file(tmp_path, tiny(recompute="full"))
    words = [str(COMMAND), "--cases", str(files), "--device", "cpu", "--measure-s", "0.05"]
    done = subprocess.run(
        [sys.executable, *words, "--out", str(tmp_path / "own.jsonl")],
        env={"PYTHONPATH": str(tmp_path), "PATH": "", "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "1 measured" in done.stdout


def test_what_explains_steps_profiles_cases_that_are_measured() -> None:
    names = [name for name, _ in kernels.parts("cuda")]
    assert len(set(names)) == len(names)
    measured = {case.id for case in cases.all_cases()}
    assert {name.removeprefix("step/") for name in names if "/" in name} <= measured


def test_a_step_is_taken_apart_on_a_processor_too() -> None:
    small = cases.Case(name="g", model="gpt2.py", params=TINY_GPT2, micro_batch=1, precision="fp32")
    found = kernels.profiled(small, "cpu")
    assert 0 < found["launched_ms"] <= found["step_ms"]
    assert found["operations"] > 50
