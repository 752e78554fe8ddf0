"""`gpuplan run` with real processes: what a person sees, the exit code, and what is left."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from answers import make_estimate, make_plan
from forked_runs import FORKING

from gpuplan.cli.main import run as cli
from gpuplan.launcher import process_group
from gpuplan.launcher.process_group import marked_processes
from gpuplan.profiles.tracing_process.model_size import count_model_size
from gpuplan.profiles.user_model.spec import parse_model_spec

pytestmark = [pytest.mark.slow, pytest.mark.spread]

MODEL = """
import time

import torch


def build_model(width=8):
    return torch.nn.Linear(width, 1)


def make_batch(batch_size, width=8):
    return (torch.randn(batch_size, width),)


def compute_loss(model, batch):
    time.sleep(PACE_S)
    return model(*batch).square().mean()


PACE_S = 0.0
"""
LONG = ["--steps", "100000", "--checkpoint-every", "5"]


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a model file of 9 parameters, in a folder that is now the current one."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "net.py"
    path.write_text(MODEL)
    return path


@pytest.fixture
def forked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fork the one process of a run: it is to train and to fail as ever, not to start as ever."""
    monkeypatch.setattr(process_group, "subprocess", FORKING)


Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start(model: Path) -> Iterator[Start]:
    """Yield a function that starts `gpuplan run net.py` beside the test."""
    started: list[subprocess.Popen[str]] = []

    def begin(*options: str) -> subprocess.Popen[str]:
        model.write_text(MODEL.replace("PACE_S = 0.0", "PACE_S = 0.02"))
        # What it then knows, as a second run does: to count takes a process that imports torch.
        count_model_size(parse_model_spec("net.py"), precision=None, frozen_precision=None)
        command = [sys.executable, "-m", "gpuplan", "run", "net.py", "--device", "cpu", *options]
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=model.parent
        )
        started.append(process)
        return process

    yield begin
    for process in started:
        process.kill()
        process.wait()


def wait_for_step(folder: Path, step: int, process: subprocess.Popen[str]) -> None:
    """Wait until a checkpoint of a step or a later one is whole."""
    limit_s = time.monotonic() + 120
    while time.monotonic() < limit_s and process.poll() is None:
        found = [int(one.parent.name[5:]) for one in folder.glob("checkpoints/step-*/run.json")]
        if found and max(found) >= step:
            return
        time.sleep(0.05)
    raise AssertionError(f"no checkpoint of step {step}: {process.communicate()}")


def ranks_of(folder: Path) -> dict[int, int]:
    """Return rank → process of the run whose results go to a folder."""
    job = json.loads((folder / "job" / "job.json").read_text())
    found = {}
    for pid in marked_processes("GPUPLAN_RUN", job["run_id"]):
        try:
            variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        except (FileNotFoundError, ProcessLookupError):
            continue  # It has ended since it was found.
        ranks = [int(one[5:]) for one in variables if one.startswith(b"RANK=")]
        if ranks:
            found[ranks[0]] = pid
    return found


def test_a_plan_is_rehearsed_on_two_processes(model: Path, capfd) -> None:
    plan = make_plan(layout="fsdp2", precision="bf16-amp", grad_accum=2, micro_batch=3)
    estimate = make_estimate(plan)
    workload = estimate.workload.model_copy(update={"parameters": 9, "tokens_per_sample": None})
    answer = estimate.model_copy(update={"plans": (plan,), "workload": workload})
    (model.parent / "answer.json").write_text(answer.model_dump_json())
    options = ["--plan", "answer.json", "--device", "cpu", "--steps", "6", "--out-dir", "out"]
    assert cli(["run", "net.py", *options]) == 0
    printed = capfd.readouterr()
    assert "Ended at step 6 of 6 · net on 2 × cpu" in printed.out
    assert "predicted 412 ms" in printed.out
    assert "the plan is rehearsed" in printed.err
    record = json.loads((model.parent / "out" / "record.json").read_text())
    assert (record["plan"], record["global_batch"], record["usd"]) == (plan.id, 12, None)
    assert cli(["actuals", "out"]) == 0
    assert f"plan {plan.id}" in capfd.readouterr().out
    # The plan is for 9 parameters.
    assert cli(["run", "net.py", "--param", "width=3", *options[:-1], "other"]) == 2
    assert "The plan is for a model of 9 parameters; net has 4." in capfd.readouterr().err
    # It has reached its last step.
    assert cli(["run", "net.py", *options]) == 0
    assert "Nothing to do: the run is at step 6 of 6 already." in capfd.readouterr().out


def test_ctrl_c_leaves_a_checkpoint_and_the_same_command_continues(
    model: Path, start: Start
) -> None:
    folder = model.parent / "out"
    process = start("--nproc", "2", *LONG, "--out-dir", "out")
    wait_for_step(folder, 5, process)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "Stopped at step" in out
    assert "the same command with --out-dir out" in out
    assert ranks_of(folder) == {}
    stopped_at = json.loads((folder / "record.json").read_text())["steps"]
    done = cli(
        ["run", "net.py", "--nproc", "2", "--steps", str(stopped_at + 3), "--out-dir", "out"]
    )
    assert done == 0
    steps = [json.loads(line)["step"] for line in (folder / "metrics.jsonl").open()]
    assert steps == list(range(1, stopped_at + 4))


def test_sigterm_ends_a_run_well(model: Path, start: Start) -> None:
    process = start(*LONG, "--out-dir", "out", "--format", "json")
    wait_for_step(model.parent / "out", 5, process)
    process.terminate()
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    record = json.loads(out)
    newest = model.parent / "out" / "checkpoints" / f"step-{record['steps']:08d}"
    assert record["stopped"] and newest.is_dir()


def test_a_rank_that_is_killed_is_named_and_nothing_stays(model: Path, start: Start) -> None:
    folder = model.parent / "out"
    process = start("--nproc", "2", *LONG, "--out-dir", "out")
    wait_for_step(folder, 5, process)
    os.kill(ranks_of(folder)[1], signal.SIGKILL)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "Error: Rank 1 died (signal 9, SIGKILL)" in err
    assert "the same command continues from the checkpoint of step" in err
    assert ranks_of(folder) == {}


def test_the_processes_end_when_gpuplan_itself_is_killed(model: Path, start: Start) -> None:
    folder = model.parent / "out"
    process = start("--nproc", "2", *LONG, "--out-dir", "out")
    wait_for_step(folder, 5, process)
    process.kill()
    process.wait()
    limit_s = time.monotonic() + 60
    while ranks_of(folder) and time.monotonic() < limit_s:
        time.sleep(0.1)
    assert ranks_of(folder) == {}
    assert (folder / "record.json").exists()


def test_a_fault_of_the_file_is_told_once_with_its_line(model: Path, capfd) -> None:
    model.write_text(MODEL.replace("model(*batch)", "model(*batch).sqare()"))
    options = ["--nproc", "2", "--device", "cpu"]
    assert cli(["run", "net.py", *options, "--steps", "3", "--out-dir", "out"]) == 1
    err = capfd.readouterr().err
    assert err.count("Error:") == 2  # ours, and AttributeError in it
    assert "net.py:17, in compute_loss: AttributeError" in err
    assert "Traceback" not in err
    assert "The whole traceback is in out/traceback.txt." in err
    assert "in compute_loss" in (model.parent / "out" / "traceback.txt").read_text()


@pytest.mark.usefixtures("forked")
def test_after_a_fault_of_the_file_the_command_that_is_said_goes_on(model: Path, capfd) -> None:
    fails = "    if list((Path(__file__).parent / 'out').glob('checkpoints/step-*/run.json')):\n"
    fails += "        raise RuntimeError('the data ends here')\n"
    broken = "from pathlib import Path\n" + MODEL.replace(
        "    time.sleep", fails + "    time.sleep"
    )
    model.write_text(broken)
    words = ["run", "net.py", "--device", "cpu", "--steps", "9", "--checkpoint-every", "2"]
    assert cli([*words, "--out-dir", "out"]) == 1
    err = capfd.readouterr().err
    newest = sorted((model.parent / "out" / "checkpoints").glob("step-*"))[-1]
    step = int(newest.name[5:])
    said = f"The same command with --out-dir out continues from the checkpoint of step {step}."
    assert said in err
    model.write_text(MODEL)
    assert cli([*words, "--out-dir", "out"]) == 0
    assert f"continuing from {newest.name} " in capfd.readouterr().err


@pytest.mark.usefixtures("forked")
def test_a_plan_that_is_not_run_has_its_own_code(model: Path, capfd) -> None:
    plan = make_plan(layout="dp1", micro_batch=1, grad_accum=1, precision="fp8")
    (model.parent / "plan.json").write_text(plan.model_dump_json())
    assert cli(["run", "net.py", "--plan", "plan.json", "--device", "cpu", "--steps", "2"]) == 3
    assert "no fp8" in capfd.readouterr().err


@pytest.mark.usefixtures("forked")
def test_a_data_set_that_is_missing_is_a_fault_of_the_file(model: Path, capfd) -> None:
    model.write_text(MODEL + "\n\ndef build_dataset():\n    return open('images.bin')\n")
    assert cli(["run", "net.py", "--device", "cpu", "--steps", "2", "--out-dir", "out"]) == 1
    err = capfd.readouterr().err
    assert "in build_dataset: FileNotFoundError" in err
    options = ["--device", "cpu", "--steps", "2", "--out-dir", "out", "-q"]
    assert cli(["run", "net.py", "--synthetic", *options]) == 0
    assert capfd.readouterr().err == ""


@pytest.mark.usefixtures("forked")
def test_a_checkpoint_of_another_model_is_refused(model: Path, capfd) -> None:
    base = ["run", "net.py", "--device", "cpu", "--out-dir", "out"]
    assert cli([*base, "--steps", "2"]) == 0
    assert cli([*base, "--steps", "4", "--param", "width=3"]) == 2
    assert "is not a checkpoint of this model" in capfd.readouterr().err


@pytest.mark.usefixtures("forked")
def test_a_checkpoint_folder_that_cannot_be_written_is_refused(model: Path, capfd) -> None:
    (model.parent / "taken").write_text("")
    options = ["--device", "cpu", "--steps", "2", "--checkpoint-dir", "taken"]
    assert cli(["run", "net.py", *options]) == 2
    assert "Checkpoints cannot be kept in" in capfd.readouterr().err


def test_a_script_of_ones_own_runs_under_its_framework(model: Path, capfd) -> None:
    # One write a rank: what print writes in parts may lie between another's.
    (model.parent / "train.py").write_text(
        "import os, sys\nos.write(1, f\"rank {os.environ['RANK']} {sys.argv[1:]}\\n\".encode())\n"
    )
    options = ["--framework", "torchrun", "--nproc", "2", "--device", "cpu", "--out-dir", "out"]
    assert cli(["run", "--command", "train.py --lr 1", *options]) == 0
    assert "rank 1 ['--lr', '1']" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "Name the MODEL"),
        (["net.py", "--command", "train.py"], "Both MODEL (net.py) and --command"),
        (["--command", "train.py", "--steps", "3"], "--steps applies to a model file"),
        (["--command", "train.py", "--param", "a=1"], "--param applies to a model file"),
        (["net.py", "--framework", "deepspeed"], "--framework deepspeed is for a script"),
        (["net.py", "--checkpoint-every", "soon"], "neither a number of steps"),
        (["net.py", "--checkpoint-every", "0"], "not above zero"),
        (["net.py", "--keep", "0"], "--keep"),
        (["net.py", "--plan", "zzzz"], "No kept plan"),
        (["net.py", "--plan", "no.json"], "no.json cannot be read"),
        (["net.py", "--resume", "nowhere"], "nowhere is not a whole checkpoint"),
        (["nte.py"], "Did you mean net.py"),
    ],
)
def test_nonsense_is_refused_before_anything_starts(
    model: Path, words: list[str], message: str, capsys
) -> None:
    assert cli(["run", *words]) == 2
    assert message in capsys.readouterr().err


def test_closed_standard_output_is_refused_before_anything_is_trained(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    assert cli(["run", str(model), "--steps", "1"]) == 2
    assert "Standard output is closed" in capsys.readouterr().err
    assert not (model.parent / "gpuplan-runs").exists()
