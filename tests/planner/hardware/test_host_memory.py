"""Collectives of cards that reach each other through host memory alone."""

import pytest

from gpuplan.catalog.embedded import embedded_catalogue
from gpuplan.profiles.curves.device_curves import curves_for

CATALOGUE = embedded_catalogue()


@pytest.mark.parametrize("instance_type", ["g5.12xlarge", "g5.24xlarge", "g5.48xlarge"])
def test_an_all_reduce_of_four_a10g_takes_what_was_measured(instance_type: str) -> None:
    """nccl-tests on AWS: 14.2 ms (pytorch/pytorch#127077, 2024-05-25), where 2.2 were promised."""
    link = CATALOGUE.instances["aws", instance_type].intra_link
    assert link.name == "PCIe4 (no P2P)"
    curves = curves_for(CATALOGUE.accelerators["A10G"])
    seconds = curves.collective_s("all_reduce", 29388800, 4, link_bytes_per_s=link.bytes_per_s)
    assert float(seconds) == pytest.approx(14.2e-3, rel=0.05)
