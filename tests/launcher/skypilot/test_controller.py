"""Whether SkyPilot's settings give managed jobs a machine as their controller."""

from pathlib import Path

import pytest

from gpuplan.launcher.skypilot.controller import has_controller_machine
from gpuplan.launcher.skypilot.user_settings import NAMED_CONFIG


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("jobs:\n  controller:\n    consolidation_mode: true\n", False),
        ("jobs:\n  controller:\n    consolidation_mode: false\n", True),
        ("jobs:\n  controller:\n    resources: {cpus: 4}\n", True),
        ("jobs: []\n", True),
        ("", True),
        ("jobs: {", True),
        ("\x00", True),
    ],
)
def test_what_the_settings_say_holds(tmp_path: Path, text: str, expected: bool) -> None:
    config = tmp_path / ".sky" / "config.yaml"
    config.parent.mkdir()
    config.write_text(text, encoding="utf-8")
    assert has_controller_machine({}, tmp_path) is expected


def test_without_settings_there_is_a_machine(tmp_path: Path) -> None:
    assert has_controller_machine({}, tmp_path)


def test_settings_elsewhere_are_named_by_a_variable(tmp_path: Path) -> None:
    named = tmp_path / "team.yaml"
    named.write_text("jobs: {controller: {consolidation_mode: true}}")
    assert not has_controller_machine({NAMED_CONFIG: str(named)}, tmp_path)
