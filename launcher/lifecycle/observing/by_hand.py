"""How the user finds the machines of a launch in their cloud and ends them, without SkyPilot."""

from __future__ import annotations

from ...labels import RUN_LABEL, slug
from ...store.launch_record import LaunchRecord
from ..engine import CONTROLLER_PREFIX

AWS_LIVE = "pending,running,stopping,stopped"


def where_to_look(record: LaunchRecord) -> list[str]:
    """Return lines that say where the machines of a launch may be, and the commands of its clouds.

    SkyPilot gives its labels to every cloud that has labels or tags, and begins the names of a
    launch's machines with that of its cluster.
    """
    run = slug(record.run)
    lines = [
        f"its machines carry the label (tag) {RUN_LABEL}={run}, and their names begin with"
        f" {record.cluster}; it was tried in {', '.join(_places(record))}"
    ]
    commands = [_commands(*place.split("/"), run=run) for place in _places(record)]
    lines += list(dict.fromkeys(line for one in commands for line in one))
    if record.managed:
        lines.append(
            f"SkyPilot's controller, {CONTROLLER_PREFIX}…, carries no such label: while it runs, it"
            " starts machines that are ended anew. End it first, if no other launch uses it"
        )
    return lines


def _places(record: LaunchRecord) -> list[str]:
    """Return where machines may be, without zones: where they were seen, then where it is tried."""
    seen = [one.infra for one in record.attempts if one.infra]
    tried = [one.infra for one in record.places]
    return list(dict.fromkeys("/".join(one.split("/")[:2]) for one in (*seen, *tried)))


def _commands(cloud: str, region: str | None = None, *, run: str) -> tuple[str, ...]:
    """Return what lists and ends machines in a place, by its cloud's own tool."""
    if cloud == "aws" and region is not None:
        return (
            f"aws ec2 describe-instances --region {region} --filters"
            f" Name=tag:{RUN_LABEL},Values={run} Name=instance-state-name,Values={AWS_LIVE}"
            " --query 'Reservations[].Instances[].InstanceId'",
            f"aws ec2 terminate-instances --region {region} --instance-ids ID…",
        )
    if cloud == "gcp":
        return (
            f"gcloud compute instances list --filter=labels.{RUN_LABEL}={run}",
            "gcloud compute instances delete NAME --zone ZONE",
        )
    if cloud == "azure":
        return (
            f"az resource list --tag {RUN_LABEL}={run} --output table",
            "az resource delete --ids ID…",
        )
    if cloud in ("k8s", "kubernetes"):
        where = "" if region is None else f" --context {region}"
        return (
            f"kubectl{where} get pods --all-namespaces --selector {RUN_LABEL}={run}",
            f"kubectl{where} delete pods --all-namespaces --selector {RUN_LABEL}={run}",
        )
    return (f"{cloud}: look in its console for machines of that name",)
