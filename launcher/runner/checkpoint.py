"""Never lose work: checkpoints that are whole or not there, written beside training.

A checkpoint is written by torch.distributed.checkpoint into a hidden folder, by every rank its own
part, and gets its name only when all of it is on disk: a kill at any moment leaves the one before
whole. Keys are the names of the model's parameters, so it is read back under any other layout.

    checkpoints/step-00000200/.metadata  *.distcp  run.json

In a mounted bucket there are no renames worth the name: the files have theirs from the start, and a
checkpoint is whole when every file is there that its run.json, written last, lists.
"""

from __future__ import annotations

import json
import shutil
import time
import warnings
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.filesystem import FileSystemWriter
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_state_dict,
    set_state_dict,
)
from torch.distributed.checkpoint.state_dict_saver import async_save

from ...catalog.errors import GpuplanError, UsageError
from ...catalog.files import write_atomically
from .checkpoint_folder import (
    NAME,
    RUN_FILE,
    file_sizes,
    make_durable,
    open_folder,
    whole_checkpoints,
)
from .job import CheckpointPolicy
from .metrics import say
from .numerics import LossScaler
from .processes import Processes

# One process saves alone on purpose.
warnings.filterwarnings("ignore", message="torch.distributed is disabled", module="torch")
RESCUE_S = 60.0
"""How long a run that failed waits for a checkpoint that it had begun."""
OPTIONS = StateDictOptions(flatten_optimizer_state_dict=True)


class Checkpoints:
    """The checkpoints of one run, in one folder that every process reaches."""

    def __init__(self, folder: Path, policy: CheckpointPolicy, processes: Processes) -> None:
        self._folder = folder
        self._policy = policy
        self._processes = processes
        self._saving: Future[Any] | None = None
        self._facts: dict[str, Any] = {}
        self._saved_step = -1
        self._saved_s = 0.0
        self.write_s = 0.0
        """How long the last checkpoint took to be whole, as this process saw it."""
        self._begun_s = 0.0

    def open(self) -> None:
        """Make the folder, or say why nothing could be kept in it.

        Raises:
            UsageError: it cannot be written, or other nodes do not see what this one writes.
        """
        open_folder(self._folder, self._processes, in_bucket=self._policy.in_bucket)

    def start(self) -> Path | None:
        """Return the checkpoint to begin from, the same on every process; None to begin anew.

        Raises:
            UsageError: the one that was asked for is not there.
        """
        found = self._asked() if self._processes.is_first else None
        if self._processes.world > 1:
            told: list[Any] = [found]
            dist.broadcast_object_list(told, 0, self._processes.host_group)
            found = told[0]
        if isinstance(found, UsageError):
            raise found
        return found

    def load(
        self,
        path: Path,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        scaler: LossScaler | None,
    ) -> dict[str, Any]:
        """Read a checkpoint into a model and its optimizer; return the facts of its run.

        Raises:
            UsageError: it is of another model.
        """
        facts = json.loads((path / RUN_FILE).read_text(encoding="utf-8"))
        state = self._state(model, optimizer)
        try:
            dcp.load(  # pyright: ignore[reportPrivateImportUsage]
                state,
                checkpoint_id=path,
                process_group=self._processes.checkpoint_group,
                no_dist=self._processes.world == 1,
            )
        except (dcp.api.CheckpointException, RuntimeError, ValueError, KeyError) as error:
            raise UsageError(
                f"{path} is not a checkpoint of this model: {_reason(error)}",
                fix="give the params it was trained with, another --checkpoint-dir, or"
                " --resume never to begin anew.",
            ) from None
        set_state_dict(
            model,
            optimizer,
            model_state_dict=state["model"],
            optim_state_dict=state["optimizer"],
            options=OPTIONS,
        )
        if scaler is not None and facts.get("scaler"):
            scaler.load_state_dict(facts["scaler"])
        self._saved_step = int(facts["step"])
        return facts

    def is_due(self, step: int, *, elapsed_s: float, write_s: float) -> bool:
        """Return whether a checkpoint should be written after a step.

        Args:
            step: steps that are done.
            elapsed_s: seconds since training began, the same on every process.
            write_s: how long a checkpoint takes to be whole, the same on every process.
        """
        policy = self._policy
        if policy.every_steps is not None:
            return step % policy.every_steps == 0
        # Begun early enough to be whole when the interval ends: no more than that is ever lost.
        lead_s = min(write_s, (policy.every_s or 0) / 2)
        return policy.every_s is not None and elapsed_s - self._saved_s >= policy.every_s - lead_s

    def has(self, step: int) -> bool:
        """Return whether a checkpoint of a step is written, or being written."""
        return step == self._saved_step

    def save(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        *,
        facts: dict[str, Any],
        elapsed_s: float,
    ) -> None:
        """Begin to write a checkpoint; training goes on once its tensors are copied."""
        self.finish()
        self._facts = facts
        self._saved_step, self._saved_s = int(facts["step"]), elapsed_s
        self._begun_s = time.perf_counter()
        partial = self._partial(facts["step"])
        partial.mkdir(parents=True, exist_ok=True)
        if self._processes.is_first:
            # In a bucket this may be a checkpoint that was found not to be whole.
            (partial / RUN_FILE).unlink(missing_ok=True)
        self._saving = async_save(
            self._state(model, optimizer),
            storage_writer=FileSystemWriter(partial, sync_files=True),
            process_group=self._processes.checkpoint_group,
            no_dist=self._processes.world == 1,
        )  # pyright: ignore[reportAttributeAccessIssue]

    def name_if_done(self) -> None:
        """Give the checkpoint that is being written its name, if all of it is on disk."""
        if self._saving is not None and self._saving.done():
            self.finish()

    def finish(self) -> None:
        """Wait until the checkpoint that is being written, if any, is whole, and name it.

        Raises:
            GpuplanError: it could not be written; the one before stands.
        """
        saving, self._saving = self._saving, None
        if saving is None:
            return
        try:
            saving.result()
        except Exception as error:
            raise GpuplanError(
                f"The checkpoint of step {self._facts['step']} could not be written to"
                f" {self._folder}: {_reason(error)}",
                fix="free space there or give another --checkpoint-dir; the checkpoint before it"
                " is whole, and the same command continues from it.",
            ) from None
        if self._processes.is_first:
            self._name()
        self.write_s = time.perf_counter() - self._begun_s

    def rescue(self) -> None:
        """After a failure: name the checkpoint that is being written, if it still becomes whole."""
        if self._saving is None:
            return
        try:
            self._saving.result(RESCUE_S)
            self.finish()
        except Exception as error:
            say(f"the checkpoint of step {self._facts['step']} was not finished: {_reason(error)}")

    def _name(self) -> None:
        step = self._facts["step"]
        partial, whole = self._partial(step), self._folder / NAME.format(step)
        if self._policy.in_bucket:
            self._facts = {**self._facts, "files": file_sizes(partial)}
        write_atomically(partial / RUN_FILE, json.dumps(self._facts, indent=1) + "\n")
        make_durable(partial)
        if not self._policy.in_bucket:
            if whole.exists():
                shutil.rmtree(whole)
            partial.rename(whole)
            make_durable(self._folder)
        for old in whole_checkpoints(self._folder)[: -self._policy.keep]:
            shutil.rmtree(old, ignore_errors=True)

    def _partial(self, step: int) -> Path:
        name = NAME.format(step)
        return self._folder / (name if self._policy.in_bucket else f".{name}")

    def _state(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
        model_state, optimizer_state = get_state_dict(model, optimizer, options=OPTIONS)
        return {"model": model_state, "optimizer": optimizer_state}

    def _asked(self) -> Path | UsageError | None:
        asked = self._policy.resume
        if asked == "never":
            return None
        if asked == "auto":
            return next(reversed(whole_checkpoints(self._folder)), None)
        path = Path(asked)
        if (path / RUN_FILE).exists():
            return path
        return UsageError(
            f"{asked} is not a whole checkpoint.",
            fix=f"give a folder step-… of {self._folder}, or --resume auto for the newest.",
        )


def saved_facts(
    *, step: int, scaler: LossScaler | None, job: dict[str, Any], now: Callable[[], float]
) -> dict[str, Any]:
    """Return what a checkpoint says of itself beside its tensors."""
    return {
        "step": step,
        "saved_at": now(),
        "scaler": None if scaler is None else scaler.state_dict(),
        **job,
    }


def _reason(error: BaseException) -> str:
    """Return the first line that says something, of an error that may wrap others."""
    if isinstance(error, dcp.api.CheckpointException):
        inner = next(iter(error.failures.values()), None)
        if inner is not None:
            return _reason(inner[0])
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
