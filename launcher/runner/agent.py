"""The processes of one machine, started and watched by torchrun's own agent.

`gpuplan run` starts it instead of the torchrun command for two reasons: which process ended how is
left in `ended.json` as facts, and torchrun's long messages go to `torchrun.log`, while the first
process still writes to the terminal.
"""

from __future__ import annotations

import argparse
import gc
import json
import logging
import sys
from pathlib import Path
from typing import Any

from ...catalog.files import write_atomically
from .processes.ending import end_at_once

ENDED_FILE = "ended.json"
LOG_FILE = "torchrun.log"
LOOPBACK = "127.0.0.1"
STREAMS = 3
"""torchrun's word for both standard output and standard error."""


def main(arguments: list[str]) -> int:
    """Run a job on this machine; return 0 when every process ended well."""
    given = _parsed(arguments)
    out_dir: Path = given.out_dir
    if not given.verbose:
        # The processes inherit the file descriptor; only what the agent itself says moves away.
        sys.stderr = (out_dir / LOG_FILE).open("a", encoding="utf-8")
    gc.disable()  # What is imported is never garbage.
    from torch.distributed import run as torchrun
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

    gc.freeze()
    gc.enable()
    logging.captureWarnings(True)
    try:
        torchrun.run(torchrun.parse_args(torchrun_arguments(given)))
    except ChildFailedError as error:
        _leave(out_dir, failures=_failures(error.failures))
        return 1
    except SignalException as error:
        return 128 + error.sigval
    except (OSError, RuntimeError, ValueError) as error:
        lines = str(error).strip().splitlines()
        _leave(out_dir, agent_error=lines[0] if lines else type(error).__name__)
        return 1
    return 0


def torchrun_arguments(given: argparse.Namespace) -> list[str]:
    """Return what torchrun is told: one machine, and only the first process on the terminal."""
    words = [f"--nproc-per-node={given.nproc}", f"--local-addr={LOOPBACK}"]
    words.append(f"--shutdown-timeout={given.grace_s}")
    if given.port is None:
        words.append("--standalone")
    else:
        words += [f"--master-addr={LOOPBACK}", f"--master-port={given.port}"]
    if not given.verbose:
        hidden = ",".join(f"{rank}:{STREAMS}" for rank in range(1, given.nproc))
        words += [f"--log-dir={given.out_dir / 'logs'}", f"--redirects={hidden}"]
    return [*words, "-m", "gpuplan_job", str(given.job)]


def _parsed(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="gpuplan_job.agent")
    parser.add_argument("job", type=Path)
    parser.add_argument("--out-dir", type=Path, required=True)
    parser.add_argument("--nproc", type=int, required=True)
    parser.add_argument("--grace-s", type=int, required=True)
    parser.add_argument("--port", type=int)
    parser.add_argument("--verbose", action="store_true")
    return parser.parse_args(arguments)


def _failures(found: dict[int, Any]) -> list[dict[str, float]]:
    """Return rank, exit code (negative: a signal) and time of each process, the first one first."""
    ended = [
        {"rank": rank, "exit_code": one.exitcode, "time": one.timestamp}
        for rank, one in found.items()
    ]
    return sorted(ended, key=lambda one: one["time"])


def _leave(out_dir: Path, **facts: Any) -> None:
    write_atomically(out_dir / ENDED_FILE, json.dumps(facts, indent=1) + "\n")


if __name__ == "__main__":
    end_at_once(main(sys.argv[1:]))
