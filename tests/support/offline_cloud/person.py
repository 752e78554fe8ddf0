"""A person who uses gpuplan inside a cloud: a folder, a home, and what came of each launch."""

import json
import subprocess
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from gpuplan.planner.cost.launch_cost import CONTROLLER_IDLE_HOURS
from offline_cloud.cloud import Cloud, Machine
from offline_cloud.processes import Inside

ROOT = Path(__file__).parents[3]
CPU = "c7i.48xlarge"
SHAPE = "layers=2 hidden=64 heads=2 vocab=512 seq_len=64"
SLOWER = """

_compute_loss = compute_loss


def compute_loss(model, batch):
    import time

    time.sleep(0.05)
    return _compute_loss(model, batch)
"""
"""Steps take longer than is estimated, and leave the processors to the machines beside."""
SPOT_OFFER = f"""\
offers:
- provider: aws
  region: us-east-1
  instance: {CPU}
  accelerator: CPU-2x-Xeon-8488C
  accelerators_per_node: 1
  usd_per_hour: 8.568
  spot_usd_per_hour: 3.4
"""
"""The fixture's own price: nobody publishes one."""
START_S = 30.0
"""What an account may hold above the bill for each node: asked for, not booted; seen, not gone."""
MANAGED_DOWN_S = 60.0
"""SkyPilot 0.14 says first that a managed job has succeeded, then reads its log, and then takes its
machines down (sky/jobs/controller.py): they end after `launch` has. Later, they are left."""


class Person:
    """Runs gpuplan in a folder of their own and reads what is kept of launches."""

    def __init__(self, cloud: Cloud, folder: Path, home: Path) -> None:
        """Stand in `folder`, with `home` as GPUPLAN_HOME."""
        self.cloud = cloud
        self.folder = folder
        self.home = home
        folder.mkdir(exist_ok=True)

    @property
    def _settings(self) -> dict[str, str]:
        # The simulated account has no quota to ask for: what AWS refuses is what is tried.
        return {"GPUPLAN_HOME": str(self.home), "GPUPLAN_CHECK_CAPACITY": "false"}

    def __call__(
        self,
        *words: str,
        code: int | None = 0,
        timeout_s: float = 300.0,
        command: tuple[str, ...] = ("gpuplan",),
        **variables: str,
    ) -> str:
        """Run gpuplan to its end, which must be with this exit code; return all that it wrote."""
        began = time.monotonic()
        done = self._run((*command, *words), timeout_s, variables)
        print(f"{time.monotonic() - began:6.1f} s  gpuplan {' '.join(words)}")
        said = done.stdout + done.stderr
        assert code is None or done.returncode == code, f"exit code {done.returncode}:\n{said}"
        return said

    def begin(self, *words: str, log: Path, **variables: str) -> Inside:
        """Begin gpuplan, to be interrupted or killed."""
        variables = {**self._settings, **variables}
        # Where the tests are run in the background, a shell has let SIGINT be ignored.
        heard = ("env", "--default-signal=INT", "gpuplan")
        return self.cloud.begin(*heard, *words, cwd=self.folder, log=log, **variables)

    def estimate(self, *, nodes: int = 1, layout: str = "dp1", type: str = CPU) -> None:
        """Plan a small GPT-2 on AWS, for machines without GPUs unless they are named."""
        (self.folder / "offers.yaml").write_text(SPOT_OFFER)
        model = (ROOT / "examples" / "gpt2.py").read_text()
        (self.folder / "gpt2.py").write_text(model + SLOWER)
        shape = [word for one in SHAPE.split() for word in ("--param", one)]
        place = ("--provider", "aws", "--region", "us-east-1", "--instance", type, "--vs-cpu")
        place = (*place, "--offers", "offers.yaml")
        split = ("--nodes", str(nodes), "--layout", layout, "--micro-batch", "4")
        work = ("--samples", "4000", "--precision", "fp32")
        self("estimate", "gpt2.py", *shape, *place, *split, *work)

    def launches(self) -> list[dict[str, Any]]:
        """Return all launches as they are kept, newest first."""
        done = self._run(("gpuplan", "history", "--format", "json"), 60.0, {})
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)["launches"]

    def record(self) -> dict[str, Any]:
        """Return the newest launch."""
        return self.launches()[0]

    def machines(self, record: Mapping[str, Any]) -> list[Machine]:
        """Return the machines that a launch had."""
        return self.cloud.of_cluster(record["cluster"])

    def results(self, record: Mapping[str, Any]) -> Path:
        """Return the folder of results of a launch with `--shared /shared`."""
        return self.cloud.shared / Path(record["results"]).name

    def steps(self, record: Mapping[str, Any]) -> list[int]:
        """Return the steps in its metrics, in the order in which they were written."""
        return [line["step"] for line in self.metrics(record)]

    def metrics(self, record: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the lines of its metrics that are of steps."""
        return step_lines(self.results(record))

    def billed_usd(self, record: Mapping[str, Any]) -> float:
        """Return what the cloud bills for a launch, at the prices that it was planned with."""
        now = time.time()
        prices = {(one["infra"], one["spot"]): one["usd_per_hour"] for one in record["places"]}
        return sum(
            one.billed_s(now) / 3600 * prices[f"aws/{one.region}", one.market == "spot"]
            for one in self.machines(record)
        )

    def settled(self, outcome: str, *, late_s: float = 0.0) -> dict[str, Any]:
        """Return the newest launch, which has ended so, has no machine left and a right account.

        Args:
            outcome: how it must have ended.
            late_s: how much longer than they were there its machines may be accounted for.
        """
        record = self.record()
        assert (record["state"], record["outcome"]) == ("ended", outcome), record
        if record["managed"]:
            until(
                lambda: all(one.state == "terminated" for one in self.machines(record)),
                timeout_s=MANAGED_DOWN_S,
                what="the end of the machines of a managed job",
            )
        machines = self.machines(record)
        assert [one.state for one in machines if one.state != "terminated"] == []
        billed, spent = self.billed_usd(record), record["spent_usd"]
        rate = max(one["usd_per_hour"] for one in record["places"]) * record["nodes"]
        begun_s = sum(self._asked_s(one, machines) for one in record["attempts"])
        starts = sum(1 + one["preemptions"] for one in record["attempts"])
        allowed_s = starts * START_S + len(record["attempts"]) * late_s + begun_s
        beside = self._controller_usd(record)
        most = 1.3 * billed + allowed_s / 3600 * rate + beside
        print(f"          spent ${spent:.3f}, billed ${billed:.3f}, at most ${most:.3f}")
        assert billed - 0.01 <= spent <= most + 0.01, "the account is not the bill"
        return record

    @staticmethod
    def _controller_usd(record: Mapping[str, Any]) -> float:
        """Return the most that the engine's controller adds to an account, and no machine's bill.

        It costs from the first question on until the launch is over, and then until it stops.
        """
        per_hour = float(record["controller_usd_per_hour"] or 0)
        if not per_hour or not record["attempts"]:
            return 0.0
        asked = datetime.fromisoformat(record["attempts"][0]["asked_at"])
        ended = datetime.fromisoformat(record["attempts"][-1]["ended_at"])
        hours = (ended - asked).total_seconds() / 3600
        return per_hour * (hours + float(CONTROLLER_IDLE_HOURS))

    def _asked_s(self, attempt: Mapping[str, Any], machines: list[Machine]) -> float:
        """Return how long machines were asked for before one was there.

        It is the engine's time, and longer where this machine has other work.
        """
        asked_s = datetime.fromisoformat(attempt["asked_at"]).timestamp()
        after = [one.launched_s for one in machines if one.launched_s >= asked_s]
        return min(after, default=asked_s) - asked_s

    def _run(
        self, words: tuple[str, ...], timeout_s: float, variables: Mapping[str, str]
    ) -> subprocess.CompletedProcess[str]:
        known = {**self._settings, **variables}
        return self.cloud.run(*words, cwd=self.folder, timeout_s=timeout_s, **known)


def step_lines(results: Path) -> list[dict[str, Any]]:
    """Return the lines of steps in the metrics of a folder of results."""
    path = results / "metrics.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    whole = [json.loads(line) for line in lines if line.endswith("}")]
    return [line for line in whole if isinstance(line["step"], int)]


def whole_checkpoints(results: Path) -> list[int]:
    """Return the steps of the checkpoints of a folder of results that are whole."""
    found = results.glob("checkpoints/step-*/run.json")
    return sorted(int(one.parent.name.removeprefix("step-")) for one in found)


def until(
    true: Callable[[], bool], *, timeout_s: float, what: str = "it", every_s: float = 0.5
) -> None:
    """Wait for something to become true."""
    end = time.monotonic() + timeout_s
    while not true():
        assert time.monotonic() < end, f"{what} did not come true in {timeout_s:.0f} s"
        time.sleep(every_s)
