"""The published builds of torch: what the table holds, and what kernels run on."""

import pytest

from gpuplan.catalog.reserved import reserved_how
from gpuplan.catalog.snapshot import load_catalogue
from gpuplan.catalog.torch_builds import host_architecture, release_of, torch_builds

CATALOGUE = load_catalogue()


@pytest.mark.parametrize("host", ["x86_64", "aarch64"])
@pytest.mark.parametrize("release", [(2, 12), (2, 13), (2, 14), (2, 15), (3, 0)])
def test_one_build_of_every_release_is_on_pypi(host: str, release: tuple[int, int]) -> None:
    on_pypi = [
        build
        for build in torch_builds()
        if build.host_architecture == host and build.is_on_pypi(release)
    ]
    assert len(on_pypi) == 1
    assert on_pypi[0].is_of(release)


def test_every_row_has_a_source_and_names_an_accelerator_of_the_catalogue() -> None:
    assert all(build.source for build in torch_builds())
    grace = [name for name in CATALOGUE.accelerators if name.startswith(("GH200", "GB"))]
    assert {host_architecture(name) for name in (*grace, "T4G")} == {"aarch64"}
    assert host_architecture("T4") == host_architecture("somebody's own") == "x86_64"


@pytest.mark.parametrize(
    ("capability", "runs"),
    [("8.6", True), ("8.9", True), ("7.5", False), ("10.3", True), ("12.1", True), ("5.2", False)],
)
def test_kernels_run_on_their_own_and_on_later_minor_capabilities(
    capability: str, runs: bool
) -> None:
    builds = {(each.host_architecture, each.build): each for each in torch_builds()}
    assert builds["aarch64", "cu130"].runs_on(capability) == runs


def test_a_patch_release_is_one_of_its_minor_release() -> None:
    assert release_of("2.13.1+cu130") == (2, 13)


@pytest.mark.parametrize(
    ("provider", "instance_type", "how"),
    [
        ("gcp", "a4-highgpu-8g", "reservation"),
        ("gcp", "a3-highgpu-8g", None),
        ("aws", "p6-b200.48xlarge", "capacity block"),
        ("aws", "p5.48xlarge", None),
        ("azure", "Standard_ND128isr_NDR_GB200_v6", "reservation"),
    ],
)
def test_types_that_are_had_by_reservation(
    provider: str, instance_type: str, how: str | None
) -> None:
    assert reserved_how(CATALOGUE.instances[provider, instance_type]) == how
