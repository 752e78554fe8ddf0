"""Whether SkyPilot runs managed jobs from a machine of its own, which is paid for."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from .user_settings import setting, user_settings

SETTING = ("jobs", "controller", "consolidation_mode")


def has_controller_machine(environment: Mapping[str, str], home: Path) -> bool:
    """Return whether managed jobs have a machine as their controller, by the user's settings.

    A local server has one unless `jobs.controller.consolidation_mode` is set (SkyPilot 0.14,
    sky/jobs/utils.py, setup_consolidation_mode_on_startup). What a team's server does is not known
    from here, nor is what cannot be read: then it is taken to have one, which costs more.
    """
    return setting(user_settings(environment, home), *SETTING) is not True
