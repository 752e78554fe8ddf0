"""docs/ci.md: its YAML can be read, and the commands in it exist with these options."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from gpuplan.cli.main import cli

PAGE = (Path(__file__).parents[1] / "docs" / "ci.md").read_text(encoding="utf-8")
WORKFLOW, HOOKS = (
    yaml.safe_load(block) for block in re.findall(r"^```yaml\n(.*?)^```", PAGE, re.M | re.S)
)
STEPS: list[dict[str, Any]] = WORKFLOW["jobs"]["budget"]["steps"]
SCRIPTS = [step["run"] for step in STEPS if "run" in step]
TYPED = [
    line.strip().partition("#")[0]
    for line in [
        *re.findall(r"^gpuplan .*$", PAGE, re.M),
        *(line for script in SCRIPTS for line in script.splitlines()),
        HOOKS["repos"][0]["hooks"][0]["entry"],
    ]
    if line.strip().startswith("gpuplan ")
]


def test_there_are_commands() -> None:
    assert len(TYPED) == 5


@pytest.mark.parametrize("typed", TYPED)
def test_every_command_is_parsed(typed: str, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    words = shlex.split(typed.partition("||")[0])[1:]
    command = cli.get_command(click.Context(cli), words[0])
    assert command is not None
    command.make_context(words[0], words[1:])


@pytest.mark.parametrize("script", SCRIPTS)
def test_every_script_is_shell(script: str) -> None:
    without = re.sub(r"\$\{\{.*?\}\}", "x", script)
    done = subprocess.run(["bash", "-n"], input=without, text=True, capture_output=True)
    assert done.returncode == 0, done.stderr


def test_what_a_pull_request_says_never_stands_in_a_script() -> None:
    """An expression in a script is replaced before the shell reads it: names could be commands."""
    assert not [script for script in SCRIPTS if "${{" in script]
    assert WORKFLOW[True] == "pull_request"  # YAML 1.1 reads the key `on` as true.


def test_the_steps_hand_over_what_the_next_one_reads() -> None:
    outputs = re.findall(r"steps\.(\w+)\.outputs\.(\w+)", PAGE)
    for step, output in outputs:
        writer = next(one for one in STEPS if one.get("id") == step)
        assert f'echo "{output}=' in writer["run"]
    assert outputs
