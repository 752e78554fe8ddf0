"""Launches as the store keeps them, with a task in a folder and a context around a fake engine."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import yaml
from fake_engine import Clock, FakeEngine

from gpuplan.launcher.lifecycle.context import LaunchContext
from gpuplan.launcher.lifecycle.transitions import ask, begin, wait_started
from gpuplan.launcher.store.estimates import Store
from gpuplan.launcher.store.launch_record import LaunchRecord, PricedPlace
from gpuplan.launcher.store.launches import Ledger
from gpuplan.launcher.store.spending_limits import SpendingLimits

RUN = "net-20261122-120000-a1b2c3"


def make_record(folder: Path, clock: Clock, *, run: str = RUN, **changes: Any) -> LaunchRecord:
    """Return a launch of one node that costs $36 an hour, with its task written."""
    facts: dict[str, Any] = {
        "run": run,
        "created_at": clock(),
        "plan": "24d0a27b1e",
        "title": "dp8 mb4 bf16-amp on 1 x p4d.24xlarge",
        "model": "net",
        "project": "net",
        "owner": "ann",
        "folder": str(folder / run),
        "cluster": f"gp-net-{run[-6:]}",
        "managed": False,
        "nodes": 1,
        "places": (PricedPlace(infra="aws/us-east-1", usd_per_hour=Decimal(36)),),
        "usd_expected": Decimal(40),
        "usd_low": Decimal(38),
        "usd_high": Decimal(45),
        "usd_worst": Decimal(60),
        "reserved_usd": Decimal(60),
        "billing_increment_s": 1.0,
        "minimum_s": 60.0,
        "results": f"s3://results/team/{run}",
        "out_dir": f"/outputs/{run}",
        "pid": os.getpid(),
        "host": platform.node(),
    }
    record = LaunchRecord(**{**facts, **changes})
    path = Path(record.folder)
    path.mkdir(parents=True, exist_ok=True)
    resources: dict[str, Any] = {"labels": {"gpuplan-run": run, "gpuplan-owner": record.owner}}
    if record.managed:
        resources["use_spot"] = True
    task = {
        "name": record.cluster,
        "num_nodes": record.nodes,
        "resources": resources,
        "run": "true",
    }
    (path / "task.yaml").write_text(yaml.safe_dump(task))
    return record


def make_context(
    path: Path, engine: FakeEngine, *, on_orders: Callable[..., None] | None = None, **changes: Any
) -> LaunchContext:
    """Return a launch context whose store is a file in a folder."""
    said: list[str] = []

    def write_orders(record: LaunchRecord, at: datetime, _at_most_usd: Decimal | None) -> None:
        if on_orders is not None:
            on_orders(record, at)

    facts: dict[str, Any] = {
        "ledger": Ledger(Store(path / "store.sqlite3"), now=engine.clock),
        "engine": engine,
        "now": engine.clock,
        "tell": said.append,
        "write_orders": write_orders,
    }
    return LaunchContext(**{**facts, **changes})


def launched(context: LaunchContext, record: LaunchRecord) -> LaunchRecord:
    """Return a launch whose job is submitted."""
    begun = begin(context, record, SpendingLimits(), spot=record.managed)
    return wait_started(context, ask(context, begun))


def launched_with_orders(context: LaunchContext, made: LaunchRecord, *, spot: bool) -> LaunchRecord:
    """Return a launch once its job runs, with orders of its guard in its folder."""
    job = Path(made.folder) / "job"
    job.mkdir()
    orders = {"run_id": RUN, "usd_per_hour": 36.0, "requested_at_s": 0.0}
    projection = {"total_steps": 100, "action": "ask"}
    (job / "guard.json").write_text(json.dumps({**orders, "projection": projection}))
    return wait_started(context, ask(context, begin(context, made, SpendingLimits(), spot=spot)))
