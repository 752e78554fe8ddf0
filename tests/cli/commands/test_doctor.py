"""`gpuplan doctor`: each fault is named with its remedy, and a machine without a GPU is sound."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from gpuplan import api
from gpuplan.catalog.snapshot import load_catalogue
from gpuplan.catalog.units import GIB
from gpuplan.cli.main import run
from gpuplan.cli.render.doctor import render_doctor
from gpuplan.profiles.doctor import machine
from gpuplan.profiles.doctor.checks import Check, diagnose
from gpuplan.profiles.doctor.machine import DeviceFacts, MachineFacts, TorchFacts

H100 = DeviceFacts(
    name="NVIDIA H100 80GB HBM3",
    capability="9.0",
    visible_bytes=85_020_639_232,
    free_bytes=84_500_000_000,
)
PROCESSOR_ONLY = MachineFacts(torch=TorchFacts(version="2.13.0+cpu", gloo=True))
TWO_H100 = MachineFacts(
    driver="580.65",
    has_nvml=True,
    torch=TorchFacts(
        version="2.13.0+cu130",
        cuda_build="13.0",
        cudnn=91002,
        nccl="2.27.3",
        gloo=True,
        built_for=("sm_80", "sm_90", "compute_120"),
        devices=(H100, H100),
        peers=((0, 1),),
    ),
)


def found(facts: MachineFacts, name: str) -> Check:
    checks = {check.name: check for check in diagnose(facts, load_catalogue()).checks}
    return checks[name]


def with_device(**changes: object) -> MachineFacts:
    device = replace(H100, **changes)  # pyright: ignore[reportArgumentType]
    return replace(TWO_H100, torch=replace(TWO_H100.torch, devices=(device,)))


@pytest.mark.parametrize("facts", [PROCESSOR_ONLY, TWO_H100])
def test_nothing_is_broken_on_a_sound_machine(facts: MachineFacts) -> None:
    diagnosis = diagnose(facts, load_catalogue())
    assert diagnosis.broken == 0
    assert render_doctor(diagnosis, width=80)[-1].plain == "Nothing is broken."


def test_without_a_gpu_it_says_what_still_works() -> None:
    check = found(PROCESSOR_ONLY, "CUDA")
    assert check.state == "note"
    assert "Estimates, traces" in check.found and "on the processor" in check.found


def test_a_sound_device_is_compared_with_the_catalogue() -> None:
    check = found(TWO_H100, "device 1")
    assert (check.state, check.fix) == ("ok", None)
    assert "79.2 GiB visible" in check.found
    half = found(with_device(visible_bytes=40 * GIB, free_bytes=40 * GIB), "device 0")
    assert half.state == "note"
    assert "expects 79.2 GiB on H100-80GB-SXM: a part of a device (MIG)" in half.found
    busy = found(with_device(free_bytes=0), "device 0")
    assert "79.2 GiB are in use by other processes" in busy.found
    other = found(with_device(name="NVIDIA Prototype 7"), "device 0")
    assert "not in the catalogue" in other.found


@pytest.mark.parametrize(
    ("facts", "name", "words", "fix"),
    [
        (
            MachineFacts(torch=TorchFacts(import_error="ImportError: libcudart.so.13")),
            "torch",
            "libcudart.so.13",
            "pip install",
        ),
        (
            MachineFacts(torch=TorchFacts(version="2.4.1")),
            "torch",
            "gpuplan needs 2.13 or newer",
            "--upgrade",
        ),
        (
            replace(PROCESSOR_ONLY, driver="580.65"),
            "CUDA",
            "but torch is a build without CUDA",
            "pytorch.org",
        ),
        (
            replace(TWO_H100, driver="470.1", torch=TorchFacts(
                version="2.13.0", cuda_build="13.0", cuda_error="The NVIDIA driver is too old")),
            "CUDA",
            "too old",
            "update the NVIDIA driver (470.1)",
        ),
        (
            replace(TWO_H100, visible_devices="", torch=TorchFacts(
                version="2.13.0", cuda_build="13.0", cuda_error="No CUDA GPUs are available")),
            "CUDA",
            "hides every device",
            "unset CUDA_VISIBLE_DEVICES",
        ),
        (
            with_device(name="Tesla V100-SXM2-16GB", capability="7.0"),
            "device 0",
            "no kernels for it",
            "CUDA 13 begins at capability 7.5",
        ),
        (
            with_device(error="CUDA error: out of memory", visible_bytes=None),
            "device 0",
            "a small product failed: CUDA error: out of memory",
            "end other programs",
        ),
        (
            replace(TWO_H100, torch=replace(TWO_H100.torch, nccl=None)),
            "distributed",
            "without NCCL",
            "pytorch.org",
        ),
        (
            replace(PROCESSOR_ONLY, folders={"cache": (Path("/nowhere"), False, None)}),
            "cache folder",
            "/nowhere cannot be written",
            "GPUPLAN_HOME",
        ),
    ],
)  # fmt: skip
def test_what_is_broken_is_said_with_its_remedy(
    facts: MachineFacts, name: str, words: str, fix: str
) -> None:
    check = found(facts, name)
    assert check.state == "broken"
    assert words in check.found
    assert check.fix is not None and fix in check.fix


@pytest.mark.parametrize(
    ("facts", "name", "words"),
    [
        (replace(TWO_H100, torch=replace(TWO_H100.torch, peers=())), "links", "0 of 1 pairs"),
        (replace(TWO_H100, has_nvml=False), "clocks", "nobody tells clocks"),
        (replace(PROCESSOR_ONLY, shared_bytes=64 * 2**20), "shared memory", "bus error"),
        (
            replace(PROCESSOR_ONLY, folders={"plans": (Path("/home"), True, 2**20)}),
            "plans folder",
            "1 MiB left",
        ),
        (replace(PROCESSOR_ONLY, extras={"aws": False}), "extras", "not installed: aws"),
    ],
)  # fmt: skip
def test_what_is_worth_knowing_is_a_note(facts: MachineFacts, name: str, words: str) -> None:
    check = found(facts, name)
    assert check.state == "note"
    assert words in check.found


def test_facts_cross_from_the_process_that_asks_torch() -> None:
    printed = {
        "version": "2.13.0",
        "devices": [{"name": "L4", "capability": "8.9", "visible_bytes": 1, "free_bytes": 1}],
        "peers": [[0, 1]],
        "built_for": ["sm_90"],
    }
    facts = machine.torch_facts_of(json.loads(json.dumps(printed)))
    assert facts.devices[0].capability == "8.9"
    assert (facts.peers, facts.built_for) == (((0, 1),), ("sm_90",))


def test_the_exit_code_is_1_when_something_is_broken(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    facts = MachineFacts(torch=TorchFacts(import_error="ImportError: no torch"))
    monkeypatch.setattr(api, "doctor", lambda: diagnose(facts, load_catalogue()))
    assert run(["doctor"]) == 1
    shown = capsys.readouterr().out
    assert "✗ torch" in shown and "To fix: pip install" in shown
    assert "1 thing is broken." in shown


def test_a_folder_that_is_not_there_yet_is_judged_by_where_it_would_be_made(tmp_path: Path) -> None:
    writable, free_bytes = machine._room_in(tmp_path / "one" / "two")
    assert writable and free_bytes is not None and free_bytes > 0
    file = tmp_path / "file"
    file.touch()
    assert not machine._room_in(file / "folder")[0]
    assert os.listdir(tmp_path) == ["file"], "looking makes nothing"


@pytest.mark.slow
def test_this_machine_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    code = run(["doctor", "--format", "json", "-q"])
    answer = json.loads(capsys.readouterr().out)
    states = {check["name"]: check["state"] for check in answer["checks"]}
    assert states["torch"] == "ok"
    assert states["cache folder"] == "ok"
    assert code == (1 if "broken" in states.values() else 0)
