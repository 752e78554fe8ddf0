"""The torch that a project asks for: how it is read, and when it is refused."""

from dataclasses import replace
from pathlib import Path

import pytest
from answers import make_plan
from launches import BUCKET, make_project

from gpuplan.catalog.errors import UsageError
from gpuplan.launcher.prepare.project import read_project
from gpuplan.launcher.prepare.request import LaunchRequest
from gpuplan.launcher.prepare.wanted_torch import pinned_version, refuse_torch, wanted_torch


@pytest.mark.parametrize(
    ("line", "wanted", "pinned"),
    [
        ("torch == 2.5.1", "torch==2.5.1", "2.5.1"),
        ("torch==2.5.1+cu121  # as in the paper", "torch==2.5.1+cu121", "2.5.1"),
        ("torch==2.5.*", "torch==2.5.*", None),
        ("torch<2.10", "torch<2.10", None),
        ("torch[opt]~=2.9.0 --hash=sha256:00", "torch~=2.9.0", None),
        ("torch==2.1; sys_platform == 'darwin'", None, None),
        ("Torch", "torch", None),
        ("torchvision==0.20.1", None, None),
        ("--index-url https://example.org/torch", None, None),
        ("# torch==1.0", None, None),
    ],
)
def test_a_line_of_requirements_says_which_torch_a_node_gets(
    line: str, wanted: str | None, pinned: str | None, tmp_path: Path
) -> None:
    path = tmp_path / "requirements.txt"
    path.write_text(f"numpy\n{line}\n")
    assert wanted_torch(path) == wanted
    assert pinned_version(wanted) == pinned


def refused(text: str, tmp_path: Path, request: LaunchRequest) -> UsageError | None:
    (tmp_path / "requirements.txt").write_text(text)
    environment = replace(read_project(tmp_path).environment)
    if pinned_version(environment.wanted_torch) is None:
        environment = replace(environment, torch_version="2.13.0")
    try:
        refuse_torch(environment, request)
    except UsageError as error:
        return error
    return None


OWN = LaunchRequest(command="train.py")


@pytest.mark.parametrize(
    ("text", "launched", "said"),
    [
        ("torch==2.5.1", LaunchRequest(), "asks for torch==2.5.1, and gpuplan's runner needs"),
        ("torch==2.12.1", LaunchRequest(), "needs torch 2.13 or newer"),
        ("torch==2.13.0", LaunchRequest(), None),
        ("torch==2.14", LaunchRequest(), None),
        ("torch>=2.4", LaunchRequest(), None),
        ("torch", LaunchRequest(), None),
        ("torch<2.10", LaunchRequest(), "torch 2.13.0 would be installed"),
        ("torch==2.5.*", OWN, "torch 2.13.0 would be installed"),
        ("torch==2.5.1", OWN, None),
        ("torch==2.5.1", LaunchRequest(setup="pip install torch"), None),
        ("torch==2.5.1", LaunchRequest(image="docker:own/image"), "needs torch 2.13 or newer"),
        ("", LaunchRequest(image="docker:pytorch/pytorch:2.5.1-cuda12.4"), "brings torch 2.5.1"),
        ("", LaunchRequest(image="docker:pytorch/pytorch:2.13.0-cuda13.0"), None),
        ("", replace(OWN, image="docker:pytorch/pytorch:2.5.1-cuda12.4"), None),
    ],
)
def test_a_torch_that_would_end_the_job_is_refused_before_money_is_spent(
    text: str, launched: LaunchRequest, said: str | None, tmp_path: Path
) -> None:
    error = refused(text, tmp_path, launched)
    if said is None:
        assert error is None
        return
    assert error is not None and said in error.message
    assert error.fix


def test_all_that_is_missing_is_said_with_the_pin() -> None:
    from gpuplan.launcher.prepare.preflight import refuse_request

    environment = replace(
        make_project().environment,
        found="requirements.txt",
        torch_version="2.5.1",
        wanted_torch="torch==2.5.1",
    )
    plan, nowhere = make_plan(), LaunchRequest()
    with pytest.raises(UsageError, match="2 things are missing") as caught:
        refuse_request(plan, nowhere, needs=[lambda: refuse_torch(environment, nowhere)])
    assert "--outputs" in (caught.value.fix or "") and "torch>=2.13" in (caught.value.fix or "")
    refuse_request(plan, LaunchRequest(outputs=BUCKET))
