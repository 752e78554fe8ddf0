"""`gpuplan offers`: what the clouds sell, filtered and sorted."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from ..options.shared import Dollars, GroupedCommand, OneOf, list_option, option, output_options

if TYPE_CHECKING:
    from ...catalog.snapshot import Catalogue

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
    type=click.IntRange(min=1),
    metavar="N",
    help=f"How many to show; default: {DEFAULT_TOP} in a table, all in json and csv.",
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
def command(**options: Any) -> None:
    """List what the clouds sell, cheapest first; what is not known is shown as unknown.

    Marketplaces (other people's machines) and slices of a device are left out unless you name the
    provider or the instance, give --all, or only they sell what you ask for.
    """
    from ...catalog.listing import OfferOrder, OfferView, list_offers
    from ...catalog.query import parse_filter
    from ...catalog.snapshot import load_catalogue
    from ..render import offers as render
    from ..terminal.output import chosen_format, screen_for, write_output

    form = chosen_format(options["form"], options["out_file"], FORMATS)
    spot: bool | None = options["spot"]
    max_price: Decimal | None = options["max_price"]
    providers = [name for name in options["provider"] if name.casefold() != "all"]
    everything = options["everything"] or len(providers) < len(options["provider"])
    catalogue = load_catalogue(options["offers_file"])
    if options["export_sky"] is not None:
        _export(options["export_sky"], catalogue, options["out_file"])
        return
    wanted = parse_filter(
        catalogue,
        accelerators=options["accelerator"],
        providers=providers,
        regions=options["region"],
        jurisdictions=options["jurisdiction"],
        instance_types=options["instance"],
        purchase="any" if spot is None else ("spot" if spot else "on-demand"),
        max_usd_per_hour=max_price,
        launchable_only=options["launchable"],
    )
    is_table = form in ("table", "markdown") and not options["everything"]
    view = OfferView(
        order=cast(OfferOrder, options["order"]),
        purchase="spot" if spot else "on-demand",
        everything=everything,
        top=options["top"] or (DEFAULT_TOP if is_table else None),
    )
    listed = list_offers(catalogue, wanted, view)
    write_output(
        render.render_offers(listed, form, screen_for(options["out_file"])),
        options["out_file"],
    )


def _export(folder: Path, catalogue: Catalogue, out_file: str | None) -> None:
    from ...launcher.skypilot.home import missing_tables, write_prices
    from ...launcher.skypilot.price_tables import clouds_of
    from ..render.sky_tables import render_export
    from ..terminal.output import write_output

    export = write_prices(folder, catalogue, person=Path.home())
    missing = missing_tables(folder, clouds_of(catalogue), person=Path.home())
    write_output(render_export(folder, export, missing), out_file)
