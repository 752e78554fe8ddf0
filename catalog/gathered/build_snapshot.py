"""Rebuild the embedded snapshot from a folder of gathered tables.

    python -m gpuplan.catalog.gathered.build_snapshot --source DIR [--out DIR]

Same tables in, same bytes out. Every invariant is checked before anything is written; a price that
lies far from its siblings is a warning, and the row stays.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal
from pathlib import Path
from statistics import median

from pydantic import ValidationError

from ..csv_rows import (
    ACCELERATOR_COLUMNS,
    INSTANCE_COLUMNS,
    OFFER_COLUMNS,
    PROVIDER_COLUMNS,
    REGION_COLUMNS,
)
from ..embedded import CURATED_DIR, DATA_DIR, Catalogue, read_catalogue
from ..types import CPU_PREFIX, Offer
from . import convert
from .convert import Cells
from .corrections import Corrections

SCHEMA_VERSION = 1
OUTLIER_RATIO = Decimal("1.5")
"""A price this many times above or below the median of its provider and type is worth a look."""
PERMISSIVE = ("apache-2.0", "mit", "mpl-2.0", "apache-2.0|mit")

SIDE_TABLES: tuple[tuple[str, str, Callable[[Cells], Cells], str], ...] = (
    (
        "commitments.csv",
        "commitments.csv",
        convert.commitment,
        "provider,region,instance_type,term_years,usd_per_hour,price_date,source",
    ),
    (
        "storage_egress.csv",
        "storage.csv",
        convert.storage,
        "provider,region,item,tier,usd,source",
    ),
    (
        "aws_spot_interruption.csv",
        "spot_interruption.csv",
        convert.spot_interruption,
        "provider,region,instance_type,monthly_interruption_low,monthly_interruption_high,"
        "spot_saving,source",
    ),
    ("aliases.csv", "aliases.csv", convert.alias, "alias,canonical,certainty,note"),
)
"""(their file, our file, conversion, our columns) of the tables that no type stands for yet."""


class SnapshotError(Exception):
    """The source breaks an invariant; nothing was written."""


def build_snapshot(source: Path, out: Path, *, permissive_only: bool = False) -> list[str]:
    """Convert, check and write the tables of `source` into `out`; return the warnings.

    Args:
        source: The folder of gathered tables.
        out: Where the snapshot goes; each file is replaced at once, `snapshot.json` last.
        permissive_only: Leave out offers whose price has no permissive licence.

    Raises:
        SnapshotError: An invariant does not hold; every violation is named, nothing is written.
    """
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out, prefix=".building-") as scratch:
        folder = Path(scratch)
        written = _write_tables(source, folder, permissive_only)
        (folder / "snapshot.json").write_text(json.dumps({"date": "1970-01-01"}), "utf-8")
        catalogue = _validated(folder)
        problems = list(violations(catalogue))
        if problems:
            raise SnapshotError("\n".join(problems))
        warnings = list(outliers(catalogue.offers))
        facts = _facts(catalogue, written, warnings)
        (folder / "snapshot.json").write_text(json.dumps(facts, indent=2) + "\n", "utf-8")
        for name in [*sorted(written), "snapshot.json"]:
            os.replace(folder / name, out / name)
    return warnings


def violations(catalogue: Catalogue) -> Iterator[str]:
    """Yield every broken invariant of a catalogue that was read with validation."""
    yield from _repeated(
        "offer", ((offer.provider, offer.region, offer.instance_type) for offer in catalogue.offers)
    )
    for offer in catalogue.offers:
        yield from _offer_violations(offer, catalogue)
    for instance in catalogue.instances.values():
        if instance.accelerators <= 0:
            yield f"instance {instance.instance_type}: {instance.accelerators} accelerators"
    for accelerator in catalogue.accelerators.values():
        figures = (accelerator.memory_bytes, accelerator.memory_bandwidth_bytes_per_s)
        if min((*figures, *accelerator.peak_flops.values())) <= 0:
            yield f"accelerator {accelerator.name}: a figure is not positive"


def _offer_violations(offer: Offer, catalogue: Catalogue) -> Iterator[str]:
    where = f"offer {offer.provider}/{offer.region}/{offer.instance_type}"
    on_demand, spot = offer.on_demand_usd_per_hour, offer.spot_usd_per_hour
    for price in (on_demand, spot):
        if price is not None and not (price.is_finite() and price > 0):
            yield f"{where}: the price {price} is not above zero"
    if on_demand is not None and spot is not None and spot > on_demand:
        yield f"{where}: spot {spot} is above on-demand {on_demand}"
    if offer.spot_is_market and spot is None:
        yield f"{where}: a market spot price without a price"
    if offer.price_date is None:
        yield f"{where}: no date"
    if offer.provider not in catalogue.providers:
        yield f"{where}: unknown provider"
    if offer.accelerator.startswith(CPU_PREFIX):
        yield f"{where}: a host processor among the accelerators"
    instance = catalogue.instance_of(offer)
    if instance is None:
        yield f"{where}: no topology row"
    elif (instance.accelerator, instance.accelerators) != (offer.accelerator, offer.accelerators):
        yield f"{where}: {offer.accelerators} × {offer.accelerator} here, other in its topology row"


def outliers(offers: Iterable[Offer]) -> Iterator[str]:
    """Yield a warning per price far from the median of the same provider and instance type."""
    by_type: dict[tuple[str, str], list[Offer]] = {}
    for offer in offers:
        if offer.on_demand_usd_per_hour is not None:
            by_type.setdefault((offer.provider, offer.instance_type), []).append(offer)
    for (provider, instance_type), siblings in sorted(by_type.items()):
        middle = median(offer.on_demand_usd_per_hour or Decimal(0) for offer in siblings)
        for offer in siblings:
            ratio = (offer.on_demand_usd_per_hour or Decimal(0)) / middle
            if ratio >= OUTLIER_RATIO or ratio <= 1 / OUTLIER_RATIO:
                yield (
                    f"{provider}/{offer.region}/{instance_type}: {offer.on_demand_usd_per_hour} "
                    f"is {ratio:.2f} × the median of its type"
                )


def main(arguments: list[str] | None = None) -> int:
    """Run the rebuild from the command line; return 0, or 1 if the source breaks an invariant."""
    parser = argparse.ArgumentParser(prog="python -m gpuplan.catalog.gathered.build_snapshot")
    parser.add_argument("--source", type=Path, required=True, help="folder of gathered tables")
    parser.add_argument("--out", type=Path, default=DATA_DIR, help="default: the embedded data")
    parser.add_argument(
        "--permissive-only",
        action="store_true",
        help="leave out offers whose price has no permissive licence",
    )
    options = parser.parse_args(arguments)
    try:
        warnings = build_snapshot(
            options.source, options.out, permissive_only=options.permissive_only
        )
    except (SnapshotError, OSError) as error:
        print(f"Nothing was written.\n{error}", file=sys.stderr)
        return 1
    for warning in warnings:
        print(f"warning: {warning}", file=sys.stderr)
    print((options.out / "snapshot.json").read_text("utf-8"), end="")
    return 0


def _write_tables(source: Path, folder: Path, permissive_only: bool) -> dict[str, int]:
    """Write every converted table into `folder`; return its row count by file name."""
    gathered = _read(source / "offers.csv")
    if permissive_only:
        gathered = [row for row in gathered if row["licence"] in PERMISSIVE]
    sold = {(row["provider"], row["instance_type"]) for row in gathered}
    shapes = [
        row
        for row in _read(source / "instances.csv")
        if (row["provider"], row["instance_type"]) in sold
    ]
    countries = _read(CURATED_DIR / "region_countries.csv")
    corrections = Corrections(CURATED_DIR)
    offers = sorted(
        corrections.corrected("offers", map(convert.offer, gathered)),
        key=lambda row: (row["provider"], row["instance_type"], row["region"]),
    )
    regions = convert.regions(offers, _read(source / "regions.csv"), countries)
    accelerators = map(convert.accelerator, _read(source / "accelerators.csv"))
    providers = map(convert.provider, _read(source / "providers.csv"))
    counts = {
        "accelerators.csv": _write(folder / "accelerators.csv", ACCELERATOR_COLUMNS, accelerators),
        "instances.csv": _write(
            folder / "instances.csv",
            INSTANCE_COLUMNS,
            corrections.corrected("instances", map(convert.instance, shapes)),
        ),
        "offers.csv": _write(folder / "offers.csv", OFFER_COLUMNS, offers),
        "providers.csv": _write(folder / "providers.csv", PROVIDER_COLUMNS, providers),
        "regions.csv": _write(folder / "regions.csv", REGION_COLUMNS, regions),
    }
    for theirs, ours, conversion, columns in SIDE_TABLES:
        rows = map(conversion, _read(source / theirs))
        counts[ours] = _write(folder / ours, columns.split(","), rows)
    _refuse_bad_keys(folder)
    return counts


def _refuse_bad_keys(folder: Path) -> None:
    # Checked on the text: a mapping would have merged the repeated rows already.
    keys = {
        "accelerators.csv": ("name",),
        "instances.csv": ("provider", "instance_type"),
        "providers.csv": ("name",),
        "regions.csv": ("provider", "name"),
        "aliases.csv": ("alias",),
        "commitments.csv": ("provider", "region", "instance_type", "term_years"),
        "spot_interruption.csv": ("provider", "region", "instance_type"),
    }
    problems: list[str] = []
    for name, columns in keys.items():
        rows = _read(folder / name)
        problems += _repeated(name, (tuple(row[c].casefold() for c in columns) for row in rows))
    known = {row["canonical"] for row in _read(folder / "aliases.csv")}
    known |= {row["name"] for row in _read(folder / "accelerators.csv")}
    sold = {row["accelerator"] for row in _read(folder / "offers.csv")}
    problems += [f"accelerator {name}: no spec row and no alias" for name in sorted(sold - known)]
    if problems:
        raise SnapshotError("\n".join(problems))


def _repeated(what: str, keys: Iterable[tuple[str, ...]]) -> Iterator[str]:
    seen: set[tuple[str, ...]] = set()
    for key in keys:
        if key in seen:
            yield f"{what}: {' / '.join(key)} is there twice"
        seen.add(key)


def _validated(folder: Path) -> Catalogue:
    try:
        return read_catalogue(folder, validate=True)
    except (ValidationError, ValueError) as error:
        raise SnapshotError(str(error)) from error


def _facts(catalogue: Catalogue, counts: dict[str, int], warnings: list[str]) -> dict[str, object]:
    dates = [offer.price_date for offer in catalogue.offers if offer.price_date]
    priced = [
        offer
        for offer in catalogue.offers
        if offer.on_demand_usd_per_hour is not None or offer.spot_usd_per_hour is not None
    ]
    price_dates = sorted(offer.price_date for offer in priced if offer.price_date)
    unspecified = {o.accelerator for o in catalogue.offers} - catalogue.accelerators.keys()
    return {
        "schema_version": SCHEMA_VERSION,
        "date": max(dates).isoformat(),
        "prices": {
            "oldest": price_dates[0].isoformat(),
            "median": price_dates[len(price_dates) // 2].isoformat(),
            "newest": price_dates[-1].isoformat(),
            "priced_offers": len(priced),
        },
        "rows": dict(sorted(counts.items())),
        "accelerators_without_spec": sorted(unspecified),
        "warnings": warnings,
    }


def _read(path: Path) -> list[Cells]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def _write(path: Path, columns: list[str], rows: Iterable[Cells]) -> int:
    written = 0
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        writer.writeheader()
        for row in rows:
            writer.writerow(row)
            written += 1
    return written


if __name__ == "__main__":
    sys.exit(main())
