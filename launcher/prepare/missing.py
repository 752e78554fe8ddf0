"""What is missing before a launch: listed at once, with one line for what a line can put right."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from pathlib import Path

from ...catalog.errors import GpuplanError, UsageError
from ...planner.plan.plan import Plan
from ..lifecycle.engine import Engine, NoEngineError
from ..skypilot.clouds import CLOUDS, credentials
from .request import LaunchRequest

IN_WORDS = ("put ", "bring ", "name ")
"""How ways to log in begin that are no commands."""


SERVER = "SKYPILOT_API_SERVER_ENDPOINT"
"""SkyPilot's own variable: a server elsewhere, which has the keys."""


class MissingError(UsageError):
    """Something is not there yet.

    Args:
        message: what.
        fix: what to do about it, in words.
        commands: of a shell, which do so.
        options: of the launch itself, which do so.
        by_hand: numbers of what neither does.
        exit_code: of the refusal; None: that of a usage error.
    """

    def __init__(
        self,
        message: str,
        *,
        fix: str | None,
        commands: Sequence[str] = (),
        options: Sequence[str] = (),
        by_hand: Sequence[int] = (),
        exit_code: int | None = None,
    ) -> None:
        super().__init__(message, fix=fix)
        if exit_code is not None:
            self.exit_code = exit_code
        self.commands = tuple(commands)
        self.options = tuple(options)
        self.by_hand = tuple(by_hand)

    def with_line(self, typed: Sequence[str]) -> MissingError:
        """Return it with one line to paste, which ends in the launch as it was typed."""
        if not self.commands and not self.options:
            return self
        line = " && ".join([*self.commands, shlex.join([*typed, *self.options])])
        places = ", ".join(map(str, self.by_hand))
        come = "comes" if len(self.by_hand) == 1 else "come"
        head = f"All but {places}, which {come} first" if places else "All of it"
        fix = f"{self.fix}\n{head}, in one command:\n  {line}"
        return MissingError(self.message, fix=fix, exit_code=self.exit_code)


def refuse_all(
    checks: Iterable[Callable[[], object]], *, later: Iterable[Callable[[], object]] = ()
) -> None:
    """Raise what one of the checks raises, or one error with all that several raise.

    Args:
        checks: each raises what is missing.
        later: what is checked again when all else is there, since it takes long or comes after a
            question: listed beside what is missing already, and never a refusal by itself.
    """
    found = _raised(checks)
    codes = {one.exit_code for one in found}
    if found:
        found = [*found, *_raised(later)]
    # One price that is not known stops several checks with the same words.
    keyed = {one if isinstance(one, MissingError) else one.message: one for one in found}
    found = list(keyed.values())
    if len(found) == 1:
        raise found[0]
    if not found:
        return
    missing = [one if isinstance(one, MissingError) else None for one in found]
    raise MissingError(
        f"{len(found)} things are missing before this can be launched."
        + "".join(f"\n  {place}. {one.message}" for place, one in enumerate(found, 1)),
        fix="".join(f"\n  {place}. {one.fix}" for place, one in enumerate(found, 1)),
        commands=[line for one in missing if one is not None for line in one.commands],
        options=[word for one in missing if one is not None for word in one.options],
        by_hand=[place for place, one in enumerate(missing, 1) if one is None],
        exit_code=codes.pop() if len(codes) == 1 else None,
    )


def _raised(checks: Iterable[Callable[[], object]]) -> list[GpuplanError]:
    found: list[GpuplanError] = []
    for check in checks:
        try:
            check()
        except GpuplanError as error:
            found.append(error)
    return found


def place_for_results(plan: Plan, request: LaunchRequest) -> tuple[str, ...]:
    """Return the option that keeps the results of a launch which gives no place for them."""
    if plan.nodes == 1 and not request.buys_spot(plan):
        return ("--fetch", "results")
    scheme = "gs" if plan.offer.provider == "gcp" else "s3"
    return ("--outputs", f"{scheme}://YOUR-BUCKET/runs")


def list_of_packages(modules: Iterable[str], folder: Path) -> tuple[str, ...]:
    """Return the command that writes down the packages of modules, in the versions of this machine.

    Nothing where one of them is not installed here.
    """
    known = packages_distributions()
    try:
        named = sorted({known[one][0] for one in modules}, key=str.casefold)
        lines = [f"{one}=={version(one)}" for one in named]
    except (KeyError, PackageNotFoundError):
        return ()
    file = shlex.quote(str(folder / "requirements.txt"))
    return (f"printf '%s\\n' {shlex.join(lines)} > {file}",)


def needs_here(
    engine: Engine,
    plan: Plan,
    request: LaunchRequest,
    *,
    environment: Mapping[str, str] = os.environ,
    home: Path | None = None,
    python: str = sys.executable,
) -> list[Callable[[], object]]:
    """Return the checks of what renting needs on this machine: SkyPilot, and the secrets."""
    return [
        lambda: _refuse_no_engine(engine, plan, environment, home or Path.home()),
        lambda: _refuse_spaces(plan, request, environment, python),
        lambda: _refuse_unset(request, environment),
    ]


def keys_here(
    engine: Engine,
    plan: Plan,
    *,
    environment: Mapping[str, str] = os.environ,
    home: Path | None = None,
) -> Callable[[], object]:
    """Return the check of whether there are keys of the plan's cloud, where SkyPilot is installed.

    For a list alone: a machine may have a role, and SkyPilot a server of its own.
    """

    def check() -> None:
        try:
            engine.ready()
        except NoEngineError:
            return  # What installs it says it.
        login = _login(plan, environment, home or Path.home())
        if login is not None and SERVER not in environment:
            raise MissingError(
                f"No keys of {plan.offer.provider} were found on this machine.",
                fix=f"{login}; a role of the machine, or a SkyPilot server elsewhere, needs none.",
                commands=_as_command(login),
            )

    return check


def _login(plan: Plan, environment: Mapping[str, str], home: Path) -> str | None:
    """Return how to log in to the cloud of a plan; None where there are keys, or none is known."""
    for cloud, facts in CLOUDS.items():
        if cloud.casefold() == plan.offer.provider and not credentials(home, environment)[cloud]:
            return facts.login
    return None


def _as_command(login: str) -> list[str]:
    return [] if login.startswith(IN_WORDS) else [login.replace("; ", " && ")]


def _refuse_no_engine(
    engine: Engine, plan: Plan, environment: Mapping[str, str], home: Path
) -> None:
    """Refuse a machine without SkyPilot; that no keys of the cloud lie here is said with it.

    Keys alone refuse nothing: a machine may have a role, and SkyPilot a server of its own.
    """
    try:
        engine.ready()
    except NoEngineError as error:
        packages = ["gpuplan[sky]"]
        for cloud, facts in CLOUDS.items():
            if cloud.casefold() == plan.offer.provider:
                packages.append(f"skypilot[{facts.extra}]")
        login = _login(plan, environment, home)
        commands = ["pip install " + " ".join(f'"{one}"' for one in packages)]
        fix = f"install it: {commands[0]}"
        if login is not None:
            fix += f"; no keys of {plan.offer.provider} were found here: {login}"
            commands += _as_command(login)
        raise MissingError(error.message, fix=f"{fix}.", commands=commands) from None


def _refuse_spaces(
    plan: Plan, request: LaunchRequest, environment: Mapping[str, str], python: str
) -> None:
    """Refuse managed jobs of a SkyPilot that would run them from a path with a space.

    SkyPilot 0.14 writes the path of its Python unquoted into the commands by which a server on this
    machine runs managed jobs itself (sky/jobs/scheduler.py, sky/utils/command_runner.py): what
    follows a launch ends in "No such file or directory".
    """
    is_here = not request.has_controller and SERVER not in environment
    if is_here and request.buys_spot(plan) and len(python.split()) > 1:
        raise UsageError(
            f"SkyPilot cannot run managed jobs from a folder with a space in its name: {python}.",
            fix="install gpuplan and SkyPilot in a virtual environment whose path has none, or rent"
            " on demand.",
        )


def _refuse_unset(request: LaunchRequest, environment: Mapping[str, str]) -> None:
    unset = [name for name in request.secrets if name not in environment]
    if unset:
        raise MissingError(
            f"{', '.join(unset)} is not set in this shell, and the job needs it.",
            fix="set it, then try again; its value is never kept.",
            commands=[f"read -rs {name} && export {name}" for name in unset],
        )
