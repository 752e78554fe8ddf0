"""The answers of `gpuplan gpus` as table, markdown, CSV or JSON."""

from __future__ import annotations

from collections.abc import Iterable

from ....catalog.listing.accelerators import (
    AcceleratorLine,
    AcceleratorList,
    AcceleratorSheet,
    Seller,
)
from ....catalog.names import listed_instance
from ....catalog.units import GB, GIB, MIB, TB, TERA
from ...terminal.output import Screen
from ..text.answer import (
    APART_LEGEND,
    LEGEND,
    UNKNOWN,
    best_text,
    count_text,
    dated,
    figure,
    to_csv,
    to_json,
    with_notes,
)
from ..text.grid import Column, Grid, markdown_table, text_table

PEAKS = ("bf16", "fp16", "fp8")


def render_accelerators(listed: AcceleratorList, form: str, screen: Screen) -> str:
    """Return the accelerators in one of the four forms."""
    if form == "json":
        return to_json(listed)
    if form == "csv":
        return to_csv(AcceleratorLine, listed.accelerators)
    specified = [line for line in listed.accelerators if line.vendor is not None]
    sections = [line.vendor for line in specified]
    grid = Grid(
        _ACCELERATOR_COLUMNS,
        [_accelerator_cells(line) for line in specified],
        breaks=[i for i in range(1, len(sections)) if sections[i] != sections[i - 1]],
    )
    return with_notes(grid, _accelerator_notes(listed), form, screen)


def render_sheet(sheet: AcceleratorSheet, form: str, screen: Screen) -> str:
    """Return all that is known of one accelerator in one of the four forms."""
    if form == "json":
        return to_json(sheet)
    if form == "csv":
        return to_csv(AcceleratorLine, [sheet.accelerator])
    facts = Grid([Column("", key=True), Column("")], [list(fact) for fact in _facts(sheet)])
    sellers = Grid(_SELLER_COLUMNS, [_seller_cells(seller) for seller in sheet.sellers])
    notes = [
        "Peaks are dense. Prices are per accelerator.",
        f"* marketplace; ✓ `gpuplan launch` reaches it; {LEGEND}.",
        *([f"{APART_LEGEND}."] if any(map(_is_apart, sheet.sellers)) else []),
        dated(sheet.snapshot_date),
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
        figure(line.memory_bytes, GIB, ",.0f"),
        figure(line.memory_bandwidth_bytes_per_s, TB, ".2f"),
        *(figure(peaks.get(dtype), TERA, ",.0f", missing="") for dtype in PEAKS),
        figure(line.link_bytes_per_s, GB, ",.0f"),
        best_text(line.on_demand),
        best_text(line.spot),
        _lowest_at(line),
        line.arch or UNKNOWN,
        str(line.launch_year or UNKNOWN),
        figure(line.tdp_w, 1, ",.0f"),
        f"{line.offers:,}",
    ]


def _lowest_at(line: AcceleratorLine) -> str:
    best = line.on_demand or line.spot
    if best is not None:
        return best.provider
    if not line.offers:
        return "not sold"
    return "no price" if set(line.providers) else UNKNOWN


def _is_apart(line: AcceleratorLine | Seller) -> bool:
    return any(one is not None and one.is_host_apart for one in (line.on_demand, line.spot))


def _accelerator_notes(listed: AcceleratorList) -> list[str]:
    unspecified = [line.name for line in listed.accelerators if line.vendor is None]
    notes = [
        "Dense peaks in TFLOP/s (empty: no fast unit for it); link one way, GB/s; lowest price per "
        "accelerator among clouds, without marketplaces.",
        f"{LEGEND}.",
    ]
    if any(map(_is_apart, listed.accelerators)):
        notes[-1] = f"{LEGEND}; {APART_LEGEND}."
    if unspecified:
        notes.insert(
            1,
            f"{len(unspecified)} more are sold but have no spec row: {', '.join(unspecified)}.",
        )
    notes += _ports(listed)
    notes.append("One in full: gpuplan gpus H100-80GB-SXM")
    notes.append(dated(listed.snapshot_date))
    return notes


def _ports(listed: AcceleratorList) -> list[str]:
    """Return on which devices a plain torch file runs only after a port, as one sentence."""
    families: dict[str, dict[str, None]] = {}
    for line in listed.accelerators:
        if line.port_to is not None:
            family = line.name.partition("-")[0].rstrip("0123456789")
            families.setdefault(line.port_to, {})[family] = None
    parts = [f"to {port} on {', '.join(names)}" for port, names in families.items()]
    return [f"Plain torch files need a port first: {'; '.join(parts)}."] if parts else []


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
        yield "power", f"{figure(line.tdp_w, 1, ',.0f')} W"
        yield "units", _units(sheet)
        if line.port_to is not None:
            yield "software", f"needs a port to {line.port_to}: plain torch files do not run on it"
        yield "source", f"{line.source} ({line.confidence} confidence, licence {sheet.licence})"
        if line.note:
            yield "note", line.note
    if sheet.aliases:
        yield "also called", ", ".join(sheet.aliases)


def _memory(sheet: AcceleratorSheet) -> str:
    line = sheet.accelerator
    text = (
        f"{figure(line.memory_bytes, GIB, ',.0f')} GiB {sheet.memory_type or ''}, "
        f"{figure(line.memory_bandwidth_bytes_per_s, GB, ',.0f')} GB/s"
    )
    if line.memory_visible_bytes is None:
        return f"{text}; what a process sees is unknown"
    visible = f"{line.memory_visible_bytes / MIB:,.0f} MiB"
    return f"{text}; a process sees {visible} ({sheet.memory_visible_source})"


def _link(line: AcceleratorLine) -> str:
    rate = figure(line.link_bytes_per_s, GB, ",.0f")
    return f"{line.link or UNKNOWN}, {rate} GB/s one way"


def _units(sheet: AcceleratorSheet) -> str:
    parts = [
        f"{figure(sheet.compute_units, 1, ',.0f')} compute units",
        f"{figure(sheet.boost_hz, 10**6, ',.0f')} MHz",
        f"L2 {figure(sheet.l2_bytes, MIB, ',.1f')} MiB",
    ]
    if sheet.compute_capability:
        parts.append(f"compute capability {sheet.compute_capability}")
    return ", ".join(parts)


_SELLER_COLUMNS = [
    Column("provider"),
    Column("per node"),
    Column("regions", right=True, from_width=70),
    Column("$/h", right=True),
    Column("spot $/h", right=True),
    Column("lowest at", shrink=True),
    Column("launch", from_width=64),
]


def _seller_cells(seller: Seller) -> list[str]:
    best = seller.on_demand or seller.spot
    name = best and listed_instance(seller.provider, best.instance_type)
    return [
        seller.provider + ("*" if seller.marketplace else ""),
        ", ".join(count_text(number) for number in seller.accelerators_per_node),
        str(seller.regions or UNKNOWN),
        best_text(seller.on_demand),
        best_text(seller.spot),
        f"{name}, {best.region}" if best else UNKNOWN,
        "✓" if seller.launchable else "",
    ]


def _trimmed(value: float) -> str:
    return f"{value:,.2f}".rstrip("0").rstrip(".")
