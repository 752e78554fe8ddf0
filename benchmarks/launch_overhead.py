"""What `gpuplan launch` adds to SkyPilot, on the offline cloud of the tests.

    sh scripts/install.sh sky
    .venv-sky/bin/python benchmarks/launch_overhead.py             # 3 turns, a job of a minute

Beside it stands what a person would type instead: `sky launch` of the very task that gpuplan
writes, and `sky down` when its job has ended. Both follow the log to its end and leave no machine.
Turns alternate, with a server that runs already, so that a machine that becomes slower meanwhile
slows both. What gpuplan does beyond (the plan checked, prices compared, limits held, the account
kept) is in its time.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "support"))

from offline_cloud.cloud import Cloud  # noqa: E402
from offline_cloud.image import missing  # noqa: E402

SHAPE = ("layers=2", "hidden=64", "heads=2", "vocab=512", "seq_len=64")
PLACE = ("--provider", "aws", "--region", "us-east-1", "--instance", "c7i.48xlarge", "--vs-cpu")
WORK = ("--layout", "dp1", "--micro-batch", "4", "--samples", "4000", "--precision", "fp32")


def main() -> int:
    """Time both, print each turn and the medians; return the exit code."""
    options = _options()
    reason = missing()
    if reason is not None:
        print(f"No cloud can be run here: {reason}.", file=sys.stderr)
        return 1
    folder = Path(tempfile.mkdtemp(prefix="launch-overhead-"))
    cloud = Cloud.start(f"overhead-{os.getpid()}", visible=[folder], with_parent=True)
    try:
        shutil.copy(ROOT / "examples" / "gpt2.py", folder)
        person = Person(cloud, folder)
        person("gpuplan", "estimate", "gpt2.py", *_params(), *PLACE, *WORK)
        job = ("--framework", "none", "--command", f"sleep {options.job_s:g}")
        launch = ("gpuplan", "launch", "--provider", "aws", "--shared", "/shared", *job)
        task = person(*launch, "--dryrun")[1]
        (folder / "gpuplan-launches").mkdir(exist_ok=True)
        (folder / "task.yaml").write_text(_with_guard(task, folder))
        person("sky", "check", "aws")
        turns = [_turn(person, launch, number) for number in range(options.turns)]
    finally:
        cloud.stop()
        shutil.rmtree(folder)
    sky_s, ours_s = (statistics.median(one) for one in zip(*turns, strict=True))
    share = ours_s / sky_s - 1
    print(
        f"median of {len(turns)}: sky launch and sky down {sky_s:.1f} s, gpuplan launch"
        f" {ours_s:.1f} s: {ours_s - sky_s:+.1f} s, {share:+.1%}, with a job of {options.job_s:g} s"
    )
    return 0


class Person:
    """Runs commands inside a cloud, in one folder."""

    def __init__(self, cloud: Cloud, folder: Path) -> None:
        """Stand in `folder`, which is also the home of gpuplan."""
        self._cloud = cloud
        self._folder = folder

    def __call__(self, *words: str) -> tuple[float, str]:
        """Run one; return the seconds that it took and what it wrote on standard output.

        Raises:
            RuntimeError: it failed.
        """
        began = time.perf_counter()
        home = str(self._folder / "home")
        done = self._cloud.run(*words, cwd=self._folder, timeout_s=900, GPUPLAN_HOME=home)
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(words)}: exit code {done.returncode}\n{done.stderr}")
        return time.perf_counter() - began, done.stdout


def _turn(person: Person, launch: tuple[str, ...], number: int) -> tuple[float, float]:
    """Time both ways once, in an order that alternates."""
    name = f"plain-{number}"

    def plain() -> float:
        up_s, _ = person("sky", "launch", "-y", "-c", name, "task.yaml")
        down_s, _ = person("sky", "down", "-y", name)
        return up_s + down_s

    def ours() -> float:
        return person(*launch, "-y")[0]

    if number % 2:
        ours_s, sky_s = ours(), plain()
    else:
        sky_s, ours_s = plain(), ours()
    print(f"turn {number + 1}: sky {sky_s:.1f} s, gpuplan {ours_s:.1f} s", flush=True)
    return sky_s, ours_s


def _with_guard(task: str, folder: Path) -> str:
    """Return a task that finds its job folder, which a dry run names and does not write."""
    from gpuplan.launcher.bundle import write_guard, write_orders
    from gpuplan.launcher.guard.orders import Orders

    job = folder / "job"
    write_guard(job)
    write_orders(job, Orders(run_id="plain", usd_per_hour=8.568, requested_at_s=time.time()))
    line = next(one for one in task.splitlines() if one.strip().startswith("~/gpuplan-job:"))
    return task.replace(line, f"{line.partition(':')[0]}: {job}")


def _params() -> list[str]:
    return [word for one in SHAPE for word in ("--param", one)]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--job-s", type=float, default=60.0, help="how long the job sleeps")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
