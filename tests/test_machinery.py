"""What make does, with stand-ins that note what they are asked; how tests skip and are spread."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
STAND_IN = """#!/bin/sh
case "$*" in
    --version) echo "Python $VERSION" ;;
    *sysconfig*) echo /packages ;;
    "-c "*) [ "$VERSION" != 3.8.1 ] ;;
    "-m venv "*) mkdir -p "$3/bin" && cp "$0" "$3/bin/python" && echo "$*" >>"$LOG" ;;
    *) echo "$*" >>"$LOG"; [ -z "$FAILS" ] ;;
esac
"""
BASE = "-m pip install -qq --disable-pip-version-check --no-compile -c constraints.txt -e ."
DEV = f"{BASE}[dev]"
COMPILE = "-m compileall -q -j 0 /packages/numpy /packages/sympy /packages/torch"


class Checkout:
    """A copy of what the install script reads, in a folder with spaces in its name."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "some folder"
        (self.root / "scripts").mkdir(parents=True)
        for path in (ROOT / "pyproject.toml", *ROOT.glob("constraints*.txt")):
            shutil.copy(path, self.root)
        shutil.copy(ROOT / "scripts" / "install.sh", self.root / "scripts")
        self.python = folder / "stand-in"
        self.python.write_text(STAND_IN)
        self.python.chmod(0o755)
        self.log = folder / "log"

    def install(self, what: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run the script and return how it ended."""
        stand_in = {"PYTHON": str(self.python), "LOG": str(self.log), "VERSION": "3.12.1"}
        return subprocess.run(
            ["sh", str(self.root / "scripts" / "install.sh"), what],
            env={**os.environ, "FAILS": "", "PIP_ARGS": "", **stand_in, **variables},
            capture_output=True,
            text=True,
        )

    def did(self, what: str, **variables: str) -> list[str]:
        """Run the script, which must succeed, and return what it asked of Python."""
        self.log.write_text("")
        done = self.install(what, **variables)
        assert done.returncode == 0, done.stderr
        return self.log.read_text().splitlines()


@pytest.fixture
def checkout(tmp_path: Path, require) -> Checkout:
    require("posix", "the script is for sh")
    return Checkout(tmp_path)


def test_the_second_time_nothing_is_done(checkout: Checkout) -> None:
    assert checkout.did("dev") == ["-m venv .venv", DEV, COMPILE]
    assert checkout.did("dev") == []
    assert checkout.did("base") == [], "dev holds everything that base does"


def test_base_grows_into_dev(checkout: Checkout) -> None:
    assert checkout.did("base") == ["-m venv .venv", BASE, COMPILE]
    assert checkout.did("dev") == [DEV, COMPILE]


def test_dev_grows_into_what_drives_a_browser(checkout: Checkout) -> None:
    report = DEV.replace("-e", "playwright -e")
    assert checkout.did("dev") == ["-m venv .venv", DEV, COMPILE]
    assert checkout.did("report") == [report, COMPILE]
    assert checkout.did("report") == checkout.did("dev") == checkout.did("base") == []


def test_frameworks_go_into_an_environment_of_their_own(checkout: Checkout) -> None:
    libraries = "accelerate deepspeed lightning pytest pytest-timeout transformers"
    made = ["-m venv .venv-frameworks", BASE.replace("-e", f"{libraries} -e"), COMPILE]
    assert checkout.did("frameworks") == made
    assert checkout.did("frameworks") == []
    assert checkout.did("base") == ["-m venv .venv", BASE, COMPILE]


def test_skypilot_has_an_environment_and_constraints_of_its_own(checkout: Checkout) -> None:
    libraries = "skypilot[aws] moto[server,ec2,iam,sts,s3] hypothesis pytest pytest-timeout"
    with (checkout.root / "skypilota").open("w"):
        pass  # What `skypilot[aws]` stands for, were it a pattern.
    install = BASE.replace("constraints", "constraints-sky").replace("-e", f"{libraries} -e")
    install = install.replace("--no-compile", "--compile")
    assert checkout.did("sky") == ["-m venv .venv-sky", install]
    assert checkout.did("sky") == []
    with (checkout.root / "constraints.txt").open("a") as constraints:
        constraints.write("six==1.17.0\n")
    assert checkout.did("sky") == [], "the other environments' constraints are not its own"
    with (checkout.root / "constraints-sky.txt").open("a") as constraints:
        constraints.write("six==1.17.0\n")
    assert checkout.did("sky") == [install]


def test_the_newest_release_of_everything_is_held_by_no_constraint(checkout: Checkout) -> None:
    install = DEV.replace("constraints.txt", "/dev/null")
    assert checkout.did("newest") == ["-m venv .venv-newest", install, COMPILE]
    assert checkout.did("newest") == []


@pytest.mark.parametrize(
    ("what", "libraries"),
    [
        ("published", "diffusers timm torchvision"),
        (
            "compatibility",
            "diffusers lightning monai open_clip_torch peft segmentation-models-pytorch timm"
            " torch_geometric torchvision transformers einops scipy",
        ),
    ],
)
def test_torchvision_may_be_a_build_for_another_device_than_torch(
    checkout: Checkout, what: str, libraries: str
) -> None:
    install = BASE.replace("constraints", f"constraints-{what}").replace("-e", f"{libraries} -e")
    operators = "scripts/torchvision_operators.py"
    assert checkout.did(what) == [f"-m venv .venv-{what}", install, COMPILE, operators]
    assert checkout.did(what) == []


@pytest.mark.slow
def test_torchvision_is_imported_where_its_library_cannot_be_loaded(tmp_path: Path) -> None:
    package = tmp_path / "torchvision"
    package.mkdir()
    (package / "_C.so").write_text("built for another device")
    (package / "__init__.py").write_text(
        "import torch\n"
        "for name in ('torchvision::nms', 'torchvision::qnms'):\n"
        "    torch.library.register_fake(name)(lambda *_: torch.empty(0))\n"
        "print('imported')\n"
    )
    paths = os.pathsep.join((str(tmp_path), str(ROOT / "scripts")))
    for script, ends_well in (
        ("import torchvision_operators, torchvision, torchvision", True),
        ("import torchvision", False),
    ):
        done = subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONPATH": paths},
            capture_output=True,
            text=True,
        )
        assert (done.returncode == 0 and done.stdout == "imported\n") == ends_well, done.stderr


def test_changed_requirements_are_installed_into_the_same_environment(checkout: Checkout) -> None:
    checkout.did("dev")
    with (checkout.root / "constraints.txt").open("a") as constraints:
        constraints.write("six==1.17.0\n")
    assert checkout.did("dev") == [DEV, COMPILE]


def test_pip_args_reach_pip_as_words(checkout: Checkout) -> None:
    options = "--index-url file:///wheels"
    assert checkout.did("base", PIP_ARGS=options)[1] == BASE.replace("-e", f"{options} -e")


def test_a_moved_checkout_or_another_python_makes_the_environment_anew(checkout: Checkout) -> None:
    checkout.did("dev")
    checkout.root = checkout.root.rename(checkout.root.with_name("other folder"))
    assert checkout.did("dev") == ["-m venv .venv", DEV, COMPILE]
    assert checkout.did("dev", VERSION="3.13.0") == ["-m venv .venv", DEV, COMPILE]


def test_a_failed_install_is_tried_again(checkout: Checkout) -> None:
    assert checkout.install("dev", FAILS="yes").returncode != 0
    assert checkout.did("dev") == [DEV, COMPILE]


def test_an_old_python_is_one_clear_message(checkout: Checkout) -> None:
    done = checkout.install("dev", VERSION="3.8.1")
    assert done.returncode == 1
    assert "needs Python 3.11 or newer" in done.stderr
    assert "Python 3.8.1" in done.stderr
    assert "make PYTHON=" in done.stderr
    assert not (checkout.root / ".venv").exists()


@pytest.mark.parametrize(
    ("promised", "outcome", "said"),
    [
        ("", "1 skipped", "needs symlinks: a link is made"),
        ("root", "1 skipped", "needs symlinks: a link is made"),
        ("root,symlinks", "1 failed", "GPUPLAN_REQUIRE names 'symlinks'"),
    ],
)
def test_a_missing_capability_skips_unless_it_was_promised(
    tmp_path: Path, promised: str, outcome: str, said: str
) -> None:
    conftest = (ROOT / "tests" / "conftest.py").read_text(encoding="utf-8")
    lacking = conftest + '\n\nCAPABILITIES["symlinks"] = lambda: False\n'
    (tmp_path / "conftest.py").write_text(lacking, encoding="utf-8")
    (tmp_path / "test_it.py").write_text(
        'def test_it(require):\n    require("symlinks", "a link is made")\n'
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-rs", "-q", str(tmp_path)],
        env={**os.environ, "GPUPLAN_REQUIRE": promised},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert outcome in done.stdout
    assert said in done.stdout


@pytest.mark.parametrize("failing", ["", "ruff", "lint-imports", "pytest"])
def test_make_test_fails_with_any_of_its_parts(tmp_path: Path, require, failing: str) -> None:
    require("posix", "make runs scripts")
    for folder in (".venv/bin", "scripts"):
        (tmp_path / folder).mkdir(parents=True)
    shutil.copy(ROOT / "Makefile", tmp_path)
    (tmp_path / "scripts" / "install.sh").write_text("")
    for name in ("ruff", "lint-imports", "pytest"):
        tool = tmp_path / ".venv" / "bin" / name
        tool.write_text(f"#!/bin/sh\necho {name} >>log\n[ {name} != '{failing}' ]\n")
        tool.chmod(0o755)
    # Of a make that runs these tests.
    own = {"MAKEFLAGS", "MFLAGS", "MAKELEVEL", "MAKEOVERRIDES"}
    variables = {name: value for name, value in os.environ.items() if name not in own}
    done = subprocess.run(
        ["make", "test"], cwd=tmp_path, env=variables, capture_output=True, text=True
    )
    assert bool(done.returncode) == bool(failing), done.stdout + done.stderr
    ran = (tmp_path / "log").read_text().split()
    # What takes seconds comes first.
    parts = ["ruff", "lint-imports", "pytest"]
    assert ran == (parts[: parts.index(failing) + 1] if failing else parts)


def test_what_make_test_leaves_out_has_a_target_that_ci_runs() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    recipes = dict(re.findall(r"^([\w-]+):.*\n((?:\t.*\n)+)", makefile, re.MULTILINE))
    assert '-m "not accuracy and not repeats"' in recipes["test"]
    assert "-m accuracy" in recipes["test-accuracy"]
    assert "-m repeats" in recipes["test-repeats"]
    assert "basedpyright" in recipes["types"]
    landing = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    ran = re.findall(r"^ *make (.*)$", landing, re.MULTILINE)
    targets = {word for line in ran for word in line.split()}
    assert {"test", "types", "test-accuracy", "test-repeats"} <= targets


def test_a_case_alone_may_not_be_left_out(tmp_path: Path) -> None:
    shutil.copy(ROOT / "tests" / "conftest.py", tmp_path)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n  slow\n  repeats\n")
    body = "import pytest\n@pytest.mark.slow\n@pytest.mark.repeats\ndef test_it():\n    pass\n"
    (tmp_path / "test_alone.py").write_text(body)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", str(tmp_path)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "only a case of a slow test may be `repeats`" in done.stderr


def test_a_file_stays_in_one_worker_unless_its_tests_are_spread(tmp_path: Path) -> None:
    shutil.copy(ROOT / "tests" / "conftest.py", tmp_path)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n  slow\n  spread\n")
    body = (
        "import os, time, pytest\n"
        "{mark}\n"
        "@pytest.mark.parametrize('number', range(6))\n"
        "def test_it(number):\n"
        "    time.sleep(0.2)\n"
        "    with open({log!r}, 'a') as log:\n"
        "        log.write('{name} ' + os.environ['PYTEST_XDIST_WORKER'] + '\\n')\n"
    )
    log = tmp_path / "log"
    for name, mark in (
        ("kept", ""),
        ("spread", "pytestmark = pytest.mark.spread"),
        ("urgent", "pytestmark = pytest.mark.slow"),
    ):
        text = body.format(name=name, mark=mark, log=str(log))
        (tmp_path / f"test_{name}.py").write_text(text)
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    options = re.search(r"^PARALLEL := .*?(--dist .*)$", makefile, re.MULTILINE)
    assert options is not None
    subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n2", *options[1].split(), str(tmp_path)],
        cwd=tmp_path,
        check=True,
        capture_output=True,
    )
    ran = [line.split() for line in log.read_text().splitlines()]
    workers = {name: {worker for one, worker in ran if one == name} for name, _ in ran}
    assert len(workers["kept"]) == len(workers["urgent"]) == 1
    assert len(workers["spread"]) == 2
    assert "urgent" in {name for name, _ in ran[:2]}
