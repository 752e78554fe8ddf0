"""Which packages a job needs, and who brings them."""

from pathlib import Path

import pytest
from launchable import given_plan, prepared
from launches import BUCKET

from gpuplan.catalog.errors import UsageError
from gpuplan.catalog.snapshot import load_catalogue
from gpuplan.launcher.prepare import project
from gpuplan.launcher.prepare.missing import MissingError
from gpuplan.launcher.prepare.preflight import refuse_missing_packages
from gpuplan.launcher.prepare.request import LaunchRequest
from gpuplan.launcher.prepare.task.node_setup import setup_script
from gpuplan.profiles.hf_configs import CONFIGS
from gpuplan.profiles.user_model.spec import parse_model_spec


def test_a_model_whose_packages_nobody_installs_is_refused(folder: Path) -> None:
    (folder / "parts.py").write_text("import os, torch.nn, numpy.linalg\nfrom timm import models\n")
    with pytest.raises(UsageError, match=r"net\.py needs numpy, timm, and no file"):
        prepared(given_plan())
    prepared(given_plan(), LaunchRequest(outputs=BUCKET, setup="pip install numpy timm torch"))
    prepared(given_plan(), LaunchRequest(outputs=BUCKET, image="docker:pytorch/pytorch"))


@pytest.mark.parametrize(
    ("files", "found", "version"),
    [
        ({}, None, None),
        ({"requirements.txt": "numpy\ntorch==2.11.1 # old\n"}, "requirements.txt", "2.11.1"),
        ({"requirements.txt": "torchvision==0.20\n"}, "requirements.txt", None),
        (
            {"pyproject.toml": '[project]\ndependencies = ["torch == 2.12.0+cu130"]\n'},
            "pyproject.toml",
            "2.12.0",
        ),
        (
            {
                "uv.lock": '[[package]]\nname = "torch"\nversion = "2.12.1+cpu"\n',
                "pyproject.toml": "",
            },
            "uv.lock",
            "2.12.1",
        ),
    ],
)
def test_a_project_says_which_packages_it_needs(
    tmp_path: Path, files: dict[str, str], found: str | None, version: str | None
) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    environment = project.read_project(tmp_path, owner="ann").environment
    assert environment.found == found
    if version is None:
        from importlib.metadata import version as installed

        version = installed("torch").partition("+")[0]
    assert environment.torch_version == version


def test_a_lock_that_is_not_read_is_said(tmp_path: Path) -> None:
    (tmp_path / "poetry.lock").write_text("")
    assert project.read_project(tmp_path).notes == (
        "poetry.lock is not read; give --setup with the lines that use it",
    )


def test_a_config_that_comes_with_gpuplan_brings_its_packages(tmp_path: Path) -> None:
    """A list of packages was to be written into gpuplan's own folder."""
    shipped = project.brought_packages(parse_model_spec(f"hf:{CONFIGS}/Qwen/Qwen3-0.6B"))
    assert [one.partition("==")[0] for one in shipped] == ["transformers"]
    (tmp_path / "config.json").write_text('{"architectures": ["Net"]}')
    own = parse_model_spec(f"hf:{tmp_path}")
    assert project.brought_packages(own) == project.brought_packages(None) == ()
    environment = project.read_project(tmp_path, packages=shipped).environment
    device = load_catalogue().accelerators["H100-80GB-SXM"]
    script = setup_script(environment, device, with_torch=True, image=None)
    assert f"install --quiet {shipped[0]} -c" in script
    (tmp_path / "requirements.txt").write_text("transformers\n")
    assert project.read_project(tmp_path, packages=shipped).environment.packages == ()


@pytest.mark.parametrize(
    ("imported", "named", "refused"),
    [
        ("import flash_attn", "numpy", True),
        ("from flash_attn.layers.rotary import apply_rotary_emb", "numpy", True),
        ("import flash_attn", "Flash-Attn==2.7.4", False),
        ("import flash_attn_interface", "flash_attn @ git+https://example.com/flash", False),
        ("try:\n    import flash_attn\nexcept ImportError:\n    pass", "numpy", False),
        ("net = dict(attn_implementation='flash_attention_2')", "transformers", True),
        ("net = dict(attn_implementation='sdpa')", "transformers", False),
        ("import triton", "numpy", False),  # torch brings it.
        ("import timm", "numpy", False),
    ],
)
def test_what_is_built_for_cuda_is_named_before_it_is_paid_for(
    tmp_path: Path, imported: str, named: str, refused: bool
) -> None:
    """The estimate does without it, and a node would find that out after its set-up."""
    (tmp_path / "requirements.txt").write_text(f"{named}\n")
    (tmp_path / "net.py").write_text(f"{imported}\ndef build_model(): ...\n")
    spec = parse_model_spec(str(tmp_path / "net.py"))
    read = project.read_project(tmp_path)
    refuse_missing_packages(spec, read, LaunchRequest(setup="pip install flash-attn"))
    if not refused:
        refuse_missing_packages(spec, read, LaunchRequest())
        return
    with pytest.raises(MissingError, match="requirements.txt does not name") as error:
        refuse_missing_packages(spec, read, LaunchRequest())
    assert "--setup" in str(error.value.fix)
