"""What a machine says of itself: torch in a process of its own, the driver, folders, extras."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from ...catalog.paths import cache_dir, config_dir, data_dir

ASKING_LIMIT_S = 120.0
EXTRAS = {
    "aws": "boto3",
    "sky": "sky",
    "hf": "transformers",
    "report": "vl_convert",
}
"""Extra of `pip install gpuplan[…]` → a module that it brings."""


@dataclass(frozen=True, kw_only=True)
class DeviceFacts:
    """One CUDA device."""

    name: str
    capability: str
    visible_bytes: int | None = None
    free_bytes: int | None = None
    error: str | None = None
    """Why a small product failed on it."""


@dataclass(frozen=True, kw_only=True)
class TorchFacts:
    """What torch says."""

    import_error: str | None = None
    version: str | None = None
    cuda_build: str | None = None
    rocm_build: str | None = None
    cuda_error: str | None = None
    cudnn: int | None = None
    nccl: str | None = None
    gloo: bool = False
    built_for: tuple[str, ...] = ()
    devices: tuple[DeviceFacts, ...] = ()
    peers: tuple[tuple[int, int], ...] = ()
    """Pairs of devices that read each other's memory, the lower number first."""


@dataclass(frozen=True, kw_only=True)
class MachineFacts:
    """What the machine says."""

    torch: TorchFacts
    driver: str | None = None
    """Version of the NVIDIA driver; None without one."""
    visible_devices: str | None = None
    """The variable CUDA_VISIBLE_DEVICES, if set."""
    extras: dict[str, bool] = field(default_factory=dict)
    has_nvml: bool = False
    folders: dict[str, tuple[Path, bool, int | None]] = field(default_factory=dict)
    """What it is for → folder, whether it can be written, free bytes of its disk."""
    shared_bytes: int | None = None
    """Size of /dev/shm; None where there is none."""


def gather() -> MachineFacts:
    """Ask the machine; what cannot be asked stays None."""
    folders = {"cache": cache_dir(), "plans": data_dir(), "settings": config_dir()}
    return MachineFacts(
        torch=_ask_torch(),
        driver=_driver(),
        visible_devices=os.environ.get("CUDA_VISIBLE_DEVICES"),
        extras={extra: _is_installed(module) for extra, module in EXTRAS.items()},
        has_nvml=_is_installed("pynvml") or shutil.which("nvidia-smi") is not None,
        folders={what: (folder, *_room_in(folder)) for what, folder in folders.items()},
        shared_bytes=_disk_bytes(Path("/dev/shm"), "total"),
    )


def _ask_torch() -> TorchFacts:
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-m", f"{__package__}.torch_facts"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=ASKING_LIMIT_S,
        )
    except subprocess.TimeoutExpired:
        return TorchFacts(import_error=f"it did not answer within {ASKING_LIMIT_S:.0f} s")
    try:
        return torch_facts_of(json.loads(done.stdout))
    except ValueError:
        why = f"the process that imported it ended with exit code {done.returncode}"
        return TorchFacts(import_error=why)


def torch_facts_of(values: dict[str, Any]) -> TorchFacts:
    """Return the facts that `doctor_torch` printed."""
    lists = {
        "built_for": tuple(values.get("built_for", ())),
        "devices": tuple(DeviceFacts(**device) for device in values.get("devices", ())),
        "peers": tuple((one, other) for one, other in values.get("peers", ())),
    }
    return TorchFacts(**{**values, **lists})


def _driver() -> str | None:
    """Return the version of the NVIDIA driver; "unknown" if it is there and does not say."""
    try:
        done = subprocess.run(
            ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"],
            capture_output=True,
            text=True,
            timeout=ASKING_LIMIT_S,
        )
        if done.returncode == 0 and done.stdout.strip():
            return done.stdout.split()[0]
    except (OSError, subprocess.SubprocessError):
        pass
    return "unknown" if Path("/proc/driver/nvidia/version").exists() else None


def _room_in(folder: Path) -> tuple[bool, int | None]:
    """Return whether a folder, or what it would be made in, can be written, and its free bytes."""
    nearest = next((one for one in (folder, *folder.parents) if one.exists()), folder)
    return os.access(nearest, os.W_OK) and nearest.is_dir(), _disk_bytes(nearest, "free")


def _disk_bytes(folder: Path, which: Literal["total", "free"]) -> int | None:
    try:
        return getattr(shutil.disk_usage(folder), which)
    except OSError:
        return None


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False
