"""MLflow: a database of SQLite in the folder of results, unless MLFLOW_TRACKING_URI names another.

`mlflow ui --backend-store-uri sqlite:///FOLDER/mlflow.db` shows it.
"""

from __future__ import annotations

import importlib
import logging
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

EXPERIMENT = "gpuplan"
MOST_AT_ONCE = 1000
"""Metrics that one request may hold: `log_batch` of MLflow's REST API."""
REFUSED = re.compile(r"[^\w\-. /:]")
"""Characters that the name of a metric may not hold, such as the @ of "recall@5"."""
LONGEST_PARAM = 500
"""Characters of a param that every version of MLflow takes."""


def mlflow_opener(folder: Path, facts: Mapping[str, Any]) -> Callable[[str | None], MlflowRun]:
    """Return what opens a run in MLflow.

    Args:
        folder: of results.
        facts: of the run, kept as its params.

    Raises:
        ImportError: the package is not installed.
    """
    # Nothing leaves this machine that nobody asked for.
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    mlflow = importlib.import_module("mlflow")
    entities = importlib.import_module("mlflow.entities")
    for name in ("mlflow", "alembic"):
        logging.getLogger(name).setLevel(logging.WARNING)  # Else it tells of its tables.

    def open_run(run_id: str | None) -> MlflowRun:
        place = os.environ.get("MLFLOW_TRACKING_URI")
        if not place:
            place = _database(folder / "mlflow.db", mlflow.MlflowClient)
        client = mlflow.MlflowClient(tracking_uri=place)
        known = None if run_id is None else _known(client, run_id, mlflow.MlflowException)
        if known is not None:
            client.update_run(known, status="RUNNING")
            return MlflowRun(client, known, entities.Metric)
        experiment = os.environ.get("MLFLOW_EXPERIMENT_NAME", EXPERIMENT)
        found = client.get_experiment_by_name(experiment)
        where = client.create_experiment(experiment) if found is None else found.experiment_id
        new = client.create_run(where, run_name=folder.name).info.run_id
        params = [entities.Param(name, str(one)[:LONGEST_PARAM]) for name, one in facts.items()]
        client.log_batch(new, params=params)
        return MlflowRun(client, new, entities.Metric)

    return open_run


def _database(path: Path, client: Callable[..., Any]) -> str:
    """Return the address of a database; its many tables are all there before it has its name."""
    if not path.exists():
        scratch = path.with_suffix(".db.tmp")
        scratch.unlink(missing_ok=True)
        client(tracking_uri=f"sqlite:///{scratch}").search_experiments()
        scratch.replace(path)
    return f"sqlite:///{path}"


def _known(client: Any, run_id: str, error: type[Exception]) -> str | None:
    """Return the id if the tracker has such a run; another database has not."""
    try:
        return client.get_run(run_id).info.run_id
    except error:
        return None


class MlflowRun:
    """One run of MLflow."""

    def __init__(self, client: Any, run_id: str, metric: Callable[..., Any]) -> None:
        self._client = client
        self._run_id = run_id
        self._metric = metric

    @property
    def run_id(self) -> str:
        """Return MLflow's own name of it."""
        return self._run_id

    def log(self, rows: Sequence[Mapping[str, float]]) -> None:
        """Add rows of numbers, many in one request."""
        metrics = [one for row in rows for one in self._metrics(row)]
        for begin in range(0, len(metrics), MOST_AT_ONCE):
            self._client.log_batch(self._run_id, metrics=metrics[begin : begin + MOST_AT_ONCE])

    def close(self, *, failed: bool) -> None:
        """Say how it ended."""
        self._client.set_terminated(self._run_id, "FAILED" if failed else "FINISHED")

    def _metrics(self, row: Mapping[str, float]) -> Iterator[Any]:
        time_ms, step = int(row["time"] * 1e3), int(row["step"])
        for name, value in row.items():
            if name not in ("step", "time"):
                yield self._metric(REFUSED.sub("_", name), float(value), time_ms, step)
