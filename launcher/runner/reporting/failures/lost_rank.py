"""A rank that the others waited for in vain is named: it hangs in its own code, or is lost.

A collective that times out, or whose connection closes, is noticed by those who wait. Each of them
leaves a mark beside the heartbeats; the rank that leaves none is the one that they waited for.
"""

from __future__ import annotations

import json
import os
import re
import time
from pathlib import Path

from .....catalog.errors import GpuplanError
from ...job import Job

COLLECTIVE = re.compile(
    r"gloo/transport|gloo::|monitoredBarrier|ProcessGroup(Gloo|NCCL)|NCCL (error|communicator)"
    r"|ncclRemoteError|Connection closed by peer|Watchdog caught collective",
    re.IGNORECASE,
)
TIMED_OUT = re.compile(r"timed? ?out", re.IGNORECASE)
LISTEN_S = 5.0
"""How long those who wait may differ in when their time is over."""


class LostRankError(GpuplanError):
    """The others waited for a rank in vain."""


def forget_wait(job: Job) -> None:
    """Remove this rank's mark of an earlier attempt."""
    _mark(job.out_dir, _rank()).unlink(missing_ok=True)


def lost_rank(job: Job, error: BaseException) -> LostRankError | None:
    """Return the error that names the ranks that were waited for; None where it is another one.

    Waits a few seconds for the marks of the others.
    """
    world = int(os.environ.get("WORLD_SIZE", "1"))
    text = str(error)
    if world == 1 or not _is_collective(error, text):
        return None
    missing = _missing(job, world)
    if TIMED_OUT.search(text):
        how = f"within {job.timeout_s:g} s"
        why = "it hangs, or is lost"
    else:
        how, why = "any more", "its connection is lost"
    if missing == []:
        return LostRankError(
            f"The ranks waited for each other {how}, each in another place.",
            fix="look for code that does more on one rank than on others, such as a metric that"
            f" calls the model more often there; {_go_on(job)}.",
        )
    if missing is None:
        said, rank = "A rank of another node", None
    else:
        rank = missing[0]
        names = ", ".join(map(str, missing))
        said = f"Rank {names}" if len(missing) == 1 else f"Ranks {names}"
    return LostRankError(
        f"{said} did not answer the others {how}{_after(job, rank)}: {why}.",
        fix="look at what its code waits for (data, a lock, the network) and at what it printed;"
        f" {_go_on(job)}.",
    )


def _is_collective(error: BaseException, text: str) -> bool:
    import torch.distributed as dist

    if isinstance(error, dist.DistError):
        return True
    return isinstance(error, RuntimeError) and COLLECTIVE.search(text) is not None


def _missing(job: Job, world: int) -> list[int] | None:
    """Return the ranks that leave no mark; None where it is one of another node, unseen here."""
    per_node = int(os.environ.get("LOCAL_WORLD_SIZE", world))
    ranks = range(world)
    if job.checkpoint.in_bucket and per_node < world:
        # A bucket shows what other nodes write only later.
        first = _rank() - _rank() % per_node
        ranks = range(first, first + per_node)
    _mark(job.out_dir, _rank()).parent.mkdir(parents=True, exist_ok=True)
    _mark(job.out_dir, _rank()).touch()
    ends_s = time.monotonic() + LISTEN_S
    while True:
        missing = [rank for rank in ranks if not _mark(job.out_dir, rank).exists()]
        if not missing or time.monotonic() >= ends_s:
            break
        time.sleep(0.05)
    return None if not missing and len(ranks) < world else missing


def _after(job: Job, rank: int | None) -> str:
    if rank is None:
        return ""
    try:
        path = job.out_dir / "heartbeats" / f"rank-{rank:05d}"
        step = json.loads(path.read_text(encoding="utf-8"))["step"]
        return f" (after step {step:,} or later)"
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def _go_on(job: Job) -> str:
    kept = sorted(path.parent.name for path in job.checkpoints.glob("step-*/run.json"))
    if not kept:
        return "no checkpoint was written yet"
    return f"the same command continues from the checkpoint of step {int(kept[-1][5:]):,}"


def _mark(out_dir: Path, rank: int) -> Path:
    return out_dir / "heartbeats" / f"waited-{rank:05d}"


def _rank() -> int:
    return int(os.environ.get("RANK", "0"))
