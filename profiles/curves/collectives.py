"""Time of a collective inside one node, from measured tables of message sizes."""

from __future__ import annotations

import numpy as np

from .files import Array, CollectiveTable


def collective_table_s(
    tables: tuple[CollectiveTable, ...], size_bytes: Array, ranks: int, speed_up: float = 1.0
) -> Array:
    """Return the seconds of a collective among `ranks` accelerators.

    The table of the nearest measured number of ranks is used. Its latency stays (one more hop for
    each further rank), the rest scales with the bytes every rank sends, and `speed_up` is the
    link's rate over that of the measured device.
    """
    table = min(tables, key=lambda t: abs(np.log(t.ranks / ranks)))
    latency = float(np.exp(table.log_time.min()))
    time = np.exp(_at_size(table, np.maximum(size_bytes, 1.0)))
    # Every rank sends (ranks - 1) / ranks of the buffer, once or twice.
    sent = (1 - 1 / ranks) / (1 - 1 / table.ranks)
    hops = 1 + max(0.0, np.log2(ranks / table.ranks))
    return latency * hops + np.maximum(time - latency, 0) * sent / speed_up


def _at_size(table: CollectiveTable, size_bytes: Array) -> Array:
    """Return log seconds: interpolated inside the table, linear in bytes beyond its end."""
    sizes = np.log(table.size_bytes)
    inside = np.interp(np.log(size_bytes), sizes, table.log_time)
    return inside + np.maximum(np.log(size_bytes) - sizes[-1], 0)
