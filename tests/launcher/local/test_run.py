"""What a run on this machine takes from its plan, and what it refuses before anything starts."""

import errno
import json
import signal
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from answers import make_estimate, make_plan, make_run
from run_folders import checkpoint

from gpuplan.catalog.errors import GpuplanError, NoFeasiblePlanError, UsageError, UserFileError
from gpuplan.catalog.snapshot import load_catalogue
from gpuplan.launcher.local import run
from gpuplan.launcher.local.run import prepare
from gpuplan.launcher.local.run_outcome import outcome
from gpuplan.launcher.local.run_request import RunRequest
from gpuplan.launcher.process_group import Ended
from gpuplan.launcher.runner.job import Job
from gpuplan.launcher.runner.training_options import TrainingOptions
from gpuplan.profiles.user_model.spec import parse_model_spec

A100 = "NVIDIA A100-SXM4-40GB"


def test_the_number_of_processes_is_the_plans_else_the_devices_else_one(ask) -> None:
    assert ask(plan=make_plan(layout="fsdp8"), devices=(A100,) * 8).nproc == 8
    assert ask(devices=(A100,) * 4).nproc == 4
    assert ask(devices=(A100,) * 4, nproc=2).nproc == 2
    assert ask().nproc == 1
    assert ask(nproc=3).nproc == 3
    assert ask(plan=make_plan(layout="fsdp8"), devices=(A100,) * 4, device="cpu").nproc == 8


def test_a_plan_for_more_devices_than_there_are_is_refused(ask) -> None:
    with pytest.raises(UsageError, match=r"for 8 accelerators; this machine has 2 devices"):
        ask(plan=make_plan(layout="fsdp8"), devices=(A100,) * 2)
    with pytest.raises(UsageError, match=r"--nproc 3 takes as many accelerators.* 1 device\b"):
        ask(devices=(A100,), nproc=3)


def test_what_it_trains_on_is_said_first(ask, model: Path) -> None:
    notes: list[str] = []
    ask(notes=notes)
    assert notes[0] == "data: synthetic batches: net.py has no build_dataset()"
    model.write_text(model.read_text() + "def build_dataset(): ...\n")
    for synthetic in (False, True):
        ask(notes=notes, synthetic=synthetic)
    said = [note for note in notes if note.startswith("data: ")]
    assert said[1:] == ["data: build_dataset() of net.py", "data: synthetic batches: --synthetic"]


def test_a_lightning_loader_is_trained_on_and_the_way_is_said(ask, model: Path) -> None:
    notes: list[str] = []
    model.write_text("class Net(LightningModule):\n    def train_dataloader(self): ...\n")
    ask(notes=notes)
    assert notes[0].startswith("data: train_dataloader() of net.py, in gpuplan's own loop")
    assert "--framework lightning" in notes[0] and "validates with --eval-every" in notes[0]
    assert ask(synthetic=True).job.synthetic


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "L.Trainer(max_epochs=3, gradient_clip_val=0.5, accumulate_grad_batches=2)",
            "net.py gives its own Trainer gradient_clip_val=0.5, accumulate_grad_batches=2, which"
            " this loop does not read: see --clip-grad-norm, a plan's accumulation;",
        ),
        (
            'TrainingArguments("out", learning_rate=args.lr, fp16=False, warmup_ratio=0.1)',
            "learning_rate=args.lr, warmup_ratio=0.1, which this loop does not read: see"
            " build_optimizer(), --warmup and --schedule;",
        ),
        ("L.Trainer(max_epochs=3)", None),
    ],
)
def test_what_the_files_own_trainer_is_given_is_named(
    ask, model: Path, text: str, said: str | None
) -> None:
    notes: list[str] = []
    model.write_text(f"{model.read_text()}\nif __name__ == '__main__':\n    {text}\n")
    ask(notes=notes)
    found = [one for one in notes if "its own Trainer" in one]
    assert len(found) == (said is not None)
    assert said is None or said in found[0]


def test_what_only_a_trainer_of_lightning_runs_is_refused(ask, model: Path) -> None:
    hook = "    def train_dataloader(self): ...\n    def on_train_end(self): self.trainer.stop()\n"
    model.write_text("class Net(LightningModule):\n" + hook)
    with pytest.raises(UsageError, match=r"does not: on_train_end\(\), self.trainer") as refused:
        ask()
    assert "--framework lightning" in (refused.value.fix or "")


def test_more_processes_than_cores_is_said(ask) -> None:
    notes: list[str] = []
    ask(nproc=4, cores=2, steps=1, notes=notes)
    assert notes[1:] == ["4 processes share 2 cores: every step will be slow."]


def test_samples_of_pipeline_stages_are_refused_before_a_process_starts(
    ask, tmp_path: Path
) -> None:
    training = TrainingOptions(sample_every_steps=10)
    with pytest.raises(UsageError, match="not run under pipeline stages"):
        ask(plan=make_plan(layout="dp4.pp2"), devices=(A100,) * 8, training=training)
    assert not (tmp_path / "out").exists()
    ask(plan=make_plan(layout="fsdp8"), devices=(A100,) * 8, training=training)


def test_the_steps_are_those_asked_for_else_the_plans_else_a_hundred(ask) -> None:
    notes: list[str] = []
    plan = make_plan(run=make_run(steps=19_073))
    assert ask(plan=plan, steps=7).job.steps == 7
    assert ask(plan=plan, device="cpu", notes=notes).job.steps == 19_073
    assert "19,073" in notes[-1]
    assert ask(notes=notes).job.steps == 100
    assert "100 steps" in notes[-1]


def test_price_and_peak_hold_only_on_the_plans_own_accelerator(ask) -> None:
    plan = make_plan(layout="fsdp8", precision="bf16-amp")
    planned = ask(plan=plan, devices=(A100,) * 8).job
    assert (planned.usd_per_hour, planned.peak_flops) == (21.96, 312e12)
    for elsewhere in (
        ask(plan=plan, devices=("NVIDIA H100 80GB HBM3",) * 8).job,
        ask(plan=plan, devices=("Some Device",) * 8).job,
        ask(plan=plan, device="cpu").job,
    ):
        assert (elsewhere.usd_per_hour, elsewhere.peak_flops) == (None, None)
    assert planned.parameters == make_estimate(plan).workload.parameters


def test_what_contradicts_the_plan_is_refused(ask) -> None:
    plan = make_plan(layout="fsdp8")
    with pytest.raises(UsageError, match="--nproc 4 contradicts the plan"):
        ask(plan=plan, nproc=4)
    with pytest.raises(UsageError, match="--micro-batch 2 contradicts the plan"):
        ask(plan=plan, micro_batch=2)
    with pytest.raises(NoFeasiblePlanError, match="only after a port"):
        ask(plan=make_plan(needs_port=True))


def test_a_device_that_is_not_there_is_refused(ask) -> None:
    with pytest.raises(UsageError, match="no CUDA device"):
        ask(device="cuda")


def test_a_folder_that_is_a_file_is_refused(ask, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    with pytest.raises(UsageError, match="cannot be written to .*taken: File exists"):
        ask(out_dir=tmp_path / "taken")


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (b"", "net.py is empty"),
        (b"\0\1", "net.py is not a Python file: it holds null bytes"),
        (b"x = 1\ndef f(:\n", "net.py:2: SyntaxError"),
        (b"import tensorflow\n", "tensorflow"),
    ],
)
def test_a_file_that_no_process_could_import_is_refused_and_leaves_nothing(
    ask, model: Path, tmp_path: Path, source: bytes, words: str
) -> None:
    model.write_bytes(source)
    with pytest.raises(UserFileError, match=words):
        ask()
    assert not (tmp_path / "out").exists()


def test_ctrl_c_before_the_first_process_leaves_no_folder(
    ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_run: object, **_how: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(run, "refuse_too_large", interrupted)
    prepared = ask()
    with pytest.raises(KeyboardInterrupt):
        run.execute(prepared, on_note=lambda _text: None)
    assert not (tmp_path / "out").exists()


def test_a_full_disk_is_named_and_nothing_is_left_half_written(
    ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(folder: Path, _job: Job) -> None:
        folder.mkdir()
        (folder / "half").write_text("")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(run, "refuse_too_large", lambda *_run, **_how: None)
    monkeypatch.setattr(run, "write_job_folder", full)
    with pytest.raises(UsageError, match="out/job cannot be written: No space left on device"):
        run.execute(ask(), on_note=lambda _text: None)
    assert not (tmp_path / "out").exists()


def test_a_port_that_is_taken_is_refused(ask) -> None:
    import socket

    with socket.socket() as held:
        held.bind(("", 0))
        held.listen()
        port = held.getsockname()[1]
        with pytest.raises(UsageError, match=f"Port {port} is in use"):
            ask(nproc=2, master_port=port)


def test_a_written_profile_cannot_be_trained(tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    path.write_text("{}")
    with pytest.raises(UsageError, match="no code to train"):
        prepare(
            parse_model_spec(str(path)),
            None,
            RunRequest(),
            catalogue=load_catalogue(None),
            now=datetime.now,
            on_note=print,
        )


def fail(job: Job, **changes: Any) -> None:
    values = {"class": "UserFileError", "message": "Yours.", "fix": "Mend it.", "exit_code": 1}
    (job.out_dir / "failure.json").write_text(json.dumps({**values, **changes}))


def end(job: Job, *failures: tuple[int, int, int]) -> None:
    listed = [{"rank": r, "exit_code": code, "time": time} for r, code, time in failures]
    (job.out_dir / "ended.json").write_text(json.dumps({"failures": listed}))


def test_a_failure_comes_back_as_it_was_raised(job: Job) -> None:
    fail(job)
    end(job, (1, 1, 100), (0, -15, 100))
    with pytest.raises(UserFileError, match="Yours") as raised:
        outcome(job, code=1, stopped_by=None)
    assert raised.value.fix == "Mend it."


def test_a_failure_of_a_class_of_the_runners_keeps_its_code(job: Job) -> None:
    fail(job, **{"class": "LossNotFiniteError", "exit_code": 4})
    with pytest.raises(GpuplanError) as raised:
        outcome(job, code=1, stopped_by=None)
    assert raised.value.exit_code == 4


def test_the_rank_that_died_is_named_and_not_who_lost_the_connection(job: Job) -> None:
    fail(job, message="Connection reset by peer")
    end(job, (0, 1, 100), (1, -signal.SIGKILL, 100))
    checkpoint(job.checkpoints, 20)
    with pytest.raises(GpuplanError) as raised:
        outcome(job, code=1, stopped_by=None)
    assert "Rank 1 died (signal 9, SIGKILL)" in raised.value.message
    assert "checkpoint of step 20" in str(raised.value)
    written = json.loads((job.out_dir / "failure.json").read_text())
    assert written["message"] == raised.value.message


def test_a_rank_that_torchrun_killed_for_being_slow_to_leave_is_not_to_blame(job: Job) -> None:
    fail(job)
    end(job, (0, 1, 100), (1, -signal.SIGKILL, 130))
    with pytest.raises(UserFileError, match="Yours"):
        outcome(job, code=1, stopped_by=None)


def test_only_a_record_of_this_start_counts(job: Job) -> None:
    record = job.out_dir / "record.json"
    record.write_text(json.dumps({"id": "an earlier one"}))
    with pytest.raises(GpuplanError, match="exit code 0 and left no record"):
        outcome(job, code=0, stopped_by=None)
    record.write_text(json.dumps({"id": job.run_id, "steps": 30}))
    assert outcome(job, code=0, stopped_by=None)["steps"] == 30


def test_a_signal_before_the_first_step_has_the_code_of_a_shell(job: Job) -> None:
    with pytest.raises(GpuplanError, match="ended before it could record") as raised:
        outcome(job, code=-signal.SIGTERM, stopped_by=signal.SIGTERM)
    assert raised.value.exit_code == 143


@pytest.fixture
def execute(ask, monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[Job], object]], list[str]]:
    """Return a function that runs processes which fail, and returns what was told meanwhile."""

    def executed(leaves: Callable[[Job], object]) -> list[str]:
        prepared, notes = ask(steps=30), []

        def run_child(*_arguments: Any, **_how: Any) -> Ended:
            leaves(prepared.job)
            return Ended(code=1, signals=())

        monkeypatch.setattr(run, "run_child", run_child)
        monkeypatch.setattr(run, "refuse_too_large", lambda *_run, **_how: None)
        with pytest.raises(GpuplanError):
            run.execute(prepared, on_note=notes.append)
        return notes

    return executed


def test_after_a_failure_the_command_that_goes_on_is_said_with_the_newest_checkpoint(
    execute, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)

    def leaves(job: Job) -> None:
        for step in (10, 1_020):
            checkpoint(job.checkpoints, step)
        fail(job)

    said = "The same command with --out-dir out continues from the checkpoint of step 1,020."
    assert execute(leaves)[-1] == said


@pytest.mark.parametrize("kept", [(), (20,)], ids=["no checkpoint", "the error says it itself"])
def test_a_command_that_goes_on_is_said_once_and_only_where_there_is_one(
    execute, kept: tuple[int, ...]
) -> None:
    def leaves(job: Job) -> None:
        for step in kept:
            checkpoint(job.checkpoints, step)
        again = "the same command continues from the checkpoint of step 20." if kept else "Mend it."
        fail(job, fix=again)

    assert not [note for note in execute(leaves) if "continues from" in note]
