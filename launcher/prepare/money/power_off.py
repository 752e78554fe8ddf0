"""What a machine that powers itself off still costs, cloud by cloud.

An orphaned machine (no laptop, no SkyPilot, no guard) can do one thing by itself:
power off. Whether that ends its price is the provider's rule.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date


@dataclass(frozen=True, kw_only=True)
class PowerOff:
    """What a power-off from inside ends."""

    ends_compute: bool | None
    """Whether the machine's hourly price ends; None where the provider does not say."""
    still_billed: str
    """What is billed after it, until somebody deletes the machine."""
    source: str
    checked: date = date(2026, 11, 22)


CONTAINER = PowerOff(
    ends_compute=False,
    still_billed="everything: docker does not grant a container the right to power its machine off",
    source="https://docs.docker.com/engine/containers/run/"
    "#runtime-privilege-and-linux-capabilities",
)
"""A job in a docker image: SkyPilot then runs all of it, set-up included, in a container.

SYS_BOOT, which reboot(2) needs, is among the capabilities that docker does not grant by default,
and SkyPilot 0.14 adds SYS_ADMIN and SYS_RESOURCE alone (sky/provision/docker_utils.py). Options of
the user's own (`docker.run_options`) are not looked at.
"""
UNKNOWN = PowerOff(
    ends_compute=None,
    still_billed="not known: count on everything",
    source="nothing that the provider states was found",
)
POWER_OFF: Mapping[str, PowerOff] = {
    "aws": PowerOff(
        ends_compute=True,
        still_billed="its disk: EC2 stops such a machine, unless its shutdown behaviour was set to"
        " terminate",
        source="https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/"
        "Using_ChangingInstanceInitiatedShutdownBehavior.html",
    ),
    "gcp": PowerOff(
        ends_compute=True,
        still_billed="its disks and reserved addresses: the instance is TERMINATED, not deleted",
        source="https://docs.cloud.google.com/compute/docs/instances/stop-start-instance",
    ),
    "azure": PowerOff(
        ends_compute=False,
        still_billed="everything: the machine is stopped, not deallocated",
        source="https://learn.microsoft.com/en-us/rest/api/compute/virtual-machines/power-off",
    ),
    "lambda": PowerOff(
        ends_compute=False,
        still_billed="everything, until the instance is terminated in the console",
        source="https://docs.lambda.ai/public-cloud/billing",
    ),
    "oci": PowerOff(
        ends_compute=False,
        still_billed="everything: a shutdown by the operating system does not stop billing",
        source="https://docs.oracle.com/en-us/iaas/Content/Compute/Tasks/restartinginstance.htm",
    ),
    "do": PowerOff(
        ends_compute=False,
        still_billed="everything, until the droplet is destroyed",
        source="https://docs.digitalocean.com/reference/doctl/reference/compute/droplet-action/"
        "power-off",
    ),
    "nebius": PowerOff(
        ends_compute=None,
        still_billed="its disks; a stopped machine is not charged, but whether one that powers"
        " itself off counts as stopped is not stated",
        source="https://docs.nebius.com/legal/specific-terms/compute",
    ),
    "runpod": PowerOff(
        ends_compute=None,
        still_billed="its disks, until the pod is terminated; a pod is a container, and what RunPod"
        " bills when one ends by itself is not stated",
        source="https://docs.runpod.io/pods/manage-pods",
    ),
    "vast": PowerOff(
        ends_compute=None,
        still_billed="its storage, until the instance is destroyed; the GPU is billed while the"
        " instance is active, and whether one whose container has ended is active is not stated",
        source="https://docs.vast.ai/documentation/reference/billing",
    ),
    "verda": UNKNOWN,
    "k8s": PowerOff(
        ends_compute=False,
        still_billed="the nodes, until the cluster removes them: a pod that ends leaves its node",
        source="https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/",
    ),
    "slurm": PowerOff(
        ends_compute=False,
        still_billed="the allocation, until Slurm ends it: at the partition's time limit, unless"
        " SkyPilot's `slurm.sbatch_options.time` is set",
        source="https://slurm.schedmd.com/sbatch.html#OPT_time",
    ),
    "ssh": PowerOff(
        ends_compute=False,
        still_billed="what your own machines cost: gpuplan never powers them off",
        source="gpuplan: launcher/prepare/money/power_off.py",
    ),
}
"""What a power-off ends, by the cloud as SkyPilot's `infra` names it."""
COMMAND = ("sudo", "-n", "shutdown", "-P", "now")
"""What a machine runs to power off: SkyPilot's users need no password."""


def power_off(cloud: str, *, image: str | None = None, tpu: bool = False) -> PowerOff:
    """Return what a power-off from inside ends on a cloud.

    Args:
        cloud: as SkyPilot names it.
        image: that the job runs in, `docker:…` if it is a container.
        tpu: whether the machines are those of a TPU slice, which are no Compute Engine instances.
    """
    if tpu:
        return UNKNOWN
    if image is not None and image.startswith("docker:"):
        return CONTAINER
    return POWER_OFF.get(cloud, UNKNOWN)


def powered_off_on(
    clouds: Sequence[str], *, image: str | None = None, tpu: bool = False
) -> tuple[str, ...]:
    """Return those clouds on which a power-off from inside ends the hourly price.

    >>> powered_off_on(["azure", "aws"]), powered_off_on(["aws"], image="docker:torch")
    (('aws',), ())
    """
    return tuple(
        one for one in dict.fromkeys(clouds) if power_off(one, image=image, tpu=tpu).ends_compute
    )
