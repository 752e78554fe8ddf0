"""`gpuplan offers`: what the clouds sell, filtered and sorted."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...catalog.errors import NoFeasiblePlanError
from ..options.groups import OutputOptions
from ..options.shared import Dollars, GroupedCommand, OneOf, list_option, option, output_options
from ..options.values.amounts import ALL, CountOrAll

if TYPE_CHECKING:
    from ...catalog.listing.offers import OfferOrder

FORMATS = ("table", "json", "csv", "markdown")
ORDERS = ("price", "price-per-accelerator")
DEFAULT_TOP = 20
"""Rows of a table; json and csv hold every offer unless --top says otherwise."""


@click.command("offers", cls=GroupedCommand)
@list_option(
    "Machine",
    "--accelerator",
    metavar="NAME[:N],…",
    help="Only these accelerators; a family name takes all its members; :8 is eight in one "
    "instance.",
)
@list_option("Machine", "--provider", help='Only these providers; "all" adds marketplaces.')
@list_option("Machine", "--region", help="Only these regions.")
@list_option(
    "Machine",
    "--jurisdiction",
    help="Only regions in these: eu (EU and EEA), eu27, us, or a country's two letters. A region "
    "whose country is not known is left out.",
)
@list_option("Machine", "--instance", help="Only these instance types.")
@option(
    "Machine",
    "--offers",
    "offers_file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Your own machines, to be listed too (docs/catalogue.md).",
)
@option(
    "Machine",
    "--launchable",
    is_flag=True,
    help="Only sellers that `gpuplan launch` can reach, and your own.",
)
@option(
    "Money",
    "--max-price",
    type=Dollars(),
    metavar="USD",
    help="Only instances that cost at most this much an hour, all accelerators together.",
)
@option(
    "Money",
    "--spot/--on-demand",
    "spot",
    default=None,
    help="Only offers with a price of this kind, and sort by it.",
)
@option(
    "Money",
    "--sort",
    "order",
    type=OneOf(ORDERS),
    default="price-per-accelerator",
    show_default=True,
    help="Cheapest first, by the whole instance or by one accelerator of it.",
)
@option(
    "Output",
    "--top",
    type=CountOrAll(),
    help=f"How many to show, or all; default: {DEFAULT_TOP} in a table, all in json and csv.",
)
@option(
    "Output",
    "--all",
    "everything",
    is_flag=True,
    help="Show everything, marketplaces and slices included.",
)
@option(
    "Output",
    "--export-sky",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="FOLDER",
    help="List nothing; write all prices into the tables of a SkyPilot of its own in this folder "
    "(docs/launching.md).",
)
@output_options(*FORMATS)
def command(**options: Any) -> int:
    """List what the clouds sell, cheapest first; what is not known is shown as unknown.

    Marketplaces (other people's machines) and slices of a device are left out unless you name the
    provider or the instance, give --all, or only they sell what you ask for.

    The exit code is 3 when no offer matches.
    """
    asked = OffersOptions(**options)
    if asked.export_sky is not None:
        _export(asked.export_sky, asked)
        return 0
    return _list(asked)


@dataclass(frozen=True, kw_only=True)
class OffersOptions(OutputOptions):
    """What the options of `gpuplan offers` hold."""

    accelerator: tuple[str, ...]
    provider: tuple[str, ...]
    region: tuple[str, ...]
    jurisdiction: tuple[str, ...]
    instance: tuple[str, ...]
    offers_file: Path | None
    launchable: bool
    max_price: Decimal | None
    """US dollars an hour."""
    spot: bool | None
    """Whether only spot prices, or only others, are listed; None lists both."""
    order: OfferOrder
    top: int | None
    everything: bool
    export_sky: Path | None


def _list(asked: OffersOptions) -> int:
    """Print the offers; return 0, or the exit code for no offer."""
    from ... import api
    from ...catalog.listing.no_match import no_match_text
    from ..render.market import offers as render
    from ..terminal.output import chosen_format, screen_for, write_output

    form = chosen_format(asked.form, asked.out_file, FORMATS)
    is_table = form in ("table", "markdown") and not asked.everything
    listed = api.offers(
        accelerators=asked.accelerator,
        providers=asked.provider,
        regions=asked.region,
        jurisdictions=asked.jurisdiction,
        instances=asked.instance,
        purchase="any" if asked.spot is None else ("spot" if asked.spot else "on-demand"),
        max_usd_per_hour=asked.max_price,
        launchable=asked.launchable,
        order=asked.order,
        everything=asked.everything,
        top=None if asked.top == ALL else asked.top or (DEFAULT_TOP if is_table else None),
        offers=asked.offers_file,
    )
    write_output(render.render_offers(listed, form, screen_for(asked.out_file)), asked.out_file)
    if listed.matched:
        return 0
    if form in ("json", "csv") and not asked.quiet:
        click.echo(f"{no_match_text(listed)}.", err=True)
    return NoFeasiblePlanError.exit_code


def _export(folder: Path, asked: OffersOptions) -> None:
    from ... import api
    from ..render.market.sky_tables import render_export
    from ..terminal.output import write_output

    done = api.export_prices(folder, offers=asked.offers_file)
    write_output(render_export(folder, done.export, done.missing_clouds), asked.out_file)
