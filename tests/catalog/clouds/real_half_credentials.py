"""Credentials that are there in part, or in the wrong place: a reason, and no secret in it."""

from pathlib import Path

import pytest

from gpuplan.cli.main import run

CANARY = "canarysecretcanarysecretcanarysecret0000"
SERVICE_ACCOUNT = f'{{"type": "service_account", "private_key": "{CANARY}"}}'
PLACES = {"aws": "us-east-1", "gcp": "us-central1", "azure": "eastus"}
HALVES = [
    ("aws", {"AWS_ACCESS_KEY_ID": CANARY}, "a part of the AWS credentials is missing"),
    ("aws", {"AWS_PROFILE": CANARY}, "the AWS profile that is named does not exist"),
    ("aws", {"AWS_CONFIG_FILE": "[broken"}, "the AWS configuration cannot be read"),
    ("aws", {}, "no AWS credentials"),
    ("gcp", {"GOOGLE_APPLICATION_CREDENTIALS": f'["{CANARY}"]'}, "cannot be read"),
    ("gcp", {"GOOGLE_APPLICATION_CREDENTIALS": f'{{"type": "{CANARY}"'}, "no Google credentials"),
    (
        "gcp",
        {"GOOGLE_APPLICATION_CREDENTIALS": SERVICE_ACCOUNT},
        "no Google credentials",
    ),
    ("azure", {}, "no Azure subscription is named"),
    (
        "azure",
        {
            "AZURE_SUBSCRIPTION_ID": "00000000-0000-0000-0000-00000000cafe",
            "AZURE_TENANT_ID": f"{CANARY} of ours",
            "AZURE_CLIENT_ID": "app",
            "AZURE_CLIENT_SECRET": CANARY,
        },
        "the Azure credentials cannot be read",
    ),
]
"""A variable of a file stands for one with that content."""
FILES = ("AWS_CONFIG_FILE", "GOOGLE_APPLICATION_CREDENTIALS")


@pytest.fixture(autouse=True)
def _nothing(require, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    require("cloud-clients", "the client libraries are not installed: make test-clouds does it")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AZURE_SUBSCRIPTION_ID", "GOOGLE_APPLICATION_CREDENTIALS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("COLUMNS", "300")


@pytest.mark.parametrize(
    ("provider", "variables", "why"), HALVES, ids=[f"{one}: {why}" for one, _, why in HALVES]
)
def test_half_a_login_is_a_reason(
    provider, variables, why, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys
) -> None:
    for name, value in variables.items():
        if name in FILES:
            value = str(tmp_path / name)
            Path(value).write_text(variables[name], encoding="utf-8")
        monkeypatch.setenv(name, value)
    for command, code in (
        (["capacity", "--accelerator", "H100:8", "--region", PLACES[provider]], 0),
        (["prices", "refresh", "--provider", provider], 5),
    ):
        if command[0] == "prices" and provider == "azure":
            continue  # Azure's prices need no login.
        assert run([*command, *(["-q"] if command[0] == "prices" else [])]) == code
        said = capsys.readouterr()
        text = " ".join((said.out + said.err).split())
        assert why in text and "itself failed" not in text
        assert CANARY not in text
