"""The SkyPilot task of a launch: exact files, what stays data, what is never in it."""

import json
import shlex
import subprocess
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import pytest
import yaml
from answers import make_offer, make_plan
from hypothesis import given
from hypothesis import strategies as st
from launches import BUCKET, RUN_ID, TASKS, aws, make_project, make_task

from gpuplan.catalog.errors import PriceError, UsageError
from gpuplan.catalog.snapshot import load_catalogue
from gpuplan.launcher.labels import slug
from gpuplan.launcher.prepare.request import (
    LaunchRequest,
    parse_image,
)
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


def test_a_slice_is_one_node_to_skypilot_and_more_than_one_is_refused() -> None:
    kind = {"provider": "gcp", "instance_type": "ct6e-standard-4t", "accelerator": "TPU-v6e"}
    offer = make_offer(**kind, accelerators_per_node=4)
    plans = [make_plan(layout=f"fsdp{4 * n}", nodes=n, offer=offer) for n in (64, 128)]
    assert hardware(plans[0], "gcp") == (1, {"accelerators": "tpu-v6e-256"})
    with pytest.raises(UsageError, match="512 chips are more than one slice") as error:
        hardware(plans[1], "gcp")
    assert "--nodes: 64 at most" in str(error.value)


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


@pytest.mark.parametrize("text", ["docker:a b", "$(id)", "", "docker:x;y"])
def test_an_image_is_a_name(text: str) -> None:
    with pytest.raises(UsageError):
        parse_image(text)


def test_the_job_is_what_the_run_script_starts() -> None:
    task = aws()
    assert task.out_dir == f"/outputs/team/{RUN_ID}"
    assert f"export GPUPLAN_OUT={task.out_dir}\n" in task.config["run"]
    assert "--module gpuplan_job ../gpuplan-job\n" in task.config["run"]
    assert json.dumps(task.config)


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
