"""A loss that compares samples is named where its micro-batch is not all that is trained on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from runner_jobs import REPOSITORY, make_job, plan_of, run

from gpuplan.launcher.runner.input.compared_samples import look_at_loss
from gpuplan.profiles.user_model.contract import load_workload
from gpuplan.profiles.user_model.spec import parse_model_spec

MODELS = REPOSITORY / "tests" / "support" / "models"
MODEL = MODELS / "contrastive_model.py"
WORDS = "the loss compares the samples of a micro-batch with each other"


def compares(path: Path, **params: Any) -> bool:
    workload = load_workload(parse_model_spec(str(path), params=params))
    model = workload.build_model()
    weights = {name: one.clone() for name, one in model.state_dict().items()}
    random = torch.get_rng_state()
    found = look_at_loss(workload, model, torch.device("cpu")).compares
    assert torch.equal(random, torch.get_rng_state())
    for name, one in model.state_dict().items():
        assert torch.equal(one, weights[name]), name
    assert not any(one._forward_hooks or one._forward_pre_hooks for one in model.modules())
    return found


@pytest.mark.parametrize("loss", ["products", "views", "distances", "differences"])
def test_a_number_for_each_pair_is_seen(loss: str) -> None:
    assert compares(MODEL, loss=loss)


@pytest.mark.parametrize("loss", ["alone", "variance"])
def test_sums_over_the_samples_compare_none(loss: str) -> None:
    assert not compares(MODEL, loss=loss)


@pytest.mark.parametrize(
    ("name", "params"),
    [
        ("gpt2", {"layers": 3, "hidden": 96, "vocab": 999, "seq_len": 128}),
        ("vit", {"layers": 3, "hidden": 128, "ffn": 256}),
        ("dlrm", {"rows": tuple(range(50, 76))}),
        ("gnn", {}),
        ("lstm", {"hidden": 150}),
        ("lines", {}),
        ("unet_diffusion", {}),
    ],
)
def test_models_of_samples_alone_compare_none(name: str, params: dict[str, Any]) -> None:
    # Smaller, but for what a sample is and for the number of tables: whole ones take seconds.
    assert not compares(REPOSITORY / "examples" / f"{name}.py", **params)


def test_a_step_that_needs_values_is_not_known() -> None:
    assert not compares(MODELS / "stream_model.py")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("layout", "micro", "accum", "loss", "words"),
    [
        ({}, 4, 1, "products", None),
        ({}, 4, 2, "alone", None),
        ({}, 4, 2, "products", "with the 4 of its own, and the 2 that are accumulated add none\n"),
        (
            {"data": 2, "shard": 2, "zero_stage": 3},
            4,
            1,
            "distances",
            "with the 4 of its own, and the other 1 of 2 data-parallel ranks only what the file",
        ),
        ({}, 8, 1, "views", "The file's own micro-batch is 4, which trains another objective"),
    ],
)
def test_a_run_says_so_before_its_first_step(
    tmp_path: Path, layout: dict[str, Any], micro: int, accum: int, loss: str, words: str | None
) -> None:
    plan = plan_of(layout, micro_batch=micro, grad_accum=accum)
    job = make_job(tmp_path, MODEL, plan=plan, params={"loss": loss}, steps=2, workers=0)
    done = run(job, layout.get("data", 1))

    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stderr.count(WORDS) == (words is not None)
    assert words is None or words in done.stderr
