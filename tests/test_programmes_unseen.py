"""How the page sums whole trainings that were gathered before they were predicted."""

import importlib
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))
programmes = importlib.import_module("evaluation.programmes")
unseen = importlib.import_module("evaluation.programmes_unseen")


def training(group: str, expected: float, *, width: float = 1.5) -> Any:
    return programmes.Programme(
        id=f"{group}-{expected}",
        group=group,
        source="a card",
        accelerator="A100-80GB-SXM",
        accelerators=64,
        published_hours=100.0,
        training_hours=expected,
        expected_hours=expected,
        low_hours=expected / width,
        high_hours=expected * width,
        goodput=0.9,
        left_out="",
        assumed=("layout", "accelerator (not stated)"),
    )


def test_groups_weigh_alike_whatever_their_number() -> None:
    found = [training("a", 100), training("a", 110), training("a", 40), training("b", 300)]
    assert unseen.inside(found) == pytest.approx((2 / 3 + 0) / 2)
    text = unseen.unseen_programmes_part(found)
    assert "4 more trainings of 2 groups" in text
    assert "The median of expected ÷ published is 1.05" in text
    lines = [line for line in text.splitlines() if line.startswith("| a-") or line[:4] == "| b-"]
    assert [line.split()[1] for line in lines] == ["a-100", "a-110", "a-40", "b-300"]
    assert lines[0].endswith("| 1.00 | yes | layout, accelerator |")
    assert unseen.unseen_programmes_part([]) == ""


def test_small_jobs_are_summed_alike_and_their_hours_have_digits() -> None:
    short = [replace(training("a", 0.0365), published_hours=0.0281), training("b", 90)]
    text = unseen.unseen_jobs_part(short)
    assert text.startswith("## Small jobs") and "The median of expected ÷ published is 1.10" in text
    assert "| 0.0281 h | 0.0365 h | 1.30 | yes |" in text
    assert unseen.unseen_jobs_part([]) == ""
