"""What stages send each other: whole, or in parts that the next stage's tensor ranks gather."""

import numpy as np
import pytest

from gpuplan.catalog.snapshot import load_catalogue
from gpuplan.catalog.types import Link
from gpuplan.planner.constants import Constants
from gpuplan.planner.hardware.cluster import Site
from gpuplan.planner.hardware.collectives import Links
from gpuplan.planner.step.pipeline_sends import SEND_LATENCY_S, send_s
from gpuplan.profiles.curves.device_curves import curves_for

CONSTANTS = Constants.shipped()
NODE_BYTES_PER_S = 200e9
FAST_BYTES_PER_S = 300e9
ACTIVATION_BYTES = 100e6
FIXED_S = SEND_LATENCY_S + CONSTANTS["send_host_s"]


@pytest.fixture(scope="module")
def links() -> Links:
    device = load_catalogue().accelerators["A100-80GB-SXM"]
    site = Site(
        accelerator=device,
        per_node=8,
        nodes=4,
        intra_link=Link(name="link", bytes_per_s=FAST_BYTES_PER_S),
        inter_link=Link(name="fabric", bytes_per_s=NODE_BYTES_PER_S, rdma=True),
    )
    return Links(site=site, curves=curves_for(device), constants=CONSTANTS)


def sent(links: Links, parts: list[int], *, on_fast_link: bool = False) -> list[float]:
    sizes = np.full(len(parts), ACTIVATION_BYTES)
    where = np.full(len(parts), on_fast_link)
    found = send_s(links, sizes, on_fast_link=where, parts=np.array(parts))
    return found.tolist()


def test_every_rank_sends_the_whole_over_its_share_of_the_network(links: Links) -> None:
    whole_s = 2 * (ACTIVATION_BYTES / (NODE_BYTES_PER_S / 8) + FIXED_S)
    assert sent(links, [1]) == pytest.approx([whole_s])


def test_every_rank_sends_the_whole_over_the_fast_link(links: Links) -> None:
    whole_s = 2 * (ACTIVATION_BYTES / FAST_BYTES_PER_S + FIXED_S)
    assert sent(links, [1], on_fast_link=True) == pytest.approx([whole_s])


def test_parts_cross_the_network_and_are_gathered_inside_the_node(links: Links) -> None:
    fast = links.constants["fast_link"]
    for parts, found_s in zip((2, 8), sent(links, [2, 8]), strict=True):
        gather_s = fast * links.curves.collective_s(
            "all_gather", ACTIVATION_BYTES, parts, link_bytes_per_s=FAST_BYTES_PER_S
        )
        part_s = ACTIVATION_BYTES / parts / (NODE_BYTES_PER_S / 8)
        assert found_s == pytest.approx(2 * (part_s + gather_s.item() + FIXED_S))
        assert found_s < sent(links, [1])[0]
