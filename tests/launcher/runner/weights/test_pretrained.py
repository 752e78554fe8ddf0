"""A run starts from weights in files, under every layout, and from a checkpoint before them."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import tied_decoder
import torch
from runner_jobs import REPOSITORY, plan_of, train
from safetensors.torch import load_file, save_model

from gpuplan import api
from gpuplan.launcher.runner.training_options import TrainingOptions

pytestmark = [pytest.mark.slow, pytest.mark.spread]

TIED = REPOSITORY / "tests" / "support" / "models" / "tied_decoder.py"
SIZE = {"layers": 2, "hidden": 32, "heads": 4, "kv_heads": 2, "ffn": 64, "vocab": 100}
PARAMS = {**SIZE, "seq_len": 16}
FSDP = {"zero_stage": 3}
TOLERANCE = 1e-5


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Weights of another seed than that of the runs, a tied one kept once."""
    path = tmp_path_factory.mktemp("weights") / "model.safetensors"
    torch.manual_seed(7)
    save_model(tied_decoder.build_model(**SIZE), str(path))
    return path


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory, weights: Path) -> tuple[Path, list[float]]:
    """Return the folder of a run of one step on one process, and its loss."""
    folder = tmp_path_factory.mktemp("one")
    return folder, _train(folder, 1, {}, grad_accum=4, weights=weights)


@pytest.mark.parametrize(
    ("layout", "one_copy"),
    [
        ({"data": 2, "shard": 2, **FSDP}, True),
        pytest.param({"data": 2, "shard": 2, "tensor": 2, **FSDP}, None, marks=pytest.mark.repeats),
        ({"tensor": 2, "pipeline": 2}, None),
    ],
    ids=["fsdp", "fsdp.tp", "tp.pp"],
)
def test_every_layout_reads_the_same_weights(
    tmp_path: Path,
    weights: Path,
    alone: tuple[Path, list[float]],
    layout: dict[str, Any],
    one_copy: bool | None,
) -> None:
    processes = layout.get("data", 1) * layout.get("tensor", 1) * layout.get("pipeline", 1)
    accum = 4 // layout.get("data", 1)
    found = _train(
        tmp_path, processes, layout, grad_accum=accum, weights=weights, one_copy=one_copy
    )

    assert found == pytest.approx(alone[1], abs=TOLERANCE)
    written = api.export_weights(tmp_path, "safetensors", checkpoint="newest")
    assert written.tied == {"head.weight": "embedding.weight"}
    trained, begun = load_file(Path(written.folder) / written.files[0]), load_file(weights)
    assert set(trained) == set(begun)
    # One step of AdamW changes every value by no more than its learning rate, and decay.
    for name, value in trained.items():
        torch.testing.assert_close(value, begun[name], atol=2e-3, rtol=2e-3)


def test_a_run_that_continues_reads_its_checkpoint_and_no_weights(
    tmp_path: Path, alone: tuple[Path, list[float]]
) -> None:
    shutil.copytree(alone[0], tmp_path / "run")
    gone = tmp_path / "gone.safetensors"

    found = _train(tmp_path / "run", 1, {}, grad_accum=4, weights=gone, steps=2)
    assert found[:1] == alone[1] and len(found) == 2


def _train(
    folder: Path,
    processes: int,
    layout: dict[str, Any],
    *,
    grad_accum: int,
    weights: Path,
    steps: int = 1,
    **fields: Any,
) -> list[float]:
    return train(
        folder,
        TIED,
        processes,
        plan=plan_of(layout, grad_accum=grad_accum),
        params=PARAMS,
        steps=steps,
        training=TrainingOptions(weights=str(weights)),
        **fields,
    )
