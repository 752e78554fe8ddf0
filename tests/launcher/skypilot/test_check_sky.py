"""`gpuplan check`: what can be rented from here, said without a word of any key."""

from pathlib import Path

import pytest

from gpuplan.cli.main import run
from gpuplan.cli.render.market.check import render_check
from gpuplan.launcher.redaction import redacted
from gpuplan.launcher.skypilot import check as sky_check
from gpuplan.launcher.skypilot.check import SkyCheck, check, reasons_in

SAID = (
    "Checking credentials to enable infra for SkyPilot.\n"
    "\x1b[32m  AWS: enabled [compute, storage]\x1b[0m\n"
    "    Hint [storage]: buckets are there\n"
    "\x1b[2m  Azure: disabled \x1b[0m\x1b[0m\n"
    "    Reason [compute, storage]: ~/.azure/msal_token_cache.json does not exist."
    " Run the following commands:\n"
    "      $ az login\n"
    "\x1b[2m  DO: disabled \x1b[0m\x1b[0m\n"
    "    Reason [compute]: Traceback (most recent call last):\n"
    '  File "/opt/sky/check.py", line 213, in check_one_cloud_one_capability\n'
    "    ok, reason = cloud.check_credentials(capability)\n"
    "                 ^^^^^^^^^^^^^^^^^^^\n"
    "ModuleNotFoundError: No module named 'azure'\n"
    "\x1b[2m  Kubernetes: disabled \x1b[0m\x1b[0m\n"
    "    Reason [compute]: `socat` is required and it is not installed. \n"
    "    On Debian/Ubuntu, install the missing dependenc(ies) with:\n"
    "      $ sudo apt install socat netcat\n"
)
CANARIES = (
    "AKIAIOSFODNN7EXAMPLE",
    "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
    "hf_abcdefghijklmnopqrstuv",
    "hunter2",
    "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822c",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NSJ9",
)
LEAKING = (
    "  GCP: disabled\n"
    f"    Reason [compute]: denied for {CANARIES[0]} with {CANARIES[1]}, password = 'hunter2'\n"
    f"    Details: https://ann:hunter2@proxy.example/ or HF_TOKEN={CANARIES[2]}\n"
    f"    Details: session {CANARIES[4]} is over\n"
    f'    Details: {{"authorization": "Bearer {CANARIES[5]}"}}\n'
)


class Fake:
    """SkyPilot as a test wants it."""

    def __init__(
        self,
        enabled: tuple[str, ...] = (),
        said: str = "",
        *,
        version: str | None = "0.14.1",
        error: Exception | None = None,
    ) -> None:
        self.enabled, self.said, self.installed, self.error = enabled, said, version, error

    def version(self) -> str | None:
        return self.installed

    def check(self) -> tuple[set[str], str]:
        if self.error is not None:
            raise self.error
        return set(self.enabled), self.said


def checked(home: Path, client: Fake, **environment: str) -> SkyCheck:
    return check(client, home=home, environment=environment)


def text_of(found: SkyCheck) -> str:
    return "\n".join(line.plain for line in render_check(found, width=90))


def test_one_cloud_is_enabled(tmp_path: Path) -> None:
    found = checked(tmp_path, Fake(("AWS",), SAID))
    first, *rest = found.clouds
    assert (first.cloud, first.enabled, first.why, first.fix) == ("AWS", True, None, None)
    assert found.usable and found.problem is None
    assert not any(cloud.enabled for cloud in rest)
    azure = next(cloud for cloud in rest if cloud.cloud == "Azure")
    assert azure.why == "~/.azure/msal_token_cache.json does not exist."
    assert azure.fix == "az login"
    assert "Usable: AWS." in text_of(found)


def test_a_failure_of_skypilots_own_is_said_in_its_last_line(tmp_path: Path) -> None:
    found = checked(tmp_path, Fake(("AWS",), SAID))
    ocean = next(cloud for cloud in found.clouds if cloud.cloud == "DO")
    assert ocean.why == "ModuleNotFoundError: No module named 'azure'"
    assert ocean.fix == 'pip install "skypilot[do]", then doctl auth init'
    assert "To fix: sudo apt install socat netcat, then bring" in text_of(found)


def test_no_cloud_is_enabled(tmp_path: Path) -> None:
    found = checked(tmp_path, Fake((), SAID.replace("enabled", "disabled")))
    assert not found.usable
    assert found.problem == "no cloud can be rented from yet"
    assert "To fix: aws configure" in text_of(found)


def test_storage_alone_rents_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Sdk:
        @staticmethod
        def check(_infra: object, _verbose: bool) -> str:
            return "request"

        @staticmethod
        def stream_and_get(_request: str, output_stream: object) -> dict[str, object]:
            del output_stream
            return {"default": {"AWS": ["storage"], "GCP": ["compute", "storage"]}}

    monkeypatch.setattr(sky_check, "import_module", lambda _name: Sdk)
    enabled, _ = sky_check.SkyClient().check()
    assert enabled == {"GCP"}


def test_the_server_is_down(tmp_path: Path) -> None:
    error = ConnectionError(f"no answer from http://ann:hunter2@host:46580 ({CANARIES[0]})")
    found = checked(tmp_path, Fake(error=error), AWS_PROFILE="team")
    assert not found.usable
    assert found.problem is not None and found.problem.startswith("SkyPilot could not be asked: Co")
    assert found.fix is not None and "sky api start" in found.fix
    assert [cloud.credentials for cloud in found.clouds] == [("$AWS_PROFILE",)]
    assert "hunter2" not in found.model_dump_json() and CANARIES[0] not in found.model_dump_json()


def test_without_skypilot_it_says_how_to_install_it(tmp_path: Path) -> None:
    for name in (".aws/credentials", ".lambda_cloud/lambda_keys"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(f"secret = {CANARIES[1]}\n")
    found = checked(tmp_path, Fake(version=None))
    assert found.skypilot_version is None and not found.usable
    assert found.fix == 'pip install "gpuplan[sky]" "skypilot[aws,lambda]"'
    assert {cloud.cloud: cloud.credentials for cloud in found.clouds} == {
        "AWS": ("~/.aws/credentials",),
        "Lambda": ("~/.lambda_cloud/lambda_keys",),
    }
    assert "found here: ~/.aws/credentials" in text_of(found)
    assert CANARIES[1] not in text_of(found) + found.model_dump_json()


@pytest.mark.parametrize("canary", CANARIES)
def test_what_looks_like_a_key_is_never_passed_on(tmp_path: Path, canary: str) -> None:
    found = checked(tmp_path, Fake((), LEAKING))
    google = next(cloud for cloud in found.clouds if cloud.cloud == "GCP")
    assert google.why is not None and google.why.startswith("denied for (removed)")
    assert google.why.count("Details:") == 3
    assert canary not in text_of(found) + found.model_dump_json()
    assert canary not in redacted(LEAKING)


def test_what_a_person_needs_is_not_removed() -> None:
    text = (
        "Run $ pip install google-api-python-client, see ~/.config/gcloud/access_tokens.db and"
        " https://docs.skypilot.co/en/latest/getting-started/installation.html#aws"
    )
    assert redacted(text) == text


def test_a_cloud_that_gpuplan_does_not_know_is_named_when_it_is_enabled(tmp_path: Path) -> None:
    found = checked(tmp_path, Fake(("Hyperbolic",), SAID))
    assert found.clouds[0].cloud == "Hyperbolic" and found.usable


def test_reasons_belong_to_their_cloud() -> None:
    assert set(reasons_in(SAID)) == {"Azure", "DO", "Kubernetes"}


@pytest.mark.parametrize(("enabled", "code"), [(("AWS",), 0), ((), 1)])
def test_the_exit_code_says_whether_anything_is_usable(
    enabled: tuple[str, ...],
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sky_check, "SkyClient", lambda: Fake(enabled, SAID))
    assert run(["check", "--format", "json"]) == code
    found = SkyCheck.model_validate_json(capsys.readouterr().out)
    assert found.usable == bool(enabled)
    assert run(["check"]) == code
    assert "SkyPilot 0.14.1" in capsys.readouterr().out


@pytest.mark.slow
def test_the_real_call_is_where_we_call_it(require) -> None:
    require("skypilot", "its SDK is looked at")
    import inspect

    sdk = sky_check.import_module("sky.client.sdk")
    assert list(inspect.signature(sdk.check).parameters)[:2] == ["infra_list", "verbose"]
    assert "output_stream" in inspect.signature(sdk.stream_and_get).parameters
