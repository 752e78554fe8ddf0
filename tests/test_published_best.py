"""Layouts that somebody tuned, set beside ours: what rows leave open, and the table of the page."""

import importlib
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpuplan.catalog.snapshot import load_catalogue
from gpuplan.planner.plan.layout import Layout
from gpuplan.planner.plan.question import MOST_OOM
from gpuplan.planner.predict.kept.model_cache import ModelCache
from gpuplan.planner.predict.memory.peak_memory import is_safe, memory_parts
from gpuplan.profiles.tracing_process.service import make_profile
from gpuplan.profiles.user_model.spec import parse_model_spec

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "benchmarks"))  # As `make accuracy` runs.
published_best = importlib.import_module("evaluation.layouts.published_best")
offered = importlib.import_module("evaluation.layouts.offered")
published_best_part = importlib.import_module("evaluation.layouts.published_best_part")

LAYERS = 4


def row(**changed: Any) -> dict[str, Any]:
    """Return a published configuration of a small decoder on half a rack."""
    return {
        "source": "made up",
        "date": "2026-01",
        "model": "tiny",
        "task": "Pre-Training Performance",
        "dims": {"layers": LAYERS, "hidden": 256, "heads": 4, "kv_heads": 4, "vocab": 512},
        "seq_len": 4096,
        "accelerator": "GB200",
        "devices": 32,
        "layout": {"tp": 1, "pp": 1, "cp": 1, "ep": 1, "dp": 32, "vpp": 1, "fsdp": None},
        "micro_batch": 1,
        "global_batch": 64,
        "precision": "BF16",
        "recompute": None,
        **changed,
    }


def test_gb200_of_a_vendors_table_are_one_rack() -> None:
    record = published_best.run_of(row())
    assert record.per_node == 72
    assert record.inter_node_gbit_s == 72 * 400


@pytest.mark.parametrize("notes", ["compile+asyncTP", "async TP, torch.compile"])
def test_tensor_parallelism_that_runs_beside_products_is_read_from_the_notes(notes: str) -> None:
    split = {"tp": 8, "pp": 1, "cp": 1, "ep": 1, "dp": 4, "vpp": 1, "fsdp": True}
    given = row(source="pytorch/torchtitan", layout=split, notes=notes)
    assert "async-tensor-parallel" in published_best.run_of(given).features
    for other in (
        row(source="pytorch/torchtitan", layout=split, notes="vanilla TP"),
        row(source="pytorch/torchtitan", notes=notes),
        row(source="pytorch/torchtitan", layout=split),
    ):
        assert "async-tensor-parallel" not in published_best.run_of(other).features


def test_an_interleaved_schedule_that_states_no_stages_has_two_a_rank() -> None:
    split = {"tp": 1, "pp": 4, "cp": 1, "ep": 1, "dp": 8, "vpp": None, "fsdp": True}
    given = row(source="pytorch/torchtitan", layout=split, notes="interleaved 1F1B")
    assert published_best.run_of(given).layout.virtual_stages == 2
    plain = row(source="pytorch/torchtitan", layout=split, notes="1F1B")
    assert published_best.run_of(plain).layout.virtual_stages == 1
    stated = row(source="pytorch/torchtitan", layout=split | {"vpp": 5}, notes="interleaved")
    assert published_best.run_of(stated).layout.virtual_stages == 5


def test_nodes_of_other_devices_stay_as_they_are_sold() -> None:
    record = published_best.run_of(row(accelerator="H100-80GB-SXM"))
    assert record.per_node is None
    assert record.inter_node_gbit_s is None


@pytest.fixture(scope="module")
def cache() -> ModelCache:
    params = {
        "layers": LAYERS,
        "hidden": 256,
        "heads": 4,
        "kv_heads": 4,
        "vocab": 512,
        "seq_len": 4096,
    }
    spec = parse_model_spec(str(ROOT / "examples" / "decoder.py"), params=params)
    return ModelCache(make_profile(spec, numerics=("amp16", "pure16")))


def test_recipes_that_set_no_recompute_have_none_and_other_tables_leave_it_open() -> None:
    def policies(**changed: Any) -> list[str]:
        given = row(**changed)
        stated = published_best.state_run(
            published_best.run_of(given), load_catalogue().accelerators["GB200"], instances=()
        )
        return [one.recompute for one in published_best._ways_of(given, stated.setup)]

    assert policies(source="NVIDIA-NeMo/Megatron-Bridge docs") == ["none"]
    assert policies() == ["none", "selective", "full"]
    assert policies(recompute="full") == ["full"]


TITAN = {"source": "pytorch/torchtitan", "accelerator": "H100-80GB-SXM", "devices": 8}
ALL_DATA = {"tp": 1, "pp": 1, "cp": 1, "ep": 1, "dp": 8, "vpp": 1, "fsdp": True}
OLD = {"source": "bigscience-workshop", "date": "2022-02"}


def test_what_a_stack_offered_follows_from_its_date() -> None:
    old, titan, later = (
        offered.offered(row(**one))
        for one in (OLD, TITAN | {"date": "2024-12"}, TITAN | {"date": "2025-06"})
    )
    assert not old.sequence_parallel and not old.interleaved and "selective" not in old.recomputes
    assert not titan.accumulates and later.accumulates
    assert offered.offered(row()) == offered.Offered()


def test_layouts_that_a_stack_did_not_offer_are_left_out() -> None:
    sharded = Layout(data=8, shard=8, zero_stage=3)
    once = Layout(data=8, shard=8, zero_stage=1)
    chunks = Layout(data=4, pipeline=2, virtual_stages=2, zero_stage=1, shard=4)
    titan = offered.offered(row(**TITAN))
    staged = replace(chunks, zero_stage=3)
    assert titan.has(sharded) and titan.has(staged)
    assert not titan.has(chunks) and not titan.has(once)
    old = offered.offered(row(**OLD))
    assert old.has(once) and old.has(sharded) and not old.has(chunks)
    piped = Layout(data=4, pipeline=2, zero_stage=2, shard=4)
    assert not old.has(piped)


@pytest.mark.parametrize(("layers", "asked"), [(12, [6, 4, 3]), (0, []), (3, [1])])
def test_every_nth_layer_is_asked_for_where_any_number_is_not_offered(
    layers: int, asked: list[int]
) -> None:
    found = list(offered.offered(row(**TITAN)).choices("bf16-amp", layers))
    assert [one.recomputes for one in found[:3]] == [("none",), ("selective",), ("full",)]
    assert [one.recompute_layers for one in found[3:]] == asked
    assert len(list(offered.Offered().choices("fp8", layers))) == 1


@pytest.mark.parametrize(("date", "least"), [("2024-12", 1), ("2025-06", 1)])
def test_ours_accumulates_only_where_the_stack_could(
    cache: ModelCache, date: str, least: int
) -> None:
    device = load_catalogue().accelerators["H100-80GB-SXM"]
    given = row(**TITAN, date=date, layout=ALL_DATA, global_batch=64, micro_batch=8)
    stated = published_best.state_run(published_best.run_of(given), device, instances=())
    found = [one for _, one in published_best._best(cache, stated.site, stated.setup, given)]
    whole = {one.grad_accum for one in found if one.layout.pipeline == 1}
    assert least in whole and (date > "2025" or whole == {1})
    assert all(one.layout.zero_stage == 3 for one in found if one.layout.pipeline == 1)


def test_software_before_sequence_parallelism_is_searched_without_it(cache: ModelCache) -> None:
    split = {"tp": 2, "pp": 1, "cp": 1, "ep": 1, "dp": 4, "vpp": 1, "zero": 1}
    given = row(**OLD, accelerator="A100-80GB-SXM", devices=8, layout=split, precision="bf16-amp")
    assert not published_best.run_of(given).layout.sequence_parallel
    cell = published_best.cell_of(given, cache, load_catalogue())
    assert ".sp" not in cell.published and ".sp" not in cell.best


def test_ours_leaves_the_room_that_a_ranked_plan_must_leave(
    cache: ModelCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a device of 3.5 GiB, where the fastest layout may run out of memory."""
    size = {"memory_bytes": 7 * 2**29, "memory_visible_bytes": 7 * 2**29}
    device = load_catalogue().accelerators["H100-80GB-SXM"].model_copy(update=size)
    split = {"tp": 1, "pp": 1, "cp": 1, "ep": 1, "dp": 8, "vpp": 1, "fsdp": None}
    given = row(accelerator="H100-80GB-SXM", devices=8, layout=split, global_batch=128)
    stated = published_best.state_run(published_best.run_of(given), device, instances=())

    def chances() -> list[bool]:
        found = published_best._best(cache, stated.site, stated.setup, given)
        memory = ((setup, memory_parts(cache, setup)) for _, setup in found)
        return [is_safe(cache, stated.site, *one, max_oom=MOST_OOM) for one in memory]

    ranked = chances()
    assert ranked and all(ranked)
    monkeypatch.setattr(published_best, "MOST_OOM", 1.0)
    assert not any(chances())


def test_rows_of_adapters_have_no_cell() -> None:
    cells, left_out = published_best.cells_of([row(task="LoRA Performance")])
    assert not cells
    assert left_out == ["- tiny: LoRA Performance: this decoder has no adapters"]


@pytest.mark.parametrize("pipeline", [1, 2])
def test_torchtitan_shards_with_fsdp_without_autocast(pipeline: int) -> None:
    layout = {"tp": 1, "pp": pipeline, "cp": 1, "ep": 1, "dp": 32 // pipeline, "vpp": 1, "fsdp": 1}
    given = row(layout=layout, micro_batch=2, source="pytorch/torchtitan")
    stated = published_best.state_run(
        published_best.run_of(given), load_catalogue().accelerators["GB200"], instances=()
    )
    ways = published_best._ways_of(given, stated.setup)
    assert {(one.layout.zero_stage, one.autocast) for one in ways} == {(3, False)}


def test_the_table_counts_near_cells_and_says_where_time_goes_and_why() -> None:
    cell = {
        "name": "LLAMA on 8 H100 FP8, batch 8",
        "published": "dp8 mb1 rc=full",
        "best": "dp4.tp2 mb1 rc=none",
        "ratio": 1.3,
        "published_fill": 0.5,
        "best_fill": 0.9,
        "longer": {"kernels": 0.31, "pipeline": -0.01, "data parallel": 0.0},
    }
    near = {**cell, "name": "other", "ratio": 1.1}
    text = published_best_part.table_part(
        [near, cell], ["- x: fits nowhere"], [{"cell": "llama on*", "text": "held back"}]
    )
    assert "1 of 2" in text
    assert "| +30.0 % | kernels +31.0 % | 50 %, 90 % | held back |" in text
    assert text.index("LLAMA") < text.index("| other |")
    assert "- x: fits nowhere" in text
