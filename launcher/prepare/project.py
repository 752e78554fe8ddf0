"""The user's folder: the job's code, the packages it needs, project and owner."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from ...catalog.errors import UsageError
from ...profiles.hf_configs import CONFIGS
from ...profiles.user_model.file_text import installed_imports
from ...profiles.user_model.spec import ModelSpec
from ..labels import this_user
from .task.node_setup import Environment, Found
from .wanted_torch import pinned_version, wanted_torch

ENVIRONMENT_FILES: tuple[Found, ...] = ("uv.lock", "requirements.txt", "pyproject.toml")
"""The first that is there is taken."""
OTHER_LOCKS = ("poetry.lock", "Pipfile.lock", "pdm.lock", "environment.yml", "conda-lock.yml")


@dataclass(frozen=True, kw_only=True)
class Project:
    """A folder that travels to the nodes."""

    workdir: Path
    """Absolute."""
    environment: Environment
    owner: str
    named: str | None = None
    notes: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Return what people call it."""
        return self.named or self.workdir.name


def read_project(
    workdir: Path,
    *,
    owner: str | None = None,
    named: str | None = None,
    packages: tuple[str, ...] = (),
) -> Project:
    """Return what a folder says of the job's environment.

    Args:
        workdir: sent to the nodes whole, but for what its .skyignore or .gitignore names.
        owner: of the launch; None: the name of this machine's user.
        named: the project the cost belongs to; None: the folder's name.
        packages: to install where no file of the folder says which.

    Raises:
        UsageError: there is no such folder, or a file of it cannot be read.
    """
    folder = workdir.expanduser().absolute()
    if not folder.is_dir():
        raise UsageError(
            f"There is no folder {workdir}.", fix="give --workdir the folder of your code."
        )
    found: Found | None = next(
        (name for name in ENVIRONMENT_FILES if (folder / name).is_file()), None
    )
    others = [name for name in OTHER_LOCKS if (folder / name).is_file()]
    notes = [
        f"{name} is not read; give --setup with the lines that use it"
        for name in others
        if found is None
    ]
    wanted = None if found is None else wanted_torch(folder / found)
    return Project(
        workdir=folder,
        environment=Environment(
            found=found,
            torch_version=pinned_version(wanted) or _torch_here(),
            wanted_torch=wanted,
            python_version=f"{sys.version_info.major}.{sys.version_info.minor}",
            packages=packages if found is None else (),
        ),
        owner=owner or this_user(),
        named=named,
        notes=tuple(notes),
    )


def default_workdir(model: Path | None, folder: Path) -> Path:
    """Return the folder to send: this one if the model lies in it, else the model's own."""
    if model is None or model.is_relative_to(folder):
        return folder
    return model.parent


def brought_packages(spec: ModelSpec | None) -> tuple[str, ...]:
    """Return what to install for a config that comes with gpuplan, in the versions of this machine.

    Its folder is gpuplan's own: nobody writes a list of packages there.
    """
    if spec is None or spec.kind != "hf" or not spec.path.is_relative_to(CONFIGS):
        return ()
    try:
        return tuple(f"{name}=={version(name)}" for name in needed_packages(spec))
    except PackageNotFoundError:
        return ()


def needed_packages(spec: ModelSpec) -> tuple[str, ...]:
    """Return the packages besides torch that a model imports, by the names of their modules."""
    if spec.kind == "hf":
        return ("transformers",)
    if spec.kind != "file":
        return ()
    roots = {name.partition(".")[0] for name in installed_imports(spec.path)}
    return tuple(sorted(roots - sys.stdlib_module_names - {"torch"}))


def _torch_here() -> str:
    try:
        return version("torch").partition("+")[0]
    except PackageNotFoundError:
        raise UsageError(
            "torch is not installed here, so its version is not known.",
            fix="pin it in requirements.txt, as torch==2.13.0.",
        ) from None
