"""Machines that a recorded run is taken to have used, where its source names none."""

import json
from pathlib import Path

import pytest

from gpuplan.api.validation.cases import load_cases
from gpuplan.catalog.snapshot import load_catalogue

EXAMPLES = Path(__file__).parents[2] / "examples"
RUN = {
    "id": "run",
    "source": "a page",
    "source_group": "page",
    "model": str(EXAMPLES / "decoder.py"),
    "params": {"layers": 2, "hidden": 256, "heads": 4, "vocab": 1000, "seq_len": 128},
    "accelerators": 16,
    "precision": "fp16-amp",
    "micro_batch": 1,
    "global_batch": 16,
    "stack": "torch-eager",
    "measured": {"step_time_s": 1.0},
}


def assumed_of(tmp_path: Path, accelerator: str) -> dict[str, str]:
    file = tmp_path / "runs.jsonl"
    file.write_text(json.dumps({**RUN, "accelerator": accelerator}) + "\n")
    (case,), _ = load_cases([file], lambda _requests: {}, load_catalogue())
    return dict(text.split("=", 1) for text in case.assumed if "=" in text)


@pytest.mark.parametrize(
    ("device", "like"), [("H800-80GB-SXM", "H100-80GB-SXM"), ("MI325X", "MI300X")]
)
def test_what_nobody_rents_out_stands_in_machines_of_its_like(
    tmp_path: Path, device: str, like: str
) -> None:
    assumed = assumed_of(tmp_path, device)
    assert assumed["inter_node_gbit_s"].startswith("3200 (most instances of ")
    assert like in assumed["inter_node_gbit_s"]
    assert assumed["per_node"].startswith("8 (")


def test_a_card_goes_into_machines_of_any_kind(tmp_path: Path) -> None:
    assumed = assumed_of(tmp_path, "Titan-RTX")
    assert assumed["inter_node_gbit_s"] == "800 (one port an accelerator)"
