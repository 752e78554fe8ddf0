"""When a launch is refused, what is said of it, and a job trained in the folders of a node."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from pathlib import Path

import pytest
from answers import make_offer, make_plan, make_run, make_stops
from launchable import given_plan, prepared
from launches import BUCKET, make_project

from gpuplan.catalog.errors import (
    LimitError,
    NoFeasiblePlanError,
    PriceError,
    UsageError,
    UserFileError,
)
from gpuplan.catalog.snapshot import load_catalogue
from gpuplan.launcher.prepare.intent import reserved_usd
from gpuplan.launcher.prepare.prepare import prepare
from gpuplan.launcher.prepare.prepared import write
from gpuplan.launcher.prepare.request import GuardRequest, LaunchRequest
from gpuplan.launcher.runner.job import read_job
from gpuplan.launcher.runner.training_options import TrainingOptions
from gpuplan.planner.plan.parts import Evaluation
from gpuplan.profiles.user_model.spec import parse_model_spec


def test_a_plan_the_runner_does_not_run_needs_a_script(folder: Path) -> None:
    plan = make_plan(run=make_run(), runnable=False, why_not_runnable="It has experts.")
    with pytest.raises(NoFeasiblePlanError, match="It has experts"):
        prepared(given_plan(plan))
    request = LaunchRequest(outputs=BUCKET, command="train.py", framework="torchrun")
    assert prepared(given_plan(plan), request).job is None


@pytest.mark.parametrize(
    ("request_", "nodes", "said"),
    [
        (LaunchRequest(), 1, "would go with them"),
        (LaunchRequest(outputs=BUCKET, fetch="/x"), 1, "both given"),
        (LaunchRequest(fetch="/x"), 2, "one checkpoint together"),
        (LaunchRequest(fetch="/x", spot=True), 1, "A spot machine may go"),
    ],
)
def test_a_launch_that_would_lose_results_is_refused(
    folder: Path, request_: LaunchRequest, nodes: int, said: str
) -> None:
    plan = make_plan(layout=f"fsdp{8 * nodes}", nodes=nodes, run=make_run())
    with pytest.raises(UsageError, match=said):
        prepared(given_plan(plan), request_)


def test_a_price_that_nobody_knows_is_refused(folder: Path) -> None:
    offer = make_offer(instance_type="p99.huge", usd_per_hour=None)
    with pytest.raises(PriceError):
        prepared(given_plan(make_plan(offer=offer, usd_per_hour=None, run=make_run())))


def capped(limit_usd: Decimal) -> LaunchRequest:
    return LaunchRequest(outputs=BUCKET, guard=GuardRequest(max_cost_usd=limit_usd))


def test_a_launch_that_is_expected_to_pass_its_limit_is_refused(folder: Path) -> None:
    expected = prepared(given_plan()).cost.usd_expected
    assert expected is not None
    prepared(given_plan(), capped(expected))
    with pytest.raises(LimitError, match="more than --max-cost") as caught:
        prepared(given_plan(), capped(expected - Decimal("0.01")))
    assert caught.value.exit_code == 4


def test_limits_count_the_worst_case_or_what_the_guard_allows(folder: Path) -> None:
    worst = prepared(given_plan()).cost.usd_worst
    assert worst is not None
    assert reserved_usd(prepared(given_plan())) == worst
    assert reserved_usd(prepared(given_plan(), capped(worst - 1))) == worst - 1
    assert reserved_usd(prepared(given_plan(), capped(worst + 1))) == worst


def test_limits_count_what_is_billed_of_the_hours_that_are_allowed(folder: Path) -> None:
    request = LaunchRequest(outputs=BUCKET, guard=GuardRequest(max_hours=2.45))
    launch = prepared(given_plan(), request)
    assert launch.billing is not None and launch.cost.usd_worst is not None
    at_least = launch.billing.model_copy(update={"minimum_s": 9252})
    rate, cent = max(one.paid_usd_per_hour for one in launch.places), Decimal("0.01")
    hours = Decimal("2.45") + Decimal(5) / 60  # The idle minutes follow those that are allowed.
    assert reserved_usd(launch) == (rate * hours).quantize(cent) < launch.cost.usd_worst
    counted = reserved_usd(replace(launch, billing=at_least))
    assert counted == (rate * Decimal("2.57")).quantize(cent)


def test_what_was_never_tried_is_said(folder: Path) -> None:
    many = make_plan(layout="fsdp16", nodes=2, run=make_run())
    notes = prepared(given_plan(many)).notes
    said = [note for note in notes if "simulated cloud" in note]
    assert len(said) == 1
    assert not [note for note in prepared(given_plan()).notes if "simulated cloud" in note]


@pytest.mark.parametrize(("every", "each"), [(500, "each of 39"), (20_000, "one")])
def test_evaluations_are_said_to_be_counted_by_what_is_assumed(
    folder: Path, every: int, each: str
) -> None:
    """By hand: 3.2 % of 19,073 steps of 0.412 s are 252 s, 6.5 s for each of 39 evaluations."""
    given = given_plan(make_plan(run=make_run(), stops=make_stops()))
    request = LaunchRequest(outputs=BUCKET, training=TrainingOptions(eval_every_steps=every))
    (said,) = [note for note in prepared(given, request).notes if "evaluation" in note]
    assert "3.2 % of the training, which is assumed" in said
    assert f" for {each} evaluation" in said
    assert ("6.4 s for" in said or "6.5 s for" in said) == (every == 500)
    assert not [note for note in prepared(given).notes if "evaluation" in note]


def test_evaluations_that_the_plan_counts_are_counted_at_the_steps_of_the_launch(
    folder: Path,
) -> None:
    known = Evaluation(every_steps=1000, samples=27, share=0.04, share_low=0.04, share_high=0.04)
    given = given_plan(make_plan(run=make_run(), stops=make_stops(evaluation=known)))
    # 20 evaluations in 19,073 steps, and 39 after every 500.
    asked = {every: TrainingOptions(eval_every_steps=every) for every in (None, 1000, 500)}
    found = {
        every: prepared(given, LaunchRequest(outputs=BUCKET, training=training))
        for every, training in asked.items()
    }
    notes = [next(n for n in one.notes if "evaluation" in n) for one in found.values()]
    assert "the plan counts evaluations every 1,000 steps, and none is made" in notes[0]
    assert notes[1:] == [
        "evaluations on 27 samples are counted as 4 % of the training",
        "evaluations on 27 samples are counted as 7.8 % of the training",
    ]
    usd = [one.cost.usd_expected or 0 for one in found.values()]
    assert usd[0] == usd[1] < usd[2]
    assert [one.name for one in found[500].cost.lines][4:6] == ["evaluation", "slow steps"]


def test_all_that_is_missing_is_said_at_once(folder: Path) -> None:
    (folder / "parts.py").write_text("import timm\n")
    text = (folder / "net.py").read_text().replace("def build_dataset", "def _build_dataset")
    (folder / "net.py").write_text(text)
    with pytest.raises(UsageError, match="3 things are missing") as error:
        prepared(given_plan(), LaunchRequest())
    message, fix = error.value.message.splitlines()[1:], (error.value.fix or "").splitlines()[1:]
    assert [line[:4] for line in message] == [line[:4] for line in fix]
    assert ["would go with them" in message[0], "--outputs" in fix[0]] == [True, True]
    assert ["synthetic batches" in message[1], "--synthetic" in fix[1]] == [True, True]
    assert ["net.py needs timm" in message[2], "requirements.txt" in fix[2]] == [True, True]
    # What the user's own script needs is not known.
    own = LaunchRequest(command="train.py", framework="torchrun")
    with pytest.raises(UsageError, match="^The machines go when the job is done"):
        prepared(given_plan(), own)


def test_the_guard_holds_a_job_of_unknown_length_too(folder: Path) -> None:
    request = LaunchRequest(outputs=BUCKET, command="train.py")
    unbounded = prepared(given_plan(make_plan()), request)
    assert (unbounded.cost.usd_worst, reserved_usd(unbounded)) == (None, None)
    guard = GuardRequest(max_cost_usd=Decimal(400))
    held = prepared(given_plan(make_plan()), replace(request, guard=guard))
    assert (held.orders.max_cost_usd, reserved_usd(held)) == (400, 400)
    # Two hours and the idle end, at $21.96.
    hours = prepared(given_plan(make_plan()), replace(request, guard=GuardRequest(max_hours=2)))
    assert reserved_usd(hours) == Decimal("45.75")


def test_samples_of_pipeline_stages_are_refused_before_anything_is_rented(folder: Path) -> None:
    request = LaunchRequest(outputs=BUCKET, training=TrainingOptions(sample_every_steps=10))
    staged = make_plan(layout="fsdp4.pp2", run=make_run())
    with pytest.raises(UsageError, match="not run under pipeline stages"):
        prepared(given_plan(staged), request)
    prepared(given_plan(make_plan(run=make_run())), request)


def test_a_plan_without_work_needs_steps(folder: Path) -> None:
    with pytest.raises(UsageError, match="how much to train"):
        prepared(given_plan(make_plan()))
    ready = prepared(given_plan(make_plan()), LaunchRequest(outputs=BUCKET, steps=7))
    assert ready.job is not None and ready.job.steps == 7


def test_a_model_outside_the_folder_that_is_sent_is_refused(folder: Path) -> None:
    (folder / "code").mkdir()
    with pytest.raises(UsageError, match="the folder that is sent"):
        prepare(
            given_plan(),
            parse_model_spec("net.py"),
            make_project(workdir=folder / "code"),
            LaunchRequest(outputs=BUCKET),
            catalogue=load_catalogue(),
            folder=folder,
            now=datetime.now,
            unique=lambda: "a1b2c3",
        )


def test_preparing_writes_nothing_and_writing_writes_the_task_and_its_job(folder: Path) -> None:
    before = sorted(folder.rglob("*"))
    ready = prepared(given_plan(params={"width": 4}))
    assert sorted(folder.rglob("*")) == before
    path = write(ready)
    assert path.read_text() == ready.task.yaml
    job = read_job(path.parent / "job")
    assert job.spec.params == {"width": 4}
    assert str(job.spec.path) == "../sky_workdir/net.py"
    assert str(job.out_dir) == "/outputs/team/net-20261121-232638-a1b2c3"
    assert job.steps == 19_073
    assert ready.task.config["file_mounts"]["~/gpuplan-job"] == str(path.parent / "job")


@pytest.mark.slow
def test_a_job_trains_in_the_folders_that_a_node_has(folder: Path, require) -> None:
    require("posix", "the scripts are for sh")
    plan = make_plan(
        layout="dp2",
        offer=make_offer(accelerator="CPU-2x-Xeon-8488C", accelerators_per_node=2),
        precision="fp32",
        grad_accum=1,
        micro_batch=4,
        global_batch=8,
        run=make_run(steps=5),
    )
    given = replace(given_plan(plan, params={"width": 4}), estimate=None)
    path = write(prepared(given, LaunchRequest(fetch=str(folder / "results"))))
    home = folder / "home of a node"
    shutil.copytree(path.parent / "job", home / "gpuplan-job")
    (home / "sky_workdir").mkdir()
    for name in ("net.py", "parts.py"):
        shutil.copy(folder / name, home / "sky_workdir")
    import yaml

    done = subprocess.run(
        ["bash", "-c", yaml.safe_load(path.read_text())["run"]],
        env={
            "HOME": str(home),
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), "/usr/bin", "/bin"]),
            "OMP_NUM_THREADS": "1",
        },
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    record = json.loads((home / "gpuplan-out" / "record.json").read_text())
    assert (record["steps"], record["accelerators"]) == (5, 2)


def test_a_smoke_run_costs_its_few_steps_and_projects_the_whole(folder: Path) -> None:
    whole = prepared(given_plan())
    smoke = prepared(given_plan(), LaunchRequest(outputs=BUCKET, guard=GuardRequest(smoke=True)))
    assert smoke.job is not None and whole.job is not None
    assert (smoke.job.steps, whole.job.steps) == (33, 19_073)
    assert smoke.cost.usd_expected is not None and whole.cost.usd_expected is not None
    assert smoke.cost.usd_expected < whole.cost.usd_expected / 5
    assert smoke.orders.projection == whole.orders.projection


def test_a_cluster_of_ones_own_is_reached_whoever_sells_it(folder: Path) -> None:
    offer = make_offer(provider="neevcloud", region="indore", usd_per_hour=19.2)
    plan = make_plan(offer=offer, run=make_run())
    launch = prepared(given_plan(plan), LaunchRequest(outputs=BUCKET, infra="k8s/lab"))
    assert launch.task.config["resources"]["infra"] == "k8s/lab"
    assert launch.task.config["resources"]["accelerators"] == {"A100": 8}
    assert launch.cost.usd_per_hour == Decimal("19.2")
    for infra, said in (("aws/us-east-1", "no cluster of your own"), ("k8s/a b", "no cluster")):
        with pytest.raises(UsageError, match=said):
            prepared(given_plan(plan), LaunchRequest(outputs=BUCKET, infra=infra))
    with pytest.raises(UsageError, match="has no spot machines"):
        prepared(given_plan(plan), LaunchRequest(outputs=BUCKET, infra="k8s/lab", spot=True))


def test_how_often_a_checkpoint_is_written_and_whether_into_a_bucket(folder: Path) -> None:
    default = prepared(given_plan()).job
    assert default is not None
    assert (default.checkpoint.every_s, default.checkpoint.in_bucket) == (600, True)
    request = LaunchRequest(shared="/mnt/runs", checkpoint_every_steps=200)
    job = prepared(given_plan(), request).job
    assert job is not None
    policy = job.checkpoint
    assert (policy.every_steps, policy.every_s, policy.in_bucket) == (200, None, False)


def test_checkpoints_are_as_frequent_as_costs_least_and_stops_are_in_the_cost(
    folder: Path,
) -> None:
    stops = make_stops(checkpoint_bytes=3e12, stall_s=30.0)
    plan = make_plan(run=make_run()).model_copy(update={"stops": stops})
    launch = prepared(given_plan(plan), LaunchRequest(outputs=BUCKET))
    assert launch.job is not None
    assert launch.job.checkpoint.every_s == 1800
    lost = {line.name: line.quantity for line in launch.cost.lines}
    assert lost["failures and restarts"] > 0 and lost["checkpoints"] > 0
    assert launch.cost.usd_expected == sum(line.usd for line in launch.cost.lines)
    on_spot = prepared(given_plan(plan), LaunchRequest(outputs=BUCKET, spot=True)).cost
    more = {line.name: line.quantity for line in on_spot.lines}
    assert more["failures and restarts"] > lost["failures and restarts"]


def test_a_warm_up_that_never_ends_is_said_before_it_is_paid_for(folder: Path) -> None:
    words = "the warm-up of 30,000 steps is longer than the run"
    long = LaunchRequest(outputs=BUCKET, training=TrainingOptions(warmup_steps=30_000))
    assert any(words in note for note in prepared(given_plan(), long).notes)
    short = replace(long, training=TrainingOptions(warmup_steps=30))
    smoke = replace(long, guard=GuardRequest(smoke=True))
    for request in (short, smoke):
        assert not any("warm-up" in note for note in prepared(given_plan(), request).notes)


@pytest.mark.parametrize("command", ["runs/train.py --lr 1", "python trian.py"])
def test_a_script_that_no_node_would_find_is_refused(folder: Path, command: str) -> None:
    own = LaunchRequest(outputs=BUCKET, command=command, framework="torchrun")
    with pytest.raises(UsageError, match="There is no script '(runs/train|trian).py' in"):
        prepared(given_plan(), own)
    for brought in (replace(own, setup="git clone x ."), replace(own, image="docker:a/b")):
        assert prepared(given_plan(), brought).job is None
    for found in ("/opt/train.py", "-m trian", "train.py --lr 1", "bash run.sh"):
        assert prepared(given_plan(), replace(own, command=found)).job is None


def test_a_folder_that_takes_no_results_is_refused_before_there_are_any(
    folder: Path, require, monkeypatch: pytest.MonkeyPatch
) -> None:
    require("posix", "permissions are those of POSIX")
    (folder / "file").write_text("")
    with pytest.raises(UsageError, match=f"to {folder}/file/runs: {folder}/file is a file"):
        prepared(given_plan(), LaunchRequest(fetch=f"{folder}/file/runs"))
    with monkeypatch.context() as here, pytest.raises(UsageError, match="may not be written in"):
        here.setattr(os, "access", lambda path, _mode: Path(path) != folder)
        prepared(given_plan(), LaunchRequest(fetch=f"{folder}/new/runs"))
    assert prepared(given_plan(), LaunchRequest(fetch=f"{folder}/new/runs")).job is not None


@pytest.mark.slow
@pytest.mark.usefixtures("own_trace_processes")  # No other test starts one that sees losses.
def test_a_loss_that_is_a_sum_is_said_before_it_is_paid_for(folder: Path) -> None:
    words = "compute_loss() gives a sum over the samples of its batch"
    text = (folder / "net.py").read_text()
    for changed, is_said in ((".sum()", True), (".sum() / len(batch[0])", False)):
        (folder / "net.py").write_text(text.replace(".mean()", changed))
        given = given_plan()
        assert given.estimate is not None and given.workload is not None
        small = given.workload.model_copy(update={"parameters": 9})
        given = replace(given, estimate=given.estimate.model_copy(update={"workload": small}))
        assert any(words in note for note in prepared(given).notes) == is_said
        assert not any(words in note for note in prepared(given_plan()).notes), "it is large"


@pytest.mark.slow
def test_a_step_that_fails_on_a_gpu_is_refused_before_it_is_paid_for(folder: Path) -> None:
    text = (folder / "net.py").read_text()
    mixed = "return (model(*batch) * torch.arange(len(batch[0]))[:, None]).mean()"
    (folder / "net.py").write_text(text.replace("return model(*batch).square().mean()", mixed))
    given = given_plan()
    with pytest.raises(UserFileError, match=r"net\.py:12, in compute_loss: a tensor of the shape"):
        prepared(given)
    own = LaunchRequest(outputs=BUCKET, command="train.py", framework="torchrun")
    assert prepared(given, own).job is None
    hosts = make_offer(accelerator="CPU-2x-Xeon-8488C")
    plan = make_plan(offer=hosts, precision="fp32", run=make_run())
    assert prepared(replace(given_plan(plan), estimate=None)).job is not None


def test_nobody_else_reads_what_a_launch_writes(folder: Path, require) -> None:
    require("posix", "permissions are those of POSIX")
    launches = folder / "gpuplan-launches"
    launches.mkdir(mode=0o755)
    path = write(prepared(given_plan()))
    assert [one.stat().st_mode & 0o777 for one in (launches, path.parent)] == [0o700, 0o700]
