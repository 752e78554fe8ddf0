"""The keys by which candidates and plans are ordered."""

from __future__ import annotations

from typing import Literal

from ..plan.question import Sort

Order = Sort | Literal["size"]
"""What may be asked for, and the fewest accelerators, which the first lines of an answer name."""


def sort_key(
    order: Order,
    *,
    cost: float,
    price: float,
    seconds: float,
    size: int,
    peak_bytes: float,
    samples_per_s: float,
    carbon: float = 0.0,
) -> tuple[float, ...]:
    """Return the key that orders by the quantity asked for, then by what matters next.

    Args:
        order: "time" is `seconds`, "throughput" the most `samples_per_s`, "memory" the smallest
            `peak_bytes`, "size" the fewest accelerators.
        cost: dollars of the same amount of work.
        price: dollars per hour.
        seconds: of the same amount of work.
        size: accelerators.
        peak_bytes: of the fullest device.
        samples_per_s: of all accelerators together.
        carbon: kg CO2e of the same amount of work, infinite where not known.
    """
    return {
        "time": (seconds, cost, size),
        "throughput": (-samples_per_s, cost, size),
        "memory": (peak_bytes, cost, seconds),
        "size": (size, cost, seconds),
        "price": (price, seconds, size),
        "carbon": (carbon, cost, seconds, size),
        "cost": (cost, seconds, size),
    }[order]
