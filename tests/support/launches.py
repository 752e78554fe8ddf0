"""Launches made by hand: a project, a request, plans on five kinds of place."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from answers import make_offer, make_plan

from gpuplan.catalog.snapshot import Catalogue, load_catalogue
from gpuplan.launcher.prepare.project import Project
from gpuplan.launcher.prepare.request import LaunchRequest, parse_data, parse_outputs
from gpuplan.launcher.prepare.task.node_setup import Environment
from gpuplan.launcher.prepare.task.task import Task, build_task
from gpuplan.launcher.skypilot.placement import own_place, places
from gpuplan.planner.plan.plan import Plan

RUN_ID = "net-20261121-232638-a1b2c3"
BUCKET = parse_outputs("s3://results/team")


def make_project(**changes: Any) -> Project:
    environment = Environment(found=None, torch_version="2.13.0", python_version="3.12")
    project = Project(workdir=Path("/home/ann/net"), environment=environment, owner="ann")
    return replace(project, **changes)


def with_packages(found: Any) -> Project:
    project = make_project()
    return replace(project, environment=replace(project.environment, found=found))


def make_task(
    plan: Plan, request: LaunchRequest, *, project: Project | None = None, **changes: Any
) -> Task:
    catalogue: Catalogue = load_catalogue()
    spot = request.spot if request.spot is not None else plan.offer.purchase == "spot"
    tried = changes.pop("tried", None) or places(
        plan, catalogue, spot=spot, regions=request.regions, zones=request.zones
    )
    facts: dict[str, Any] = {
        "run_id": RUN_ID,
        "folder": Path("/home/ann/net/gpuplan-launches") / RUN_ID,
        "accelerator": catalogue.accelerators.get(plan.offer.accelerator),
        "checkpoint_bytes": 12 * 124_439_808,
    }
    return build_task(plan, project or make_project(), request, tried, **{**facts, **changes})


def aws() -> Task:
    """Two nodes on spot, in two regions in order, with data, a variable and a secret."""
    plan = make_plan(layout="fsdp16", nodes=2, global_batch=128)
    request = LaunchRequest(
        spot=True,
        regions=("us-east-1", "us-west-2"),
        data=(parse_data("s3://texts/train:/data"),),
        outputs=BUCKET,
        environment=(("NCCL_DEBUG", "WARN"),),
        secrets=("HF_TOKEN",),
    )
    return make_task(plan, request, project=with_packages("requirements.txt"))


def deadline() -> Task:
    """Spot machines while there is time to lose them, then others."""
    plan, request = make_plan(), LaunchRequest(spot=True, outputs=BUCKET)
    return make_task(plan, request, fallback=places(plan, load_catalogue(), spot=False))


def gcp() -> Task:
    """A host with accelerators attached, in one zone, fetched when it is done."""
    offer = make_offer(
        provider="gcp",
        region="us-central1",
        instance_type="n1-standard-16+2xnvidia-tesla-t4",
        accelerator="T4",
        accelerators_per_node=2,
        usd_per_hour=1.46,
    )
    plan = make_plan(layout="dp2", offer=offer)
    request = LaunchRequest(zones=("us-central1-a",), fetch="/home/ann/net/results")
    return make_task(plan, request, project=with_packages("uv.lock"))


def azure() -> Task:
    """A docker image."""
    offer = make_offer(provider="azure", region="eastus", instance_type="Standard_ND96asr_v4")
    request = LaunchRequest(
        image="docker:nvcr.io/nvidia/pytorch:26.05-py3", outputs=BUCKET, disk_gb=512
    )
    return make_task(make_plan(offer=offer), request, project=with_packages("pyproject.toml"))


def tpu() -> Task:
    """A slice of two machines, with a script of one's own."""
    offer = make_offer(
        provider="gcp",
        region="europe-west4",
        instance_type="ct5lp-hightpu-4t",
        accelerator="TPU-v5e",
        accelerators_per_node=4,
        usd_per_hour=4.8,
    )
    plan = make_plan(layout="dp8", nodes=2, offer=offer, needs_port=True, stack="xla")
    request = LaunchRequest(
        command="train.py --data /data", framework="jax", outputs=parse_outputs("gs://results")
    )
    return make_task(plan, request, project=with_packages("requirements.txt"))


def kubernetes() -> Task:
    """A cluster of one's own, with lines of one's own to set it up."""
    offer = make_offer(
        provider="kubernetes",
        region="our-lab",
        instance_type="hgx-h100-8",
        accelerator="H100-80GB-SXM",
        purchase="owned",
        usd_per_hour=17.6,
    )
    request = LaunchRequest(setup="python3 -m pip install torch", outputs=BUCKET)
    return make_task(make_plan(offer=offer), request)


def slurm() -> Task:
    """Two nodes of a cluster that a provider of another name sells, with a disk they share."""
    offer = make_offer(
        provider="neevcloud",
        region="indore",
        instance_type="hgx-h200-8",
        accelerator="H200-141GB-SXM",
        purchase="owned",
        usd_per_hour=19.2,
    )
    plan = make_plan(layout="fsdp16", nodes=2, global_batch=128, offer=offer)
    request = LaunchRequest(infra="slurm/lab/gpus", shared="/mnt/nfs/runs")
    project = with_packages("requirements.txt")
    return make_task(
        plan, request, project=project, tried=(own_place("slurm/lab/gpus", plan, spot=False),)
    )


def ssh() -> Task:
    """A pool of machines that are reached over SSH."""
    offer = make_offer(
        provider="ssh",
        region="attic",
        instance_type="tower",
        accelerator="RTX-4090",
        accelerators_per_node=2,
        purchase="owned",
        usd_per_hour=0,
    )
    request = LaunchRequest(fetch="/home/ann/net/results")
    return make_task(make_plan(layout="dp2", offer=offer), request)


TASKS = {
    "aws": aws,
    "deadline": deadline,
    "gcp": gcp,
    "azure": azure,
    "tpu": tpu,
    "kubernetes": kubernetes,
    "slurm": slurm,
    "ssh": ssh,
}
