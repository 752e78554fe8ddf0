"""The SkyPilot task of a launch: exact files, what stays data, what is never in it."""

import json
import os
import shlex
import subprocess
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest
import yaml
from answers import make_offer, make_plan
from hypothesis import given
from hypothesis import strategies as st
from launches import BUCKET, RUN_ID, TASKS, aws, make_project, make_task, with_packages

from gpuplan.catalog.errors import PriceError, UsageError
from gpuplan.catalog.snapshot import load_catalogue
from gpuplan.launcher.labels import slug
from gpuplan.launcher.lifecycle.guard_report import lacks_results
from gpuplan.launcher.prepare.preflight import refuse_request
from gpuplan.launcher.prepare.request import (
    GuardRequest,
    LaunchRequest,
    parse_data,
    parse_image,
    parse_outputs,
    parse_secret,
    parse_shared,
    parse_variable,
    refuse_keys,
    refuse_repeats,
)
from gpuplan.launcher.prepare.task.node_setup import setup_script
from gpuplan.launcher.prepare.task.run_script import upload_lines
from gpuplan.launcher.prepare.task.task import LONGEST_CLUSTER_NAME, cluster_name
from gpuplan.launcher.skypilot.placement import (
    SKYPILOT_NAMES,
    TPU_SLICES,
    hardware,
    own_place,
    places,
)
from gpuplan.planner.cost.beside_machines.data_cost import disk_gb

GOLDEN = Path(__file__).parents[1] / "golden"
CANARY = "hf_canaryCanaryCanary0123456789"
NASTY = 'x\'; touch "$HOME/owned" `id` $(id) \\ & | > y'


@pytest.mark.parametrize("name", TASKS)
def test_the_task_of_each_kind_of_place(name: str, golden: Callable[[Path, str], None]) -> None:
    task = TASKS[name]()
    golden(GOLDEN / f"task-{name}.yaml", f"# {task.command}\n{task.yaml}")


@pytest.mark.parametrize("name", TASKS)
def test_yaml_reads_back_as_the_task(name: str) -> None:
    task = TASKS[name]()
    first, *rest = yaml.safe_load_all(task.yaml)
    assert first == task.config
    assert rest == ([] if task.then is None else [task.then])


@pytest.mark.parametrize("name", TASKS)
def test_the_scripts_are_posix_shell(name: str, require) -> None:
    require("posix", "the scripts are for sh")
    config = TASKS[name]().config
    for part in ("setup", "run"):
        done = subprocess.run(
            ["sh", "-n"], input=config[part], capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("name", TASKS)
def test_no_machine_outlives_its_job(name: str) -> None:
    assert TASKS[name]().config["resources"]["autostop"]["down"] is True


def test_results_are_fetched_before_the_machine_goes() -> None:
    steps = TASKS["gcp"]().command.split("; ")[1].split(" && ")
    assert [shlex.split(step)[0:2] for step in steps] == [["rsync", "-a"], ["sky", "down"]]


def test_regions_are_tried_in_the_order_they_are_named() -> None:
    plan = make_plan()
    request = LaunchRequest(outputs=BUCKET, regions=("us-west-2", "us-east-1"))
    tried = make_task(plan, request).config["resources"]["ordered"]
    assert tried == [{"infra": "aws/us-west-2"}, {"infra": "aws/us-east-1"}]


def test_a_region_without_a_price_is_refused() -> None:
    with pytest.raises(PriceError, match="mars-1") as caught:
        places(make_plan(), load_catalogue(), spot=False, regions=("mars-1",))
    assert caught.value.exit_code == 5


def test_a_plan_without_a_price_is_refused() -> None:
    offer = make_offer(instance_type="p99.huge", usd_per_hour=None)
    with pytest.raises(PriceError, match="Nobody states a price of p99.huge"):
        places(make_plan(offer=offer, usd_per_hour=None), load_catalogue(), spot=False)


def test_the_spot_price_is_that_of_the_region_itself() -> None:
    catalogue = load_catalogue()
    plan = make_plan(offer=make_offer(spot_usd_per_hour=0.01))
    (place,) = places(plan, catalogue, spot=True)
    listed = [
        offer.spot_usd_per_hour
        for offer in catalogue.offers
        if (offer.provider, offer.region, offer.instance_type)
        == ("aws", "us-east-1", "p4d.24xlarge")
    ]
    assert [place.usd_per_hour] == listed


FLOOR = {"instance_type": "p6-b200.48xlarge", "region": "us-east-2", "accelerators_per_node": 8}
"""Where the catalogue's spot price is 10 % of on-demand, which it marks as no market price."""


def test_a_spot_price_that_is_none_of_the_market_is_refused() -> None:
    plan = make_plan(offer=make_offer(accelerator="B200-180GB-SXM", **FLOOR))
    with pytest.raises(PriceError, match="market price of p6-b200.48xlarge .* us-east-2, spot"):
        places(plan, load_catalogue(), spot=True)
    (place,) = places(plan, load_catalogue(), spot=True, regions=("us-east-1",))
    assert place.usd_per_hour == Decimal("24.402")


def test_a_kept_plan_with_such_a_price_is_refused() -> None:
    offer = make_offer(accelerator="B200-180GB-SXM", purchase="spot", usd_per_hour=11.3933, **FLOOR)
    with pytest.raises(PriceError, match="market price"):
        places(make_plan(offer=offer), load_catalogue(), spot=True)
    stated = make_offer(accelerator="B200-180GB-SXM", purchase="spot", usd_per_hour=30.0, **FLOOR)
    (place,) = places(make_plan(offer=stated), load_catalogue(), spot=True)
    assert place.usd_per_hour == Decimal("30.0")


def test_a_provider_that_skypilot_does_not_reach_is_refused() -> None:
    offer = make_offer(provider="coreweave", instance_type="x")
    with pytest.raises(UsageError, match="SkyPilot does not reach coreweave"):
        places(make_plan(offer=offer), load_catalogue(), spot=False)


@pytest.mark.parametrize(
    ("provider", "kind", "machine"),
    [
        ("lambda", "gpu_8x_h100_sxm5", {"instance_type": "gpu_8x_h100_sxm5"}),
        ("lambda", "lambda-h100-on-demand", {"instance_type": "gpu_8x_h100_sxm5"}),
        ("runpod", "8x H100 (secure pod)", {"accelerators": {"H100-SXM": 8}}),
        ("oci", "BM.GPU.H100.8", {"instance_type": "BM.GPU.H100.8"}),
    ],
)
def test_a_machine_is_named_as_skypilot_knows_it(
    provider: str, kind: str, machine: dict[str, object]
) -> None:
    offer = make_offer(provider=provider, instance_type=kind, accelerator="H100-80GB-SXM")
    assert hardware(make_plan(offer=offer), provider) == (1, machine)


def test_what_skypilot_does_not_start_is_refused() -> None:
    catalogue = load_catalogue()
    pods = make_offer(provider="runpod", instance_type="8x H100 SXM (secure pod)")
    with pytest.raises(UsageError, match="one node at a time on runpod"):
        places(make_plan(layout="fsdp16", nodes=2, offer=pods), catalogue, spot=False)
    with pytest.raises(UsageError, match="no spot machines on lambda"):
        places(make_plan(offer=make_offer(provider="lambda")), catalogue, spot=True)


def test_zones_belong_to_one_region() -> None:
    with pytest.raises(UsageError, match="several regions"):
        places(
            make_plan(),
            load_catalogue(),
            spot=False,
            regions=("us-east-1", "us-west-2"),
            zones=("a",),
        )


@pytest.mark.parametrize("name", [*SKYPILOT_NAMES, *TPU_SLICES])
def test_every_accelerator_that_is_renamed_is_one(name: str) -> None:
    assert name in load_catalogue().accelerators


@given(st.text(), st.text(alphabet="0123456789abcdef", min_size=6, max_size=6))
def test_any_name_makes_a_cluster_name_and_labels_that_every_cloud_takes(
    name: str, unique: str
) -> None:
    cluster = cluster_name(f"{slug(name, longest=30)}-20261121-232638-{unique}")
    assert len(cluster) <= LONGEST_CLUSTER_NAME
    assert cluster.endswith(f"-{unique}")
    for text in (cluster, slug(name)):
        assert text == slug(text)
        assert set(text) <= set("abcdefghijklmnopqrstuvwxyz0123456789-")


@pytest.mark.parametrize("checkpoint_bytes", [None, 1e7, 8.4e11])
def test_a_disk_holds_three_checkpoints(checkpoint_bytes: float | None) -> None:
    assert disk_gb(checkpoint_bytes) * 1e9 >= 3 * (checkpoint_bytes or 0)


PYTHON = '#!/bin/sh\nprintf "%s\\n" "$@"\nexit 7\n'


def ran_on_a_node(
    request: LaunchRequest, home: Path, *, after: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run a task's script beside a python3 that says its words and ends with exit code 7."""
    script = make_task(make_plan(layout="dp8"), request).config["run"]
    (home / "sky_workdir").mkdir()
    (home / "python3").write_text(PYTHON)
    (home / "python3").chmod(0o755)
    return subprocess.run(
        ["bash", "-c", script + after],
        env={"HOME": str(home), "PATH": f"{home}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_shell_characters_in_a_command_stay_data(tmp_path: Path, require) -> None:
    require("posix", "the scripts are for sh")
    command = shlex.join(["train.py", "--name", NASTY])
    done = ran_on_a_node(LaunchRequest(command=command, framework="none", fetch="/tmp/x"), tmp_path)
    job = tmp_path / "gpuplan-job"
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        *("-E", "-S", f"{job}/gpuplan_guard", f"{job}/guard.json", "--"),
        *("python3", "train.py", "--name", NASTY),
    ]
    assert not (tmp_path / "owned").exists()


def test_what_skypilot_adds_to_the_script_is_reached_with_its_exit_code(
    tmp_path: Path, require
) -> None:
    require("posix", "the scripts are for sh")
    request = LaunchRequest(command="train.py", framework="none", fetch="/tmp/x")
    done = ran_on_a_node(request, tmp_path, after="\necho waits for uploads after $?")
    assert done.stdout.splitlines()[-1] == "waits for uploads after 7"


def test_a_shared_folder_takes_the_results(tmp_path: Path, require) -> None:
    require("posix", "the scripts are for sh")
    shared = tmp_path / "nfs" / "runs"
    request = LaunchRequest(command="train.py", framework="none", shared=str(shared))
    assert make_task(make_plan(layout="dp8"), request).out_dir == f"{shared}/{RUN_ID}"

    missing = ran_on_a_node(request, tmp_path)
    assert missing.returncode == 2
    assert missing.stderr.splitlines() == [
        f"There is no folder {shared} on this node; give --shared one that is."
    ]
    assert not shared.exists()

    shared.mkdir(parents=True)
    (tmp_path / "second").mkdir()
    assert ran_on_a_node(request, tmp_path / "second").returncode == 7
    assert [one.name for one in shared.iterdir()] == [RUN_ID]


def test_a_shared_folder_is_refused_beside_another_place() -> None:
    both = LaunchRequest(shared="/mnt/nfs", outputs=BUCKET)
    with pytest.raises(UsageError, match="--outputs and --shared are both given"):
        refuse_request(make_plan(), both)
    with pytest.raises(UsageError, match="--shared and --fetch are both given"):
        refuse_request(make_plan(), LaunchRequest(shared="/mnt/nfs", fetch="/tmp/x"))
    refuse_request(make_plan(nodes=2), LaunchRequest(shared="/mnt/nfs", spot=True))


def test_a_smoke_run_of_a_script_whose_steps_nobody_knows_is_refused() -> None:
    guard = GuardRequest(smoke=True)
    with pytest.raises(UsageError, match="your own script"):
        refuse_request(
            make_plan(), LaunchRequest(shared="/mnt/nfs", command="train.py", guard=guard)
        )
    refuse_request(make_plan(), LaunchRequest(shared="/mnt/nfs", guard=guard))


def test_a_shared_folder_is_read_as_it_is_named() -> None:
    assert parse_shared("/mnt/nfs/runs/") == "/mnt/nfs/runs"


@pytest.mark.parametrize(
    "text",
    ["", "/", "runs", "~/runs", "//nfs/runs", "/mnt/../etc", "/mnt/$HOME", "/mnt/a b", "/mnt/x;rm"]
    + ["/tmp", "/tmp/runs", "/dev/shm/runs", "/outputs", "/outputs/runs", "s3://bucket/runs"],
)
def test_a_shared_folder_that_is_not_understood_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--shared"):
        parse_shared(text)


def test_shell_characters_in_names_and_variables_stay_data() -> None:
    project = make_project(workdir=Path("/home/ann") / NASTY.replace("/", ""), owner=NASTY)
    request = LaunchRequest(
        environment=(("NOTE", NASTY),), fetch=f"/tmp/{NASTY}", secrets=("HF_TOKEN",)
    )
    folder = Path("/tmp") / NASTY
    task = make_task(make_plan(), request, project=project, folder=folder)
    read = yaml.safe_load(task.yaml)
    assert read["envs"] == {"NOTE": NASTY}
    assert read["workdir"] == str(folder / "code")
    assert NASTY not in task.config["run"] + task.config["setup"]
    for label in read["resources"]["labels"].values():
        assert label == slug(label)
    words = shlex.split(task.command)
    assert str(folder / "task.yaml;") in words
    assert f"/tmp/{NASTY}/" in words


def test_a_secret_is_named_and_its_value_is_nowhere(monkeypatch) -> None:
    monkeypatch.setenv("HF_TOKEN", CANARY)
    task = aws()
    assert CANARY not in task.yaml + task.command
    assert task.config["secrets"] == {"HF_TOKEN": None}
    assert "--secret HF_TOKEN" in task.command


@pytest.mark.parametrize(
    ("read", "text"),
    [
        (parse_secret, f"HF_TOKEN={CANARY}"),
        (parse_secret, f"{CANARY}!"),
        (parse_variable, f"HF_TOKEN={CANARY}"),
        (parse_variable, f"NOTE={CANARY}"),
        (parse_variable, f"{CANARY} "),
        (parse_data, f"s3://key:{CANARY}@bucket:/data"),
        (parse_data, f"https://a.blob/c?sig={CANARY}:/data"),
        (parse_data, f"s3://bucket?token={CANARY}"),
        (parse_outputs, f"s3://key:{CANARY}@bucket"),
        (lambda text: refuse_keys(text, "--command"), f"train.py --token {CANARY}"),
        (lambda text: refuse_keys(text, "--setup"), f"export A={CANARY}"),
    ],
)
def test_a_value_of_a_secret_is_refused_and_not_repeated(
    read: Callable[[str], object], text: str
) -> None:
    with pytest.raises(UsageError) as caught:
        read(text)
    assert CANARY not in str(caught.value)
    assert "canary" not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "s3://bucket",
        "bucket:/data",
        "s3://bucket:data",
        "ftp://bucket:/data",
        "s3://:/data",
        "s3://bucket/$HOME:/data",
        "s3://bucket:/da ta",
        "s3://bucket:/a/../etc",
        "s3://bucket:/",
        "s3://bucket:/outputs/x",
        "s3://bucket:/data;rm",
    ],
)
def test_data_that_is_not_understood_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_data(text)


def test_two_buckets_are_not_put_in_one_place() -> None:
    mounts = [parse_data("s3://aaa:/data"), parse_data("gs://bbb:/data")]
    with pytest.raises(UsageError, match="s3://aaa and gs://bbb"):
        refuse_repeats(mounts)


@pytest.mark.parametrize("text", ["docker:a b", "$(id)", "", "docker:x;y"])
def test_an_image_is_a_name(text: str) -> None:
    with pytest.raises(UsageError):
        parse_image(text)


UV = """#!/bin/sh
[ "$1" != venv ] || { mkdir -p "$HOME/gpuplan-env/bin"; : >"$HOME/gpuplan-env/bin/activate"; }
echo "uv $*" >>"$HOME/log"
"""
SMI = '#!/bin/sh\necho "$DRIVER.10.02"\n'


def ran(script: str, folder: Path, driver: int) -> tuple[int, str, list[str]]:
    """Return how a setup ended beside stand-ins, what it said, and what it asked of uv."""
    (folder / "sky_workdir").mkdir(parents=True)
    for name, text in (("uv", UV), ("nvidia-smi", SMI), ("python3", "#!/bin/sh\nexit 0\n")):
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    done = subprocess.run(
        ["sh", "-c", script],
        env={"HOME": str(folder), "PATH": f"{folder}:/usr/bin:/bin", "DRIVER": str(driver)},
        capture_output=True,
        text=True,
        check=False,
    )
    log = folder / "log"
    return done.returncode, done.stderr, log.read_text().splitlines() if log.exists() else []


@pytest.mark.parametrize(
    ("accelerator", "driver", "build"),
    [
        ("A100-40GB-SXM", 580, "cu130"),
        ("A100-40GB-SXM", 575, "cu126"),
        ("A100-40GB-SXM", 470, None),
        ("T4", 590, "cu130"),
        ("V100-16GB-SXM2", 590, "cu126"),
        ("B200-180GB-SXM", 580, "cu130"),
        ("B200-180GB-SXM", 570, None),
        ("GB200", 580, "cu130"),
    ],
)
def test_torch_is_the_build_that_driver_and_device_run(
    accelerator: str, driver: int, build: str | None, tmp_path: Path, require
) -> None:
    require("posix", "the scripts are for sh")
    device = load_catalogue().accelerators[accelerator]
    environment = with_packages("requirements.txt").environment
    script = setup_script(environment, device, with_torch=True, image=None)
    code, said, asked = ran(script, tmp_path, driver)
    if build is None:
        assert code == 1
        assert f"this node has {driver}" in said
        return
    assert (code, said) == (0, "")
    assert asked[1:] == [
        f"uv pip install --quiet torch==2.13.0 --index-url https://download.pytorch.org/whl/{build}",
        f"uv pip install --quiet -r requirements.txt -c {tmp_path}/gpuplan-torch.txt",
    ]
    assert (tmp_path / "gpuplan-torch.txt").read_text() == "torch==2.13.0\n"


def test_a_tracker_is_installed_where_it_is_missing_and_its_failure_ends_nothing(
    tmp_path: Path, require
) -> None:
    require("posix", "the scripts are for sh")
    device = load_catalogue().accelerators["A100-40GB-SXM"]
    environment = with_packages(None).environment
    script = setup_script(
        environment, device, with_torch=True, image=None, trackers=("mlflow", "wandb")
    )
    # Its stand-in for Python finds whatever it is asked for.
    code, _, asked = ran(script.replace("import mlflow", "sys.exit(1)"), tmp_path, 580)
    assert (code, len(asked)) == (0, 2)
    lines = [line for line in script.splitlines() if "nothing is written to it" in line]
    (tmp_path / "broken").mkdir()
    for name in ("python3", "uv"):
        (tmp_path / "broken" / name).write_text('#!/bin/sh\necho "$*" >>"$HOME/said"\nexit 1\n')
        (tmp_path / "broken" / name).chmod(0o755)
    done = subprocess.run(
        ["sh", "-euc", "\n".join(lines)],
        env={"HOME": str(tmp_path), "PATH": f"{tmp_path}/broken:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0
    assert "wandb is not installed here" in done.stderr
    said = (tmp_path / "said").read_text()
    assert "pip install --quiet mlflow-skinny sqlalchemy alembic -c" in said
    assert "pip install --quiet wandb -c" in said


def test_a_device_whose_torch_is_not_known_needs_an_environment() -> None:
    device = load_catalogue().accelerators["MI300X"]
    environment = make_project().environment
    with pytest.raises(UsageError, match="MI300X"):
        setup_script(environment, device, with_torch=True, image=None)
    theirs = replace(environment, found="requirements.txt")
    assert "torch==" not in setup_script(theirs, device, with_torch=True, image=None)


def test_the_job_is_what_the_run_script_starts() -> None:
    task = aws()
    assert task.out_dir == f"/outputs/team/{RUN_ID}"
    assert f"export GPUPLAN_OUT={task.out_dir}\n" in task.config["run"]
    assert "--module gpuplan_job ../gpuplan-job\n" in task.config["run"]
    assert json.dumps(task.config)


@pytest.mark.parametrize(
    ("source", "bucket", "folder"),
    [
        ("s3://texts", "s3://texts", ""),
        ("gs://texts/a/b", "gs://texts", "a/b"),
        ("cos://eu-de/texts/a", "cos://eu-de/texts", "a"),
        (
            "https://me.blob.core.windows.net/texts/a",
            "https://me.blob.core.windows.net/texts",
            "a",
        ),
        ("hf://datasets/me/texts", "hf://datasets/me/texts", ""),
    ],
)
def test_a_bucket_and_the_folder_in_it(source: str, bucket: str, folder: str) -> None:
    mount = parse_outputs(source)
    assert (mount.bucket, mount.folder) == (bucket, folder)


def waiting(
    after: str, *, wait_s: float, path: str = os.defpath
) -> subprocess.CompletedProcess[str]:
    """Run what a task's script does once its run has ended with 7, and SkyPilot's lines after."""
    lines = ["(exit 7)", *upload_lines(wait_s), "theirs=$?", after, "exit $theirs"]
    return subprocess.run(
        ["bash", "-c", "\n".join(lines)],
        env={"PATH": path},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_the_wait_for_uploads_has_an_end(require) -> None:
    require("linux", "nodes are")
    done = waiting("sleep 1", wait_s=600)
    assert (done.returncode, done.stdout, done.stderr) == (7, "", "")
    cut = waiting("while true; do sleep 0.2; done", wait_s=1)
    assert cut.returncode == -9
    assert lacks_results(cut.stdout)
    assert not lacks_results(done.stdout)


def test_a_clock_that_is_set_does_not_move_the_end_of_that_wait(tmp_path: Path, require) -> None:
    require("linux", "nodes are")
    said = tmp_path / "date"
    # It is an hour later at every look.
    said.write_text(
        f"#!/bin/sh\necho >>{tmp_path}/looks\necho $((3600 * $(wc -l <{tmp_path}/looks)))\n"
    )
    said.chmod(0o755)
    done = waiting("sleep 2", wait_s=600, path=f"{tmp_path}:{os.defpath}")
    assert (done.returncode, done.stdout, done.stderr) == (7, "", "")


@pytest.mark.parametrize("name", ["kubernetes", "slurm", "ssh"])
def test_a_node_of_a_cluster_is_asked_for_with_its_cores_and_memory(name: str) -> None:
    known = load_catalogue().instances["aws", "p5.48xlarge"]
    infra = {"kubernetes": "k8s", "slurm": "slurm/lab", "ssh": "ssh/attic"}[name]
    plan = make_plan(offer=make_offer(provider="lab", accelerator="H100-80GB-SXM", usd_per_hour=1))
    asked = LaunchRequest(infra=infra, shared="/mnt/nfs")
    tried = (own_place(infra, plan, spot=False),)
    resources = make_task(plan, asked, tried=tried, instance=known).config["resources"]
    assert known.vcpus is not None and known.memory_bytes is not None
    assert resources["cpus"] == int(known.vcpus * 0.9)
    assert resources["memory"] == int(known.memory_bytes / 2**30 * 0.9)
    unknown = known.model_copy(update={"vcpus": None, "memory_bytes": None})
    nothing = make_task(plan, asked, tried=tried, instance=unknown).config["resources"]
    assert not {"cpus", "memory"} & set(nothing)
    bought = make_task(make_plan(), LaunchRequest(outputs=BUCKET), instance=known)
    assert not {"cpus", "memory"} & set(bought.config["resources"])
