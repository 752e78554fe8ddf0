"""All that is missing before a launch: one list, and one line that puts right what a line can."""

import subprocess
from pathlib import Path

import pytest
from answers import make_offer, make_plan

from gpuplan.catalog.errors import LimitError, PriceError, UsageError
from gpuplan.launcher.lifecycle.engine import NoEngineError
from gpuplan.launcher.prepare.missing import (
    SERVER,
    MissingError,
    keys_here,
    list_of_packages,
    needs_here,
    place_for_results,
    refuse_all,
)
from gpuplan.launcher.prepare.request import LaunchRequest

TYPED = ("gpuplan", "launch", "24d0", "--param", "name=a b")


def missing(*commands: str, options: tuple[str, ...] = ()) -> MissingError:
    return MissingError("It is missing.", fix="bring it.", commands=commands, options=options)


def raised(*errors: Exception) -> UsageError:
    def check(error: Exception) -> None:
        raise error

    with pytest.raises(UsageError) as caught:
        refuse_all([lambda one=one: check(one) for one in errors])
    return caught.value


class NoSkyPilot:
    def ready(self) -> None:
        raise NoEngineError("SkyPilot is not installed here.", fix="install it.")


class Ready:
    def ready(self) -> None: ...


def here(engine: object, request: LaunchRequest, home: Path, **environment: str) -> MissingError:
    plan = make_plan()
    checks = needs_here(engine, plan, request, environment=environment, home=home)  # pyright: ignore[reportArgumentType]
    with pytest.raises(MissingError) as caught:
        refuse_all(checks)
    return caught.value


def test_the_line_does_the_commands_in_order_and_ends_in_what_was_typed() -> None:
    error = raised(missing("first"), missing(options=("--fetch", "results")), missing("second"))
    assert isinstance(error, MissingError)
    fix = error.with_line(TYPED).fix or ""
    assert fix.splitlines()[-2:] == [
        "All of it, in one command:",
        "  first && second && gpuplan launch 24d0 --param 'name=a b' --fetch results",
    ]


def test_what_no_command_does_is_named_by_its_number() -> None:
    error = raised(UsageError("No data.", fix="write it."), missing("first"))
    assert isinstance(error, MissingError)
    assert "All but 1, which comes first, in one command:" in (error.with_line(TYPED).fix or "")
    left = raised(UsageError("No data.", fix="write it."), UsageError("Old.", fix="renew it."))
    assert isinstance(left, MissingError)
    assert left.with_line(TYPED) is left


def test_one_alone_keeps_its_words() -> None:
    alone = raised(missing("first"))
    assert isinstance(alone, MissingError)
    assert (alone.with_line(TYPED).fix or "").startswith("bring it.\nAll of it, in one command:")


def test_what_is_told_later_is_listed_beside_what_is_missing_and_refuses_nothing_alone() -> None:
    def check(error: Exception) -> None:
        raise error

    later = [lambda: check(LimitError("No quota.")), lambda: check(missing(options=("-y",)))]
    refuse_all([lambda: None], later=later)
    with pytest.raises(MissingError, match="3 things") as caught:
        refuse_all([lambda: check(LimitError("Too dear."))], later=later)
    assert (caught.value.exit_code, caught.value.by_hand) == (4, (1, 2))
    assert caught.value.with_line(TYPED).exit_code == 4
    with pytest.raises(PriceError, match="No price"):
        refuse_all([lambda: check(PriceError("No price."))] * 2)


def test_keys_that_are_not_found_are_for_the_list_where_skypilot_is_there(tmp_path: Path) -> None:
    def check(engine: object, **environment: str) -> None:
        keys_here(engine, make_plan(), environment=environment, home=tmp_path)()  # pyright: ignore[reportArgumentType]

    check(NoSkyPilot())
    check(Ready(), AWS_PROFILE="work")
    check(Ready(), SKYPILOT_API_SERVER_ENDPOINT="https://sky.example.org")
    with pytest.raises(MissingError, match="No keys of aws") as caught:
        check(Ready())
    assert caught.value.commands == ("aws configure",)


def test_results_have_a_place_that_the_plan_allows() -> None:
    one, many = make_plan(), make_plan(layout="fsdp16", nodes=2)
    on_gcp = make_plan(nodes=2, layout="fsdp16", offer=make_offer(provider="gcp"))
    spot = LaunchRequest(spot=True)
    assert place_for_results(one, LaunchRequest()) == ("--fetch", "results")
    assert place_for_results(many, LaunchRequest()) == ("--outputs", "s3://YOUR-BUCKET/runs")
    assert place_for_results(one, spot) == ("--outputs", "s3://YOUR-BUCKET/runs")
    assert place_for_results(on_gcp, LaunchRequest()) == ("--outputs", "gs://YOUR-BUCKET/runs")


def test_the_list_of_packages_is_written_by_its_command(tmp_path: Path) -> None:
    folder = tmp_path / "a folder"
    folder.mkdir()
    (line,) = list_of_packages(["click", "yaml"], folder)
    subprocess.run(["sh", "-c", line], check=True)
    written = (folder / "requirements.txt").read_text().splitlines()
    assert [one.partition("==")[0].lower() for one in written] == ["click", "pyyaml"]
    assert all(one.partition("==")[2] for one in written)
    assert list_of_packages(["click", "no_such_module"], folder) == ()


def test_what_rents_is_installed_with_the_clouds_own_part_and_its_login(tmp_path: Path) -> None:
    error = here(NoSkyPilot(), LaunchRequest(), tmp_path)
    install = 'pip install "gpuplan[sky]" "skypilot[aws]"'
    assert error.commands == (install, "aws configure")
    assert "no keys of aws were found here: aws configure." in (error.fix or "")
    known = here(NoSkyPilot(), LaunchRequest(), tmp_path, AWS_PROFILE="work")
    assert (known.commands, known.fix) == ((install,), f"install it: {install}.")


def test_a_secret_that_is_not_set_is_asked_for_and_never_shown(tmp_path: Path) -> None:
    request = LaunchRequest(secrets=("HF_TOKEN", "WANDB_API_KEY"))
    error = here(Ready(), request, tmp_path, HF_TOKEN="hf_x")
    assert error.message.startswith("WANDB_API_KEY is not set")
    assert error.commands == ("read -rs WANDB_API_KEY && export WANDB_API_KEY",)


@pytest.mark.parametrize(
    ("python", "is_spot", "has_controller", "server", "is_refused"),
    [
        ("/home/me/my models/bin/python", True, False, {}, True),
        ("/home/me/models/bin/python", True, False, {}, False),
        ("/home/me/my models/bin/python", False, False, {}, False),
        ("/home/me/my models/bin/python", True, True, {}, False),
        ("/home/me/my models/bin/python", True, False, {SERVER: "http://team"}, False),
    ],
)
def test_managed_jobs_are_not_started_from_a_path_with_a_space(
    python: str,
    is_spot: bool,
    has_controller: bool,
    server: dict[str, str],
    is_refused: bool,
    tmp_path: Path,
) -> None:
    """SkyPilot writes that path unquoted: the job was asked for, and then not found."""
    request = LaunchRequest(spot=is_spot, has_controller=has_controller)
    plan = make_plan()
    checks = needs_here(Ready(), plan, request, environment=server, home=tmp_path, python=python)  # pyright: ignore[reportArgumentType]
    if not is_refused:
        refuse_all(checks)
        return
    with pytest.raises(UsageError, match="a space in its name: /home/me/my models"):
        refuse_all(checks)
