"""SkyPilot takes seconds to import, and its command line wants an old click: few commands do."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

POISON = "raise AssertionError('SkyPilot was imported')\n"
ROOT = Path(__file__).parents[2]
MAY_IMPORT_SKY = "launcher/skypilot/"
PLAIN = [
    ["--help"],
    ["--version"],
    ["launch", "--help"],
    ["check", "--help"],
    ["plans"],
    ["offers", "--accelerator", "H100:8"],
    ["gpus"],
    ["config", "list"],
]


@pytest.fixture
def poisoned(tmp_path: Path, gpuplan_home: Path) -> dict[str, str]:
    """Return an environment in which importing SkyPilot fails."""
    (tmp_path / "sky").mkdir()
    (tmp_path / "sky" / "__init__.py").write_text(POISON)
    return {**os.environ, "PYTHONPATH": str(tmp_path), "GPUPLAN_HOME": str(gpuplan_home)}


def run(
    words: list[str], environment: dict[str, str], folder: Path
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gpuplan", *words],
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("words", PLAIN, ids=" ".join)
def test_a_plain_command_never_imports_it(
    words: list[str], poisoned: dict[str, str], tmp_path: Path
) -> None:
    done = run(words, poisoned, tmp_path)
    assert done.returncode == 0, done.stderr
    assert "SkyPilot was imported" not in done.stdout + done.stderr


@pytest.mark.slow
def test_neither_an_estimate_nor_a_dry_run_imports_it(
    poisoned: dict[str, str], tmp_path: Path
) -> None:
    question = ["--param", "layers=2", "--tokens", "1M", "--provider", "aws", "--max-nodes", "1"]
    done = run(["estimate", str(ROOT / "examples/gpt2.py"), *question], poisoned, tmp_path)
    assert done.returncode == 0, done.stderr
    task = ["launch", "--provider", "aws", "--outputs", "s3://b/r", "--setup", "true"]
    task += ["--synthetic", "--dryrun"]
    done = run([*task, "--workdir", str(ROOT / "examples")], poisoned, tmp_path)
    assert done.returncode == 0, done.stderr


def test_the_poison_works(poisoned: dict[str, str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import sky"], env=poisoned, capture_output=True, text=True
    )
    assert "SkyPilot was imported" in done.stderr


def test_only_these_files_name_it() -> None:
    named = {
        file.relative_to(ROOT).as_posix()
        for folder in ("catalog", "profiles", "planner", "launcher", "api", "cli")
        for file in (ROOT / folder).rglob("*.py")
        for line in file.read_text(encoding="utf-8").splitlines()
        if line.strip().startswith(("import sky", "from sky"))
        or 'import_module("sky' in line.replace(" ", "")
    }
    assert all(name.startswith(MAY_IMPORT_SKY) for name in named)
