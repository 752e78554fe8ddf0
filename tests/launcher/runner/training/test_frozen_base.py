"""Adapters on a 16-bit base: real steps on the processor, of a file and of an `hf:` config."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from runner_jobs import REPOSITORY, make_job, plan_of, train

from gpuplan.catalog.errors import NoFeasiblePlanError
from gpuplan.launcher.runner.build import Trainer, build_trainer
from gpuplan.launcher.runner.job import execution_of, read_job
from gpuplan.launcher.runner.processes.processes import joined
from gpuplan.profiles.user_model.contract import load_workload

pytestmark = [pytest.mark.slow, pytest.mark.spread]

LORA = REPOSITORY / "examples" / "lora.py"
SIZE = {"layers": 2, "hidden": 32, "heads": 4, "kv_heads": 2, "ffn": 64, "vocab": 100}
SIZE |= {"seq_len": 16, "rank": 2}
ZERO_1 = {"data": 2, "shard": 2, "zero_stage": 1}
LLAMA = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 32,
    "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 100,
    "max_position_embeddings": 64,
}  # fmt: skip


@pytest.fixture
def llama(tmp_path: Path) -> str:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    return f"hf:{tmp_path}"


def built(out_dir: Path, model: Path | str, params: dict[str, Any], **plan: Any) -> Trainer:
    """Return what a process trains, built as the runner does, and trained for two steps."""
    given = plan_of(precision="bf16-amp", **plan)
    job = read_job(make_job(out_dir, model, plan=given, params=params))
    workload = load_workload(job.spec)
    with joined("cpu", 60.0) as processes:
        trainer = build_trainer(job, workload, processes)
        for _ in range(2):
            trainer.step([workload.make_batch(2)], lambda _part: None)
    return trainer


def test_the_base_is_16_bits_what_trains_is_fp32(tmp_path: Path) -> None:
    trainer = built(tmp_path, LORA, SIZE, frozen_precision="bf16")
    assert trainer.execution.frozen_precision == "bf16"
    kept = {(one.requires_grad, one.dtype) for one in trainer.model.parameters()}
    assert kept == {(False, torch.bfloat16), (True, torch.float32)}
    assert {one.dtype for one in _moments(trainer)} == {torch.float32}
    # The second matrix of an adapter starts at zero.
    ups = [one for name, one in trainer.model.named_parameters() if ".up." in name]
    assert ups and all(bool(one.any()) for one in ups)


def test_adapters_of_a_config_train_as_they_were_planned(tmp_path: Path, llama: str) -> None:
    params = {"lora": "r=2", "seq_len": 16}
    trainer = built(tmp_path, llama, params, frozen_precision="bf16")
    trained = [name for name, one in trainer.model.named_parameters() if one.requires_grad]
    assert len(trained) == 2 * 2 * 2
    assert all("q_proj" in name or "v_proj" in name for name in trained)
    kept = {(one.requires_grad, one.dtype) for one in trainer.model.parameters()}
    assert kept == {(False, torch.bfloat16), (True, torch.float32)}


def test_without_it_the_base_stays_as_it_was(tmp_path: Path) -> None:
    trainer = built(tmp_path, LORA, SIZE)
    assert {one.dtype for one in trainer.model.parameters()} == {torch.float32}
    assert execution_of(plan_of()).frozen_precision is None


def test_a_4_bit_base_is_refused_before_anything_trains(tmp_path: Path) -> None:
    with pytest.raises(NoFeasiblePlanError, match="does not quantise") as raised:
        built(tmp_path, LORA, SIZE, frozen_precision="nf4")
    assert "bitsandbytes" in raised.value.message


@pytest.mark.parametrize("layout", [{"data": 2}, ZERO_1])
def test_ranks_on_a_16_bit_base_train_as_one_process_does(
    tmp_path: Path, layout: dict[str, Any]
) -> None:
    given = {"precision": "bf16-amp", "frozen_precision": "bf16"}
    alone = _losses(tmp_path / "alone", 1, {}, grad_accum=2, **given)
    ranks = _losses(tmp_path / "ranks", 2, layout, **given)
    in_fp32 = _losses(tmp_path / "fp32", 1, {}, grad_accum=2)
    assert ranks == pytest.approx(alone, abs=2e-3)
    assert alone == pytest.approx(in_fp32, abs=0.05)


def _losses(out_dir: Path, processes: int, layout: dict[str, Any], **plan: Any) -> list[float]:
    out_dir.mkdir()
    return train(out_dir, LORA, processes, params=SIZE, plan=plan_of(layout, **plan))


def _moments(trainer: Trainer) -> list[torch.Tensor]:
    states = trainer.optimizer.state.values()
    return [one for state in states for one in state.values() if one.numel() > 1]
