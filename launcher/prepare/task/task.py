"""From a plan and a project to the exact SkyPilot task. Pure: nothing is read, written or asked."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ....catalog.terms.pricebook import Reservation
from ....catalog.types import Accelerator, Instance
from ....catalog.units import GIB
from ....planner.cost.beside_machines.data_cost import SIZED_DISKS, disk_gb
from ....planner.plan.plan import Plan
from ...bundle import PACKAGE
from ...frameworks.launch import launch
from ...frameworks.types import FrameworkLaunch
from ...guard.node.stage import ON_DEMAND, SPOT, VARIABLE
from ...labels import OWNER_LABEL, RUN_LABEL, slug
from ...skypilot.interfaces import Interfaces
from ...skypilot.placement import OWN_CLUSTERS, TPU_SLICES, Place, hardware
from ...skypilot.reservations import CONFIG_FILE, sky_config
from ...task_file import JOB_FOLDER, NO_AUTODOWN, OUT_FOLDER, WORKDIR, write_tasks
from ...upload import CODE_FOLDER
from ..project import Project
from ..request import OUTPUTS, LaunchRequest
from .node_setup import setup_script, timed_setup
from .run_script import out_dir, run_script

TORCH_FRAMEWORKS = ("torchrun", "accelerate", "deepspeed", "lightning", "horovod")
FAST_NETWORK = ("aws", "gcp")
"""Clouds on which SkyPilot 0.14 takes `network_tier` for every machine."""
ENDED_BY_SIGTERM = 143
"""What the guard ends with where somebody else ended it."""
PART_OF_JOBS = 0.9
"""Of the cores and memory of a node of a cluster (assumed): the rest is for its own system, without
which no node had room: kubernetes.io/docs/tasks/administer-cluster/reserve-compute-resources."""
IDLE_DOWN_MINUTES = 5
FETCH_DOWN_MINUTES = 60
"""Longer, since results are still to be fetched."""
LONGEST_CLUSTER_NAME = 30
"""SkyPilot shortens longer ones on some clouds."""
STAMP = re.compile(r"-?\d{8}-\d{6}$")


@dataclass(frozen=True, kw_only=True)
class Task:
    """A SkyPilot task, and the line that starts it."""

    cluster: str
    config: dict[str, Any]
    command: str
    notes: tuple[str, ...] = ()
    """Notes for the user: what the script must do itself."""
    then: dict[str, Any] | None = None
    """The task that follows when this one ends with 0: on on-demand machines."""
    out_dir: str
    """Path of the results, absolute or relative to the working directory of a node."""
    in_bucket: bool = False
    """Whether that is in a mounted bucket."""
    sky_config: dict[str, Any] | None = None
    """SkyPilot's configuration for this launch; None where it needs none."""

    @property
    def idle_minutes(self) -> int | None:
        """Return after how long SkyPilot tears down machines that are idle; None: it does not."""
        autostop = self.config["resources"].get("autostop")
        return None if autostop is None else autostop["idle_minutes"]

    @property
    def yaml(self) -> str:
        """Return the task as SkyPilot reads it: two documents where another follows."""
        documents = [self.config] if self.then is None else [self.config, self.then]
        return write_tasks(documents)


def build_task(
    plan: Plan,
    project: Project,
    request: LaunchRequest,
    tried: tuple[Place, ...],
    *,
    run_id: str,
    folder: Path,
    accelerator: Accelerator | None,
    checkpoint_bytes: float | None,
    fallback: tuple[Place, ...] = (),
    reservation: Reservation | None = None,
    interfaces: Interfaces | None = None,
    instance: Instance | None = None,
) -> Task:
    """Return the task that launches a plan.

    Args:
        plan: what is run.
        project: the code, and what it needs.
        request: how.
        tried: where, in order; the first is the plan's price.
        run_id: names the run; the cluster's name is made of it.
        folder: local; holds `job`, `code` and `task.yaml` when machines are asked for.
        accelerator: of the plan; None where the catalogue does not know it.
        checkpoint_bytes: of one checkpoint, for the size of disks; None where unknown.
        fallback: where machines are bought on demand, if there is no spot machine in `tried`, or
            once there is no time for one to be taken away.
        reservation: that the plan is paid by, and its machines start in; None: no such.
        interfaces: between nodes; None for one node, and where they are not known.
        instance: what a node of the plan is; None where nobody states it.

    Raises:
        UsageError: the command or the framework cannot be launched so, or no torch is known.
    """
    cloud = tried[0].cloud
    nodes, machine = hardware(plan, cloud)
    launched = _launched(plan, request)
    cluster = cluster_name(run_id)
    resources = _resources(plan, project, request, tried, machine, run_id, checkpoint_bytes)
    resources |= _host(cloud, instance)
    config: dict[str, Any] = {
        "name": cluster,
        "workdir": str(folder / CODE_FOLDER),
        "num_nodes": nodes,
        "resources": {**resources, **_order(tried, fallback)},
        "envs": dict(request.environment) or None,
        "secrets": dict.fromkeys(request.secrets) or None,
        "file_mounts": _mounts(request, folder),
        "setup": timed_setup(_setup(project, request, accelerator)),
        "run": run_script(launched, request, run_id),
    }
    config = {key: value for key, value in config.items() if value is not None}
    own_config = _own_config(sky_config(reservation, tried), interfaces)
    then = None
    if fallback and request.command is None:
        config, then = _two_tasks(config, {**resources, **_order(fallback, ())})
    return Task(
        cluster=cluster,
        config=config,
        then=then,
        sky_config=own_config,
        command=_command(
            cluster,
            request,
            folder / "task.yaml",
            spot=request.buys_spot(plan),
            config=folder / CONFIG_FILE if own_config else None,
        ),
        notes=() if request.command is None else launched.notes,
        out_dir=out_dir(request, run_id),
        in_bucket=request.outputs is not None,
    )


def _own_config(
    held: Mapping[str, Any] | None, interfaces: Interfaces | None
) -> dict[str, Any] | None:
    """Return SkyPilot's configuration for a launch: reservations, and network interfaces."""
    found = [one for one in (held, interfaces and interfaces.config) if one]
    clouds = {cloud for one in found for cloud in one}
    return {
        cloud: {key: value for one in found for key, value in one.get(cloud, {}).items()}
        for cloud in sorted(clouds)
    } or None


def _two_tasks(
    config: Mapping[str, Any], others: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the task on spot machines and the one that follows it, told apart by a variable.

    Args:
        config: of both.
        others: the resources of the second, but for how they are bought.
    """
    variables = config.get("envs", {})
    bought = {key: value for key, value in others.items() if key != "use_spot"}
    first = {**config, "envs": {**variables, VARIABLE: SPOT}}
    second = {**config, "resources": bought, "envs": {**variables, VARIABLE: ON_DEMAND}}
    # SkyPilot takes no two tasks of one name.
    return first, {**second, "name": f"{config['name']}-2"}


def cluster_name(run_id: str) -> str:
    """Return the name of a run's cluster: lower case, digits and hyphens.

    >>> cluster_name("net-20261121-232638-a1b2c3")
    'gp-net-a1b2c3'
    """
    rest, _, unique = slug(run_id).rpartition("-")
    name = STAMP.sub("", rest)[: LONGEST_CLUSTER_NAME - len(f"gp--{unique}")]
    return f"gp-{name.rstrip('-')}-{unique}"


def _launched(plan: Plan, request: LaunchRequest) -> FrameworkLaunch:
    per_node = plan.accelerators // plan.nodes
    if request.command is None:
        # The home of a node is known only there; the job lies beside the working directory.
        command, framework = f"-m {PACKAGE} ../{JOB_FOLDER}", "torchrun"
    else:
        command, framework = request.command, request.framework or "torchrun"
    device = "cpu" if plan.offer.is_cpu else "gpu"
    return launch(plan, command, framework, nodes=plan.nodes, per_node=per_node, device=device)


def _resources(
    plan: Plan,
    project: Project,
    request: LaunchRequest,
    tried: tuple[Place, ...],
    machine: Mapping[str, Any],
    run_id: str,
    checkpoint_bytes: float | None,
) -> dict[str, Any]:
    cloud = tried[0].cloud
    fields: dict[str, Any] = {**machine}
    if request.buys_spot(plan):
        fields["use_spot"] = True
        # So a job ends whose machine is being taken away: it is started again elsewhere.
        fields["job_recovery"] = {"recover_on_exit_codes": [ENDED_BY_SIGTERM]}
    if request.disk_gb is not None or cloud in SIZED_DISKS:
        fields["disk_size"] = request.disk_gb or disk_gb(checkpoint_bytes)
    if plan.nodes > 1 and cloud in FAST_NETWORK and plan.offer.accelerator not in TPU_SLICES:
        fields["network_tier"] = "best"
    if request.image is not None:
        fields["image_id"] = request.image
    if cloud not in NO_AUTODOWN:
        # An open shell on a node must not keep it: only jobs do.
        fields["autostop"] = {
            "idle_minutes": idle_minutes(request),
            "down": True,
            "wait_for": "jobs",
        }
    fields["labels"] = {
        RUN_LABEL: slug(run_id),
        "gpuplan-plan": slug(plan.id),
        "gpuplan-project": slug(project.name),
        OWNER_LABEL: slug(project.owner),
    }
    return fields


def _host(cloud: str, instance: Instance | None) -> dict[str, int]:
    """Return the cores and memory to ask for where a node is a part of somebody's cluster.

    Without them SkyPilot 0.14 takes a small default for each GPU (sky/clouds/kubernetes.py).
    """
    if instance is None or cloud not in OWN_CLUSTERS.values():
        return {}
    asked: dict[str, int] = {}
    if instance.vcpus is not None:
        asked["cpus"] = max(1, int(instance.vcpus * PART_OF_JOBS))
    if instance.memory_bytes is not None:
        asked["memory"] = max(1, int(instance.memory_bytes / GIB * PART_OF_JOBS))
    return asked


def _order(tried: tuple[Place, ...], fallback: tuple[Place, ...]) -> dict[str, Any]:
    """Return the places as SkyPilot tries them, one after the other."""
    if len(tried) == 1 and not fallback:
        return {"infra": tried[0].infra}
    last = [{"infra": place.infra, "use_spot": False} for place in fallback]
    return {"ordered": [*({"infra": place.infra} for place in tried), *last]}


def idle_minutes(request: LaunchRequest) -> int:
    """Return the idle time after the job until autodown, where no command tears them down."""
    if request.autodown_minutes is not None:
        return request.autodown_minutes
    return FETCH_DOWN_MINUTES if request.fetch else IDLE_DOWN_MINUTES


def _mounts(request: LaunchRequest, folder: Path) -> dict[str, Any]:
    mounts: dict[str, Any] = {f"~/{JOB_FOLDER}": str(folder / "job")}
    for mount in request.data:
        mounts[mount.target] = {"source": mount.bucket, "mode": mount.mode}
        if mount.folder:
            # SkyPilot's own key: from an address alone it mounts no folder of a bucket.
            mounts[mount.target]["_bucket_sub_path"] = mount.folder
    if request.outputs is not None:
        mounts[OUTPUTS] = {"source": request.outputs.bucket, "mode": request.outputs.mode}
    return mounts


def _setup(project: Project, request: LaunchRequest, accelerator: Accelerator | None) -> str:
    if request.setup is not None:
        return f'set -eu\ncd "$HOME/{WORKDIR}"\n{request.setup}\n'
    framework = "torchrun" if request.command is None else request.framework or "torchrun"
    return setup_script(
        project.environment,
        accelerator,
        with_torch=framework in TORCH_FRAMEWORKS,
        with_runner=request.command is None,
        trackers=request.training.tracker,
        image=request.image,
    )


def _command(
    cluster: str, request: LaunchRequest, task: Path, *, spot: bool, config: Path | None
) -> str:
    """Return the shell line that starts the task, and brings back what must come back."""
    secrets = [word for name in request.secrets for word in ("--secret", name)]
    # Spot machines are taken away: then SkyPilot starts a managed job again.
    how = ["jobs", "launch", "-y", "-n"] if spot else ["launch", "-y", "-c"]
    own = [] if config is None else ["--config", str(config)]
    start = shlex.join(["sky", *how, cluster, *own, *secrets, str(task)])
    if request.fetch is None:
        return start
    fetch = ["rsync", "-a", f"{cluster}:{OUT_FOLDER}/", f"{request.fetch.rstrip('/') or '/'}/"]
    # Results are fetched of a failed run too, and the machines go only once they are here.
    return f"{start}; {shlex.join(fetch)} && {shlex.join(['sky', 'down', '-y', cluster])}"
