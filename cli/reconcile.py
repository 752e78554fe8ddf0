"""`gpuplan reconcile`: the store beside what SkyPilot and the clouds have."""

from __future__ import annotations

import json
import sys
from typing import Any

import click

from ..catalog.errors import GpuplanError
from .options import GroupedCommand, option, output_options
from .output import is_terminal

FORMATS = ("table", "json")


@click.command("reconcile", cls=GroupedCommand)
@option("Output", "-y", "--yes", is_flag=True, help="Give back what nobody owns without asking.")
@output_options(*FORMATS)
def command(**options: Any) -> int:
    """Compare what is kept with what is rented, and offer to give back what nobody owns.

    Every open launch is brought up to date first. Machines are looked for with SkyPilot, and on
    AWS, where there are credentials, by their labels.

    Exit codes: 0 nothing is left that nobody owns, 1 something is, or could not be looked at.
    """
    from .. import api
    from .desk import make_desk
    from .output import chosen_format, write_output

    desk = make_desk(quiet=True)
    found = api.launches.reconcile(desk)
    if chosen_format(options["form"], options["out_file"], FORMATS) == "json":
        write_output(json.dumps(_plain(found), indent=2) + "\n", options["out_file"])
    else:
        text = "".join(f"{one.run or one.cluster}  {one.text}\n" for one in found)
        write_output(text or "Nothing is open, and nothing is rented.\n", options["out_file"])
    left = [one for one in found if one.is_orphan and not _gave_back(desk, one, options)]
    return 1 if left or any(one.kind == "unknown" for one in found) else 0


def _gave_back(desk: Any, orphan: Any, options: dict[str, Any]) -> bool:
    """Give machines back, if that is wanted; return whether they are gone."""
    from .. import api

    name = orphan.cluster or ", ".join(one.instance_id for one in orphan.instances)
    is_asked = not options["yes"]
    if is_asked and (not is_terminal(sys.stdin) or options["quiet"]):
        click.echo(f"Nobody owns {name}; -y gives it back.", err=True)
        return False
    if is_asked and not click.confirm(f"Nobody owns {name}. Give it back?", err=True):
        return False
    try:
        api.launches.take_down(desk, orphan)
    except GpuplanError as error:
        click.echo(f"Error: {error}", err=True)
        return False
    click.echo(f"Gave {name} back.", err=True)
    return True


def _plain(found: list[Any]) -> dict[str, Any]:
    rows = [
        {
            "kind": one.kind,
            "run": one.run,
            "cluster": one.cluster,
            "instances": [machine.instance_id for machine in one.instances],
            "usd_per_hour": None if one.usd_per_hour is None else float(one.usd_per_hour),
            "text": one.text,
        }
        for one in found
    ]
    return {"schema_version": "1.0", "found": rows}
