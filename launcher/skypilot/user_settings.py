"""What the user's own settings of SkyPilot say, as far as a launch depends on it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

NAMED_CONFIG = "SKYPILOT_GLOBAL_CONFIG"
"""The variable that names the settings, where they are not in the home (SkyPilot 0.14,
sky/skypilot_config.py)."""
CONFIG = Path(".sky", "config.yaml")
"""Below the home."""


@dataclass(frozen=True, kw_only=True)
class AwsSettings:
    """How machines on AWS are reached, by the user's settings."""

    internal_ips: bool | None = None
    """Whether they have internal addresses alone; None where nothing is said."""
    has_proxy: bool = False
    """Whether the settings say how such machines are reached."""


def user_settings(environment: Mapping[str, str], home: Path) -> Any:
    """Return the settings as they are written; None where there are none that can be read."""
    path = Path(environment.get(NAMED_CONFIG) or home / CONFIG).expanduser()
    try:
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError):
        return None


def setting(settings: Any, *names: str) -> Any:
    """Return one of them; None where it is not set.

    >>> setting({"aws": {"use_ssm": True}}, "aws", "use_ssm")
    True
    """
    for name in names:
        settings = settings.get(name) if isinstance(settings, dict) else None
    return settings


def aws_settings(environment: Mapping[str, str], home: Path) -> AwsSettings:
    """Return how machines on AWS are reached, by the user's settings."""
    found = user_settings(environment, home)
    internal = setting(found, "aws", "use_internal_ips")
    proxy = setting(found, "aws", "ssh_proxy_command")
    return AwsSettings(
        internal_ips=internal if isinstance(internal, bool) else None,
        # With `use_ssm: false` and no proxy they are reached from inside their own network.
        has_proxy=bool(proxy) or setting(found, "aws", "use_ssm") is False,
    )
