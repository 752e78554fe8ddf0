"""Lowest prices over time as a picture: a line for each provider and way of buying."""

from __future__ import annotations

from ....catalog.errors import UsageError
from ....catalog.listing.price_changes import PriceHistory, PricePoint
from ..report.charts.drawing import Values, coloured, drawn, framed
from ..report.charts.svg import as_svg, can_draw


def history_svg(found: PriceHistory) -> str:
    """Return the picture as an SVG file.

    Raises:
        UsageError: What draws it is not installed, or there is no price to draw.
    """
    if not can_draw():
        raise UsageError(
            "Pictures are drawn with vl-convert, which is not installed.",
            fix='pip install "gpuplan[report]", or give --format table.',
        )
    values = [row for point in found.points for row in _rows(point)]
    if not values:
        raise UsageError(
            f"No price of {found.accelerator} is known.", fix="name other accelerators."
        )
    lines = list(dict.fromkeys(str(row["line"]) for row in values))
    line = drawn(
        {"type": "line", "strokeWidth": 2, "point": {"filled": True, "size": 40}},
        {
            "x": {
                "field": "day",
                "type": "temporal",
                "title": None,
                "axis": {"format": "%Y-%m-%d"},
            },
            "y": {"field": "usd", "type": "quantitative", "title": "$/h of one accelerator"},
            "color": coloured("line", lines),
        },
        values,
    )
    label = f"Lowest prices of {found.accelerator}, US dollars an hour of one accelerator"
    return as_svg(framed({"layer": [line], "height": 240}), label) + "\n"


def _rows(point: PricePoint) -> Values:
    prices = {"": point.on_demand_usd_per_hour, " spot": point.spot_usd_per_hour}
    day = point.made_at or point.day
    return [
        {
            "day": f"{day:%Y-%m-%dT%H:%M:%S}",
            "line": f"{point.provider}{kind}",
            "usd": float(usd) / point.accelerators,
        }
        for kind, usd in prices.items()
        if usd is not None
    ]
