"""Which plan is launched, when it is refused, and a job trained in the folders that a node has."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import ROUND_UP, Decimal
from pathlib import Path
from typing import Any

import pytest
from answers import make_estimate, make_offer, make_plan, make_run, make_stops
from launches import BUCKET, make_project

from gpuplan.catalog.errors import LimitError, NoFeasiblePlanError, PriceError, UsageError
from gpuplan.catalog.listing.sources import PriceSource
from gpuplan.catalog.snapshot import load_catalogue
from gpuplan.launcher.guard.decisions.spending import open_account
from gpuplan.launcher.guard.decisions.verdicts import Reading, over_limit
from gpuplan.launcher.guard.orders import Orders
from gpuplan.launcher.prepare import plan_choice, project
from gpuplan.launcher.prepare.intent import held_to_reservation, intent, reserved_usd
from gpuplan.launcher.prepare.prepare import Prepared, at_higher_prices, prepare, write
from gpuplan.launcher.prepare.request import GuardRequest, LaunchRequest
from gpuplan.launcher.prepare.task.guard_config import restart_s
from gpuplan.launcher.runner.job import read_job
from gpuplan.launcher.runner.training_options import TrainingOptions
from gpuplan.launcher.skypilot.prices import PriceDifference
from gpuplan.launcher.store.estimates import Store
from gpuplan.launcher.store.origin import files_hash, origin_of
from gpuplan.launcher.store.sourced_plan import SourcedPlan
from gpuplan.planner.cost.launch_cost import CONTROLLER_IDLE_HOURS
from gpuplan.planner.plan.answer.estimate import Estimate
from gpuplan.planner.plan.layout import parse_layout
from gpuplan.planner.plan.plan import Plan
from gpuplan.planner.plan.question import Choices, Money, Question, Work
from gpuplan.profiles.user_model.spec import parse_model_spec

MODEL = """
import torch

def build_model(width=8):
    return torch.nn.Linear(width, 1)

def make_batch(batch_size, width=8):
    return (torch.randn(batch_size, width),)

def compute_loss(model, batch):
    return model(*batch).square().mean()

def build_dataset(width=8):
    return torch.utils.data.TensorDataset(torch.randn(64, width))
"""
TODAY = load_catalogue().snapshot_date
NOW = datetime(2026, 11, 21, 23, 26, 38)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with a model and a module of its own; it is now the current one."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text("import parts\n" + MODEL)
    (tmp_path / "parts.py").write_text("SIZE = 1\n")
    return tmp_path


def priced_on(day: date) -> Estimate:
    estimate = make_estimate()
    catalog = estimate.catalog.model_copy(update={"snapshot_date": day})
    return estimate.model_copy(update={"catalog": catalog})


def given_plan(plan: Plan | None = None, *, params: dict[str, Any] | None = None) -> SourcedPlan:
    spec = parse_model_spec("net.py", params=params)
    return SourcedPlan(
        plan=plan or make_plan(run=make_run()),
        estimate=priced_on(TODAY),
        origin=origin_of(spec, Question(), folder=Path.cwd(), offers=None),
    )


def prepared(given: SourcedPlan, request: LaunchRequest | None = None, **changes: Any) -> Prepared:
    facts: dict[str, Any] = {
        "catalogue": load_catalogue(),
        "folder": Path.cwd(),
        "now": lambda: NOW,
        "unique": lambda: "a1b2c3",
    }
    spec = None if given.origin is None else given.origin.spec
    return prepare(
        given,
        spec,
        make_project(workdir=Path.cwd()),
        request or LaunchRequest(outputs=BUCKET),
        **{**facts, **changes},
    )


def test_an_origin_comes_back_as_it_was_kept(folder: Path) -> None:
    question = Question(
        work=Work(tokens=1e9),
        choices=Choices(layouts=(parse_layout("hsdp2x8.tp4.sp"),)),
        money=Money(budget_usd=Decimal("400.50")),
    )
    spec = parse_model_spec("net.py", params={"width": 4}, inputs=["3,4:int64"])
    origin = origin_of(spec, question, folder=folder, offers=Path("mine.yaml"))
    plan = make_plan()
    Store().keep(make_estimate(plan), inputs_hash="a", origin=origin)
    kept = Store().newest_of(folder)
    assert kept is not None
    assert kept.origin == origin == Store().find_plan(plan.id).origin
    assert kept.origin.question == question
    assert kept.origin.spec == spec
    assert kept.estimate == make_estimate(plan)


def test_an_estimate_of_an_older_version_has_no_origin(folder: Path) -> None:
    plan = make_plan()
    Store().keep(make_estimate(plan), inputs_hash="a")
    assert Store().find_plan(plan.id).origin is None
    assert Store().newest_of(folder) is None


def keep(*plans: Plan, where: Path, generated_at: str = "2026-11-20T10:00:00+00:00") -> None:
    origin = origin_of(parse_model_spec("net.py"), Question(), folder=where, offers=None)
    answer = make_estimate(*plans, generated_at=generated_at)
    Store().keep(answer, inputs_hash=generated_at, origin=origin)


def choose(
    folder: Path,
    *providers: str,
    plan: str | None = None,
    spot: bool = False,
    command: str | None = None,
) -> Plan:
    request = LaunchRequest(providers=providers, spot=spot or None, command=command)
    return plan_choice.chosen(plan, request, folder=folder, store=Store()).plan


def test_the_cheapest_plan_of_the_last_estimate_here_is_taken(folder: Path) -> None:
    def plan(
        position: int, usd_per_hour: float, kind: str = "p4d.24xlarge", **changes: Any
    ) -> Plan:
        offer = make_offer(instance_type=kind, usd_per_hour=usd_per_hour)
        facts = {"offer": offer, "run": make_run(), "runnable": True}
        return make_plan(position, **{**facts, **changes})

    dear = plan(1, 30.0)
    cheap = plan(2, 20.0)
    spotty = plan(3, 25.0, "p3.2xlarge")  # Its spot price is a twentieth of the others'.
    slow = plan(4, 19.0, samples_per_s=1.0)
    offer = make_offer(provider="gcp", instance_type="a2-highgpu-8g", usd_per_hour=10.0)
    other = plan(5, 10.0, offer=offer)
    not_run = plan(6, 5.0, runnable=False)
    port = plan(7, 4.0, needs_port=True)
    nowhere = plan(8, 1.0, offer=make_offer(provider="coreweave", usd_per_hour=1.0))
    keep(make_plan(run=make_run(usd=1.0)), where=folder)
    keep(
        dear, cheap, spotty, slow, other, not_run, port, nowhere,
        where=folder, generated_at="2026-11-21T10:00:00+00:00",
    )  # fmt: skip
    keep(
        make_plan(run=make_run(usd=2.0)),
        where=folder / "elsewhere",
        generated_at="2026-11-22T10:00:00+00:00",
    )
    assert choose(folder, "aws") == cheap
    assert choose(folder, "aws", spot=True) == spotty
    assert choose(folder) == other
    assert choose(folder, "aws", command="train.py") == port
    assert choose(folder, plan=dear.id) == dear
    with pytest.raises(NoFeasiblePlanError, match="no priced plan on azure"):
        choose(folder, "azure")
    with pytest.raises(UsageError, match="is on gcp, not on aws"):
        choose(folder, "aws", plan=other.id)


def test_a_plan_that_may_run_out_of_memory_is_taken_only_by_its_name(folder: Path) -> None:
    risky = make_plan(1, run=make_run(usd=1.0), runnable=True, p_oom=0.14)
    keep(risky, where=folder)
    with pytest.raises(NoFeasiblePlanError, match=r"run out of memory; plan \w+ does .* 14 %") as e:
        choose(folder)
    assert f"gpuplan launch {risky.id}" in str(e.value)
    assert choose(folder, plan=risky.id) == risky
    dearer = make_offer(instance_type="p4d.24xlarge", usd_per_hour=90.0)
    safe = make_plan(2, run=make_run(), runnable=True, p_oom=0.01, offer=dearer)
    keep(risky, safe, where=folder, generated_at="2026-11-21T10:00:00+00:00")
    assert choose(folder) == safe


def test_no_estimate_here(folder: Path) -> None:
    with pytest.raises(UsageError, match="no estimate was made in this folder"):
        choose(folder)


@pytest.mark.parametrize("changed", ["net.py", "parts.py"])
def test_a_plan_whose_files_have_changed_is_stale(folder: Path, changed: str) -> None:
    given = given_plan()
    prepared(given)
    (folder / changed).write_text((folder / changed).read_text() + "# changed\n")
    with pytest.raises(UsageError, match=r"net\.py, or a file that it imports, has changed") as e:
        prepared(given)
    assert "--replan" in str(e.value)


def test_a_file_that_is_gone_has_changed(folder: Path) -> None:
    given = given_plan()
    (folder / "net.py").unlink()
    with pytest.raises(UsageError, match="has changed"):
        prepared(given)


def test_a_file_of_a_package_is_hashed_with_its_neighbours(folder: Path) -> None:
    (folder / "rel.py").write_text("from . import other\n")
    (folder / "other.py").write_text("A = 1\n")
    spec = parse_model_spec("rel.py")
    before = files_hash(spec)
    (folder / "other.py").write_text("A = 2\n")
    assert files_hash(spec) != before


def test_a_plan_with_old_prices_is_stale(folder: Path) -> None:
    given = replace(given_plan(), estimate=priced_on(date(2020, 1, 1)))
    with pytest.raises(UsageError, match="prices of 2020-01-01"):
        prepared(given)


def test_a_plan_from_before_a_refresh_of_the_same_day_is_stale(folder: Path) -> None:
    given = given_plan()
    source = PriceSource(kind="refreshed", made_at=datetime(2026, 11, 20, 9, tzinfo=UTC))
    catalogue = replace(load_catalogue(), price_source=source)
    with pytest.raises(UsageError, match="those of 2026-11-20 09:00:00 UTC"):
        prepared(given, catalogue=catalogue)
    assert given.estimate is not None
    catalog = given.estimate.catalog.model_copy(update={"source": source})
    estimate = given.estimate.model_copy(update={"catalog": catalog})
    assert prepared(replace(given, estimate=estimate), catalogue=catalogue).plan == given.plan


def test_another_model_or_other_params_are_refused(folder: Path) -> None:
    given = given_plan(params={"width": 4})
    plan_choice.refuse_another_model(given, parse_model_spec("net.py", params={"width": 4}))
    with pytest.raises(UsageError, match="with width=4, not with width=5"):
        plan_choice.refuse_another_model(given, parse_model_spec("net.py", params={"width": 5}))
    with pytest.raises(UsageError, match=r"for net\.py, not for parts\.py"):
        plan_choice.refuse_another_model(given, parse_model_spec("parts.py", params={"width": 4}))


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


def test_a_model_whose_packages_nobody_installs_is_refused(folder: Path) -> None:
    (folder / "parts.py").write_text("import os, torch.nn, numpy.linalg\nfrom timm import models\n")
    with pytest.raises(UsageError, match=r"net\.py needs numpy, timm, and no file"):
        prepared(given_plan())
    prepared(given_plan(), LaunchRequest(outputs=BUCKET, setup="pip install numpy timm torch"))
    prepared(given_plan(), LaunchRequest(outputs=BUCKET, image="docker:pytorch/pytorch"))


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


@pytest.mark.parametrize(
    ("files", "found", "version"),
    [
        ({}, None, None),
        ({"requirements.txt": "numpy\ntorch==2.11.1 # old\n"}, "requirements.txt", "2.11.1"),
        ({"requirements.txt": "torchvision==0.20\n"}, "requirements.txt", None),
        (
            {"pyproject.toml": '[project]\ndependencies = ["torch == 2.12.0+cu130"]\n'},
            "pyproject.toml",
            "2.12.0",
        ),
        (
            {
                "uv.lock": '[[package]]\nname = "torch"\nversion = "2.12.1+cpu"\n',
                "pyproject.toml": "",
            },
            "uv.lock",
            "2.12.1",
        ),
    ],
)
def test_a_project_says_which_packages_it_needs(
    tmp_path: Path, files: dict[str, str], found: str | None, version: str | None
) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    environment = project.read_project(tmp_path, owner="ann").environment
    assert environment.found == found
    if version is None:
        from importlib.metadata import version as installed

        version = installed("torch").partition("+")[0]
    assert environment.torch_version == version


def test_a_lock_that_is_not_read_is_said(tmp_path: Path) -> None:
    (tmp_path / "poetry.lock").write_text("")
    assert project.read_project(tmp_path).notes == (
        "poetry.lock is not read; give --setup with the lines that use it",
    )


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


@pytest.mark.parametrize(
    ("spot", "has_controller", "is_paid"),
    [(True, True, True), (True, False, False), (False, True, False)],
)
def test_a_spot_launch_counts_its_controller(
    folder: Path, spot: bool, has_controller: bool, is_paid: bool
) -> None:
    plan = make_plan(run=make_run()).model_copy(update={"stops": make_stops()})
    request = LaunchRequest(outputs=BUCKET, spot=spot, has_controller=has_controller)
    launch = prepared(given_plan(plan), request)
    record = intent(launch, now=lambda: NOW)
    lines = [line for line in launch.cost.lines if line.name == "SkyPilot's controller"]
    assert any("counted as if it ran this launch alone" in one for one in launch.notes) is is_paid
    assert bool(lines) is (record.controller_usd_per_hour is not None) is is_paid
    machines = max(place.paid_usd_per_hour for place in launch.all_places) * plan.nodes
    rate = record.controller_usd_per_hour or 0
    assert launch.orders.usd_per_hour == pytest.approx(float(machines + rate))
    if is_paid:
        assert (launch.cost.hours_expected or 0) < lines[0].quantity
        assert lines[0].usd > 0
        assert launch.cost.usd_expected == sum(line.usd for line in launch.cost.lines)


def test_a_cap_holds_the_minutes_of_a_controller_that_waits_for_more_jobs(folder: Path) -> None:
    guard = GuardRequest(max_cost_usd=Decimal(100))
    # The machines go at once, and the controller's ten minutes are then all that is left to pay.
    request = LaunchRequest(outputs=BUCKET, spot=True, autodown_minutes=0, guard=guard)
    launch = prepared(given_plan(), request)
    rate = intent(launch, now=lambda: NOW).controller_usd_per_hour
    held, idle = launch.orders, CONTROLLER_IDLE_HOURS
    assert rate and held.after_usd == pytest.approx(float(rate * idle))
    account = open_account(held, [], boot_s=NOW.timestamp(), now_s=NOW.timestamp())
    left_usd = 100 - float(rate * idle) - held.tail_s * held.usd_per_s
    for off_s, ends in ((-1, False), (1, True)):
        paid_s = left_usd / held.usd_per_s + off_s
        verdict = over_limit(held, account, Reading(), paid_s=paid_s, now_s=0.0)
        assert (verdict is not None) is ends
    # Limits of a project or a period count them in hours too; without a controller there are none.
    hours = replace(request, guard=GuardRequest(max_hours=2.5))
    alone = replace(hours, has_controller=False)
    own, other = prepared(given_plan(), hours), prepared(given_plan(), alone)
    counted, without = reserved_usd(own), reserved_usd(other)
    assert counted is not None and without is not None
    assert counted - without == pytest.approx(rate * (Decimal("2.5") + idle), abs=Decimal("0.011"))
    assert other.orders.after_usd == 0


def test_a_deadline_lets_spot_machines_be_replaced(folder: Path) -> None:
    soon = NOW.astimezone() + timedelta(hours=12)
    request = LaunchRequest(outputs=BUCKET, spot=True, deadline=soon)
    launch = prepared(given_plan(), request)
    first, second = launch.task.config, launch.task.then
    assert second is not None
    assert first["resources"]["use_spot"] is True
    assert first["resources"]["ordered"] == [
        {"infra": "aws/us-east-1"},
        {"infra": "aws/us-east-1", "use_spot": False},
    ]
    assert len(launch.all_places) == len(first["resources"]["ordered"])
    assert "use_spot" not in second["resources"]
    assert second["resources"]["infra"] == "aws/us-east-1"
    stages = [task.pop("envs")["GPUPLAN_STAGE"] for task in (first, second)]
    assert stages == ["spot", "on-demand"]
    for task in (first, second):
        del task["resources"], task["name"]
    assert first == second
    assert launch.answer().then is not None
    dearer = PriceDifference(
        infra="aws/us-east-1",
        ours_usd_per_hour=launch.all_places[0].usd_per_hour,
        skypilot_usd_per_hour=launch.all_places[0].usd_per_hour * 2,
    )
    # On-demand machines cost still more, and the worst case is theirs.
    assert at_higher_prices(launch, (dearer,)).cost.usd_worst == launch.cost.usd_worst


def test_what_a_deadline_may_cost(folder: Path) -> None:
    soon = NOW.astimezone() + timedelta(hours=12)
    request = LaunchRequest(outputs=BUCKET, spot=True, deadline=soon, has_controller=False)
    launch = prepared(given_plan(), request)
    on_demand = prepared(given_plan(), replace(request, spot=False))
    (spot,), (other,) = launch.places, launch.fallback
    assert launch.cost.usd_worst is not None and on_demand.cost.usd_worst is not None
    again = launch.cost.usd_worst - on_demand.cost.usd_worst
    assert float(again) == pytest.approx(float(other.usd_per_hour) * restart_s() / 3600, abs=0.02)
    assert launch.cost.usd_expected is not None and on_demand.cost.usd_expected is not None
    assert launch.cost.usd_expected < on_demand.cost.usd_expected
    orders = launch.orders
    assert orders.usd_per_hour_at == {"aws/us-east-1": float(other.usd_per_hour)}
    assert orders.spot_usd_per_hour_at == {"aws/us-east-1": float(spot.usd_per_hour)}
    assert orders.hand_over is not None
    assert orders.hand_over.total_steps == 19_073
    assert on_demand.orders.hand_over is None


def test_without_time_to_lose_machines_nothing_is_bought_on_spot(folder: Path) -> None:
    soon = NOW.astimezone() + timedelta(hours=3)
    launch = prepared(given_plan(), LaunchRequest(outputs=BUCKET, spot=True, deadline=soon))
    assert launch.task.then is None
    assert "use_spot" not in launch.task.config["resources"]
    assert not launch.request.buys_spot(launch.plan)
    assert any("bought on demand" in note for note in launch.notes)


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


SEEN: dict[tuple[str, str, str], dict[date, Decimal]] = {
    ("aws", "us-east-1", "p4d.24xlarge"): {
        date(2026, 11, 10 + day): Decimal(usd)
        for day, usd in enumerate(("8", "9", "8", "10", "8", "12", "9", "8"))
    }
}
"""Of later days over those before, nine in ten are below 1.4."""


def test_a_launch_on_spot_knows_how_the_price_moves_though_its_plan_is_on_demand(
    folder: Path,
) -> None:
    request = LaunchRequest(outputs=BUCKET, spot=True, has_controller=False)
    given = given_plan()
    steady, moving = prepared(given, request), prepared(given, request, spot_prices=SEEN)
    assert steady.moves is None and moving.moves is not None
    top = Decimal(str(moving.moves.high))
    assert top > Decimal("1.2")
    assert steady.cost.usd_worst is not None and moving.cost.usd_worst is not None
    assert moving.cost.usd_worst == pytest.approx(steady.cost.usd_worst * top, abs=Decimal("0.02"))
    assert moving.cost.usd_expected == steady.cost.usd_expected
    before, after = (intent(one, now=lambda: NOW) for one in (steady, moving))
    assert before.usd_high is not None and after.usd_high is not None
    assert after.usd_high > before.usd_high
    assert any("one in ten was followed" in note for note in moving.notes)
    # On demand no price moves, and elsewhere none was seen.
    assert prepared(given, LaunchRequest(outputs=BUCKET), spot_prices=SEEN).moves is None
    other = replace(request, regions=("us-west-2",))
    assert prepared(given, other, spot_prices=SEEN).moves is None


def test_a_guard_holds_its_cap_at_the_highest_price_that_was_seen(folder: Path) -> None:
    request = LaunchRequest(outputs=BUCKET, spot=True, has_controller=False)
    launch = prepared(given_plan(), request, spot_prices=SEEN)
    worst, top = launch.cost.usd_worst, launch.orders.price_top
    held = held_to_reservation(launch).orders
    assert worst is not None and launch.moves is not None and top == launch.moves.high
    assert held.max_cost_usd == float(worst)
    assert held.most_usd == pytest.approx(float(worst) / top)
    account = open_account(held, [], boot_s=NOW.timestamp(), now_s=NOW.timestamp())
    hours = launch.cost.hours_worst
    assert hours is not None
    for off_s, ends in ((-5, False), (5, True)):
        paid_s = hours * 3600 - held.tail_s + off_s
        verdict = over_limit(held, account, Reading(), paid_s=paid_s, now_s=0.0)
        assert (verdict is not None) is ends
        assert verdict is None or f"at prices up to {top:g} times these" in verdict.text
    # Limits count a cap of hours at that price too.
    hours_alone = replace(request, guard=GuardRequest(max_hours=3.0))
    rate = launch.places[0].usd_per_hour * Decimal(str(top))
    counted = reserved_usd(prepared(given_plan(), hours_alone, spot_prices=SEEN))
    assert counted == min(worst, (rate * Decimal("3.1")).quantize(Decimal("0.01"), ROUND_UP))


def test_machines_on_demand_after_spot_ones_keep_their_price(folder: Path) -> None:
    soon = NOW.astimezone() + timedelta(hours=12)
    request = LaunchRequest(outputs=BUCKET, spot=True, deadline=soon)
    held = prepared(given_plan(), request, spot_prices=SEEN).orders
    spot = held.at("aws", "us-east-1", "", is_spot=True)
    assert held.price_top == spot.price_top > 1
    assert held.at("aws", "us-east-1", "").price_top == 1
    assert Orders.from_json(held.to_json()) == held


def test_nobody_else_reads_what_a_launch_writes(folder: Path, require) -> None:
    require("posix", "permissions are those of POSIX")
    launches = folder / "gpuplan-launches"
    launches.mkdir(mode=0o755)
    path = write(prepared(given_plan()))
    assert [one.stat().st_mode & 0o777 for one in (launches, path.parent)] == [0o700, 0o700]
