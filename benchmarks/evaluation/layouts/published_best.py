"""How far a published layout is from our best on the same machines: one line for each cell.

    python -m benchmarks.evaluation.layouts.published_best CONFIGURATIONS.jsonl [--keep]

A cell is a dense model, machines, global batch, precision and software for which somebody published
the configuration they tuned (`containment.py` says what a line holds). Its predicted step is set
beside that of the best layout the search finds there. Nobody measured the others: a cell far from 1
says that somebody knew better than the prediction, or tuned less than the search. `--keep` writes
what docs/accuracy.md shows of them (`published_best_part.py`).
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from gpuplan.catalog.errors import GpuplanError
from gpuplan.catalog.snapshot import Catalogue, load_catalogue
from gpuplan.catalog.vocabulary import Precision, Recompute, Stack
from gpuplan.planner.hardware.cluster import Site
from gpuplan.planner.hardware.device import capacity_bytes
from gpuplan.planner.plan.layout import Layout
from gpuplan.planner.plan.question import MOST_OOM, Machine, Question, Work
from gpuplan.planner.plan.setup import Setup
from gpuplan.planner.predict.kept.model_cache import ModelCache
from gpuplan.planner.predict.memory.peak_memory import framework_of, memory_parts
from gpuplan.planner.predict.setup import RECOMPUTE_PER_OP
from gpuplan.planner.predict.step_time import planned_step_s, step_parts
from gpuplan.planner.search.found import Found
from gpuplan.planner.search.layouts.data_parallel import USUAL_FRAGMENTATION, DataParallelPredictor
from gpuplan.planner.search.layouts.some_layers import (
    FRAGMENTATION,
    equal_layers,
    recomputed_layers,
)
from gpuplan.planner.search.layouts.tried_layouts import tried_layouts
from gpuplan.planner.search.search_space import Space, space_of
from gpuplan.planner.search.splits.outcome import Asked
from gpuplan.planner.search.splits.predictor import SplitPredictor
from gpuplan.planner.search.splits.rows import Kind
from gpuplan.planner.validation.record_defaults import state_run
from gpuplan.profiles.records import RunRecord
from gpuplan.profiles.tracing_process.service import make_profile
from gpuplan.profiles.user_model.spec import parse_model_spec

from .containment import DECODER
from .offered import Offered, is_titan, offered
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


def cell_of(record: dict[str, Any], cache: ModelCache, catalogue: Catalogue) -> Cell:
    """Return the cell of a row. What was published ran, whatever memory is predicted.

    Raises:
        GpuplanError: it cannot be predicted.
    """
    accelerator = catalogue.accelerators[record["accelerator"]]
    peers = [one for one in catalogue.instances.values() if one.accelerator == accelerator.name]
    stated = state_run(run_of(record), accelerator, instances=peers)
    site = stated.site
    cache = cache if offered(record).sequence_parallel else _without_sequence_plan(cache)
    ways = list(_ways_of(record, stated.setup))
    timed = [(planned_step_s(cache, site, one), one) for one in ways]
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
    stack: Stack = "torch-compile" if is_titan(record) else "megatron"
    sharded = {"shard": given["dp"]} if given["dp"] > 1 else {}
    stage = 3 if is_titan(record) else 1
    # torchtitan's selective recompute keeps every second product, in their setup and in ours.
    per_op = is_titan(record)
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
                "sequence_parallel": given["tp"] > 1 and offered(record).sequence_parallel,
                "zero_stage": stage if sharded else 0,
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
    """Yield what a row leaves open: how the state is sharded."""
    sharded = setup.layout.data > 1
    fsdp = record["layout"].get("fsdp")
    stage = 3 if fsdp or is_titan(record) else 1
    # The rows of torchtitan give the micro-batches of a pipeline as one batch.
    size, accum = setup.micro_batch, setup.grad_accum
    if setup.layout.pipeline > accum:
        size, accum = max(1, size // setup.layout.pipeline), accum * setup.layout.pipeline
    shard = setup.layout.data * setup.layout.context if sharded else 1
    layout = replace(setup.layout, zero_stage=stage if sharded else 0, shard=shard)
    recomputes: tuple[Recompute, ...] = RECOMPUTES
    if record["recompute"] or RECIPES in record["source"]:
        recomputes = (record["recompute"] or "none",)
    for recompute in recomputes:
        yield replace(setup, layout=layout, recompute=recompute, micro_batch=size, grad_accum=accum)


RECOMPUTES: tuple[Recompute, ...] = ("none", "selective", "full")
RECIPES = "NVIDIA-NeMo/Megatron-Bridge"
"""Its tables say nothing of recompute. Its recipes of these dense models set none
(scripts/performance/configs/llama/llama3_workload_base_configs.py and llama31_*, as of 2026); that
of LLAMA3_70B on GB300 in FP8 has the activations of 20 layers in host memory instead."""


def _fill(cache: ModelCache, site: Site, setup: Setup) -> float:
    """Return the share of a device's memory that a setup takes, as the search counts it."""
    fragmentation = FRAGMENTATION if setup.recompute_share < 1 else USUAL_FRAGMENTATION
    peak = memory_parts(cache, setup).peak_bytes.item() * fragmentation
    return (peak + framework_of(site, setup)) / capacity_bytes(site.accelerator)


def _best(
    cache: ModelCache, site: Site, setup: Setup, record: dict[str, Any]
) -> list[tuple[float, Setup]]:
    """Return (seconds, setup) of the best layouts, by their kind, of those that are ranked.

    Those that may run out of memory by more than the search accepts are not (`MOST_OOM`), nor
    those that the software of the row did not offer.
    """
    offer = offered(record)
    base = replace(setup, layout=Layout(), micro_batch=1, grad_accum=1, recompute="none")
    found: list[tuple[float, Setup]] = []
    for choices in offer.choices(setup.precision, equal_layers(cache.profile)):
        question = Question(
            work=Work(global_batch=record["global_batch"]),
            machine=Machine(nodes=(site.nodes,)),
            choices=choices,
        )
        space = space_of(question, cache.profile)
        whole = space if offer.accumulates else replace(space, grad_accums=(1,))
        found += _best_unsplit(cache, site, base, whole, offer)
        found += _best_split(cache, site, base, whole, lambda one: one.pipeline == 1, offer)
        found += _best_split(cache, site, base, space, lambda one: one.pipeline > 1, offer)
    return found


def _best_unsplit(
    cache: ModelCache, site: Site, base: Setup, space: Space, offer: Offered
) -> list[tuple[float, Setup]]:
    """Return the best setup that splits the data alone, for each way of casting."""
    found: list[tuple[float, Setup]] = []
    layouts = tuple(filter(offer.has, space.layouts_for(site.nodes, site.per_node)))
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
    return found


def _best_split(
    cache: ModelCache,
    site: Site,
    base: Setup,
    space: Space,
    is_wanted: Callable[[Layout], bool],
    offer: Offered,
) -> list[tuple[float, Setup]]:
    """Return the best wanted setups that split the model."""
    kind = Kind(site.per_node, site.domain)
    split = SplitPredictor.of(cache, space, base, [kind])
    if split is None:
        return []
    layouts = {
        row: split.rows.layout(split.rows.rows[row]) for row in split.rows.legal[kind, site.nodes]
    }
    chosen = [row for row, one in layouts.items() if is_wanted(one) and offer.has(one)]
    split.rows.legal[kind, site.nodes] = np.array(chosen, dtype=int)
    if not chosen:
        return []
    asked = [Asked(site.nodes, float("inf"))]
    (outcome,) = split.best(site, [base], asked, max_oom=MOST_OOM)
    return [(one.step_s, _setup_of(one)) for one in outcome.found]


def _without_sequence_plan(cache: ModelCache) -> ModelCache:
    """Return a model whose tensor ranks are searched without sequence parallelism."""
    return ModelCache(cache.profile.model_copy(update={"tensor_plan": "tensor"}))


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
        if cell.name not in cells or cells[cell.name].ratio > cell.ratio:
            # Of several configurations of one cell the best is the published one.
            cells[cell.name] = cell
    return list(cells.values()), left_out


if __name__ == "__main__":
    main()
