"""What the guard keeps in the folder of results, and what it finds there of attempts before.

    guard-state.json       this attempt as it stands; its verdict once it has one
    guard-attempts.jsonl   one line for every attempt that has ended

A state that no line follows is that of an attempt whose machine or guard went away; the next
attempt makes its line of it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from .decisions.projection import Projected
from .decisions.spending import Account, Attempt
from .decisions.verdicts import Verdict
from .node.network import NETWORK_FILE
from .orders import Orders

STATE_FILE = "guard-state.json"
ATTEMPTS_FILE = "guard-attempts.jsonl"
FAILURE_FILE = "failure.json"
RECORD_FILE = "record.json"
LEFT_BEHIND = (".failed", FAILURE_FILE, "traceback.txt", NETWORK_FILE)
"""What an earlier attempt has left: removed first, so that it is not taken for this one's."""
STEP = "step-"
CHECKPOINTS = f"checkpoints/{STEP}*/run.json"
LOSS_ERROR = "LossNotFiniteError"


def read_attempts(folder: Path) -> list[Attempt]:
    """Return every attempt that began, the one whose state alone is left among them.

    Raises:
        OSError: a file is there and cannot be read.
    """
    found = {}
    for text in _text(folder / ATTEMPTS_FILE).splitlines():
        attempt = _attempt(text)
        if attempt is not None:
            found[attempt.attempt] = attempt
    last = _attempt(_text(folder / STATE_FILE))
    if last is not None and last.attempt not in found:
        found[last.attempt] = last
    return [found[number] for number in sorted(found)]


def is_damaged(folder: Path) -> bool:
    """Return whether something is there that `read_attempts` cannot read and leaves out.

    Raises:
        OSError: a file is there and cannot be read.
    """
    texts = [*_text(folder / ATTEMPTS_FILE).splitlines(), _text(folder / STATE_FILE)]
    return any(text.strip() and _attempt(text) is None for text in texts)


def write_attempts(folder: Path, attempts: Iterable[Attempt]) -> None:
    """Write the lines of all attempts that have ended.

    Raises:
        OSError: they cannot be written there.
    """
    text = "".join(json.dumps(one.to_dict()) + "\n" for one in attempts)
    _replace(folder / ATTEMPTS_FILE, text)


def run_record(folder: Path, run_id: str) -> str:
    """Return the run record that the runner has left, on one line; empty where there is none.

    Raises:
        OSError: it is there and cannot be read.
    """
    text = _text(folder / RECORD_FILE)
    try:
        record = json.loads(text) if text else None
    except ValueError:
        return ""
    if not isinstance(record, dict) or record.get("id") != run_id:
        return ""
    return json.dumps(record)


def state(
    orders: Orders,
    account: Account,
    *,
    paid_s: float,
    step: int | None,
    projection: Projected | None,
    verdict: Verdict | None,
    network: str | None = None,
) -> dict[str, Any]:
    """Return what the state file holds: the attempt's line, and what all attempts add up to."""
    so_far = account.so_far(paid_s, step, None if verdict is None else verdict.to_dict())
    return {
        "run_id": orders.run_id,
        **so_far.to_dict(),
        "spent_usd": account.spent_usd(paid_s),
        "waited_usd": account.waited_usd,
        "hours": account.hours(paid_s),
        "usd_per_hour": account.usd_per_hour,
        "projection": None if projection is None else projection.to_dict(),
        "network": network,
    }


def write_state(folder: Path, values: Mapping[str, Any]) -> None:
    """Write the state.

    Raises:
        OSError: it cannot be written there.
    """
    _replace(folder / STATE_FILE, json.dumps(values, indent=1) + "\n")


def saved_step(folder: Path) -> int:
    """Return the step of the newest checkpoint of gpuplan's runner, 0 where there is none.

    Raises:
        OSError: the folder cannot be read.
    """
    names = [path.parent.name for path in folder.glob(CHECKPOINTS)]
    steps = [int(name[len(STEP) :]) for name in names if name[len(STEP) :].isdigit()]
    return max(steps, default=0)


def clear(folder: Path) -> None:
    """Remove what a failed attempt left behind."""
    for name in LEFT_BEHIND:
        try:
            (folder / name).unlink()
        except FileNotFoundError:
            continue


def loss_is_bad(folder: Path) -> bool:
    """Return whether the runner left that its loss is no number."""
    try:
        values = json.loads(_text(folder / FAILURE_FILE))
    except (OSError, ValueError):
        return False
    return isinstance(values, dict) and values.get("class") == LOSS_ERROR


def _attempt(text: str) -> Attempt | None:
    try:
        return Attempt.from_dict(json.loads(text))
    except (AttributeError, KeyError, TypeError, ValueError):
        return None


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return ""


def _replace(path: Path, text: str) -> None:
    """Write a file whole or not at all."""
    scratch = path.with_name(f".{path.name}.tmp")
    with scratch.open("w", encoding="utf-8") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
    os.replace(scratch, path)
