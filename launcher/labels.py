"""The labels of a launch's machines: for which run they are, whose, and which store keeps it.

SkyPilot hands them to every cloud that has labels or tags, so that machines can be told apart where
several people, laptops or stores share an account.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

RUN_LABEL = "gpuplan-run"
STORE_LABEL = "gpuplan-store"
"""The random id of the store that keeps the launch (`Store.id`)."""
OWNER_LABEL = "gpuplan-owner"


def with_store(config: Mapping[str, Any], store_id: str) -> dict[str, Any]:
    """Return a task with the id of its store among the labels."""
    resources = config.get("resources") or {}
    labels = {**(resources.get("labels") or {}), STORE_LABEL: store_id}
    return {**config, "resources": {**resources, "labels": labels}}
