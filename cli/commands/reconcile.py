"""`gpuplan reconcile`: compare the store with what SkyPilot and the clouds list."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from ...catalog.errors import GpuplanError
from ..options.groups import OutputOptions
from ..options.shared import GroupedCommand, option, output_options
from ..terminal.output import is_terminal

if TYPE_CHECKING:
    from ...launcher.lifecycle.context import LaunchContext
    from ...launcher.lifecycle.reconcile.reconcile import Discrepancy

FORMATS = ("table", "json")


@dataclass(frozen=True, kw_only=True)
class ReconcileOptions(OutputOptions):
    """What the options of `gpuplan reconcile` hold."""

    owner: str | None
    yes: bool


@click.command("reconcile", cls=GroupedCommand)
@option(
    "Work", "--owner", metavar="NAME", help="Owner whose machines may be torn down; default: you."
)
@option(
    "Output",
    "-y",
    "--yes",
    is_flag=True,
    help="Tear down this store's orphaned machines without asking.",
)
@output_options(*FORMATS)
def command(**options: Any) -> int:
    """Compare the store with what is rented, and offer to tear down orphaned machines.

    A machine is orphaned when no open launch owns it. Every open launch is brought up to date
    first. Machines are listed by SkyPilot, and on AWS, where there are credentials, by their
    labels. Only those that this store launched for this owner are torn down; those of other stores
    and owners are listed. Where the labels do not tell, -y leaves them: you are asked about each,
    or terminate them by hand.

    Exit codes: 0 no orphaned machine is left, 1 one is left, or a place could not be checked.
    """
    from ... import api
    from ..options.launches import make_context
    from ..terminal.output import chosen_format, write_output

    asked = ReconcileOptions(**options)
    context = make_context(quiet=True)
    found = api.launches.reconcile(context, owner=asked.owner)
    if chosen_format(asked.form, asked.out_file, FORMATS) == "json":
        write_output(json.dumps(_plain(found), indent=2) + "\n", asked.out_file)
    else:
        write_output(_text(found), asked.out_file)
    costly = [one for one in found if one.is_orphan or one.kind == "unattributed"]
    left = [one for one in costly if not _torn_down(context, one, asked)]
    return 1 if left or any(one.kind == "unknown" for one in found) else 0


def _text(found: list[Discrepancy]) -> str:
    lines = [
        "  ".join(filter(None, (one.run or one.cluster, one.text)))
        for one in found
        if one.kind != "skipped"
    ]
    if all(one.kind in ("others", "controller", "skipped") for one in found):
        theirs = " by this store" if lines else ""
        lines.append(f"Nothing is open, and nothing is rented{theirs}.")
    lines += [one.text for one in found if one.kind == "skipped"]
    return "".join(f"{line}\n" for line in lines)


def _torn_down(context: LaunchContext, orphan: Discrepancy, asked: ReconcileOptions) -> bool:
    """Tear down machines, if that is confirmed; return whether they are gone."""
    from ... import api

    name = orphan.cluster or ", ".join(one.instance_id for one in orphan.instances)
    if not _is_wanted(orphan, name, asked):
        return False
    try:
        api.launches.take_down(context, orphan, confirmed=orphan.kind == "unattributed")
    except GpuplanError as error:
        click.echo(f"Error: {error}", err=True)
        return False
    click.echo(f"Tore down {name}.", err=True)
    return True


def _is_wanted(orphan: Discrepancy, name: str, asked: ReconcileOptions) -> bool:
    """Return whether machines are to be torn down; -y confirms for this store's alone."""
    may_ask = is_terminal(sys.stdin) and not (asked.quiet or asked.yes)
    if orphan.kind == "unattributed":
        if may_ask:
            return click.confirm(
                f"{name}: {orphan.text}. They may belong to somebody else, and be training."
                " Tear them down anyway?",
                err=True,
            )
        click.echo(
            f"{name} may belong to somebody else, so it is left alone; if it is yours:"
            f" {'; '.join(orphan.by_hand)}",
            err=True,
        )
        return False
    if may_ask:
        return click.confirm(f"No open launch owns {name}. Tear it down?", err=True)
    if not asked.yes:
        click.echo(f"No open launch owns {name}; -y tears it down.", err=True)
    return asked.yes


def _plain(found: list[Discrepancy]) -> dict[str, Any]:
    rows = [
        {
            "kind": one.kind,
            "run": one.run,
            "cluster": one.cluster,
            "instances": [machine.instance_id for machine in one.instances],
            "usd_per_hour": None if one.usd_per_hour is None else float(one.usd_per_hour),
            "store": one.store_id,
            "owner": one.owner,
            "by_hand": list(one.by_hand),
            "text": one.text,
        }
        for one in found
    ]
    return {"schema_version": "1.0", "found": rows}
