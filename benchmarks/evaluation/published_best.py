"""How far a published layout is from our best on the same machines: one line for each cell.

    python -m benchmarks.evaluation.published_best CONFIGURATIONS.jsonl

A cell is a dense model, machines, global batch, precision and software for which somebody published
the configuration they tuned (`containment.py` says what a line holds). Its predicted step is set
beside that of the best layout the search finds there. Nobody measured the others: a cell far from 1
says that somebody knew better than the prediction, or tuned less than the search.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from gpuplan.catalog.errors import GpuplanError
from gpuplan.catalog.snapshot import Catalogue, load_catalogue
from gpuplan.catalog.vocabulary import Precision, Stack
from gpuplan.planner.hardware.cluster import Site
from gpuplan.planner.hardware.device import capacity_bytes
from gpuplan.planner.plan.layout import Layout
from gpuplan.planner.plan.question import Choices, Machine, Question, Work
from gpuplan.planner.plan.setup import Setup
from gpuplan.planner.predict.model_cache import ModelCache
from gpuplan.planner.predict.peak_memory import framework_of, memory_parts
from gpuplan.planner.predict.setup import RECOMPUTE_PER_OP
from gpuplan.planner.predict.step_time import planned_step_s
from gpuplan.planner.search.data_parallel import USUAL_FRAGMENTATION, DataParallelPredictor
from gpuplan.planner.search.search_space import space_of
from gpuplan.planner.search.splits.predictor import SplitPredictor
from gpuplan.planner.search.splits.rows import Kind
from gpuplan.planner.search.tried_layouts import tried_layouts
from gpuplan.planner.validation.record_defaults import state_run
from gpuplan.profiles.records import RunRecord
from gpuplan.profiles.tracing_process.service import make_profile
from gpuplan.profiles.user_model.spec import parse_model_spec

from .containment import DECODER

NEAR = 1.10
"""Published ÷ best, predicted: as good as our best."""
WANTED = 0.80
"""Share of the cells that are near."""
PRECISIONS: dict[str, Precision] = {"BF16": "bf16-amp", "FP8": "fp8", "MXFP8": "fp8"}
"""What the rows say → ours; nothing of ours is NVFP4."""


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One published configuration beside our best."""

    name: str
    published: str
    best: str
    ratio: float
    """Predicted seconds of the published step ÷ those of our best."""


def cell_of(record: dict[str, Any], cache: ModelCache, catalogue: Catalogue) -> Cell | None:
    """Return the cell of a row; None where its layout does not fit by our prediction.

    Raises:
        GpuplanError: it cannot be predicted.
    """
    accelerator = catalogue.accelerators[record["accelerator"]]
    peers = [one for one in catalogue.instances.values() if one.accelerator == accelerator.name]
    stated = state_run(run_of(record), accelerator, instances=peers)
    layouts = [one for one in _ways_of(record, stated.setup) if _fits(cache, stated.site, one)]
    if not layouts:
        return None
    timed = [(planned_step_s(cache, stated.site, one), one) for one in layouts]
    published_s, published = min(timed, key=lambda one: one[0])
    best_s, best = _best(cache, stated.site, stated.setup, record)
    best_s, best = min((best_s, best), (published_s, _words(published)))
    where = f"{record['devices']} {record['accelerator']} {record['precision']}"
    return Cell(
        name=f"{record['model']} on {where}, batch {record['global_batch']}",
        published=_words(published),
        best=best,
        ratio=published_s / best_s,
    )


def run_of(record: dict[str, Any]) -> RunRecord:
    """Return a row as the record of a run, of the software that its source is about."""
    given = {name: degree or 1 for name, degree in record["layout"].items() if name in DEGREES}
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
            "features": [RECOMPUTE_PER_OP] if per_op else [],
            "measured": {},
        }
    )


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
    stages = (1, 3) if fsdp is None else (3,) if fsdp else (1,)
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


def _fits(cache: ModelCache, site: Site, setup: Setup) -> bool:
    peak = memory_parts(cache, setup).peak_bytes.item() * USUAL_FRAGMENTATION
    return peak + framework_of(site, setup) <= capacity_bytes(site.accelerator)


def _best(cache: ModelCache, site: Site, setup: Setup, record: dict[str, Any]) -> tuple[float, str]:
    """Return (seconds, words) of the best layout that is predicted to fit, of any kind."""
    question = Question(
        work=Work(global_batch=record["global_batch"]),
        machine=Machine(nodes=(site.nodes,)),
        choices=Choices(precisions=(setup.precision,)),
    )
    space = space_of(question, cache.profile)
    base = replace(setup, layout=Layout(), micro_batch=1, grad_accum=1, recompute="none")
    found: list[tuple[float, str]] = [(float("inf"), "nothing fits")]
    layouts = tuple(space.layouts_for(site.nodes, site.per_node))
    for autocast in (False, True):
        tried = tried_layouts(
            DataParallelPredictor(cache=cache, space=space),
            site,
            layouts,
            replace(base, autocast=autocast),
            max_oom=1.0,
        )
        seconds = np.where(tried.fits, tried.step_s, np.inf)
        row, column = np.unravel_index(seconds.argmin(), seconds.shape)
        words = f"{layouts[row]} mb{tried.micro_batch[column]} rc={tried.recompute[column]}"
        found.append((float(seconds[row, column]), words))
    split = SplitPredictor.of(cache, space, base, [Kind(site.per_node, site.domain)])
    if split is not None:
        outcome = split.best(site, [base], site.nodes, bound_s=float("inf"))
        found += [
            (one.step_s, f"{one.layout} mb{one.micro_batch} rc={one.recompute}")
            for one in outcome.found
        ]
    return min(found)


def _words(setup: Setup) -> str:
    return f"{setup.layout} mb{setup.micro_batch} rc={setup.recompute}"


def main() -> None:
    """Print every cell, worst last, and the share that is near."""
    lines = Path(sys.argv[1]).read_text(encoding="utf-8").splitlines()
    records = [json.loads(line) for line in lines]
    dense = [one for one in records if not one["dims"].get("experts")]
    cells, left_out = cells_of(dense)
    for cell in sorted(cells, key=lambda one: one.ratio):
        print(f"{cell.ratio:.2f}  {cell.name}: {cell.published}; ours {cell.best}")
    near = sum(cell.ratio <= NEAR for cell in cells)
    print(f"{near} of {len(cells)} cells ({near / max(1, len(cells)):.0%}; wanted {WANTED:.0%})")
    print("\n".join(left_out))


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
