"""A device's curves with all kernel times times one factor: what whole steps can tell of them.

A step time does not say which kernel was slow, so all kernels of the device move together:
products, attention and streams, and the shortest kernel. Collectives stay: they are the links'.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from ..curves.choice import CurveChoice
from ..curves.files import CURVES_DIR, measured_accelerators
from ..curves.user_curves import user_curve_file

Record = dict[str, Any]
"""The JSON of a curve file (docs/curves.md)."""
BY_NAME = ("gemm_grids", "tile_models", "convolutions", "memory")
"""Parts that hold something for each dtype or kind: those of two files are put together."""
DIGITS = 6
"""Significant digits of a scaled number."""


def own_record(accelerator: str, choice: CurveChoice) -> Record | None:
    """Return the curves that predictions for an accelerator rest on; None if it has none.

    Those of the user's file, and of the embedded one where that has a part more.

    Raises:
        UserFileError: A file that was given is not a curve file.
    """
    embedded: Record | None = None
    if accelerator in measured_accelerators():
        embedded = _read(CURVES_DIR / f"{accelerator}.json")
    user = user_curve_file(accelerator, choice)
    if user is None:
        return embedded
    own = _read(user.path)
    if embedded is None:
        return own
    # The backward of attention is never the embedded file's: see CurveFile.over.
    parts = {name: part for name, part in embedded.items() if name != "attention_backward"}
    together = {name: {**parts.get(name, {}), **own.get(name, {})} for name in BY_NAME}
    return {**parts, **own, **{name: part for name, part in together.items() if part}}


def scaled(record: Mapping[str, Any], factor: float) -> Record:
    """Return curves whose kernels take `factor` times as long; 1 changes nothing.

    >>> scaled({"kernel_floor_us": 2.0, "memory": {"copy": {"fraction": 0.8}}}, 1.25)["memory"]
    {'copy': {'fraction': 0.64}}
    """
    changed = deepcopy(dict(record))
    if changed.get("kernel_floor_us") is not None:
        changed["kernel_floor_us"] = _digits(changed["kernel_floor_us"] * factor)
    for grid in changed.get("gemm_grids", {}).values():
        grid["time_us"] = [_digits(one * factor) for one in grid["time_us"]]
    for by_operation in changed.get("tile_models", {}).values():
        for model in by_operation.values():
            model["efficiency"] = _digits(model["efficiency"] / factor)
    for name in ("attention_forward", "attention_backward"):
        part = changed.get(name, {})
        if "preparation_ns_per_element" in part:
            scaled_ns = part["preparation_ns_per_element"] * factor
            part["preparation_ns_per_element"] = _digits(scaled_ns)
        for grids in part.get("grids", {}).values():
            for grid in grids:
                grid["time_us"] = [_digits(one * factor) for one in grid["time_us"]]
    for streams in changed.get("memory", {}).values():
        streams["fraction"] = _digits(streams["fraction"] / factor)
    return changed


def _digits(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")


def _read(path: Any) -> Record:
    return json.loads(path.read_text(encoding="utf-8"))
