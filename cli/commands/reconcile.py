"""`gpuplan reconcile`: the store beside what SkyPilot and the clouds have."""

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
    from ...launcher.lifecycle.reconcile import Discrepancy
    from ...launcher.lifecycle.transitions import LaunchContext

FORMATS = ("table", "json")


@dataclass(frozen=True, kw_only=True)
class ReconcileOptions(OutputOptions):
    """What the options of `gpuplan reconcile` hold."""

    owner: str | None
    yes: bool


@click.command("reconcile", cls=GroupedCommand)
@option("Work", "--owner", metavar="NAME", help="Whose machines may be ended; default: you.")
@option("Output", "-y", "--yes", is_flag=True, help="Give back this store's without asking.")
@output_options(*FORMATS)
def command(**options: Any) -> int:
    """Compare what is kept with what is rented, and offer to give back what no launch owns.

    Every open launch is brought up to date first. Machines are looked for with SkyPilot, and on
    AWS, where there are credentials, by their labels. Only those that this store launched for this
    owner are given back; those of other stores and owners are listed. Where the labels do not tell,
    -y does not end them: they are asked about one by one, or ended by hand.

    Exit codes: 0 nothing is left that no launch owns, 1 something is, or could not be looked at.
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
    left = [one for one in costly if not _gave_back(context, one, asked)]
    return 1 if left or any(one.kind == "unknown" for one in found) else 0


def _text(found: list[Discrepancy]) -> str:
    lines = [
        "  ".join(filter(None, (one.run or one.cluster, one.text)))
        for one in found
        if one.kind != "skipped"
    ]
    if all(one.kind in ("others", "skipped") for one in found):
        theirs = " by this store" if lines else ""
        lines.append(f"Nothing is open, and nothing is rented{theirs}.")
    lines += [one.text for one in found if one.kind == "skipped"]
    return "".join(f"{line}\n" for line in lines)


def _gave_back(context: LaunchContext, orphan: Discrepancy, asked: ReconcileOptions) -> bool:
    """Give machines back, if that is wanted; return whether they are gone."""
    from ... import api

    name = orphan.cluster or ", ".join(one.instance_id for one in orphan.instances)
    if not _is_wanted(orphan, name, asked):
        return False
    try:
        api.launches.take_down(context, orphan, confirmed=orphan.kind == "unattributed")
    except GpuplanError as error:
        click.echo(f"Error: {error}", err=True)
        return False
    click.echo(f"Gave {name} back.", err=True)
    return True


def _is_wanted(orphan: Discrepancy, name: str, asked: ReconcileOptions) -> bool:
    """Return whether machines are to be given back; -y speaks for this store's alone."""
    may_ask = is_terminal(sys.stdin) and not (asked.quiet or asked.yes)
    if orphan.kind == "unattributed":
        if may_ask:
            return click.confirm(
                f"{name}: {orphan.text}. They may be somebody else's, and training. End them all"
                " the same?",
                err=True,
            )
        click.echo(
            f"{name} may be somebody else's, so it is left alone; if it is yours:"
            f" {'; '.join(orphan.by_hand)}",
            err=True,
        )
        return False
    if may_ask:
        return click.confirm(f"No open launch owns {name}. Give it back?", err=True)
    if not asked.yes:
        click.echo(f"No open launch owns {name}; -y gives it back.", err=True)
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
