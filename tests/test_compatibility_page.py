"""docs/compatibility.md: what is tried, what the page says of it, and the share that is traced."""

import dataclasses
import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
sys.path.append(str(ROOT / "benchmarks"))  # Where Python puts it when `make compatibility` runs.
page = importlib.import_module("compatibility.page")
trials = importlib.import_module("compatibility.trials")

LEAST_MODELS, LEAST_SHARE = 160, 0.92
FACTS = {
    "limit_s": 120,
    "date": "2026-11-23",
    "torch": "2.13.0",
    "python": "3.11.7",
    "workers": 2,
    "cores": 2,
}


def kept() -> list[Any]:
    lines = (DOCS / "compatibility.jsonl").read_text(encoding="utf-8").splitlines()
    return [trials.Trial.from_json(line) for line in lines]


def a_trial(**changes: Any) -> Any:
    plain = trials.Trial(
        package="timm",
        version="1.0",
        name="resnet18",
        file="timm_models.py",
        options=(),
        traced=True,
        seconds=5.25,
        cpu_s=3.25,
        peak_memory_bytes=400 * 10**6,
        parameters=11_689_512,
        flops_per_sample=10.9e9,
        notes=(),
        message=None,
    )
    return dataclasses.replace(plain, **changes)


def test_every_listed_model_was_tried_once_and_has_a_file() -> None:
    models = list(trials.listed_models())
    labels = [one.label for one in models]
    assert len(set(labels)) == len(labels) >= LEAST_MODELS
    assert all(one.file.is_file() for one in models)
    assert labels == [f"{one.package}/{one.name}" for one in kept()]


def test_enough_models_are_traced_and_the_others_say_why() -> None:
    found = kept()
    traced = [one for one in found if one.traced]
    assert len(traced) >= LEAST_SHARE * len(found)
    assert all(one.parameters and one.flops_per_sample for one in traced)
    assert all(one.message and "To fix:" in one.message for one in found if not one.traced)


def test_the_page_is_made_of_what_was_found() -> None:
    text = (DOCS / "compatibility.md").read_text(encoding="utf-8")
    found = kept()
    body = page.page(found, **FACTS).partition("| library |")[2]
    assert text.partition("| library |")[2] == body
    traced = sum(one.traced for one in found)
    assert f"**{traced} of {len(found)} models are traced ({traced / len(found):.1%})" in text


def test_a_model_that_was_traced_shows_what_it_took() -> None:
    text = page.page([a_trial(options=("--assume-true=net.py:3",))], **FACTS)
    assert "| resnet18 | 11,689,512 | 10.9 | 3.2 | 400 |" in text
    assert "resnet18 with `--assume-true=net.py:3`." in text
    assert "## Refused" not in text


def test_a_model_that_was_refused_shows_the_message() -> None:
    refused = a_trial(name="detr", traced=False, message="a | b: <values>. To fix: state.")
    text = page.page([a_trial(), refused], **FACTS)
    assert "**1 of 2 models are traced (50.0%)" in text
    assert "| timm detr | a \\| b: &lt;values>. To fix: state. |" in text


@pytest.mark.slow
@pytest.mark.parametrize("name", ["resnet", "not_there"])
def test_a_trial_tells_what_the_command_did(tmp_path: Path, name: str) -> None:
    model = tmp_path / "model.py"
    model.write_text(
        "import torch\n"
        "def build_model(name):\n"
        "    return {'resnet': torch.nn.Linear(8, 3)}[name]\n"
        "def make_batch(batch_size):\n"
        "    return (torch.randn(batch_size, 8),)\n"
        "def compute_loss(model, batch):\n"
        "    return model(*batch).sum()\n"
    )
    asked = trials.Model(package="torch", name=name, file=model, params={"name": name})
    trial = trials.trace(asked, limit_s=60)
    assert trial.traced == (name == "resnet")
    assert trial.cpu_s > 0.1 and trial.peak_memory_bytes > 50 * 10**6
    if trial.traced:
        assert trial.parameters == 27 and trial.message is None
    else:
        assert "KeyError: 'not_there'" in trial.message and str(tmp_path) not in trial.message
