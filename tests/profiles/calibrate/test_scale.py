"""Curves whose kernels all take so many times as long."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from gpuplan.catalog.snapshot import load_catalogue
from gpuplan.profiles.calibrate.scale import own_record, scaled
from gpuplan.profiles.curves.choice import USUAL_CURVES, CurveChoice
from gpuplan.profiles.curves.device_curves import curves_for
from gpuplan.profiles.curves.files import CURVES_DIR, measured_accelerators, read_curve_file


def raw(name: str) -> dict:
    return json.loads((CURVES_DIR / f"{name}.json").read_text())


@pytest.mark.parametrize("name", measured_accelerators())
def test_every_embedded_file_stays_a_curve_file(name: str, tmp_path: Path) -> None:
    path = tmp_path / "curves.json"
    path.write_text(json.dumps(scaled(raw(name), 1.25)))
    before, after = read_curve_file(CURVES_DIR / f"{name}.json"), read_curve_file(path)
    for dtype, grid in before.gemm_grids.items():
        ratio = after.gemm_grids[dtype].log_time - grid.log_time
        assert np.allclose(ratio, np.log(1.25), atol=1e-4)
    for dtype, grids in before.attention_grids.items():
        for one, other in zip(grids, after.attention_grids[dtype], strict=True):
            assert np.allclose(other.log_time - one.log_time, np.log(1.25), atol=1e-4)
    for kind, streams in before.memory.items():
        assert after.memory[kind].fraction == pytest.approx(streams.fraction / 1.25, rel=1e-4)
    assert after.collectives.keys() == before.collectives.keys()


def test_a_factor_of_one_changes_nothing() -> None:
    record = raw("A100-80GB-SXM")
    changed = scaled(record, 1.0)
    assert changed["gemm_grids"] == record["gemm_grids"] and changed is not record


def test_a_kernel_takes_so_many_times_as_long(tmp_path: Path) -> None:
    path = tmp_path / "curves.json"
    path.write_text(json.dumps(scaled(raw("A100-80GB-SXM"), 1.3)))
    device = load_catalogue().accelerators["A100-80GB-SXM"]
    usual = curves_for(device)
    slower = curves_for(device, choice=CurveChoice(given=(path,)))
    for curves, factor in ((usual, 1.0), (slower, 1.3)):
        found = curves.gemm_s(8192, 4096, 4096, dtype="bf16")
        assert found == pytest.approx(
            factor * usual.gemm_s(8192, 4096, 4096, dtype="bf16"), rel=1e-3
        )


def test_a_file_of_the_user_is_laid_over_the_embedded_one(tmp_path: Path) -> None:
    assert own_record("TPU-v5e", USUAL_CURVES) is None
    embedded = raw("A100-80GB-SXM")
    path = tmp_path / "mine.json"
    mine = {
        "schema_version": 1,
        "accelerator": "A100-80GB-SXM",
        "version": "mine",
        "sources": ["me"],
        "memory": {"copy": {"fraction": 0.5, "relative_error": 0.1}},
    }
    path.write_text(json.dumps(mine))
    found = own_record("A100-80GB-SXM", CurveChoice(given=(path,)))
    assert found is not None
    assert found["version"] == "mine" and found["memory"] == mine["memory"]
    assert found["gemm_grids"] == embedded["gemm_grids"]
