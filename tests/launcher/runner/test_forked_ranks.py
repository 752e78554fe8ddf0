"""The fork server of the runner's tests leaves nothing behind."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

SUPPORT = Path(__file__).parents[2] / "support"
STARTS = """
import os, sys
from pathlib import Path
from runner_jobs import make_job, plan_of, start
from ended_runs import GPT2, SIZE
out = Path(sys.argv[1])
ranks = start(make_job(out, GPT2, plan=plan_of(), params=SIZE, steps=100_000))
print(ranks.running[0], flush=True)
os._exit(1)
"""


@pytest.mark.slow
def test_ranks_end_with_the_tests_that_started_them(tmp_path: Path, require) -> None:
    require("linux", "whether a process runs is read in /proc")
    done = subprocess.run(
        [sys.executable, "-c", STARTS, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(SUPPORT)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    rank = int(done.stdout)
    deadline_s = time.monotonic() + 30
    while _exists(rank):
        assert time.monotonic() < deadline_s
        time.sleep(0.05)


def _exists(process: int) -> bool:
    try:
        stat = Path(f"/proc/{process}/stat").read_text()
    except FileNotFoundError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"
