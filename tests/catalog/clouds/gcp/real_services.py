"""One service of google-cloud-compute without its hundred others: `make test-clouds`."""

import subprocess
import sys

import pytest

ONE = """
import sys
from gpuplan.catalog.clouds.gcp.services import client_class
one = client_class("google.cloud.compute_v1", "MachineTypesClient")
assert one.__name__ == "MachineTypesClient"
assert "google.cloud.compute_v1.services.instances" not in sys.modules
"""
ALL = """
from google.cloud import compute_v1
assert compute_v1.MachineTypesClient is one
assert compute_v1.InstancesClient.__name__ == "InstancesClient"
assert compute_v1.types.Instance is compute_v1.Instance
assert client_class("google.cloud.compute_v1", "InstancesClient") is compute_v1.InstancesClient
"""


@pytest.fixture(autouse=True)
def _needs(require) -> None:
    require("cloud-clients", "google-cloud-compute is not installed: make test-clouds does it")


@pytest.mark.parametrize("code", [ONE, ONE + ALL], ids=["one", "then all"])
def test_one_service_is_imported_and_the_others_where_they_are_asked_for(code: str) -> None:
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr


def test_a_library_that_is_missing_is_one() -> None:
    from gpuplan.catalog.clouds.gcp.services import client_class

    with pytest.raises(ImportError):
        client_class("google.cloud.nothing_v1", "ThingsClient")
