"""The shell lines that make a node's environment: Python, torch for its driver, packages.

The driver is known only on the node, so the choice is made there.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from ....catalog.errors import UsageError
from ....catalog.types import Accelerator
from ...runner.training_options import MLFLOW, TRACKERS
from .torch_wheels import OLDEST_OF_RUNNER, wheels_for

Found = Literal["uv.lock", "requirements.txt", "pyproject.toml"]
ENVIRONMENT = '"$HOME/gpuplan-env"'
ACTIVATE = 'if [ -f "$HOME/gpuplan-env/bin/activate" ]; then . "$HOME/gpuplan-env/bin/activate"; fi'
"""Where the user's own set-up made no environment there is nothing to activate."""
PACKAGES: dict[str, str] = {MLFLOW: "mlflow-skinny"}
"""What has a module, where it is not called like it; all of MLflow brings a server of pages too."""
WHEELS = "https://download.pytorch.org/whl"
LOCAL_PATH = 'export PATH="$PATH:$HOME/.local/bin"'
UV = f"""\
{LOCAL_PATH}
if ! command -v uv >/dev/null 2>&1; then
    PIP_BREAK_SYSTEM_PACKAGES=1 python3 -m pip install --quiet --user uv
fi"""
START_TIMER = """\
# Before anything that can hang: it ends a set-up that hangs, and an orphaned machine.
python3 -E -S "$HOME/gpuplan-job/gpuplan_guard" timer "$HOME/gpuplan-job/guard.json" $$ ||
    echo "gpuplan: no timer was started here: this machine does not end itself" >&2"""
CHECK = """\
python3 -c 'import sys, torch; sys.exit(0 if torch.cuda.is_available() else \
f"torch {torch.__version__} (CUDA {torch.version.cuda}) sees no GPU here")'"""
_NEEDED = tuple(map(int, OLDEST_OF_RUNNER.split(".")))
NEW_ENOUGH = f"""\
python3 -c 'import sys, torch; sys.exit(0 if \
tuple(map(int, torch.__version__.split(".")[:2])) >= {_NEEDED} else \
f"torch {{torch.__version__}} of this image is older than {OLDEST_OF_RUNNER}: see --image")'"""
"""What an image has nobody knows before it is here; a set-up that ends at once costs least."""


@dataclass(frozen=True, kw_only=True)
class Environment:
    """What a project says of the packages it needs."""

    found: Found | None
    torch_version: str
    """To install: the one that the project pins, else the one on this machine."""
    wanted_torch: str | None = None
    """What the project's file says of torch, as "torch<2.10"; None where it says nothing."""
    python_version: str
    """`3.12`."""
    packages: tuple[str, ...] = ()
    """What the model needs beside torch, where no file says so: "transformers==5.23.0"."""


def timed_setup(script: str) -> str:
    """Return a set-up under the timer that stops it when it hangs, and ends the machine.

    The timer comes before everything that can hang, and watches the very shell that sets up. An
    image whose Python is only installed by the set-up has none yet: it goes on, and says so.
    """
    return f"{START_TIMER}\n{script}"


def setup_script(
    environment: Environment,
    accelerator: Accelerator | None,
    *,
    with_torch: bool,
    image: str | None,
    with_runner: bool = False,
    trackers: Sequence[str] = (),
) -> str:
    """Return what every node runs once, before the job.

    Args:
        environment: what the project needs.
        accelerator: of the node; None where the catalogue does not know it.
        with_torch: whether torch is installed at all.
        image: a docker image brings its own Python, and perhaps its own torch.
        with_runner: whether gpuplan's runner trains, which needs numpy beside torch: the objects
            and checkpoints of several processes travel in its arrays.
        trackers: of `TRACKERS`, that the runner writes to.

    Raises:
        UsageError: which torch build the accelerator needs is not known here, or this version has
            none for it.
    """
    in_image = image is not None and image.startswith("docker:")
    pip = "PIP_BREAK_SYSTEM_PACKAGES=1 python3 -m pip install --quiet" if in_image else PIP
    lines = ["set -eu", 'cd "$HOME/sky_workdir"']
    if not in_image:
        lines += [
            "# The image's own Python may be too old.",
            UV,
            f"uv venv --quiet --allow-existing --python {environment.python_version} {ENVIRONMENT}",
            f'. {ENVIRONMENT[:-1]}/bin/activate"',
            # Activated from within an environment of SkyPilot's, it forgets what was added to PATH.
            LOCAL_PATH,
        ]
    limits = ""
    if with_torch:
        lines += _torch(environment, accelerator, pip, in_image=in_image)
        limits = ' -c "$HOME/gpuplan-torch.txt"' if not in_image else ""
    lines += _packages(environment, pip, limits)
    if with_runner:
        lines += [NEW_ENOUGH] if in_image else []
        lines.append(f"python3 -c 'import numpy' 2>/dev/null || {pip} numpy")
    lines += [_tracker(name, pip, limits) for name in trackers]
    if with_torch and _is_nvidia(accelerator):
        lines.append(CHECK)
    return "\n".join([*lines, ""])


PIP = "uv pip install --quiet"


def _torch(
    environment: Environment, accelerator: Accelerator | None, pip: str, *, in_image: bool
) -> list[str]:
    version = shlex.quote(f"torch=={environment.torch_version}")
    if accelerator is not None and accelerator.is_cpu:
        choice = [f"wheels={WHEELS}/cpu"]
    elif accelerator is not None and _is_nvidia(accelerator):
        choice = _cuda_choice(environment.torch_version, accelerator)
    elif in_image or environment.found is not None:
        return []  # Theirs is the torch that fits.
    else:
        name = accelerator.name if accelerator else "this accelerator"
        raise UsageError(
            f"Which build of torch {name} needs is not known to gpuplan.",
            fix="give --image docker:… with torch in it, --setup with the lines that install it, or"
            " a requirements.txt.",
        )
    install = f'{pip} {version} --index-url "$wheels"'
    if in_image:
        return [
            "if ! python3 -c 'import torch' 2>/dev/null; then",
            *("    " + line for line in "\n".join([*choice, install]).splitlines()),
            "fi",
        ]
    return [*choice, install, f'printf "%s\\n" {version} >"$HOME/gpuplan-torch.txt"']


def _cuda_choice(version: str, accelerator: Accelerator) -> list[str]:
    """Return the lines that set `wheels` to the best build that the node's driver runs."""
    tried = wheels_for(version, accelerator)
    lines = [
        'driver="$(nvidia-smi --query-gpu=driver_version --format=csv,noheader | head -n 1'
        ' | cut -d . -f 1)"'
    ]
    for place, one in enumerate(tried):
        word = "elif" if place else "if"
        lines += [
            f'{word} [ "$driver" -ge {one.oldest_driver} ]; then',
            f"    wheels={WHEELS}/{one.build}",
        ]
    oldest = min(one.oldest_driver for one in tried)
    said = f"torch for this GPU needs driver {oldest} or newer, and this node has"
    return [*lines, "else", f'    echo "{said} $driver; give --image." >&2', "    exit 1", "fi"]


def _packages(environment: Environment, pip: str, limits: str) -> list[str]:
    if environment.found == "requirements.txt":
        return [f"{pip} -r requirements.txt{limits}"]
    if environment.found == "pyproject.toml":
        return [f"{pip} .{limits}"]
    if environment.found == "uv.lock":
        return [
            *([UV] if pip != PIP else []),
            "# torch and what it brings are those of the driver; all else is as locked.",
            "uv export --quiet --frozen --no-emit-project --no-hashes --no-emit-package torch"
            ' >"$HOME/gpuplan-locked.txt"',
            'sed -e "/^nvidia-/d" -e "/^triton/d" "$HOME/gpuplan-locked.txt"'
            ' >"$HOME/gpuplan-lock.txt"',
            f'{pip} -r "$HOME/gpuplan-lock.txt"{limits}',
        ]
    if environment.packages:
        return [f"{pip} {shlex.join(environment.packages)}{limits}"]
    return []


def _tracker(name: str, pip: str, limits: str) -> str:
    """Return the line that installs a tracker where the project has not; it never ends a set-up."""
    needed = TRACKERS[name]
    packages = shlex.join(PACKAGES.get(one, one) for one in needed)
    failed = f'echo "gpuplan: {name} is not installed here; nothing is written to it" >&2'
    check = f"python3 -c 'import {', '.join(needed)}' 2>/dev/null"
    return f"{check} || {pip} {packages}{limits} || {failed}"


def _is_nvidia(accelerator: Accelerator | None) -> bool:
    return accelerator is not None and accelerator.vendor == "NVIDIA"
