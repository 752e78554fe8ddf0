"""Whose measurements of a device are used: the user's, the embedded ones, or none."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dtypes import multiplies_in

from gpuplan.catalog.errors import UsageError
from gpuplan.catalog.snapshot import load_catalogue
from gpuplan.profiles.curves.attention import BACKWARD_OVER_FORWARD
from gpuplan.profiles.curves.choice import USUAL_CURVES, CurveChoice
from gpuplan.profiles.curves.device_curves import DeviceCurves, curves_for
from gpuplan.profiles.curves.files import measured_accelerators
from gpuplan.profiles.curves.user_curves import curves_dir, refuse_unreadable

H200 = "H200-141GB-SXM"
ATTENTION = {"batch_heads": [16, 64], "seq": [1024, 4096], "group": [1]}


def device(name: str, *given: Path, without_own: bool = False) -> DeviceCurves:
    choice = CurveChoice(given=given)
    return curves_for(load_catalogue().accelerators[name], choice, without_own=without_own)


def write(path: Path, accelerator: str = H200, **parts: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    facts = {"schema_version": 1, "accelerator": accelerator, "version": "1", "sources": ["test"]}
    path.write_text(json.dumps(facts | parts))
    return path


def grid(time_us: float) -> dict[str, object]:
    nodes = [1024, 4096]
    times = [time_us * m * n * k / 1024**3 for m in nodes for n in nodes for k in nodes]
    return {"m": nodes, "n": nodes, "k": nodes, "time_us": times, "relative_error": 0.01}


def gemm_us(curves: DeviceCurves, dtype: str = "bf16") -> float:
    return float(curves.gemm_s(1024, 1024, 1024, dtype=dtype)) * 1e6


def test_a_file_in_the_data_folder_is_used_before_the_embedded_one():
    embedded = gemm_us(device(H200))
    write(curves_dir() / "mine.json", gemm_grids={"bf16": grid(123.0)})
    assert gemm_us(device(H200)) == pytest.approx(123.0)
    assert gemm_us(device(H200)) > 2 * embedded
    assert gemm_us(device("H100-80GB-SXM")) < 50, "another device keeps its own"


def test_parts_that_the_file_lacks_are_the_embedded_ones():
    before = device(H200)
    write(curves_dir() / "mine.json", gemm_grids={"bf16": grid(123.0)})
    after = device(H200)
    assert gemm_us(after, "fp8") > 2 * gemm_us(before, "fp8"), "follows the own 16-bit products"
    assert after.collective_s("all_reduce", 1e8, 8) == before.collective_s("all_reduce", 1e8, 8)
    assert after.basis_of("attention") == "measured"


def test_a_changed_file_is_read_again(tmp_path: Path):
    path = write(curves_dir() / "mine.json", gemm_grids={"bf16": grid(123.0)})
    assert gemm_us(device(H200)) == pytest.approx(123.0)
    write(path, gemm_grids={"bf16": grid(150.0)})
    assert gemm_us(device(H200)) == pytest.approx(150.0)


def test_a_given_file_wins_over_the_environment_and_that_over_the_folder(tmp_path, monkeypatch):
    for place, time_us in ((curves_dir(), 120.0), (tmp_path / "env", 130.0), (tmp_path, 140.0)):
        write(place / "c.json", gemm_grids={"bf16": grid(time_us)})
    assert gemm_us(device(H200)) == pytest.approx(120.0)
    monkeypatch.setenv("GPUPLAN_CURVES", str(tmp_path / "env" / "c.json"))
    assert gemm_us(device(H200)) == pytest.approx(130.0)
    assert gemm_us(device(H200, tmp_path / "c.json")) == pytest.approx(140.0)
    assert gemm_us(device(H200)) == pytest.approx(130.0)


def test_a_broken_file_is_refused_where_it_was_given_and_passed_over_in_the_folder(tmp_path):
    (tmp_path / "broken.json").write_text("{}")
    with pytest.raises(UsageError, match="it has no schema_version"):
        refuse_unreadable(CurveChoice(given=(tmp_path / "broken.json",)))
    (tmp_path / "model.py").write_text("import torch")
    with pytest.raises(UsageError, match=r"model\.py is not a curve file: it is not JSON"):
        refuse_unreadable(CurveChoice(given=(tmp_path / "model.py",)))
    with pytest.raises(UsageError, match="cannot be read"):
        refuse_unreadable(CurveChoice(given=(tmp_path / "no",)))
    embedded = gemm_us(device(H200))
    curves_dir().mkdir(parents=True)
    (curves_dir() / "broken.json").write_text("[]")
    assert gemm_us(device(H200)) == embedded


def test_a_measured_backward_takes_the_place_of_the_multiple_of_the_forward(tmp_path):
    shape = (2, 32, 32, 4096, 4096, 128)
    forward = {"head_dim": 128, **ATTENTION, "time_us": [10.0, 100.0, 40.0, 600.0]}
    backward = {"head_dim": 128, **ATTENTION, "time_us": [25.0, 250.0, 100.0, 1500.0]}
    parts: dict[str, Any] = {
        "attention_forward": {"relative_error": 0.02, "grids": {"bf16": [forward]}}
    }
    only = write(tmp_path / "forward.json", **parts)
    both = write(
        tmp_path / "both.json",
        **parts,
        attention_backward={"relative_error": 0.03, "grids": {"bf16": [backward]}},
    )

    def seconds(path: Path, *, is_backward: bool) -> float:
        mine = device(H200, path)
        return float(mine.attention_s(*shape, causal=True, dtype="bf16", backward=is_backward))

    assert seconds(only, is_backward=False) == pytest.approx(600e-6)
    assert seconds(only, is_backward=True) == pytest.approx(600e-6 * BACKWARD_OVER_FORWARD)
    assert seconds(both, is_backward=False) == pytest.approx(600e-6)
    assert seconds(both, is_backward=True) == pytest.approx(1500e-6)


def test_fp32_measured_as_a_grid_is_used_as_one(tmp_path):
    path = write(tmp_path / "c.json", "T4", gemm_grids={"fp32": grid(900.0)}, tile_models={
        "fp32": {"linear": {"efficiency": 0.9, "tile": 128, "k_half": 32, "wave_exponent": 0.5,
                            "relative_error": 0.1}}})  # fmt: skip
    mine = device("T4", path)
    assert gemm_us(mine, "fp32") == pytest.approx(900.0)
    assert mine.basis_of("gemm", "fp32") == "measured"
    assert mine.relative_error("gemm", "fp32") == 0.01


def test_measured_convolutions_and_copies_are_used(tmp_path):
    facts = {"share_of_gemm": 0.4, "backward_slowdown": 2.0, "relative_error": 0.05}
    memory = {k: {"fraction": f, "relative_error": 0.02} for k, f in
              (("pointwise", 0.9), ("copy", 0.5), ("embedding", 0.25))}  # fmt: skip
    path = write(
        tmp_path / "c.json", convolutions={"bf16": facts}, memory=memory, kernel_floor_us=1.0
    )
    shape = (256, 256, 256, 9, 3136)
    work = {"flops": 2 * 256 * 256 * 256 * 9 * 3136.0, "bytes": 1e9, "dtype": "bf16"}
    plain = device(H200)
    mine = device(H200, path)
    assert mine.conv_s(*shape, **work) > 1.8 * plain.conv_s(*shape, **work)
    forward, backward = (mine.conv_s(*shape, **work, phase=p) for p in ("forward", "backward"))
    assert backward == pytest.approx(2.0 * forward)
    assert mine.memory_fraction("copy") == 0.5
    assert mine.memory_fraction("embedding") == 0.25
    assert mine.memory_fraction("optimizer") == 0.9, "as pointwise where it was not measured"
    assert float(mine.memory_bound_s(0)) == pytest.approx(1e-6)


@pytest.mark.parametrize("name", measured_accelerators())
def test_every_measured_device_can_be_predicted_without_its_own_curves(name: str):
    own, left_out = device(name), device(name, without_own=True)
    dtype = "bf16" if multiplies_in(own.device, "bf16") else "fp32"
    for kind in ("gemm", "attention", "memory_bound", "collective"):
        assert left_out.relative_of(kind, dtype) != name
        assert left_out.basis_of(kind, dtype) == "derived"
        assert left_out.relative_error(kind, dtype) > 0.05
    ratio = left_out.gemm_s(8192, 8192, 8192, dtype=dtype) / own.gemm_s(
        8192, 8192, 8192, dtype=dtype
    )
    assert 0.5 < float(ratio) < 2
    assert left_out.attention_s(4, 16, 16, 2048, 2048, 128, causal=True, dtype=dtype) > 0
    assert left_out.memory_bound_s(1e9) > 0


def test_leaving_out_holds_for_the_user_s_file_too():
    write(curves_dir() / "mine.json", gemm_grids={"bf16": grid(123.0)})
    without = USUAL_CURVES.without([H200])
    devices = load_catalogue().accelerators
    left_out = curves_for(devices[H200], without)
    assert curves_for(devices["H100-80GB-SXM"], without).basis == "measured"
    assert left_out.relative_of("gemm") == "H100-80GB-SXM"
    assert gemm_us(left_out) == gemm_us(device(H200, without_own=True)) != gemm_us(device(H200))
    assert np.isfinite(gemm_us(left_out))


def test_a_choice_never_changes_and_leaves_out_more_and_more(tmp_path):
    mine = CurveChoice(given=(tmp_path / "c.json",))
    both = mine.without([H200]).without(["T4"])
    assert (both.given, both.left_out) == (mine.given, {H200, "T4"})
    assert mine.left_out == frozenset() == USUAL_CURVES.left_out
    assert len({mine, both, both.without([H200])}) == 2
    with pytest.raises(AttributeError):
        mine.given = ()  # pyright: ignore[reportAttributeAccessIssue]
