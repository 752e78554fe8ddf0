"""Each command's frozen options hold what click gives it, no more and no less."""

import dataclasses
import importlib

import click
import pytest

COMMANDS = {
    "estimate": "EstimateOptions",
    "fits": "FitsOptions",
    "history": "HistoryOptions",
    "launch": "LaunchOptions",
    "offers": "OffersOptions",
    "plans": "PlansOptions",
    "profile": "ProfileOptions",
    "reconcile": "ReconcileOptions",
    "resume": "ResumeOptions",
    "run": "RunOptions",
    "status": "StatusOptions",
}


@pytest.mark.parametrize(("command", "values"), COMMANDS.items())
def test_the_values_of_a_command_are_those_of_its_options(command: str, values: str) -> None:
    module = importlib.import_module(f"gpuplan.cli.commands.{command}")
    given = {
        one.name
        for one in module.command.params
        if isinstance(one, click.Option) and one.expose_value
    }
    held = getattr(module, values)
    assert {field.name for field in dataclasses.fields(held)} == given
    assert held.__dataclass_params__.frozen
