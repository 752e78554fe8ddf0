"""Checkpoints that are complete or absent, written beside training, so that no work is lost.

A checkpoint is written by torch.distributed.checkpoint into a hidden folder, by every rank its own
part, and gets its name only when all of it is on disk: a kill at any moment leaves the one before
whole. Keys are the names of the model's parameters, so it is read back under any other layout.

    checkpoints/step-00000200/.metadata  *.distcp  state.pt  run.json

`run.json` has the digest of each of the others, so that bytes which changed since are noticed.

In a mounted bucket there are no renames worth the name: the files have theirs from the start, and a
checkpoint is whole when every file is there that its run.json, written last, lists. The node sees
its own files before the bucket has them: uploads.py says which may be deleted.
"""

from __future__ import annotations

import copy
import json
import shutil
import time
import warnings
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch.distributed.checkpoint.state_dict_saver import async_save

from ....catalog.errors import GpuplanError, UsageError
from ....catalog.files import write_atomically
from ..job import CheckpointPolicy
from ..processes.processes import Processes
from ..reporting.metrics import say
from ..training.numerics import LossScaler
from . import uploads
from .contents import SMALL_FILE, Contents, write_small
from .digests import DIGESTS, DigestedWriter, file_digest, signed
from .folder import (
    NAME,
    RUN_FILE,
    file_sizes,
    make_durable,
    open_folder,
    whole_checkpoints,
)
from .reading import FAILURES, Resumed, read_first, reason
from .safe_reading import METADATA_FILE

# One process saves alone on purpose.
warnings.filterwarnings("ignore", message="torch.distributed is disabled", module="torch")
RESCUE_S = 60.0
"""How long a run that failed waits for a checkpoint that it had begun."""


class Checkpoints:
    """The checkpoints of one run, in one folder that every process reaches."""

    def __init__(self, folder: Path, policy: CheckpointPolicy, processes: Processes) -> None:
        self._folder = folder
        self._policy = policy
        self._processes = processes
        self._saving: Future[Any] | None = None
        self._writer: DigestedWriter
        self._facts: dict[str, Any] = {}
        self._small: dict[str, Any] = {}
        self._saved_step = -1
        self._began: Path | None = None
        self._best_step: int | None = None
        self._best_before: int | None = None
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

    @property
    def newest_step(self) -> int | None:
        """Return the step of the newest checkpoint that is written or was read; None for none."""
        return None if self._saved_step < 0 else self._saved_step

    def is_followed(self) -> bool:
        """Return whether the run goes on from a checkpoint, the same on every process.

        Raises:
            UsageError: the one that was asked for does not exist, or the run had some in its bucket
                and none is whole.
        """
        return bool(self._candidates())

    def resume(self, contents: Contents) -> Resumed | None:
        """Read the newest checkpoint that can be used; None where the run begins anew.

        One that is damaged, or whose weights are not finite, is left for the one before it.

        Raises:
            UsageError: there are checkpoints, and none can be used: they are of another model, or
                all damaged; or the one that was asked for does not exist.
        """
        paths = self._candidates()
        if not paths:
            return None
        found = read_first(paths, contents, self._processes)
        if isinstance(found, str):
            raise _unusable(paths[0], found, whole_checkpoints(self._folder))
        self._saved_step, self._began = int(found.facts["step"]), found.path
        return found

    def newest(self, contents: Contents) -> Resumed | None:
        """Read the newest checkpoint that this run wrote or began from; None for none."""
        if self._saved_step < 0:
            return None
        last = NAME.format(self._saved_step)
        written = [one for one in whole_checkpoints(self._folder)[::-1] if one.name <= last]
        paths = self._told(written or ([self._began] if self._began else []))
        found = read_first(paths, contents, self._processes) if paths else None
        if isinstance(found, Resumed):
            self._saved_step = int(found.facts["step"])
            return found
        return None

    def _candidates(self) -> list[Path]:
        """Return the checkpoints to try, the same on every process, newest first."""
        found = self._told(self._asked() if self._processes.is_first else [])
        if isinstance(found, UsageError):
            raise found
        return found

    def _told(self, found: Any) -> Any:
        """Return what the first process found, on every process."""
        if self._processes.world > 1:
            told: list[Any] = [found]
            dist.broadcast_object_list(told, 0, self._processes.host_group)
            found = told[0]
        return found

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
        contents: Contents,
        *,
        facts: dict[str, Any],
        elapsed_s: float,
    ) -> None:
        """Begin to write a checkpoint; training goes on once its tensors are copied.

        Args:
            contents: of the checkpoint.
            facts: what it says of the run.
            elapsed_s: seconds since training began, the same on every process.
        """
        self.finish()
        self._facts = facts
        # A copy: what it is made of goes on changing while the tensors are written.
        self._small = copy.deepcopy(contents.small_state())
        self._saved_step, self._saved_s = int(facts["step"]), elapsed_s
        self._begun_s = time.perf_counter()
        partial = self._partial(facts["step"])
        partial.mkdir(parents=True, exist_ok=True)
        if self._processes.is_first:
            # In a bucket this may be a checkpoint that was found not to be whole.
            (partial / RUN_FILE).unlink(missing_ok=True)
        self._writer = DigestedWriter(partial)
        self._saving = async_save(
            contents.tensors(),
            storage_writer=self._writer,
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
        except FAILURES as error:
            raise GpuplanError(
                f"The checkpoint of step {self._facts['step']} could not be written to"
                f" {self._folder}: {reason(error)}",
                fix="free space there or give another --checkpoint-dir; the checkpoint before it"
                " is whole, and the same command continues from it.",
            ) from None
        if self._processes.is_first:
            self._name()
        self.write_s = time.perf_counter() - self._begun_s

    def keep_best(self, step: int | None) -> None:
        """Keep the checkpoint of this step beside the newest ones; None for none.

        It may still be to be written: until it is whole, the best before it stays.
        """
        if step != self._best_step:
            self._best_before, self._best_step = self._best_step, step

    def rescue(self) -> None:
        """After a failure: name the checkpoint that is being written, if it still becomes whole."""
        if self._saving is None:
            return
        try:
            self._saving.result(RESCUE_S)
            self.finish()
        except FAILURES as error:
            say(f"the checkpoint of step {self._facts['step']} was not finished: {reason(error)}")

    def _name(self) -> None:
        step = self._facts["step"]
        partial, whole = self._partial(step), self._folder / NAME.format(step)
        small_bytes = write_small(partial, self._small)
        if self._policy.in_bucket:
            sizes = {**file_sizes(partial), SMALL_FILE: small_bytes}
            self._facts = {**self._facts, "files": sizes}
        beside = {name: file_digest(partial / name) for name in (METADATA_FILE, SMALL_FILE)}
        self._facts = signed({**self._facts, DIGESTS: self._writer.digests | beside})
        write_atomically(partial / RUN_FILE, json.dumps(self._facts, indent=1) + "\n")
        make_durable(partial)
        if not self._policy.in_bucket:
            if whole.exists():
                shutil.rmtree(whole)
            partial.rename(whole)
            make_durable(self._folder)
        # Not those of later steps: a damaged one that was gone back from must not push this out.
        kept = [one for one in whole_checkpoints(self._folder) if one.name <= whole.name]
        for old in self._superseded(kept):
            shutil.rmtree(old, ignore_errors=True)

    def _superseded(self, kept: list[Path]) -> list[Path]:
        """Return those of the whole checkpoints, oldest first, that newer ones stand for."""
        names = {one.name for one in kept}
        bests = (
            NAME.format(one) for one in (self._best_step, self._best_before) if one is not None
        )
        best = next((one for one in bests if one in names), None)
        keep = self._policy.keep
        if not self._policy.in_bucket:
            return [one for one in kept[:-keep] if one.name != best]
        uploads.note_saved(self._folder, kept)
        return uploads.deletable(kept, keep=keep, best=best, now_s=time.time())

    def _partial(self, step: int) -> Path:
        name = NAME.format(step)
        return self._folder / (name if self._policy.in_bucket else f".{name}")

    def _asked(self) -> list[Path] | UsageError:
        asked = self._policy.resume
        if asked == "never":
            return []
        if asked == "auto":
            whole = whole_checkpoints(self._folder)[::-1]
            lost = uploads.lost(self._folder) if self._policy.in_bucket and not whole else None
            return whole if lost is None else lost
        path = Path(asked)
        if (path / RUN_FILE).exists():
            return [path]
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


def _unusable(path: Path, problem: str, whole: list[Path]) -> UsageError:
    """Return the error of a run that has checkpoints and cannot use them."""
    others = [str(one) for one in whole if one.resolve() != path.resolve()]
    instead = f" --resume {others[-1]} for another one," if others else ""
    return UsageError(
        f"{path} is not a checkpoint of this model, or is damaged: {problem}",
        fix=f"give the params it was trained with, another --checkpoint-dir,{instead} or --resume"
        " never to begin anew.",
    )
