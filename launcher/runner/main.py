"""The entry of every process: `python -m gpuplan_job JOB-FOLDER`, alone or under torchrun.

Exit codes are gpuplan's (`catalog/errors.py`); 0 also after SIGTERM, when the checkpoint is whole.
What went wrong stands in `failure.json` of the folder of results, written by the first process
that failed.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ...catalog.errors import GpuplanError
from ...catalog.files import write_atomically
from ...profiles.user_model.failures import describe_failure
from .job import Job, read_job

PARENT_VARIABLE = "GPUPLAN_RUN"
"""Set by `gpuplan run`, which waits for the processes and tells the failure itself."""


def main(arguments: list[str]) -> int:
    """Run the job of a folder; return the exit code."""
    try:
        job = read_job(Path(arguments[0]))
    except GpuplanError as error:
        sys.stderr.write(f"Error: {error}\n")
        return error.exit_code
    try:
        run(job)
    except KeyboardInterrupt:
        return 130
    except BaseException as error:
        return fail(job, error)
    return 0


def run(job: Job) -> None:
    """Join the other processes, train, and leave a run record."""
    # Imported late: a job that cannot be read says so without waiting for torch. Nothing that is
    # imported is ever garbage: to look for some takes half a second, and again between steps.
    gc.disable()
    from ...profiles.user_model.contract import load_workload
    from .build import build_trainer
    from .checkpoint.checkpoint import Checkpoints
    from .input.data_words import data_words, fixed_words, refuse_no_data
    from .loop import train
    from .processes.network_check import check_network, nccl_log
    from .processes.processes import joined
    from .reporting.failures.lost_rank import forget_wait
    from .reporting.metrics import say
    from .reporting.record import leave_record

    gc.freeze()
    gc.enable()
    forget_wait(job)
    with nccl_log(job) as log, joined(job.device, job.timeout_s) as processes, _telling():
        check_network(job, processes, log)
        # A file that reads the command line sees none of ours, as where it is traced.
        sys.argv = [str(job.spec.path or "")]
        workload = load_workload(job.spec)
        refuse_no_data(workload, synthetic=job.synthetic, needs_dataset=job.needs_dataset)
        if processes.is_first and PARENT_VARIABLE not in os.environ:
            say(f"data: {data_words(workload, synthetic=job.synthetic)}")
        if processes.is_first and workload.build_dataset is None and workload.loader is None:
            note = fixed_words(workload)
            if note is not None:
                say(f"data: {note}")
        checkpoints = Checkpoints(job.checkpoints, job.checkpoint, processes)
        trainer = build_trainer(job, workload, processes, begins_anew=not checkpoints.is_followed())
        outcome = train(job, workload, trainer, processes)
        leave_record(job, workload, trainer, processes, outcome)


@contextmanager
def _telling() -> Iterator[None]:
    """Let a process that fails say why, though it is told to end since another one has failed."""
    try:
        yield
    except BaseException:
        with contextlib.suppress(ValueError):  # Not in the main thread.
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise


def fail(job: Job, error: BaseException) -> int:
    """Say what went wrong, once for all processes; return the exit code."""
    from .reporting.failures.failure import disk_full, write_failure
    from .reporting.failures.lost_rank import lost_rank
    from .reporting.failures.not_collated import not_collated
    from .reporting.failures.not_compiled import not_compiled
    from .reporting.failures.out_of_memory import out_of_memory
    from .reporting.failures.worker_failure import worker_failure

    rank = int(os.environ.get("RANK", "0"))
    described = (
        disk_full(job, error)
        or out_of_memory(job, error)
        or not_compiled(job, error)
        or lost_rank(job, error)
        or worker_failure(error, job.spec.path)
        or not_collated(error, job.spec.path)
        or describe_failure(error, job.spec.path)
    )
    try:
        is_told = not _is_first_failure(job.out_dir)
        if not is_told:
            write_failure(job.out_dir, described, rank=rank)
            is_told = PARENT_VARIABLE in os.environ
            traced = "".join(traceback.format_exception(error))
            write_atomically(job.out_dir / "traceback.txt", traced)
    except OSError:
        # The disk is full or gone: whoever waits for the processes finds nothing there.
        is_told = False
    if not is_told:
        sys.stderr.write(f"Error: {described}\n")
        sys.stderr.flush()
    return described.exit_code


def _is_first_failure(folder: Path) -> bool:
    """Return whether no other process of this run has failed yet."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        (folder / ".failed").touch(exist_ok=False)
    except FileExistsError:
        return False
    return True
