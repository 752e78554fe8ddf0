"""From a record file to evaluated rows, with a small model that is really traced."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from gpuplan import api
from gpuplan.api.validation import validate
from gpuplan.catalog.errors import GpuplanError, UserFileError
from gpuplan.planner.predict.kept import reserved_ratio
from gpuplan.planner.validation.errors import PredictionError
from gpuplan.profiles.profile import Profile
from gpuplan.profiles.tracing_process.batch import ProfileRequest, profile_all

SMALL = {
    "layers": 2,
    "hidden": 256,
    "heads": 4,
    "kv_heads": 4,
    "ffn": 1024,
    "ffn_kind": "gelu",
    "vocab": 1000,
    "seq_len": 128,
}
RUN: dict[str, Any] = {
    "model": "decoder.py",
    "params": SMALL,
    "accelerator": "A100-80GB-SXM",
    "source_group": "lab",
    "precision": "bf16-amp",
    "micro_batch": 4,
    "grad_accum": 1,
    "recompute": "none",
    "attention": "fused",
    "compile": False,
    "stack": "torch-eager",
    "optimizer": "adamw",
    "measured": {"step_time_s": 0.01, "peak_memory_gib": 2.0, "memory_meaning": "reserved"},
}
OFFLOADED = ("offloaded", "peak_memory_bytes")


def write(folder: Path, *runs: Mapping[str, Any]) -> Path:
    path = folder / "runs.jsonl"
    path.write_text("\n".join(json.dumps(run) for run in runs))
    return path


def failing(requests: Sequence[ProfileRequest]) -> dict[str, Profile | GpuplanError]:
    return {request.key: UserFileError("model.py:3: boom", fix="mend it") for request in requests}


def time_row(rows: Sequence[PredictionError], name: str) -> PredictionError:
    (row,) = [row for row in rows if (row.id, row.quantity) == (name, "step_time_s")]
    return row


def test_a_record_that_measures_nothing_is_a_skipped_row(tmp_path: Path) -> None:
    answer = validate(write(tmp_path, RUN | {"measured": {"tokens_per_s": 3000}}))
    (row,) = answer.rows
    assert row.skipped == (
        "the record measures nothing: neither step_time_s nor peak_memory_gib, and no oom"
    )
    assert answer.summary == ()


def test_a_peak_above_what_the_device_has_enters_no_mean(tmp_path: Path) -> None:
    total = {"step_time_s": 0.01, "peak_memory_gib": 8 * 40.0}
    of_all, of_one = validate(
        write(tmp_path, RUN | {"id": "a", "measured": total}, RUN | {"id": "b"})
    ).rows[1::2]
    assert of_all.error is None
    assert of_all.skipped is not None
    assert "more than the 80 GiB of A100-80GB-SXM" in of_all.skipped
    assert of_one.error is not None


def test_an_accelerator_of_an_offers_file_is_predicted(tmp_path: Path) -> None:
    path = write(tmp_path, RUN | {"accelerator": "OWN-1"})
    offers = tmp_path / "own.yaml"
    offers.write_text(
        "accelerators:\n  - {name: OWN-1, memory_gib: 48, memory_bandwidth_gb_per_s: 900,"
        " bf16_tflops: 150, fp32_tflops: 40}\n"
    )
    assert {row.skipped for row in api.validate([path]).rows} == {
        "There is no accelerator 'OWN-1'."
    }
    assert all(row.error is not None for row in api.validate([path], offers=offers).rows)


def test_a_model_that_fails_is_a_skipped_row(tmp_path: Path) -> None:
    answer = validate([write(tmp_path, RUN | {"id": "a"})], profiler=failing)
    assert {row.skipped for row in answer.rows} == {"model.py:3: boom"}
    assert answer.summary == ()


def test_layouts_that_do_not_fill_the_machine_are_skipped_before_anything_is_traced(
    tmp_path: Path,
) -> None:
    asked: list[ProfileRequest] = []

    def profiler(requests: Sequence[ProfileRequest]) -> dict[str, Profile | GpuplanError]:
        asked.extend(requests)
        return {}

    split = {"accelerators": 16, "layout": {"data": 2, "tensor": 2, "pipeline": 2}}
    answer = validate([write(tmp_path, RUN | split | {"id": "a"})], profiler=profiler)
    assert answer.rows[0].skipped == "the layout occupies 8 accelerators, the record says 16"
    assert not asked


def test_one_profile_serves_all_runs_of_a_model(tmp_path: Path) -> None:
    asked: list[ProfileRequest] = []

    def profiler(requests: Sequence[ProfileRequest]) -> dict[str, Profile | GpuplanError]:
        asked.extend(requests)
        return failing(requests)

    runs = [
        RUN | {"id": "amp"},
        RUN | {"id": "larger", "micro_batch": 8},
        RUN | {"id": "fp32", "precision": "fp32"},
        RUN | {"id": "megatron", "stack": "megatron"},
    ]
    validate([write(tmp_path, *runs)], profiler=profiler)
    (request,) = asked
    assert request.numerics == {"amp16", "fp32", "pure16"}
    assert request.params["attention"] == "fused"


def test_a_model_file_beside_the_records_comes_before_the_examples(tmp_path: Path) -> None:
    own = tmp_path / "decoder.py"
    own.write_text("def build_model(layers): ...\n")
    asked: list[ProfileRequest] = []

    def profiler(requests: Sequence[ProfileRequest]) -> dict[str, Profile | GpuplanError]:
        asked.extend(requests)
        return failing(requests)

    validate([write(tmp_path, RUN | {"id": "a"})], profiler=profiler)
    assert asked[0].path == own.resolve()
    assert "attention" not in asked[0].params


@pytest.mark.slow
def test_runs_are_predicted_and_judged(tmp_path: Path) -> None:
    unstated = {key: None for key in ("grad_accum", "recompute", "compile", "optimizer")}
    sharded = {"data": 16, "shard": 16, "zero_stage": 3}
    fabric = {"accelerators": 16, "per_node": 8, "inter_node_gbit_s": 1600, "layout": sharded}
    split = {"layout": {"data": 8, "tensor": 2}}
    oom = {"measured": {"oom": True}}
    path = write(
        tmp_path,
        RUN | {"id": "one"},
        RUN | {"id": "unstated", "assumed": []} | unstated,
        RUN | {"id": "sharded"} | fabric,
        RUN | {"id": "forward", "optimizer": "none"},
        RUN | {"id": "oom"} | oom,
        RUN | {"id": "ran", "measured": {"oom": False}},
        RUN | {"id": OFFLOADED[0], "features": ["activation-offload"]} | fabric | split,
        RUN | {"id": "on the host", "offload": True},
        RUN | {"id": "small state", "features": ["8-bit-optimizer", "optimizer-in-backward"]},
    )
    answer = validate([path])
    assert [(row.id, row.quantity) for row in answer.rows if row.skipped] == [OFFLOADED]
    one, unstated_row = time_row(answer.rows, "one"), time_row(answer.rows, "unstated")
    assert one.predicted == unstated_row.predicted
    assert [text.split("=")[0] for text in one.assumed] == ["features"]
    assert len(unstated_row.assumed) == len(unstated) + len(one.assumed)
    assert one.predicted is not None and one.low is not None and one.high is not None
    assert one.low < one.predicted < one.high
    forward = time_row(answer.rows, "forward")
    assert forward.predicted is not None and forward.predicted < one.predicted
    (offloaded,) = [row for row in answer.rows if (row.id, row.quantity) == OFFLOADED]
    assert (
        offloaded.skipped
        == "memory with activation-offload is predicted for data-parallel torch only"
    )
    memory = {row.id: row.predicted for row in answer.rows if row.quantity == "peak_memory_bytes"}
    plain = memory["one"]
    assert plain is not None
    for name in ("on the host", "small state"):
        predicted = memory[name]
        assert predicted is not None and predicted < plain
    hosted = time_row(answer.rows, "on the host")
    assert hosted.predicted is not None and hosted.predicted > one.predicted
    (died,) = [row for row in answer.rows if row.id == "oom"]
    assert (died.verdict_measured, died.verdict_predicted) == ("out_of_memory", "fits")
    (ran,) = [row for row in answer.rows if row.id == "ran"]
    assert (ran.quantity, ran.measured, ran.verdict_measured) == ("peak_memory_bytes", None, "fits")
    assert answer.verdicts.missed_out_of_memory == 1


def test_a_pool_is_replayed_once_for_the_same_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUPLAN_HOME", str(tmp_path / "home"))
    path = write(tmp_path, RUN | {"id": "a"}, RUN | {"id": "b", "micro_batch": 8})
    first = validate([path])
    assert any(row.quantity == "peak_memory_bytes" and row.predicted for row in first.rows)

    def never(*_: object, **__: object) -> None:
        raise AssertionError("replayed again")

    monkeypatch.setattr(reserved_ratio, "replay", never)
    assert validate([path]) == first
    with pytest.raises(AssertionError, match="replayed again"):
        validate([write(tmp_path, RUN | {"id": "c", "micro_batch": 2})])


@pytest.mark.slow
def test_a_file_that_never_ends_or_dies_costs_only_its_own_profile(tmp_path: Path) -> None:
    good = tmp_path / "good.py"
    good.write_text(
        "import torch\n"
        "def build_model(): return torch.nn.Linear(8, 8)\n"
        "def make_batch(batch_size): return (torch.randn(batch_size, 8),)\n"
        "def compute_loss(model, batch): return model(*batch).sum()\n"
    )
    bad = tmp_path / "bad.py"
    bad.write_text("import os\nos._exit(3)\n")
    raising = tmp_path / "raising.py"
    raising.write_text("def build_model(): raise ValueError('no such thing')\n")
    requests = [
        ProfileRequest(path=path, params={}, numerics=frozenset({"fp32"}))
        for path in (bad, raising, good)
    ]
    made = profile_all(requests)
    died, raised, profile = (made[request.key] for request in requests)
    assert isinstance(died, UserFileError)
    assert isinstance(raised, UserFileError)
    assert "bad.py" in died.message
    assert isinstance(profile, Profile)
    assert profile.parameters == 72
