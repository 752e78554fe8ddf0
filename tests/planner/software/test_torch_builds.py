"""Which build of torch a device needs, and where none is published."""

import pytest

from gpuplan.catalog.snapshot import load_catalogue
from gpuplan.catalog.torch_builds import host_architecture
from gpuplan.catalog.vocabulary import Purchase
from gpuplan.planner.software.torch_builds import BuildVerdict, build_verdict, capacity_note

CATALOGUE = load_catalogue()


def verdict(accelerator: str, torch_version: str = "2.13.0") -> BuildVerdict:
    host = host_architecture(accelerator)
    return build_verdict(CATALOGUE.accelerators[accelerator], host, torch_version)


@pytest.mark.parametrize("name", ["T4", "A10G", "L40S", "H100-80GB-SXM", "B200-180GB-SXM", "B300"])
def test_the_build_on_pypi_drives_what_is_sold_today(name: str) -> None:
    assert verdict(name) == BuildVerdict()


@pytest.mark.parametrize("name", ["GH200-96GB", "GB200", "GB300"])
def test_arm_hosts_of_grace_have_builds_of_their_own(name: str) -> None:
    assert verdict(name) == BuildVerdict()


@pytest.mark.parametrize("name", ["M60", "P100-16GB-PCIe", "V100-16GB-SXM2"])
def test_devices_that_cuda_13_left_need_the_build_for_cuda_12(name: str) -> None:
    told = verdict(name)
    assert told.why_not is None and told.note is not None
    assert "CUDA 12.6 build, which torch 2.14 has last: pip install torch==2.13.*" in told.note
    assert told.note.endswith("/whl/cu126")


def test_a_release_without_kernels_names_the_newest_that_had_them() -> None:
    told = verdict("V100-16GB-SXM2", "2.15.0+cu132")
    assert told.note is not None
    assert "driven by torch 2.14 and older only: pip install torch==2.14.*" in told.note


def test_a_turing_device_on_an_arm_host_has_no_build_at_all() -> None:
    told = verdict("T4G")
    assert told.why_not is not None and told.note is None
    assert (
        "torch 2.12 or newer for aarch64 hosts has kernels for T4G (compute capability 7.5)"
        in told.why_not
    )


def test_amd_needs_the_rocm_build_and_others_are_not_judged() -> None:
    assert "ROCm build" in (verdict("MI300X").note or "")
    assert verdict("TPU-v5e") == verdict("Gaudi2") == BuildVerdict()


@pytest.mark.parametrize("capability", [None, "sm_90", "9"])
def test_what_somebody_wrote_otherwise_is_not_judged(capability: str | None) -> None:
    own = CATALOGUE.accelerators["T4"].model_copy(update={"compute_capability": capability})
    assert build_verdict(own, "aarch64", "2.13.0") == BuildVerdict()


@pytest.mark.parametrize(("purchase", "said"), [("on-demand", True), ("spot", False)])
def test_a_type_had_by_reservation_says_so_unless_it_is_spot(
    purchase: Purchase, said: bool
) -> None:
    note = capacity_note(CATALOGUE.instances["gcp", "a4-highgpu-8g"], purchase)
    assert (note is not None) == said
    assert not said or "usually had by reservation: check your quota" in (note or "")
