"""The labels of a launch's machines: for which run they are, whose, and which store keeps it.

SkyPilot hands them to every cloud that has labels or tags, so that machines can be told apart where
several people, laptops or stores share an account.
"""

from __future__ import annotations

import getpass
import re
from collections.abc import Mapping
from typing import Any

RUN_LABEL = "gpuplan-run"
STORE_LABEL = "gpuplan-store"
"""The random id of the store that keeps the launch (`Store.id`)."""
OWNER_LABEL = "gpuplan-owner"
LONGEST_LABEL = 63
"""Characters of a label on Google Cloud and Kubernetes, the strictest of all."""
FALLBACK_OWNER = "unknown"


def with_store(config: Mapping[str, Any], store_id: str) -> dict[str, Any]:
    """Return a task with the id of its store among the labels."""
    resources = config.get("resources") or {}
    labels = {**(resources.get("labels") or {}), STORE_LABEL: store_id}
    return {**config, "resources": {**resources, "labels": labels}}


def slug(text: str, *, longest: int = LONGEST_LABEL) -> str:
    """Return a text as every cloud takes it for a label: lower case, digits and hyphens.

    >>> slug("My Project; rm -rf $HOME")
    'my-project-rm-rf-home'
    """
    plain = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    return plain[:longest].rstrip("-") or "unnamed"


def this_user() -> str:
    """Return the name of this machine's user."""
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):
        return FALLBACK_OWNER
