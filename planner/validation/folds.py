"""Held-out predictions: the constants that were fitted without a run, for three ways to leave out.

    configuration   five folds; no model and layout stands in two of them
    source          all records of one source
    accelerator     all records of one accelerator, and everything measured on it

`benchmarks/fit.py` writes the constants of every fold to `data/held_out.json`; a run whose fold is
not there took no part in the fit, and is predicted with the usual ones.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Literal, get_args

from ..constants import Constants
from .null_models import fold_of

Protocol = Literal["configuration", "source", "accelerator"]
PROTOCOLS: tuple[Protocol, ...] = get_args(Protocol)


def fold_key(protocol: Protocol, *, configuration: str, source: str, accelerator: str) -> str:
    """Return the fold that a run belongs to under a protocol."""
    if protocol == "configuration":
        return str(fold_of(configuration))
    return source if protocol == "source" else accelerator


def held_out_constants(
    protocol: Protocol | None, *, configuration: str, source: str, accelerator: str
) -> Constants:
    """Return the constants of somebody who never saw a run, nor any other of its fold.

    Args:
        protocol: what is left out; None: nothing.
        configuration: text that is equal for runs of one model and layout.
        source: the run's source.
        accelerator: its device.
    """
    if protocol is None:
        return Constants.shipped()
    key = fold_key(protocol, configuration=configuration, source=source, accelerator=accelerator)
    return _constants_without(protocol, key)


def held_out_accelerators(protocol: Protocol | None, accelerator: str) -> frozenset[str]:
    """Return the accelerators whose own curves are left out where a run on this one is judged."""
    return frozenset({accelerator} if protocol == "accelerator" else ())


def fitted_accelerators() -> frozenset[str]:
    """Return the accelerators of the runs that the constants were fitted to."""
    return frozenset(_fitted_without().get("accelerator", {}))


@cache
def _constants_without(protocol: Protocol, key: str) -> Constants:
    return Constants.shipped().replaced(_fitted_without().get(protocol, {}).get(key, {}))


@cache
def _fitted_without() -> Mapping[str, Mapping[str, Mapping[str, float]]]:
    path = files("gpuplan.planner").joinpath("data/held_out.json")
    return json.loads(path.read_text(encoding="utf-8"))["constants"]
