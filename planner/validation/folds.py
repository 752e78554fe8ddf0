"""Held-out predictions: the constants that were fitted without a run, for three ways to leave out.

    configuration   five folds; no model and layout stands in two of them
    source          all records of one source
    accelerator     all records of one accelerator, and everything measured on it

`benchmarks/fit.py` writes the constants of every fold to `data/held_out.json`; a run whose fold is
not there took no part in the fit, and is predicted with the usual ones. Beside them stands which
sources the fitted runs are of, by stack, architecture and accelerator.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any, Literal, get_args

from ...catalog.vocabulary import Stack
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
    found = _constants_without(protocol, key)
    # Of a fold by configuration, the other runs of its sources and devices were seen.
    is_seen = protocol == "configuration" or key not in _fitted_without().get(protocol, {})
    return found if is_seen else found.without(key)


def held_out_accelerators(protocol: Protocol | None, accelerator: str) -> frozenset[str]:
    """Return the accelerators whose own curves are left out where a run on this one is judged."""
    return frozenset({accelerator} if protocol == "accelerator" else ())


def sources_seen(architecture: str, stack: Stack, *, without: Collection[str] = ()) -> int:
    """Return how many sources of fitted runs used a stack on devices of an architecture.

    Args:
        architecture: of the devices.
        stack: of the software.
        without: sources and accelerators that are taken as never seen.
    """
    of_devices = _fitted_runs().get(stack, {}).get(architecture, {})
    found: set[str] = set()
    for accelerator, sources in of_devices.items():
        if accelerator not in without:
            found.update(sources)
    return len(found.difference(without))


@cache
def _constants_without(protocol: Protocol, key: str) -> Constants:
    return Constants.shipped().replaced(_fitted_without().get(protocol, {}).get(key, {}))


def _fitted_without() -> Mapping[str, Mapping[str, Mapping[str, float]]]:
    return _held_out()["constants"]


def _fitted_runs() -> Mapping[str, Mapping[str, Mapping[str, Sequence[str]]]]:
    """Return the sources of the fitted runs by stack, architecture and accelerator."""
    return _held_out()["fitted"]


@cache
def _held_out() -> Mapping[str, Any]:
    path = files("gpuplan.planner").joinpath("data/held_out.json")
    return json.loads(path.read_text(encoding="utf-8"))
