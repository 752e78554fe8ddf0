"""How far a published layout is from our best on the same machines: one line for each cell.

    python -m benchmarks.evaluation.published_best CONFIGURATIONS.jsonl [--keep]

A cell is a dense model, machines, global batch, precision and software for which somebody published
the configuration they tuned (`containment.py` says what a line holds). Its predicted step is set
beside that of the best layout the search finds there. Nobody measured the others: a cell far from 1
says that somebody knew better than the prediction, or tuned less than the search. `--keep` writes
what docs/accuracy.md shows of them (`published_best_part.py`).
"""

from __future__ import annotations

import argparse
import json
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from gpuplan.catalog.errors import GpuplanError
from gpuplan.catalog.snapshot import Catalogue, load_catalogue
from gpuplan.catalog.vocabulary import Precision, Stack
from gpuplan.planner.hardware.cluster import Site
from gpuplan.planner.hardware.device import capacity_bytes
from gpuplan.planner.plan.layout import Layout
from gpuplan.planner.plan.question import MOST_OOM, Choices, Machine, Question, Work
from gpuplan.planner.plan.setup import Setup
from gpuplan.planner.predict.kept.model_cache import ModelCache
from gpuplan.planner.predict.peak_memory import framework_of, memory_parts
from gpuplan.planner.predict.setup import RECOMPUTE_PER_OP
from gpuplan.planner.predict.step_time import planned_step_s, step_parts
from gpuplan.planner.search.layouts.data_parallel import USUAL_FRAGMENTATION, DataParallelPredictor
from gpuplan.planner.search.layouts.some_layers import (
    FRAGMENTATION,
    equal_layers,
    recomputed_layers,
)
from gpuplan.planner.search.layouts.tried_layouts import tried_layouts
from gpuplan.planner.search.search_space import space_of
from gpuplan.planner.search.splits.outcome import Asked, Found
from gpuplan.planner.search.splits.predictor import SplitPredictor
from gpuplan.planner.search.splits.rows import Kind
from gpuplan.planner.validation.record_defaults import state_run
from gpuplan.profiles.records import RunRecord
from gpuplan.profiles.tracing_process.service import make_profile
from gpuplan.profiles.user_model.spec import parse_model_spec

from .containment import DECODER
from .published_best_part import CELLS, NEAR, WANTED

PRECISIONS: dict[str, Precision] = {"BF16": "bf16-amp", "FP8": "fp8", "MXFP8": "fp8"}
"""What the rows say → ours; nothing of ours is NVFP4."""


PARTS = {
    "kernels": ("compute_s", "memory_bound_s", "launch_s"),
    "tensor parallel": ("tensor_comm_s",),
    "context parallel": ("context_comm_s",),
    "data parallel": ("data_comm_exposed_s",),
    "pipeline": ("pipeline_bubble_s",),
    "optimizer": ("optimizer_s", "host_comm_exposed_s"),
}
"""Parts of a step, as they are told → those of the prediction."""


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One published configuration beside our best."""

    name: str
    published: str
    best: str
    ratio: float
    """Predicted seconds of the published step ÷ those of our best."""
    published_fill: float
    """Share of a device's memory that the published setup is predicted to take."""
    best_fill: float
    longer: dict[str, float]
    """By part, how much longer the published step is than ours, as a share of ours."""


def cell_of(record: dict[str, Any], cache: ModelCache, catalogue: Catalogue) -> Cell | None:
    """Return the cell of a row; None where its layout does not fit by our prediction.

    Raises:
        GpuplanError: it cannot be predicted.
    """
    accelerator = catalogue.accelerators[record["accelerator"]]
    peers = [one for one in catalogue.instances.values() if one.accelerator == accelerator.name]
    stated = state_run(run_of(record), accelerator, instances=peers)
    site = stated.site
    ways = [*_ways_of(record, stated.setup), *_of_some_layers(record, stated.setup, cache, site)]
    timed = [(planned_step_s(cache, site, one), one) for one in ways if _fits(cache, site, one)]
    if not timed:
        return None
    published_s, published = min(timed, key=_seconds)
    best_s, best = min(
        (*_best(cache, site, stated.setup, record), (published_s, published)), key=_seconds
    )
    theirs, ours = (_parts(cache, site, one) for one in (published, best))
    return Cell(
        name=f"{record['model']} on {record['devices']} {record['accelerator']}"
        f" {record['precision']}, batch {record['global_batch']}",
        published=_words(published, cache),
        best=_words(best, cache),
        ratio=published_s / best_s,
        published_fill=_fill(cache, site, published),
        best_fill=_fill(cache, site, best),
        longer={name: (theirs[name] - ours[name]) / best_s for name in PARTS},
    )


def _seconds(timed: tuple[float, Setup]) -> float:
    return timed[0]


def _parts(cache: ModelCache, site: Site, setup: Setup) -> dict[str, float]:
    """Return the seconds of a step by `PARTS`."""
    parts = step_parts(cache, site, setup)
    return {
        name: sum(np.asarray(getattr(parts, one)).item() for one in summed)
        for name, summed in PARTS.items()
    }


def run_of(record: dict[str, Any]) -> RunRecord:
    """Return a row as the record of a run, of the software that its source is about.

    Its nodes are what the fast link joins, as in records of runs: a rack of 72 GB200.
    """
    rack_gbit_s = RACK_GBIT_S.get(record["accelerator"])
    given = {name: degree or 1 for name, degree in record["layout"].items() if name in DEGREES}
    if _says(record, "interleaved") and record["layout"]["vpp"] is None:
        given["vpp"] = INTERLEAVED
    stack: Stack = "torch-compile" if "torchtitan" in record["source"] else "megatron"
    sharded = {"shard": given["dp"]} if given["dp"] > 1 else {}
    # torchtitan's selective recompute keeps every second product.
    per_op = stack == "torch-compile" and record["recompute"] == "selective"
    return RunRecord.model_validate(
        {
            "id": "published",
            "source": record["source"],
            "date": record["date"],
            "model": "decoder",
            "accelerator": record["accelerator"],
            "accelerators": record["devices"],
            "per_node": RACK if rack_gbit_s else None,
            "inter_node_gbit_s": rack_gbit_s,
            "layout": {
                **{ours: given[theirs] for theirs, ours in DEGREES.items()},
                "sequence_parallel": given["tp"] > 1,
                "zero_stage": 1 if sharded else 0,
                **sharded,
            },
            "precision": PRECISIONS.get(record["precision"].upper(), record["precision"]),
            "micro_batch": record["micro_batch"],
            "global_batch": record["global_batch"],
            "recompute": record["recompute"],
            "stack": stack,
            "features": [
                *([RECOMPUTE_PER_OP] if per_op else []),
                *(["async-tensor-parallel"] if given["tp"] > 1 and _says(record, "async") else []),
            ],
            "measured": {},
        }
    )


def _says(record: dict[str, Any], word: str) -> bool:
    """Return whether the notes of a row name a feature of its software."""
    return word in (record.get("notes") or "").lower()


INTERLEAVED = 2
"""Stages of a rank under an interleaved schedule that states none: torchtitan's default
(`stages_per_rank` of its pipeline parallelism)."""
RACK = 72
RACK_GBIT_S = {"GB200": 28_800.0, "GB300": 57_600.0}
"""Out of a rack that NVLink joins, where it is one: 72 ports of 400 and of 800 Gbit/s (NVIDIA, DGX
GB200 and GB300 datasheets), as in the records of runs from the same pages (tests/published)."""
DEGREES = {
    "dp": "data",
    "tp": "tensor",
    "pp": "pipeline",
    "vpp": "virtual_stages",
    "cp": "context",
    "ep": "expert",
}


def _ways_of(record: dict[str, Any], setup: Setup) -> Iterator[Setup]:
    """Yield what a row leaves open: how the state is sharded, and what is recomputed."""
    sharded = setup.layout.data > 1
    fsdp = record["layout"].get("fsdp")
    # Between micro-batches of a pipeline torchtitan keeps what it gathered (fully_shard
    # with reshard_after_forward=False, its default with a pipeline), and torch reduces gradients
    # after the last one (`backward_maybe_with_nosync` of its pipelining/stage.py): as ZeRO-1.
    full = (1, 2, 3) if setup.layout.pipeline > 1 else (3,)
    stages = (1, 3) if fsdp is None else full if fsdp else (1,)
    # The rows of torchtitan give the micro-batches of a pipeline as one batch.
    size, accum = setup.micro_batch, setup.grad_accum
    if setup.layout.pipeline > accum:
        size, accum = max(1, size // setup.layout.pipeline), accum * setup.layout.pipeline
    for stage in stages if sharded else (0,):
        shard = setup.layout.data * setup.layout.context if sharded else 1
        layout = replace(setup.layout, zero_stage=stage, shard=shard)
        for recompute in [record["recompute"]] if record["recompute"] else RECOMPUTES:
            yield replace(
                setup, layout=layout, recompute=recompute, micro_batch=size, grad_accum=accum
            )


RECOMPUTES = ("none", "selective", "full")


def _of_some_layers(
    record: dict[str, Any], setup: Setup, cache: ModelCache, site: Site
) -> Iterator[Setup]:
    """Yield the ways that recompute as few layers as must be, as the search does for ours.

    There are none where the row states what is recomputed.
    """
    layers = -(-equal_layers(cache.profile) // setup.layout.pipeline)
    if record["recompute"] or layers < 2:
        return
    for whole in _ways_of(record, setup):
        if whole.recompute != "full":
            continue
        some = [replace(whole, recompute_share=k / layers) for k in range(1, layers)]
        # The peak falls with every layer.
        least = bisect_left(some, True, key=lambda one: _fits(cache, site, one))
        yield from some[least : least + 1]


def _fits(cache: ModelCache, site: Site, setup: Setup) -> bool:
    return _fill(cache, site, setup) <= 1


def _fill(cache: ModelCache, site: Site, setup: Setup) -> float:
    """Return the share of a device's memory that a setup takes, as the search counts it."""
    fragmentation = FRAGMENTATION if setup.recompute_share < 1 else USUAL_FRAGMENTATION
    peak = memory_parts(cache, setup).peak_bytes.item() * fragmentation
    return (peak + framework_of(site, setup)) / capacity_bytes(site.accelerator)


def _best(
    cache: ModelCache, site: Site, setup: Setup, record: dict[str, Any]
) -> list[tuple[float, Setup]]:
    """Return (seconds, setup) of the best layouts, by their kind, of those that are ranked.

    Those that may run out of memory by more than the search accepts are not (`MOST_OOM`).
    """
    question = Question(
        work=Work(global_batch=record["global_batch"]),
        machine=Machine(nodes=(site.nodes,)),
        choices=Choices(precisions=(setup.precision,)),
    )
    space = space_of(question, cache.profile)
    base = replace(setup, layout=Layout(), micro_batch=1, grad_accum=1, recompute="none")
    found: list[tuple[float, Setup]] = []
    layouts = tuple(space.layouts_for(site.nodes, site.per_node))
    for autocast in (False, True):
        cast = replace(base, autocast=autocast)
        predictor = DataParallelPredictor(cache=cache, space=space)
        tried = tried_layouts(predictor, site, layouts, cast, max_oom=MOST_OOM)
        seconds = np.where(tried.is_safe, tried.step_s, np.inf)
        if not np.isfinite(seconds).any():
            continue
        row, column = np.unravel_index(seconds.argmin(), seconds.shape)
        chosen = replace(
            cast,
            layout=layouts[row],
            micro_batch=int(tried.micro_batch[column]),
            grad_accum=int(tried.accum[row, column]),
            recompute=tried.recompute[column],
            recompute_share=float(tried.share[row, column]),
        )
        found.append((float(seconds[row, column]), chosen))
    split = SplitPredictor.of(cache, space, base, [Kind(site.per_node, site.domain)])
    if split is not None:
        asked = [Asked(site.nodes, float("inf"))]
        (outcome,) = split.best(site, [base], asked, max_oom=MOST_OOM)
        found += [(one.step_s, _setup_of(one)) for one in outcome.found]
    return found


def _setup_of(found: Found) -> Setup:
    return replace(
        found.base,
        layout=found.layout,
        micro_batch=found.micro_batch,
        grad_accum=found.grad_accum,
        recompute=found.recompute,
        recompute_share=found.recompute_share,
    )


def _words(setup: Setup, cache: ModelCache) -> str:
    layers = recomputed_layers(setup, cache.profile)
    recompute = setup.recompute if layers is None else f"{layers} layers"
    return f"{setup.layout} mb{setup.micro_batch} rc={recompute}"


def main() -> None:
    """Print every cell, worst last, and the share that is near."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("configurations", type=Path)
    parser.add_argument("--keep", action="store_true", help="write what the page shows")
    options = parser.parse_args()
    lines = options.configurations.read_text(encoding="utf-8").splitlines()
    records = [json.loads(line) for line in lines]
    dense = [one for one in records if not one["dims"].get("experts")]
    cells, left_out = cells_of(dense)
    cells.sort(key=lambda one: one.ratio)
    for cell in cells:
        print(f"{cell.ratio:.2f}  {cell.name}: {cell.published}; ours {cell.best}")
    near = sum(cell.ratio <= NEAR for cell in cells)
    print(f"{near} of {len(cells)} cells ({near / max(1, len(cells)):.0%}; wanted {WANTED:.0%})")
    print("\n".join(left_out))
    if options.keep:
        kept = {"cells": [asdict(cell) for cell in cells], "left_out": left_out}
        CELLS.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


def cells_of(records: Sequence[dict[str, Any]]) -> tuple[list[Cell], list[str]]:
    """Return the cells of dense rows, and why others have none."""
    catalogue, caches = load_catalogue(), dict[str, ModelCache]()
    cells: dict[str, Cell] = {}
    left_out = []
    for record in records:
        params = {"seq_len": record["seq_len"], **record["dims"]}
        params.setdefault("kv_heads", params["heads"])
        key = json.dumps(params, sort_keys=True)
        try:
            if record["precision"] == "NVFP4":
                raise GpuplanError("NVFP4 is not predicted")
            if record["task"].startswith("LoRA"):
                raise GpuplanError(f"{record['task']}: this decoder has no adapters")
            if key not in caches:
                spec = parse_model_spec(str(DECODER), params=params)
                numerics = ("amp16", "pure16")
                caches[key] = ModelCache(make_profile(spec, numerics=numerics))
            cell = cell_of(record, caches[key], catalogue)
        except GpuplanError as error:
            left_out.append(f"- {record['model']}: {error}")
            continue
        if cell is None:
            left_out.append(f"- {record['model']}: does not fit by our prediction")
        elif cell.name not in cells or cells[cell.name].ratio > cell.ratio:
            # Of several configurations of one cell the best is the published one.
            cells[cell.name] = cell
    return list(cells.values()), left_out


if __name__ == "__main__":
    main()
