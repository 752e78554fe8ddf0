"""A LightningModule trains here as under Lightning's own Trainer, or is refused by name."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
from runner_jobs import REPOSITORY, make_job, metrics, run, train

pytestmark = pytest.mark.slow

MODEL = REPOSITORY / "tests" / "support" / "lightning_lines.py"
STEPS = 200


def trainer_losses(every: str, folder: Path) -> tuple[list[float], list[float]]:
    """Return the losses and learning rates of Lightning's own Trainer, step by step."""
    import lightning
    import torch

    found = importlib.util.spec_from_file_location("lightning_lines", MODEL)
    assert found is not None and found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)

    class Watch(lightning.Callback):
        losses: list[float] = []
        rates: list[float] = []

        def on_before_optimizer_step(self, trainer: Any, pl_module: Any, optimizer: Any) -> None:
            self.rates.append(optimizer.param_groups[0]["lr"])

        def on_train_batch_end(
            self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
        ) -> None:
            self.losses.append(float(outputs["loss"]))

    torch.manual_seed(0)
    model = module.Lines(every=every)
    trainer = lightning.Trainer(
        max_steps=STEPS,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        limit_val_batches=0,
        default_root_dir=folder,
        callbacks=[Watch()],
    )
    trainer.fit(model)
    return Watch.losses, Watch.rates


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("every", ["epoch", "step"])
def test_its_losses_are_those_of_its_own_trainer(tmp_path: Path, every: str) -> None:
    losses, rates = trainer_losses(every, tmp_path / "trainer")
    found = train(
        tmp_path / "run", MODEL, 1, plan=None, steps=STEPS, params={"every": every}, workers=0
    )

    assert len(found) == len(losses) == STEPS
    assert found == pytest.approx(losses, abs=1e-4)
    assert [line["learning_rate"] for line in metrics(tmp_path / "run")] == pytest.approx(rates)
    assert losses[-1] < 0.5 * losses[0]
    assert len(set(rates)) > 5, "its schedule did not step"


def test_what_only_a_trainer_runs_is_refused_by_name(tmp_path: Path) -> None:
    file = tmp_path / "lit.py"
    body = "\n    def on_train_epoch_end(self):\n        self.rate = self.current_epoch\n"
    file.write_text(MODEL.read_text() + body)
    job = make_job(tmp_path / "run", file, plan=None, steps=2)

    assert run(job).returncode == 2
    failure = json.loads((tmp_path / "run" / "failure.json").read_text())
    assert "on_train_epoch_end(), self.current_epoch" in failure["message"]
    assert "--framework lightning" in failure["fix"]
