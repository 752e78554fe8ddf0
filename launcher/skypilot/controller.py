"""Whether SkyPilot runs managed jobs from a machine of its own, which is paid for."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

NAMED_CONFIG = "SKYPILOT_GLOBAL_CONFIG"
"""The variable that names the settings, where they are not in the home (SkyPilot 0.14,
sky/skypilot_config.py)."""
CONFIG = Path(".sky", "config.yaml")
"""Below the home."""
SETTING = ("jobs", "controller", "consolidation_mode")


def has_controller_machine(environment: Mapping[str, str], home: Path) -> bool:
    """Return whether managed jobs have a machine as their controller, by the user's settings.

    A local server has one unless `jobs.controller.consolidation_mode` is set (SkyPilot 0.14,
    sky/jobs/utils.py, setup_consolidation_mode_on_startup). What a team's server does is not known
    from here, nor is what cannot be read: then it is taken to have one, which costs more.
    """
    path = Path(environment.get(NAMED_CONFIG) or home / CONFIG).expanduser()
    try:
        setting: Any = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError):
        return True
    for name in SETTING:
        setting = setting.get(name) if isinstance(setting, dict) else None
    return setting is not True
