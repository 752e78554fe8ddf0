"""TPU hosts of one torus are planned, and told, as the slice that they are rented as."""

from dataclasses import replace

import pytest

from gpuplan.catalog.snapshot import load_catalogue
from gpuplan.catalog.tpu_slices import slice_chips
from gpuplan.planner.hardware.cluster import Site
from gpuplan.planner.plan.layout import Layout
from gpuplan.planner.plan.question import Machine, Money
from gpuplan.planner.plan.setup import Setup
from gpuplan.planner.predict.kept.model_cache import ModelCache
from gpuplan.planner.predict.step_time import step_parts
from gpuplan.planner.search.machines.offers import survey
from gpuplan.planner.search.machines.tpu_slice import can_be_rented, slice_note
from gpuplan.profiles.profile import Profile

CATALOGUE = load_catalogue()


def hosts(instance: str, nodes: int) -> Site:
    found = survey(CATALOGUE, Machine(instances=(instance,)), Money()).choices[0].one_node
    return replace(found, nodes=nodes)


@pytest.mark.parametrize(
    ("instance", "chips"),
    [
        ("ct5p-hightpu-4t", 4096),
        ("ct5lp-hightpu-4t", 256),
        ("tpu-v3-8", 1024),
        ("ct5lp-hightpu-8t", 8),
        ("ct6e-standard-1t", 1),
        ("ct3-hightpu-4t", 4),
        ("p5.48xlarge", 8),
    ],
)
def test_a_torus_joins_hosts_of_four_chips_and_no_others(instance: str, chips: int) -> None:
    assert hosts(instance, 2).domain == chips


def test_the_catalogue_says_so_of_every_tpu() -> None:
    machines = [one for one in CATALOGUE.instances.values() if one.accelerator.startswith("TPU")]
    assert len(machines) > 10
    for one in machines:
        chips = slice_chips(one.instance_type, one.accelerator, int(one.accelerators))
        assert one.link_domain_accelerators == chips, one.instance_type


def test_slices_have_powers_of_two_hosts() -> None:
    found = [n for n in range(1, 20) if can_be_rented(hosts("ct6e-standard-4t", n), n)]
    assert found == [1, 2, 4, 8, 16]
    assert [n for n in found if can_be_rented(hosts("tpu-v3-8", n), n)] == [1, 4, 8, 16]
    assert can_be_rented(hosts("ct6e-standard-8t", 3), 3)
    assert can_be_rented(hosts("p5.48xlarge", 3), 3)


def test_what_is_rented_is_told() -> None:
    assert slice_note(hosts("ct5p-hightpu-4t", 1)) is None
    assert slice_note(hosts("p5.48xlarge", 4)) is None
    assert slice_note(hosts("ct5p-hightpu-4t", 16)) == (
        "its 16 hosts are rented as one slice of 64 chips"
    )
    assert slice_note(hosts("ct6e-standard-4t", 128)) == (
        "its 128 hosts are rented as 2 slices of 256 chips, joined by the network"
    )
    assert slice_note(hosts("ct6e-standard-4t", 3)) == (
        "whether a slice of 12 chips can be had is not known: most have a power of two"
    )


def test_slices_are_faster_than_their_hosts_on_the_network(small_decoder: Profile) -> None:
    cache = ModelCache(small_decoder)

    def step_s(nodes: int, domain: int | None) -> float:
        site = replace(hosts("ct6e-standard-4t", nodes), link_domain=domain)
        layout = Layout(data=site.accelerators)
        setup = Setup(
            layout=layout, precision="bf16-amp", micro_batch=1, stack="xla", optimizer="adamw"
        )
        return step_parts(cache, site, setup).total_s.item()

    assert step_s(64, 256) < 0.5 * step_s(64, None)
    assert step_s(128, 256) < step_s(128, None)
    # Of several slices the network sets the pace.
    assert step_s(64, 256) < step_s(128, 256) < 1.5 * step_s(512, 256)
