"""The clouds that SkyPilot reaches: how each is logged in to, and where its keys lie here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class CloudFacts:
    """What gpuplan itself knows of a cloud: how it is logged in to, and where that is kept."""

    extra: str
    """Name of the extra of the package `skypilot`."""
    login: str
    files: tuple[str, ...] = ()
    """Below the user's home."""
    variables: tuple[str, ...] = ()


CLOUDS: Mapping[str, CloudFacts] = {
    "AWS": CloudFacts(
        extra="aws",
        login="aws configure",
        files=(".aws/credentials", ".aws/config"),
        variables=("AWS_ACCESS_KEY_ID", "AWS_PROFILE"),
    ),
    "GCP": CloudFacts(
        extra="gcp",
        login="gcloud init; gcloud auth application-default login",
        files=(".config/gcloud/application_default_credentials.json",),
        variables=("GOOGLE_APPLICATION_CREDENTIALS",),
    ),
    "Azure": CloudFacts(
        extra="azure",
        login="az login",
        files=(".azure/msal_token_cache.json",),
        variables=("AZURE_CLIENT_ID",),
    ),
    "Lambda": CloudFacts(
        extra="lambda",
        login="put your key into ~/.lambda_cloud/lambda_keys",
        files=(".lambda_cloud/lambda_keys",),
    ),
    "RunPod": CloudFacts(extra="runpod", login="runpod config", files=(".runpod/config.toml",)),
    "Nebius": CloudFacts(
        extra="nebius",
        login="nebius iam get-access-token > ~/.nebius/NEBIUS_IAM_TOKEN.txt",
        files=(".nebius/NEBIUS_IAM_TOKEN.txt", ".nebius/credentials.json"),
    ),
    "OCI": CloudFacts(extra="oci", login="oci setup config", files=(".oci/config",)),
    "DO": CloudFacts(extra="do", login="doctl auth init", files=(".config/doctl/config.yaml",)),
    "Vast": CloudFacts(
        extra="vast",
        login="put your key into ~/.config/vastai/vast_api_key",
        files=(".config/vastai/vast_api_key",),
    ),
    "Verda": CloudFacts(
        extra="verda",
        login="put your key into ~/.verda/config.json",
        files=(".verda/config.json",),
    ),
    "Kubernetes": CloudFacts(
        extra="kubernetes",
        login="bring the cluster's settings into ~/.kube/config",
        files=(".kube/config",),
        variables=("KUBECONFIG",),
    ),
    "Slurm": CloudFacts(
        extra="slurm", login="name the cluster in ~/.slurm/config", files=(".slurm/config",)
    ),
    "SSH": CloudFacts(
        extra="ssh",
        login="name the machines in ~/.sky/ssh_node_pools.yaml, then `sky ssh up`",
        files=(".sky/ssh_node_pools.yaml",),
    ),
}
"""Clouds by SkyPilot's names: the sellers in gpuplan's catalogue, and clusters of one's own."""


def credentials(home: Path, environment: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Return, for each cloud, the names of the files and variables with keys that are here."""
    return {
        cloud: (
            *(f"~/{name}" for name in facts.files if (home / name).is_file()),
            *(f"${name}" for name in facts.variables if environment.get(name)),
        )
        for cloud, facts in CLOUDS.items()
    }
