"""The answers of `gpuplan gpus` and `gpuplan offers` as table, markdown, CSV or JSON."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from datetime import date
from decimal import Decimal
from textwrap import wrap
from typing import Any

from pydantic import BaseModel

from ...catalog.listing import (
    AcceleratorLine,
    AcceleratorList,
    AcceleratorSheet,
    BestPrice,
    OfferLine,
    OfferList,
    Seller,
)
from ...catalog.units import GB, GIB, GIGABIT_BYTES, MIB, TB, TERA
from ..output import Screen
from .grid import Column, Grid, markdown_table, text_table

UNKNOWN = "–"  # noqa: RUF001
LEGEND = f"{UNKNOWN} unknown"
PEAKS = ("bf16", "fp16", "fp8")


def render_offers(listed: OfferList, form: str, screen: Screen) -> str:
    """Return the offers in one of the four forms."""
    if form == "json":
        return _json(listed)
    if form == "csv":
        return _csv(OfferLine, listed.offers)
    grid = Grid(_offer_columns(listed.offers), [_offer_cells(line) for line in listed.offers])
    return _with_notes(grid, _offer_notes(listed), form, screen)


def render_accelerators(listed: AcceleratorList, form: str, screen: Screen) -> str:
    """Return the accelerators in one of the four forms."""
    if form == "json":
        return _json(listed)
    if form == "csv":
        return _csv(AcceleratorLine, listed.accelerators)
    specified = [line for line in listed.accelerators if line.vendor is not None]
    sections = [line.vendor for line in specified]
    grid = Grid(
        _ACCELERATOR_COLUMNS,
        [_accelerator_cells(line) for line in specified],
        breaks=[i for i in range(1, len(sections)) if sections[i] != sections[i - 1]],
    )
    return _with_notes(grid, _accelerator_notes(listed), form, screen)


def render_sheet(sheet: AcceleratorSheet, form: str, screen: Screen) -> str:
    """Return all that is known of one accelerator in one of the four forms."""
    if form == "json":
        return _json(sheet)
    if form == "csv":
        return _csv(AcceleratorLine, [sheet.accelerator])
    facts = Grid([Column("", key=True), Column("")], [list(fact) for fact in _facts(sheet)])
    sellers = Grid(_SELLER_COLUMNS, [_seller_cells(seller) for seller in sheet.sellers])
    notes = [
        "Peaks are dense. Prices are per accelerator.",
        f"* marketplace; ✓ `gpuplan launch` reaches it; {LEGEND}.",
        _dated(sheet.snapshot_date),
    ]
    if form == "markdown":
        table = markdown_table(sellers) if sheet.sellers else "Nobody in the catalogue sells it.\n"
        facts_text = "".join(f"- {name}: {value}\n" for name, value in _facts(sheet))
        tail = "\n".join(notes)
        return f"## {sheet.accelerator.name}\n\n{facts_text}\n{table}\n{tail}\n"
    head = text_table(facts, screen, title=sheet.accelerator.name, header=False)
    if not sheet.sellers:
        return f"{head}\nNobody in the catalogue sells it.\n{notes[-1]}\n"
    return f"{head}\n{text_table(sellers, screen)}\n" + "".join(f"{note}\n" for note in notes)


def _offer_columns(offers: Sequence[OfferLine]) -> list[Column]:
    return [
        Column("provider"),
        Column("region"),
        Column("instance", shrink=True),
        Column("accelerators", shrink=True),
        Column("$/h", right=True),
        Column("$/acc·h", right=True, from_width=70),
        Column("spot $/h", right=True, from_width=90),
        Column("node to node", right=True, from_width=120),
        Column("vCPU", right=True, from_width=140),
        Column("GiB", right=True, from_width=140),
        Column("priced", right=True, from_width=130),
    ]


def _offer_cells(line: OfferLine) -> list[str]:
    spot = _usd(line.spot_usd_per_hour)
    if line.spot_usd_per_hour is not None and not line.spot_is_market:
        spot = f"({spot})"
    return [
        line.provider + ("*" if line.marketplace else ""),
        line.region,
        line.instance_type,
        f"{_count(line.accelerators_per_node)} × {line.accelerator}"  # noqa: RUF001
        + ("" if line.has_spec else " ?"),
        _usd(line.on_demand_usd_per_hour),
        _usd(line.on_demand_usd_per_accelerator_hour),
        spot,
        _network(line),
        _figure(line.vcpus, 1, ",.0f"),
        _figure(line.memory_bytes, GIB, ",.0f"),
        _priced(line),
    ]


def _offer_notes(listed: OfferList) -> list[str]:
    shown = len(listed.offers)
    count = f"{shown:,} of {listed.matched:,} offers"
    if shown == listed.matched:
        count = "1 offer" if shown == 1 else f"{shown:,} offers"
    if not listed.matched:
        count = "No offer matches"
    notes = [count]
    if listed.unpriced:
        notes.append(f"{listed.unpriced:,} without a price")
    left_out = []
    if listed.left_out_marketplaces:
        left_out.append(f"{listed.left_out_marketplaces:,} of marketplaces")
    if listed.left_out_slices:
        left_out.append(f"{listed.left_out_slices:,} of slices of a device")
    if left_out:
        notes.append(f"{' and '.join(left_out)} left out (--all)")
    lines = ["; ".join(notes) + "."]
    for line in listed.offers:
        if line.break_even is not None:
            lines.append(_break_even(line))
    legend = [LEGEND]
    if any(line.marketplace for line in listed.offers):
        legend.append("* marketplace: other people's machines, often gone")
    if any(not line.has_spec for line in listed.offers):
        legend.append("? no spec row: listed, not planned on")
    if any(line.spot_usd_per_hour and not line.spot_is_market for line in listed.offers):
        legend.append("( ) a spot price that promises no discount")
    if listed.offers:
        lines.append("; ".join(legend) + ".")
    lines.append(_dated(listed.snapshot_date, listed.oldest_price, listed.newest_price))
    return lines


def _break_even(line: OfferLine) -> str:
    assert line.break_even is not None
    outcome = (
        f"has paid off in month {line.break_even.month}"
        if line.break_even.month is not None
        else "does not pay off within its life"
    )
    rental = _usd(line.break_even.rental_usd_per_hour)
    return (
        f"{line.provider} {line.instance_type}, bought, {outcome}, "
        f"against {line.break_even.against} at ${rental}/h for as many."
    )


_ACCELERATOR_COLUMNS = [
    Column("accelerator", key=True),
    Column("GiB", right=True),
    Column("TB/s", right=True),
    Column("bf16", right=True),
    Column("fp16", right=True, from_width=90),
    Column("fp8", right=True, from_width=64),
    Column("link", right=True, from_width=90),
    Column("$/h", right=True),
    Column("spot $/h", right=True, from_width=90),
    Column("lowest at", from_width=76),
    Column("arch", from_width=120),
    Column("year", right=True, from_width=120),
    Column("W", right=True, from_width=130),
    Column("offers", right=True, from_width=130),
]


def _accelerator_cells(line: AcceleratorLine) -> list[str]:
    peaks = line.peak_flops or {}
    return [
        line.name,
        _figure(line.memory_bytes, GIB, ",.0f"),
        _figure(line.memory_bandwidth_bytes_per_s, TB, ".2f"),
        *(_figure(peaks.get(dtype), TERA, ",.0f", missing="") for dtype in PEAKS),
        _figure(line.link_bytes_per_s, GB, ",.0f"),
        _best(line.on_demand),
        _best(line.spot),
        _lowest_at(line),
        line.arch or UNKNOWN,
        str(line.launch_year or UNKNOWN),
        _figure(line.tdp_w, 1, ",.0f"),
        f"{line.offers:,}",
    ]


def _lowest_at(line: AcceleratorLine) -> str:
    best = line.on_demand or line.spot
    if best is not None:
        return best.provider
    if not line.offers:
        return "not sold"
    return "no price" if set(line.providers) else UNKNOWN


def _accelerator_notes(listed: AcceleratorList) -> list[str]:
    unspecified = [line.name for line in listed.accelerators if line.vendor is None]
    notes = [
        "Dense peaks in TFLOP/s (empty: no fast unit for it); link one way, GB/s; lowest price per "
        "accelerator among clouds, without marketplaces.",
        f"{LEGEND}.",
    ]
    if unspecified:
        notes.insert(
            1,
            f"{len(unspecified)} more are sold but have no spec row: {', '.join(unspecified)}.",
        )
    notes.append("One in full: gpuplan gpus H100-80GB-SXM")
    notes.append(_dated(listed.snapshot_date))
    return notes


def _facts(sheet: AcceleratorSheet) -> Iterable[tuple[str, str]]:
    line = sheet.accelerator
    if line.vendor is None:
        yield "spec", "unknown: it is sold, but the catalogue has no spec row for it"
    else:
        yield (
            "device",
            f"{line.vendor} {line.arch}, {line.form_factor}, {line.launch_year or UNKNOWN}",
        )
        yield "memory", _memory(sheet)
        for dtype, peak in (line.peak_flops or {}).items():
            unit = "TOP/s" if dtype == "int8" else "TFLOP/s"
            yield f"{dtype} peak", f"{_trimmed(peak / TERA)} {unit} dense"
        yield "link", _link(line)
        yield "power", f"{_figure(line.tdp_w, 1, ',.0f')} W"
        yield "units", _units(sheet)
        if line.needs_xla:
            yield "software", "needs an XLA port: plain torch files do not run on it"
        yield "source", f"{line.source} ({line.confidence} confidence, licence {sheet.licence})"
        if line.note:
            yield "note", line.note
    if sheet.aliases:
        yield "also called", ", ".join(sheet.aliases)


def _memory(sheet: AcceleratorSheet) -> str:
    line = sheet.accelerator
    text = (
        f"{_figure(line.memory_bytes, GIB, ',.0f')} GiB {sheet.memory_type or ''}, "
        f"{_figure(line.memory_bandwidth_bytes_per_s, GB, ',.0f')} GB/s"
    )
    if line.memory_visible_bytes is None:
        return f"{text}; what a process sees is unknown"
    visible = f"{line.memory_visible_bytes / MIB:,.0f} MiB"
    return f"{text}; a process sees {visible} ({sheet.memory_visible_source})"


def _link(line: AcceleratorLine) -> str:
    rate = _figure(line.link_bytes_per_s, GB, ",.0f")
    return f"{line.link or UNKNOWN}, {rate} GB/s one way"


def _units(sheet: AcceleratorSheet) -> str:
    parts = [
        f"{_figure(sheet.compute_units, 1, ',.0f')} compute units",
        f"{_figure(sheet.boost_hz, 10**6, ',.0f')} MHz",
        f"L2 {_figure(sheet.l2_bytes, MIB, ',.1f')} MiB",
    ]
    if sheet.compute_capability:
        parts.append(f"compute capability {sheet.compute_capability}")
    return ", ".join(parts)


_SELLER_COLUMNS = [
    Column("provider"),
    Column("per node"),
    Column("regions", right=True),
    Column("$/h", right=True),
    Column("spot $/h", right=True),
    Column("lowest at", shrink=True),
    Column("launch"),
]


def _seller_cells(seller: Seller) -> list[str]:
    best = seller.on_demand or seller.spot
    return [
        seller.provider + ("*" if seller.marketplace else ""),
        ", ".join(_count(number) for number in seller.accelerators_per_node),
        str(seller.regions or UNKNOWN),
        _best(seller.on_demand),
        _best(seller.spot),
        f"{best.instance_type}, {best.region}" if best else UNKNOWN,
        "✓" if seller.launchable else "",
    ]


def _with_notes(grid: Grid, notes: list[str], form: str, screen: Screen) -> str:
    if form == "markdown":
        table = markdown_table(grid) if grid.rows else ""
        return table + "\n" + "\n".join(notes) + "\n"
    table = text_table(grid, screen) + "\n" if grid.rows else ""
    return table + "".join(f"{line}\n" for note in notes for line in _wrapped(note, screen.width))


def _wrapped(note: str, width: int) -> list[str]:
    return wrap(note, max(40, min(width, 120)), break_on_hyphens=False)


def _json(model: BaseModel) -> str:
    return model.model_dump_json(indent=2) + "\n"


def _csv(model: type[BaseModel], rows: Iterable[BaseModel]) -> str:
    """Return the rows as CSV: nested values as `outer.inner` columns, lists joined with spaces."""
    flat = [_flat(row.model_dump(mode="json")) for row in rows]
    columns: dict[str, None] = dict.fromkeys(name for row in flat for name in row)
    if not flat:
        columns = dict.fromkeys(model.model_fields)
    # Where one row has a nested value, `outer` alone (None in the other rows) says nothing.
    columns = {
        name: None for name in columns if not any(other.startswith(f"{name}.") for other in columns)
    }
    stream = io.StringIO()
    writer = csv.DictWriter(
        stream, list(columns), lineterminator="\n", restval="", extrasaction="ignore"
    )
    writer.writeheader()
    writer.writerows(flat)
    return stream.getvalue()


def _flat(row: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    cells: dict[str, Any] = {}
    for name, value in row.items():
        if isinstance(value, dict):
            cells |= _flat(value, f"{prefix}{name}.")
        elif isinstance(value, list):
            cells[prefix + name] = " ".join(map(str, value))
        else:
            cells[prefix + name] = value
    return cells


def _usd(usd: Decimal | None) -> str:
    if usd is None:
        return UNKNOWN
    return f"{usd:,.2f}" if usd >= 1 else f"{usd:.3f}"


def _best(price: BestPrice | None) -> str:
    return _usd(price.usd_per_accelerator_hour if price else None)


def _figure(value: float | None, unit: float, spec: str, *, missing: str = UNKNOWN) -> str:
    return missing if value is None else format(value / unit, spec)


def _trimmed(value: float) -> str:
    return f"{value:,.2f}".rstrip("0").rstrip(".")


def _count(number: float) -> str:
    return f"{number:g}"


def _network(line: OfferLine) -> str:
    if line.inter_link_bytes_per_s is None:
        return UNKNOWN
    return f"{line.inter_link_bytes_per_s / GIGABIT_BYTES:,.0f} Gbit/s"


def _priced(line: OfferLine) -> str:
    if line.price_date is None:
        return UNKNOWN
    if line.on_demand_usd_per_hour is None and line.spot_usd_per_hour is None:
        return "no price"
    digits = {"year": 4, "month": 7}.get(line.price_date_precision or "", 10)
    return line.price_date.isoformat()[:digits]


def _dated(snapshot: date, oldest: date | None = None, newest: date | None = None) -> str:
    span = f"{oldest}" if oldest == newest else f"{oldest} to {newest}"
    prices = f", prices of {span}" if oldest else ""
    return f"Snapshot of {snapshot}{prices}: check before you spend."
