"""`--pricebook` and `--purchase` the whole way: a file in, `show` out."""

import json
from pathlib import Path
from typing import Any

import pytest

from gpuplan.cli.main import run

MODEL = """
import torch
def build_model(width: int = 64):
    return torch.nn.Linear(width, width)
def make_batch(batch_size: int = 8, width: int = 64):
    return (torch.randn(batch_size, width),)
def compute_loss(model, batch):
    return model(*batch).square().mean()
"""
BOOK = """
discounts: [{percent: 40, provider: gcp}]
credits: [{provider: gcp, usd: 500000, expires: 2126-12-31}]
currency: {code: CHF, per_usd: 0.8, date: 2026-11-01}
tax_percent: 10
"""


@pytest.fixture
def words(tmp_path: Path) -> list[str]:
    (tmp_path / "model.py").write_text(MODEL)
    (tmp_path / "book.yaml").write_text(BOOK)
    machine = ["--instance", "a2-highgpu-1g", "--region", "us-central1", "--nodes", "1"]
    book = ["--pricebook", str(tmp_path / "book.yaml")]
    return [str(tmp_path / "model.py"), "--samples", "1B", *machine, *book]


@pytest.mark.slow
def test_the_terms_are_in_the_answer_and_in_show(words: list[str], capsys: Any) -> None:
    assert run(["estimate", *words, "--format", "json"]) == 0
    plan = json.loads(capsys.readouterr().out)["plans"][0]
    offer, job = plan["offer"], plan["whole_job"]
    assert offer["usd_per_hour"] == pytest.approx(0.6 * offer["list_usd_per_hour"])
    assert (offer["discount_percent"], offer["tax_percent"]) == (40, 10)
    *lines, tax = job["cost_lines"]
    assert tax["name"] == "tax"
    assert tax["usd"] == pytest.approx(0.1 * sum(line["usd"] for line in lines), abs=0.0051)
    assert plan["credits"][0]["covers_usd"] == job["total_usd"]
    assert run(["show", plan["id"]]) == 0
    # Lines break where the terminal ends.
    shown = " ".join(capsys.readouterr().out.split())
    for text in ("40 % off", "your pricebook", "tax: 10 %", "CHF at 0.8", "credits cover"):
        assert text in shown
    assert run(["estimate", *words]) == 0
    assert "terms of your pricebook" in capsys.readouterr().out


@pytest.mark.slow
def test_the_ways_to_pay_are_listed(words: list[str], capsys: Any) -> None:
    assert run(["estimate", *words, "--purchase", "all"]) == 0
    out = capsys.readouterr().out
    assert "Ways to pay" in out and "committed, 3 years" in out
    assert run(["estimate", *words, "--purchase", "committed-3y"]) == 0
    assert "committed for 3 years" in capsys.readouterr().out


def test_two_ways_of_buying_contradict_each_other(words: list[str], capsys: Any) -> None:
    assert run(["estimate", *words, "--purchase", "all", "--spot"]) == 2
    assert "contradict" in capsys.readouterr().err


def test_an_unknown_way_is_answered_with_the_known_ones(words: list[str], capsys: Any) -> None:
    assert run(["estimate", *words, "--purchase", "commited-1y"]) == 2
    assert "committed-1y" in capsys.readouterr().err


def test_a_wrong_pricebook_is_one_message_with_its_line(
    words: list[str], tmp_path: Path, capsys: Any
) -> None:
    (tmp_path / "book.yaml").write_text("tax_percent: 19\ndiscount: 5\n")
    assert run(["estimate", *words]) == 2
    error = capsys.readouterr().err
    assert "book.yaml:2" in error and "discounts" in error and "Traceback" not in error


@pytest.mark.slow
def test_a_launch_is_at_the_terms_that_are_given(
    words: list[str], tmp_path: Path, capsys: Any
) -> None:
    *without_book, _, book = words
    assert run(["estimate", *without_book, "--format", "json"]) == 0
    plan = json.loads(capsys.readouterr().out)["plans"][0]
    launch = ["launch", plan["id"], "--outputs", "gs://b/r", "--synthetic", "--dryrun"]
    launch += ["--workdir", str(tmp_path), "--format", "json"]
    assert run(launch) == 0
    listed = json.loads(capsys.readouterr().out)
    assert run([*launch, "--pricebook", book]) == 0
    paid = json.loads(capsys.readouterr().out)
    assert paid["usd_per_hour"] == pytest.approx(0.6 * listed["usd_per_hour"])
    cents = 0.01 * (1 + 0.6 * 1.1)  # Both are rounded to them.
    assert paid["usd_worst"] == pytest.approx(0.6 * 1.1 * listed["usd_worst"], abs=cents)
    assert (paid["plan"], paid["cost_lines"][-1]["name"]) == (plan["id"], "tax")
