"""A loss that is a sum over its samples is named where it trains otherwise than in the file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from runner_jobs import REPOSITORY, make_job, plan_of, run
from summed_model import NO_SUMS, SUMS

from gpuplan.launcher.runner.input.compared_samples import look_at_loss
from gpuplan.launcher.runner.input.summed_loss import sums_samples
from gpuplan.profiles.user_model.contract import load_workload
from gpuplan.profiles.user_model.spec import parse_model_spec

MODEL = REPOSITORY / "tests" / "support" / "models" / "summed_model.py"
WORDS = "compute_loss() gives a sum over the samples of its batch"


def found(path: Path, **params: Any) -> bool:
    workload = load_workload(parse_model_spec(str(path), params=params))
    model = workload.build_model()
    weights = {name: one.clone() for name, one in model.state_dict().items()}
    random, modes = torch.get_rng_state(), [one.training for one in model.modules()]
    seen = look_at_loss(workload, model, torch.device("cpu"))
    sums = seen.may_sum and sums_samples(workload, model)
    assert torch.equal(random, torch.get_rng_state())
    assert modes == [one.training for one in model.modules()]
    for name, one in model.state_dict().items():
        assert torch.equal(one, weights[name]), name
    return sums


@pytest.mark.parametrize("loss", SUMS)
def test_a_sum_is_seen(loss: str) -> None:
    assert found(MODEL, loss=loss)


@pytest.mark.parametrize("loss", NO_SUMS)
def test_what_is_no_sum_over_the_samples_is_none(loss: str) -> None:
    assert not found(MODEL, loss=loss)


@pytest.mark.parametrize("name", ["gpt2", "dlrm", "gnn", "lines", "unet_diffusion"])
def test_a_loss_without_a_sum_is_not_run(name: str) -> None:
    params: dict[str, dict[str, Any]] = {
        "gpt2": {"layers": 2, "hidden": 96, "vocab": 999, "seq_len": 128},
        "dlrm": {"rows": tuple(range(50, 76))},
    }
    assert not found(REPOSITORY / "examples" / f"{name}.py", **params.get(name, {}))


def test_weights_that_are_not_here_yet_are_left_alone() -> None:
    workload = load_workload(parse_model_spec(str(MODEL), params={"loss": "sum"}))
    with torch.device("meta"):
        model = workload.build_model()
    assert not sums_samples(workload, model)


def test_edges_between_samples_are_not_repeated(tmp_path: Path) -> None:
    # Repeated edges lead to the first copy of their nodes, and add up there.
    file = tmp_path / "graph.py"
    file.write_text(
        "import torch\n"
        "def build_model():\n    return torch.nn.Linear(3, 1)\n"
        "def make_batch(size):\n"
        "    return torch.zeros(size, 3), torch.zeros(2, 4 * size, dtype=torch.long)\n"
        "def compute_loss(model, batch):\n"
        "    return (model(batch[0]).mean() + len(batch[1][0])).sum()\n"
    )
    workload = load_workload(parse_model_spec(str(file)))
    assert not sums_samples(workload, workload.build_model())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("micro", "accum", "loss", "is_named"),
    [(4, 1, "sum", False), (4, 2, "mean", False), (4, 2, "sum", True), (2, 1, "sum", True)],
)
def test_a_run_says_so_before_its_first_step(
    tmp_path: Path, micro: int, accum: int, loss: str, is_named: bool
) -> None:
    plan = plan_of(micro_batch=micro, grad_accum=accum)
    done = run(make_job(tmp_path, MODEL, plan=plan, params={"loss": loss}, steps=2, workers=0))

    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stderr.count(WORDS) == is_named
