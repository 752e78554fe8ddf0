"""What the runner adds to a training step over a loop written by hand.

    python benchmarks/runner_overhead.py            # one process
    python benchmarks/runner_overhead.py --nproc 2  # DDP over two processes

Both train the same model on the same batches; turns alternate, so that a machine that becomes
slower meanwhile slows both. The hand-written loop is what a person writes who wants the loss
printed and nothing else: no checkpoints, no metrics, no signals. On a processor the time that its
cores worked is printed beside the wall's, because other programs lengthen only the wall's.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple, cast

import torch
import torch.distributed as dist

from gpuplan.launcher.runner.build import build_trainer
from gpuplan.launcher.runner.job import CheckpointPolicy, Job
from gpuplan.launcher.runner.loop import Loop
from gpuplan.launcher.runner.processes.processes import Processes, joined
from gpuplan.profiles.user_model.contract import Workload, load_workload
from gpuplan.profiles.user_model.spec import parse_model_spec

MODEL = Path(__file__).parents[1] / "examples" / "gpt2.py"
SIZE = {"layers": 4, "hidden": 256, "heads": 4, "vocab": 1000, "seq_len": 128}
TURNS = 12
STEPS = 12
"""A turn; the first two of each do not count."""


class Moment(NamedTuple):
    """A time, or a duration, in seconds."""

    wall_s: float
    cpu_s: float


def now() -> Moment:
    return Moment(time.perf_counter(), time.process_time())


def main() -> None:
    options = _options()
    if options.nproc > 1 and "RANK" not in os.environ:
        torchrun = ["-m", "torch.distributed.run", "--standalone"]
        line = [*torchrun, f"--nproc-per-node={options.nproc}", __file__]
        sys.exit(subprocess.run([sys.executable, *line]).returncode)
    spec = parse_model_spec(str(MODEL), params=SIZE)
    device = None if torch.cuda.is_available() else "cpu"
    torch.set_num_threads(1)  # Waiting threads would spin, which counts as work.
    with joined(device, 60.0) as processes, tempfile.TemporaryDirectory() as folder:
        by_hand: list[Moment] = []
        by_runner: list[Moment] = []
        for turn in range(TURNS):
            by_hand += hand_written(load_workload(spec), processes)
            job = Job(
                spec=spec,
                plan=None,
                execution=None,
                out_dir=Path(folder) / str(turn),
                steps=STEPS,
                micro_batch=4,
                checkpoint=CheckpointPolicy(every_s=None, resume="never"),
            )
            by_runner += runner(job, load_workload(spec), processes)
        if processes.is_first:
            _print(by_hand, by_runner, processes.world)


def runner(job: Job, workload: Workload, processes: Processes) -> list[Moment]:
    """Return the wall seconds between the ends of the runner's steps."""
    ends: list[Moment] = []
    trainer = build_trainer(job, workload, processes)
    loop = Loop(job, workload, trainer, processes)
    whole_step = loop._one_step

    def timed(*given: Any) -> object:
        found = whole_step(*given)
        ends.append(now())
        return found

    loop._one_step = timed  # pyright: ignore[reportAttributeAccessIssue]
    loop.run()
    return _between(ends)


def hand_written(workload: Workload, processes: Processes) -> list[Moment]:
    """Return the wall seconds between the ends of a plain loop's steps."""
    torch.manual_seed(0)
    device = processes.device
    model: torch.nn.Module = workload.build_model().to(device)
    if dist.is_initialized():
        model = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = workload.build_optimizer(model.parameters())
    batches = [
        tuple(part.to(device) for part in cast("tuple[torch.Tensor, ...]", workload.make_batch(4)))
        for _ in range(8)
    ]
    ends: list[Moment] = []
    for step in range(STEPS):
        loss = workload.compute_loss(model, batches[step % len(batches)])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if device.type == "cuda":
            torch.cuda.synchronize()
        loss.item()
        ends.append(now())
    return _between(ends)


def _between(ends: list[Moment]) -> list[Moment]:
    return [
        Moment(after.wall_s - before.wall_s, after.cpu_s - before.cpu_s)
        for before, after in zip(ends[2:], ends[3:], strict=False)
    ]


def _print(by_hand: list[Moment], by_runner: list[Moment], processes: int) -> None:
    print(f"{processes} process{'es' if processes > 1 else ''}, {len(by_hand)} steps each")
    print(f"{'':12}{'by hand':>12}{'runner':>12}{'overhead':>10}   (at most 2 %)")
    for name in Moment._fields:
        hand_s = statistics.median(getattr(one, name) for one in by_hand)
        runner_s = statistics.median(getattr(one, name) for one in by_runner)
        print(
            f"{name.removesuffix('_s'):12}{hand_s * 1e3:9.2f} ms{runner_s * 1e3:9.2f} ms"
            f"{runner_s / hand_s - 1:10.2%}"
        )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--nproc", type=int, default=1)
    return parser.parse_args([] if "RANK" in os.environ else None)


if __name__ == "__main__":
    main()
