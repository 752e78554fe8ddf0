"""What of this machine works with gpuplan, what does not, and how to mend it.

`doctor_machine.gather` asks the machine; `diagnose` evaluates the answers, and asks nothing itself.
"""

from __future__ import annotations

import platform
import sys
from pathlib import Path
from typing import Literal

from ...catalog.errors import GpuplanError
from ...catalog.frozen import FrozenModel
from ...catalog.names import resolve_accelerator
from ...catalog.snapshot import Catalogue, load_catalogue
from ...catalog.types import Accelerator
from ...catalog.units import GIB, MIB
from ...catalog.version import VERSION
from .machine import DeviceFacts, MachineFacts, TorchFacts, gather

DOCTOR_SCHEMA_VERSION = "1.0"
State = Literal["ok", "note", "broken"]
"""note: works, but something is missing or worth knowing."""
OLDEST_TORCH = (2, 13)
SMALL_DISK_BYTES = GIB
SMALL_SHARED_BYTES = GIB
SAME_MEMORY_WITHIN = 0.02
IN_USE_BYTES = GIB
"""A device of which more is taken before we begin is used by somebody else."""
INSTALL_TORCH = "install a build of torch for your CUDA version: https://pytorch.org/get-started"


class Check(FrozenModel):
    """One thing that was looked at."""

    name: str
    state: State
    found: str
    fix: str | None = None


class Diagnosis(FrozenModel):
    """All that was looked at."""

    schema_version: str = DOCTOR_SCHEMA_VERSION
    gpuplan_version: str
    checks: tuple[Check, ...]

    @property
    def broken(self) -> int:
        """Return how many things are broken."""
        return sum(check.state == "broken" for check in self.checks)


def examine() -> Diagnosis:
    """Return what is right and wrong with this machine."""
    return diagnose(gather(), load_catalogue())


def diagnose(facts: MachineFacts, catalogue: Catalogue) -> Diagnosis:
    """Return what the facts mean.

    Args:
        facts: What the machine and torch said.
        catalogue: What is known of accelerators.
    """
    torch = facts.torch
    checks = [Check(name="gpuplan", state="ok", found=f"{VERSION}, Python {_python()}")]
    checks.append(_torch(torch))
    if torch.import_error is None:
        checks.append(_cuda(facts))
        for place, device in enumerate(torch.devices):
            checks.append(_device(place, device, torch, catalogue))
        if len(torch.devices) > 1:
            checks.append(_links(torch))
        checks.append(_distributed(torch))
    if torch.devices:
        checks.append(_clocks(facts))
    checks += [_folder(what, *found) for what, found in facts.folders.items()]
    if facts.shared_bytes is not None:
        checks.append(_shared(facts.shared_bytes))
    checks.append(_extras(facts.extras))
    return Diagnosis(gpuplan_version=VERSION, checks=tuple(checks))


# --- what the facts mean ---------------------------------------------------------------------


def _torch(torch: TorchFacts) -> Check:
    if torch.import_error is not None:
        return Check(
            name="torch",
            state="broken",
            found=f"cannot be imported: {torch.import_error}",
            fix=f"pip install 'torch>={'.'.join(map(str, OLDEST_TORCH))}' into {sys.prefix}.",
        )
    builds = [("CUDA", torch.cuda_build), ("ROCm", torch.rocm_build)]
    build = next((f"built for {name} {version}" for name, version in builds if version), None)
    text = f"{torch.version}, {build or 'a build for processors only'}"
    numbers = tuple(int(part) for part in str(torch.version).split(".")[:2] if part.isdigit())
    if numbers < OLDEST_TORCH:
        oldest = ".".join(map(str, OLDEST_TORCH))
        return Check(
            name="torch",
            state="broken",
            found=f"{text}; gpuplan needs {oldest} or newer",
            fix=f"pip install --upgrade 'torch>={oldest}'.",
        )
    return Check(name="torch", state="ok", found=text)


def _cuda(facts: MachineFacts) -> Check:
    torch = facts.torch
    if torch.devices:
        driver = f" · driver {facts.driver}" if facts.driver else ""
        cudnn = f" · cuDNN {torch.cudnn}" if torch.cudnn else ""
        return Check(name="CUDA", state="ok", found=f"works{driver}{cudnn}")
    if facts.driver is None:
        return Check(
            name="CUDA",
            state="note",
            found="no NVIDIA driver: this is a machine without a CUDA device. Estimates, traces,"
            " prices and validation work; `profile --measure` runs on the processor.",
        )
    if torch.cuda_build is None:
        return Check(
            name="CUDA",
            state="broken",
            found=f"there is an NVIDIA driver ({facts.driver}), but torch is a build without CUDA",
            fix=f"{INSTALL_TORCH}.",
        )
    return _cuda_without_device(facts)


def _cuda_without_device(facts: MachineFacts) -> Check:
    reason = facts.torch.cuda_error or "torch finds no device"
    fix = "run nvidia-smi: if it fails as well, reinstall the driver and restart the machine."
    if facts.visible_devices in ("", "-1", "NoDevFiles"):
        reason = f"CUDA_VISIBLE_DEVICES={facts.visible_devices!r} hides every device"
        fix = "unset CUDA_VISIBLE_DEVICES."
    elif "driver" in reason and ("too old" in reason or "insufficient" in reason):
        fix = (
            f"update the NVIDIA driver ({facts.driver}), or {INSTALL_TORCH} that is older than"
            f" {facts.torch.cuda_build}."
        )
    return Check(name="CUDA", state="broken", found=reason, fix=fix)


def _device(place: int, device: DeviceFacts, torch: TorchFacts, catalogue: Catalogue) -> Check:
    name = f"device {place}"
    text = f"{device.name}, compute capability {device.capability}"
    if not _has_kernels(device.capability, torch.built_for):
        return Check(
            name=name,
            state="broken",
            found=f"{text}: this build of torch has no kernels for it (only for"
            f" {', '.join(torch.built_for)})",
            fix=f"{INSTALL_TORCH} that still supports it (CUDA 13 begins at capability 7.5).",
        )
    if device.error is not None or device.visible_bytes is None:
        return Check(
            name=name,
            state="broken",
            found=f"{text}: a small product failed: {device.error}",
            fix="end other programs on the device, or restart the machine.",
        )
    notes = [_compared(device, catalogue)]
    free_bytes = device.visible_bytes if device.free_bytes is None else device.free_bytes
    used_bytes = device.visible_bytes - free_bytes
    if used_bytes > IN_USE_BYTES:
        notes.append(f"{used_bytes / GIB:.1f} GiB are in use by other processes")
    worth = [note for note in notes if note]
    state: State = "note" if worth else "ok"
    text += f", {device.visible_bytes / GIB:.1f} GiB visible"
    return Check(name=name, state=state, found="; ".join([text, *worth]))


def _has_kernels(capability: str, built_for: tuple[str, ...]) -> bool:
    """Return whether a build holds kernels for a device: of its generation, or PTX of an older.

    >>> _has_kernels("8.6", ("sm_80", "sm_90")), _has_kernels("7.0", ("sm_80", "compute_90"))
    (True, False)
    """
    if not any(one.startswith(("sm_", "compute_")) for one in built_for):
        return True  # Nobody says, or the build is not for CUDA.
    major, _, minor = capability.partition(".")
    for one in built_for:
        kind, _, number = one.partition("_")
        digits = "".join(letter for letter in number if letter.isdigit())
        if len(digits) < 2:
            continue
        has = int(digits[:-1]), int(digits[-1])
        wants = int(major), int(minor)
        if (kind == "sm" and has[0] == wants[0] and has <= wants) or (
            kind == "compute" and has <= wants
        ):
            return True
    return False


def _compared(device: DeviceFacts, catalogue: Catalogue) -> str | None:
    """Return how the device differs from what the catalogue expects; None if it does not."""
    known = _known(device.name, catalogue)
    if known is None:
        return "not in the catalogue, so a measurement on it calibrates no other device"
    expected = known.memory_visible_bytes
    assert device.visible_bytes is not None
    if expected is None or abs(device.visible_bytes / expected - 1) <= SAME_MEMORY_WITHIN:
        return None
    return (
        f"the catalogue expects {expected / GIB:.1f} GiB on {known.name}: a part of a device (MIG),"
        " or another model"
    )


def _known(name: str, catalogue: Catalogue) -> Accelerator | None:
    try:
        return catalogue.accelerators.get(resolve_accelerator(name, catalogue=catalogue))
    except GpuplanError:
        return None


def _links(torch: TorchFacts) -> Check:
    count = len(torch.devices)
    pairs = count * (count - 1) // 2
    if len(torch.peers) == pairs:
        return Check(name="links", state="ok", found=f"all {count} devices reach each other")
    return Check(
        name="links",
        state="note",
        found=f"{len(torch.peers)} of {pairs} pairs of devices reach each other's memory; the rest"
        " goes through the host, which is slow",
        fix="see `nvidia-smi topo -p2p r`; a virtual machine or IOMMU (ACS) may forbid it.",
    )


def _distributed(torch: TorchFacts) -> Check:
    found = [f"NCCL {torch.nccl}"] if torch.nccl else []
    found += ["gloo"] if torch.gloo else []
    if torch.devices and not torch.nccl:
        return Check(
            name="distributed",
            state="broken",
            found="torch was built without NCCL, so several devices cannot train together",
            fix=f"{INSTALL_TORCH}.",
        )
    if not found:
        return Check(name="distributed", state="note", found="neither NCCL nor gloo")
    return Check(name="distributed", state="ok", found=" · ".join(found))


def _clocks(facts: MachineFacts) -> Check:
    if facts.has_nvml:
        return Check(name="clocks", state="ok", found="can be watched while measuring")
    return Check(
        name="clocks",
        state="note",
        found="nobody tells clocks and throttling: neither nvidia-smi nor pynvml is here",
        fix="pip install nvidia-ml-py.",
    )


def _folder(what: str, folder: Path, writable: bool, free_bytes: int | None) -> Check:
    name = f"{what} folder"
    if not writable:
        return Check(
            name=name,
            state="broken",
            found=f"{folder} cannot be written",
            fix="give yourself the right to write there, or set GPUPLAN_HOME to another folder.",
        )
    if free_bytes is not None and free_bytes < SMALL_DISK_BYTES:
        return Check(
            name=name,
            state="note",
            found=f"{folder} has {free_bytes / MIB:.0f} MiB left on its disk",
            fix="free some space.",
        )
    return Check(name=name, state="ok", found=str(folder))


def _shared(shared_bytes: int) -> Check:
    found = f"/dev/shm holds {shared_bytes / GIB:.1f} GiB"
    if shared_bytes >= SMALL_SHARED_BYTES:
        return Check(name="shared memory", state="ok", found=found)
    return Check(
        name="shared memory",
        state="note",
        found=f"{found}: workers of a DataLoader may end with a bus error",
        fix="start the container with --shm-size=8g or --ipc=host.",
    )


def _extras(extras: dict[str, bool]) -> Check:
    here = [extra for extra, installed in extras.items() if installed]
    missing = [extra for extra, installed in extras.items() if not installed]
    found = f"installed: {', '.join(here) or 'none'}"
    if not missing:
        return Check(name="extras", state="ok", found=found)
    return Check(
        name="extras",
        state="note",
        found=f"{found}; not installed: {', '.join(missing)}",
        fix=f"for those that you need: pip install 'gpuplan[{','.join(missing)}]'.",
    )


def _python() -> str:
    return platform.python_version()
