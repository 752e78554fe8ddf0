"""A tracker that is not installed is refused before a run begins."""

from __future__ import annotations

import pytest

from gpuplan.catalog.errors import UsageError
from gpuplan.launcher.local.trackers import refuse_missing_trackers
from gpuplan.launcher.runner.training_options import TrainingOptions


def test_what_is_missing_is_named_with_what_installs_it() -> None:
    asked = TrainingOptions(tracker=("wandb", "mlflow"))
    refuse_missing_trackers(asked, find=lambda name: name)
    with pytest.raises(UsageError, match="--tracker mlflow needs alembic") as caught:
        refuse_missing_trackers(asked, find=lambda name: None if name == "alembic" else name)
    assert "pip install 'gpuplan[mlflow]'" in str(caught.value)
    refuse_missing_trackers(TrainingOptions(), find=lambda name: None)
