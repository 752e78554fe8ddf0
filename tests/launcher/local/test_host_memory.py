"""A model that this machine surely cannot hold is refused before any process of its run starts."""

from functools import partial
from pathlib import Path

import pytest

from gpuplan.catalog.errors import UsageError
from gpuplan.cli.main import run
from gpuplan.launcher.local.host_memory import least_bytes, refuse_too_large
from gpuplan.launcher.local.machine import free_memory_bytes
from gpuplan.launcher.runner.job import Job
from gpuplan.planner.plan.layout import Layout
from gpuplan.profiles.tracing_process.model_size import ModelSize, count_model_size
from gpuplan.profiles.user_model.spec import ModelSpec, parse_model_spec

GIB = 2**30
WIDTH = 16_384
"""Of one linear layer: 1 GiB of fp32 weights."""
NET = """
import torch

def build_model(width={width}):
    {before}
    return torch.nn.Linear(width, width, bias=False)

def make_batch(batch_size: int = 1):
    return (torch.zeros(batch_size, 1), torch.zeros(batch_size, 1))

def compute_loss(model, batch):
    return model(batch[0]).sum()

def build_optimizer(parameters):
    {optimizer}
"""
ADAM = "return torch.optim.AdamW(parameters)"
EACH_AT_ONCE = """parameters = list(parameters)
    for one in parameters:
        one.register_post_accumulate_grad_hook(lambda _one: None)
    return torch.optim.AdamW(parameters)"""


def net(folder: Path, *, width: int = WIDTH, before: str = "pass", optimizer: str = ADAM) -> Path:
    path = folder / "net.py"
    path.write_text(NET.format(width=width, before=before, optimizer=optimizer))
    return path


def size(path: Path, precision: str | None = None) -> ModelSize | None:
    return count_model_size(parse_model_spec(str(path)), precision=precision, frozen_precision=None)


def job(path: Path, *, parameters: int | None = None, plan: dict | None = None) -> Job:
    return Job(
        spec=parse_model_spec(str(path)),
        plan=plan,
        out_dir=path.parent / "out",
        steps=1,
        execution=None,
        parameters=parameters,
    )


def plan(layout: dict) -> dict:
    how = {"precision": "fp32", "micro_batch": 1, "grad_accum": 1, "recompute": "none"}
    return {**how, "layout": layout, "compile": False, "stack": "torch-eager"}


def refusal(asked: Job, nproc: int, free_gib: float, device: str = "cpu") -> UsageError | None:
    try:
        refuse_too_large(asked, nproc, device, free_bytes=lambda: int(free_gib * GIB))
    except UsageError as error:
        return error
    return None


def test_every_process_of_ddp_holds_weights_gradients_and_the_optimizers_state(
    tmp_path: Path,
) -> None:
    asked = job(net(tmp_path))
    assert refusal(asked, 2, 8.1) is None
    refused = refusal(asked, 2, 7.9)
    assert refused is not None
    assert refused.message == (
        "net is too large for the memory of this machine: 2 processes hold all of it, together at"
        " least 8.0 GiB (each weights 1.0 GiB, gradients 1.0 GiB, optimizer 2.0 GiB). 7.9 GiB is"
        " free here, swap included."
    )
    assert refused.fix is not None
    assert refused.fix.startswith("give --nproc 1; or share one copy among the processes")
    assert f"`gpuplan estimate {asked.spec.text} --layout fsdp2`" in refused.fix


def test_shards_make_one_copy_and_a_way_that_does_not_fit_is_not_named(tmp_path: Path) -> None:
    asked = job(net(tmp_path), plan=plan({"data": 4, "shard": 4, "zero_stage": 3}))
    assert refusal(asked, 4, 4.1) is None
    refused = refusal(asked, 4, 3.9)
    assert refused is not None
    assert "training it takes at least 4.0 GiB (weights" in refused.message
    assert (refused.fix or "").startswith("build a smaller model with --param; or end other")


def test_a_run_on_a_gpu_needs_the_host_to_build_the_model(tmp_path: Path) -> None:
    asked = job(net(tmp_path))
    assert refusal(asked, 8, 1.1, device="cuda") is None
    refused = refusal(asked, 8, 0.9, device="cuda")
    assert refused is not None
    assert "building it takes 1.0 GiB, before its weights go anywhere else." in refused.message
    assert "--nproc" not in (refused.fix or "")


@pytest.mark.parametrize(
    ("layout", "copies"),
    [
        (Layout(data=4), 4),
        (Layout(data=4, shard=4, zero_stage=1), 1),
        (Layout(data=4, shard=2, zero_stage=3), 2),
        (Layout(data=2, tensor=2, pipeline=2), 2),
    ],
)
def test_a_layout_holds_so_many_copies(layout: Layout, copies: int) -> None:
    one = ModelSize(built_bytes=4, weight_bytes=4, gradient_bytes=4, optimizer_bytes=8)
    assert least_bytes(one, layout, "cpu") == copies * 16


def test_what_is_counted_is_what_is_held(tmp_path: Path) -> None:
    assert size(net(tmp_path)) == ModelSize(
        built_bytes=GIB, weight_bytes=GIB, gradient_bytes=GIB, optimizer_bytes=2 * GIB + 4
    )
    half = size(net(tmp_path), precision="bf16")
    assert half is not None
    assert (half.built_bytes, half.weight_bytes, half.gradient_bytes) == (GIB, GIB // 2, GIB // 2)
    plain = size(net(tmp_path, optimizer="return torch.optim.SGD(parameters)"))
    assert plain is not None
    assert plain.optimizer_bytes == 0
    at_once = size(net(tmp_path, optimizer=EACH_AT_ONCE))
    assert at_once is not None
    assert at_once.trained_bytes == GIB


def test_what_is_not_known_is_not_refused(tmp_path: Path) -> None:
    asked = job(net(tmp_path, before="torch.zeros(3).sum().item()"))
    assert refusal(asked, 64, 0.001) is None
    refuse_too_large(job(net(tmp_path)), 64, "cpu", free_bytes=lambda: None)


def test_a_model_that_a_plan_knows_to_be_small_is_not_counted(tmp_path: Path) -> None:
    counted: list[ModelSpec] = []

    def count(spec: ModelSpec, **_how: str | None) -> None:
        counted.append(spec)

    for parameters in (1_000, 10**9, None):
        asked = job(net(tmp_path), parameters=parameters)
        refuse_too_large(asked, 2, "cpu", free_bytes=lambda: GIB, count=count)
    assert len(counted) == 2


def test_a_model_that_was_counted_is_counted_again_only_where_it_may_not_fit(
    tmp_path: Path,
) -> None:
    asked, counted = job(net(tmp_path)), []

    def count(spec: ModelSpec, **_how: str | None) -> None:
        counted.append(spec)

    def times(nproc: int, free: int, asked: Job = asked) -> int:
        counted.clear()
        refuse_too_large(asked, nproc, "cpu", free_bytes=lambda: free, count=count)
        return len(counted)

    assert times(1, 100 * GIB) == 1
    assert size(asked.spec.path) is not None
    assert [times(1, 17 * GIB), times(1, 15 * GIB), times(2, 17 * GIB)] == [0, 1, 1]
    assert times(1, 100 * GIB, job(net(tmp_path, width=2 * WIDTH))) == 1


def test_the_command_refuses_it_and_starts_no_process(tmp_path: Path, capsys) -> None:
    """400 TB of weights, which no machine has."""
    path, out = net(tmp_path, width=10**7), tmp_path / "out"
    assert run(["run", str(path), "--device", "cpu", "--out-dir", str(out)]) == 2
    said = capsys.readouterr().err
    assert "net is too large for the memory of this machine" in said
    assert "To fix: build a smaller model with --param" in said
    assert "; or start it all the same with -y, which may go well where" in said
    assert not out.exists()


def test_what_is_refused_is_started_all_the_same_with_a_yes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    nothing = partial(refuse_too_large, free_bytes=lambda: 0)
    monkeypatch.setattr("gpuplan.launcher.local.run.refuse_too_large", nothing)
    words = ["run", str(net(tmp_path, width=1)), "--device", "cpu", "--steps", "1"]
    words += ["--out-dir", str(tmp_path / "out")]
    assert run(words) == 2
    assert not (tmp_path / "out").exists()
    capsys.readouterr()
    assert run([*words, "-y"]) == 0
    said = capsys.readouterr().err
    assert "0 B is free here, swap included. It is started all the same, as -y says." in said


def test_a_refusal_of_a_run_leaves_no_folder(tmp_path: Path) -> None:
    out = tmp_path / "out"
    words = ["run", str(net(tmp_path, width=1)), "--device", "cpu", "--out-dir", str(out)]
    assert run([*words, "--resume", "nowhere"]) == 2
    assert run([*words, "--weights", "nowhere.safetensors"]) == 2
    assert not out.exists()


def host(root: Path, files: dict[str, str]) -> Path:
    info = "MemTotal: 9000 kB\nMemAvailable: 8000 kB\nSwapFree: 500 kB\nHugePages_Total: 0\n"
    for name, text in {"proc/meminfo": info, **files}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


STAT = "anon 900\ninactive_file 100\nactive_file 50\nslab_reclaimable 10\n"


def group(folder: str, limit: str, used: int) -> dict[str, str]:
    values = {"memory.max": limit, "memory.current": str(used), "memory.stat": STAT}
    return {f"sys/fs/cgroup/{folder}/{name}": text for name, text in values.items()}


def test_the_memory_of_a_machine_is_what_is_free_and_its_swap(tmp_path: Path) -> None:
    assert free_memory_bytes(host(tmp_path, {})) == 8500 * 1024
    assert free_memory_bytes(tmp_path / "elsewhere") is None


def test_the_narrowest_limit_of_a_group_holds_and_files_are_given_back(tmp_path: Path) -> None:
    own = {"proc/self/cgroup": "0::/user/run\n"}
    root = host(tmp_path, {**own, **group("user/run", "max", 5), **group("user", "3000", 1000)})
    assert free_memory_bytes(root) == 3000 - 1000 + 160 + 500 * 1024
    host(tmp_path, group("user/run", "700", 800))
    assert free_memory_bytes(root) == 700 - 800 + 160 + 500 * 1024


def test_a_limit_of_an_older_system_holds_too(tmp_path: Path) -> None:
    folder = "sys/fs/cgroup/memory"
    root = host(
        tmp_path,
        {
            "proc/self/cgroup": "5:cpu,cpuacct:/a\n4:memory:/not/shown/in/the/container\n",
            f"{folder}/memory.limit_in_bytes": "3000\n",
            f"{folder}/memory.usage_in_bytes": "1000\n",
            f"{folder}/memory.stat": "total_inactive_file 7\ninactive_file 5\n",
        },
    )
    assert free_memory_bytes(root) == 3000 - 1000 + 7 + 500 * 1024
