"""The build of torch a node installs: published, with kernels for the device, run by the driver."""

import subprocess
import tomllib
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
from launches import make_project

from gpuplan.catalog.errors import UsageError
from gpuplan.catalog.snapshot import load_catalogue
from gpuplan.catalog.torch_builds import host_architecture, release_of, torch_builds
from gpuplan.launcher.prepare.task.node_setup import NEW_ENOUGH, setup_script
from gpuplan.launcher.prepare.task.torch_wheels import (
    OLDEST_OF_RUNNER,
    Wheels,
    wheels_for,
)

ROOT = Path(__file__).parents[4]
ACCELERATORS = load_catalogue().accelerators
NVIDIA = [one for one in ACCELERATORS.values() if one.vendor == "NVIDIA"]
RELEASES = ["1.13.1", *(f"2.{minor}.0" for minor in range(16)), "3.0"]


def chosen(version: str, accelerator: str, driver: int) -> str | None:
    """Return the build that a node with this driver takes."""
    tried = wheels_for(version, ACCELERATORS[accelerator])
    return next((one.build for one in tried if driver >= one.oldest_driver), None)


@pytest.mark.parametrize(
    ("version", "accelerator", "driver", "build"),
    [
        ("2.5.1", "A100-40GB-SXM", 580, "cu124"),
        ("2.5.1", "A100-40GB-SXM", 470, "cu118"),
        ("2.3.0", "H100-80GB-SXM", 550, "cu121"),
        ("2.7.1", "T4", 580, "cu126"),
        ("2.7.1", "B200-180GB-SXM", 570, "cu128"),
        ("2.10.0", "B200-180GB-SXM", 575, "cu128"),
        ("2.10.0", "B200-180GB-SXM", 550, None),
        ("2.11.0", "B200-180GB-SXM", 575, "cu128"),
        ("2.11.0", "B200-180GB-SXM", 580, "cu130"),
        ("2.13.0", "B200-180GB-SXM", 579, None),
        ("2.14.0", "A100-40GB-SXM", 580, "cu132"),
        ("2.14.0", "A100-40GB-SXM", 535, "cu126"),
        ("2.8.0", "V100-16GB-SXM2", 580, "cu128"),
        ("2.7.0", "V100-16GB-SXM2", 580, "cu126"),
        ("2.11.0", "V100-16GB-SXM2", 580, "cu126"),
        ("2.8.0", "GB200", 570, "cu128"),
        ("2.10.0", "GH200-96GB", 580, "cu130"),
        ("2.13.0", "GH200-96GB", 550, "cu126"),
    ],
)
def test_a_pinned_torch_comes_in_a_build_that_was_published(
    version: str, accelerator: str, driver: int, build: str | None
) -> None:
    assert chosen(version, accelerator, driver) == build


@pytest.mark.parametrize("version", RELEASES)
def test_what_is_chosen_is_published_and_runs_and_nothing_else_is_refused(version: str) -> None:
    for accelerator, driver in product(NVIDIA, (418, 450, 470, 525, 550, 570, 579, 580, 600)):
        capability = accelerator.compute_capability
        assert capability is not None
        fitting = {
            build.build
            for build in torch_builds()
            if build.host_architecture == host_architecture(accelerator.name)
            and build.is_of(release_of(version))
            and build.runs_on(capability)
        }
        if not fitting:
            with pytest.raises(UsageError, match="no published build of torch"):
                wheels_for(version, accelerator)
            continue
        build = chosen(version, accelerator.name, driver)
        if build is not None:
            assert build in fitting
            assert driver >= {"1": 450, "2": 525, "3": 580}[build[3]]
        else:
            needed = min({"1": 450, "2": 525, "3": 580}[one[3]] for one in fitting)
            assert driver < (max(needed, 570) if float(capability) >= 10 else needed)


def test_a_capability_nobody_wrote_down_is_left_to_the_driver() -> None:
    unknown = ACCELERATORS["T4"].model_copy(update={"compute_capability": None})
    assert wheels_for("2.13.0", unknown) == (
        Wheels(build="cu130", oldest_driver=580),
        Wheels(build="cu126", oldest_driver=525),
    )


@pytest.mark.parametrize(
    ("version", "accelerator", "way_out"),
    [
        ("2.5.1", "B200-180GB-SXM", "take torch 2.7 or newer, or give --image"),
        ("2.6.0", "GB200", "take torch 2.7 or newer, or give --image"),
        ("2.15.0", "V100-16GB-SXM2", "take torch 2.1 to 2.14, or give --image"),
        ("2.13.0", "T4G", "give --image docker:"),
    ],
)
def test_a_torch_without_kernels_for_the_device_is_refused_before_it_is_rented(
    version: str, accelerator: str, way_out: str
) -> None:
    environment = replace(make_project().environment, torch_version=version)
    with pytest.raises(UsageError, match=f"torch {version} for") as caught:
        setup_script(environment, ACCELERATORS[accelerator], with_torch=True, image=None)
    assert (caught.value.fix or "").startswith(way_out)


def test_the_runner_needs_the_torch_that_gpuplan_needs() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert f"torch>={OLDEST_OF_RUNNER}" in project["dependencies"]


@pytest.mark.parametrize(("version", "code"), [("2.13.1+cu130", 0), ("2.9.0a0+nv26.05", 1)])
def test_an_image_with_an_old_torch_ends_the_set_up(
    version: str, code: int, tmp_path: Path, require
) -> None:
    require("posix", "the scripts are for sh")
    (tmp_path / "torch.py").write_text(f"__version__ = {version!r}\n")
    image = "docker:nvcr.io/nvidia/pytorch:26.05-py3"
    script = setup_script(
        make_project().environment,
        ACCELERATORS["T4"],
        with_torch=True,
        image=image,
        with_runner=True,
    )
    assert NEW_ENOUGH in script
    done = subprocess.run(
        ["sh", "-c", NEW_ENOUGH],
        env={"PYTHONPATH": str(tmp_path), "PATH": "/usr/bin:/bin:/usr/local/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code
    assert ("of this image is older than 2.13" in done.stderr) == bool(code)
