"""A LightningModule trains here as under Lightning's own Trainer, or is refused by name."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from runner_jobs import REPOSITORY, forked_with, make_job, metrics, plan_of, run, train

from gpuplan.launcher.runner.training_options import TrainingOptions

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("forked_with_lightning")]

MODEL = REPOSITORY / "tests" / "support" / "models" / "lightning_lines.py"
STEPS = 200


@pytest.fixture(scope="module")
def forked_with_lightning() -> Iterator[None]:
    with forked_with("lightning"):
        yield


def lines_module() -> Any:
    """Return the model file, imported."""
    found = importlib.util.spec_from_file_location("lightning_lines", MODEL)
    assert found is not None and found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def trainer_losses(every: str, numbered: bool, folder: Path) -> tuple[list[float], list[float]]:
    """Return the losses and learning rates of Lightning's own Trainer, step by step."""
    import lightning
    import torch

    module = lines_module()

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
    model = module.Lines(every=every, numbered=numbered)
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
@pytest.mark.parametrize(
    ("every", "numbered"), [pytest.param("epoch", True, marks=pytest.mark.repeats), ("step", False)]
)
def test_its_losses_are_those_of_its_own_trainer(
    tmp_path: Path, every: str, numbered: bool
) -> None:
    losses, rates = trainer_losses(every, numbered, tmp_path / "trainer")
    params = {"every": every, "numbered": numbered}
    found = train(tmp_path / "run", MODEL, 1, plan=None, steps=STEPS, params=params, workers=0)

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


def trainer_validation(every_steps: int, steps: int, folder: Path) -> list[float]:
    """Return the val_loss of Lightning's own Trainer, evaluation by evaluation."""
    import lightning
    import torch

    class Watch(lightning.Callback):
        found: list[float] = []

        def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
            self.found.append(float(trainer.callback_metrics["val_loss"]))

    torch.manual_seed(0)
    lightning.Trainer(
        max_steps=steps,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        val_check_interval=every_steps,
        default_root_dir=folder,
        callbacks=[Watch()],
    ).fit(lines_module().Lines())
    return Watch.found


def evaluated(folder: Path, model: Path, **fields: Any) -> list[dict[str, Any]]:
    train(folder, model, fields.pop("processes", 1), steps=16, workers=0, **fields)
    return [json.loads(line) for line in (folder / "evaluations.jsonl").read_text().splitlines()]


@pytest.mark.filterwarnings("ignore")
def test_its_validation_finds_what_its_own_trainer_does(tmp_path: Path) -> None:
    expected = trainer_validation(4, 16, tmp_path / "trainer")
    asked = TrainingOptions(eval_every_steps=4)
    alone = evaluated(tmp_path / "alone", MODEL, plan=None, training=asked)
    layout = {"data": 2, "shard": 2, "zero_stage": 3}
    both = evaluated(
        tmp_path / "both",
        MODEL,
        plan=plan_of(layout, micro_batch=4),
        training=asked,
        processes=2,
    )

    assert len(expected) == 4
    for found in (alone, both):
        assert [line["step"] for line in found] == [4, 8, 12, 16]
        assert [line["val_loss"] for line in found] == pytest.approx(expected, abs=1e-4)
        assert [line["loss"] for line in found] == [line["val_loss"] for line in found]
    assert alone[-1]["best_step"] == 4 * (1 + expected.index(min(expected)))


def changed(folder: Path, old: str, new: str) -> Path:
    """Return the model file with one line changed."""
    text = MODEL.read_text()
    assert old in text
    path = folder / "lit.py"
    path.write_text(text.replace(old, new))
    return path


LOGGED = 'self.log("val_loss", F.mse_loss(self.network(inputs), targets))'


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (LOGGED, 'self.log("val_loss", inputs.sum(), reduce_fx="sum")', "reduce_fx='sum'"),
        (LOGGED, 'self.log("val_loss", "low")', "logs 'val_loss' as"),
        (LOGGED, 'self.log("accuracy", targets.mean())', "logs no loss under one of val_loss"),
        (
            "return self._loader(27, seed=2, shuffle=False)",
            "return [self._loader(27, seed=2, shuffle=False)] * 2",
            "returned 2 loaders",
        ),
        ("def val_dataloader", "def other_dataloader", "has validation_step() but no val_dataload"),
    ],
)
def test_a_validation_that_is_not_run_is_refused_by_name(
    tmp_path: Path, old: str, new: str, words: str
) -> None:
    file = changed(tmp_path, old, new)
    asked = TrainingOptions(eval_every_steps=1)
    job = make_job(tmp_path / "run", file, plan=None, steps=2, workers=0, training=asked)

    assert run(job).returncode in (1, 2)
    assert words in json.loads((tmp_path / "run" / "failure.json").read_text())["message"]


def test_without_eval_every_it_is_said_that_it_does_not_run(tmp_path: Path) -> None:
    job = make_job(tmp_path / "run", MODEL, plan=None, steps=2, workers=0)
    assert "has a validation_step(): it runs with --eval-every" in run(job).stderr


def test_a_returned_loss_and_a_data_module_do_as_well(tmp_path: Path) -> None:
    module = """


class Data(lightning.LightningDataModule):
    def __init__(self):
        super().__init__()
        self.lines = Lines()

    def setup(self, stage: str) -> None:
        self.stage = stage

    def train_dataloader(self):
        return self.lines.train_dataloader()

    def val_dataloader(self):
        assert self.stage == "fit"
        return self.lines.val_dataloader()
"""
    file = changed(tmp_path, LOGGED, LOGGED.replace('self.log("val_loss", ', "return ("))
    text = file.read_text().replace("def val_dataloader", "def other_dataloader", 1) + module
    file.write_text(text.replace("self.lines.val_dataloader", "self.lines.other_dataloader"))
    asked = TrainingOptions(eval_every_steps=8)
    found = evaluated(tmp_path / "data", file, plan=None, training=asked)
    plain = evaluated(tmp_path / "plain", MODEL, plan=None, training=asked)
    assert [line["loss"] for line in found] == pytest.approx([line["loss"] for line in plain])
