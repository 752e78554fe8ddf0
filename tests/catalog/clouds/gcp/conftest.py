"""A local server that answers as Google Cloud does, and its client libraries."""

from collections.abc import Iterator

import pytest
from clouds.gcp import HASTY, PROJECT, GcpWorld, credentials
from clouds.server import Server

from gpuplan.catalog.clouds.gcp.cloud import Gcp


@pytest.fixture
def world() -> GcpWorld:
    return GcpWorld()


@pytest.fixture
def server(world: GcpWorld) -> Iterator[Server]:
    with Server(world) as running:
        yield running


@pytest.fixture
def gcp(require, server: Server) -> Gcp:
    require("cloud-clients", "google-cloud-compute is not installed: make test-clouds does it")
    return Gcp(credentials(), project=PROJECT, patience=HASTY, api_endpoint=server.url)
