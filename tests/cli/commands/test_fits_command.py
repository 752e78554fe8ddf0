"""`gpuplan fits`: the first word is Yes or No, and a No says what would help."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from answers import make_plan

from gpuplan import api
from gpuplan.catalog.units import GIB
from gpuplan.cli.main import run
from gpuplan.cli.render.plans.fits import render_fits
from gpuplan.cli.render.text.columns import to_text
from gpuplan.planner.plan.layout import Layout
from gpuplan.planner.plan.plan import EstimatedMemory
from gpuplan.planner.predict.fits import FitsAnswer, Remedy

GOLDEN = Path(__file__).parent / "golden"


def make_answer(*, fits: bool, **changes: Any) -> FitsAnswer:
    peak_bytes = (31.2 if fits else 47.9) * GIB
    capacity = 39.4 * GIB
    fields: dict[str, Any] = {
        "accelerator": "A100-40GB-SXM",
        "layout": Layout(),
        "precision": "fp32",
        "recompute": "none",
        "optimizer": "adamw",
        "fits": fits,
        "micro_batch": 4,
        "largest_micro_batch": 6 if fits else 3,
        "peak_memory_bytes": EstimatedMemory(
            value=peak_bytes,
            low=peak_bytes * 0.97,
            high=peak_bytes * 1.03,
            basis="analytic",
            capacity=capacity,
        ),
        "memory_breakdown_bytes": make_plan().memory_breakdown_bytes,
        "spare_bytes": capacity - peak_bytes,
        "remedies": ()
        if fits
        else (
            Remedy(text="--micro-batch 3", peak_bytes=36.5 * GIB, micro_batch=3),
            Remedy(text="--recompute selective", peak_bytes=30.1 * GIB, micro_batch=4),
            Remedy(text="--layout fsdp2 (2 accelerators)", peak_bytes=39 * GIB, micro_batch=4),
        ),
        "notes": (),
    }
    return FitsAnswer(**{**fields, **changes})


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    seen: dict[str, Any] = {"answer": make_answer(fits=True)}

    def read_inputs(model: str, **reading: Any) -> str:
        seen["reading"] = {"model": model, **reading}
        return "inputs"

    def fits(inputs: str, on: str, **how: Any) -> FitsAnswer:
        assert inputs == "inputs"
        seen["how"] = {"on": on, **how}
        return seen["answer"]

    monkeypatch.setattr(api, "read_inputs", read_inputs)
    monkeypatch.setattr(api, "fits", fits)
    monkeypatch.setenv("COLUMNS", "100")
    return seen


@pytest.mark.parametrize("fits", [True, False])
def test_the_answer_in_words(fits: bool, golden: Callable[[Path, str], None]) -> None:
    lines = render_fits(make_answer(fits=fits), width=80)
    assert max(line.cell_len for line in lines) <= 80
    text = to_text(lines, colour=False)
    assert text.split()[0].strip(",") == ("Yes" if fits else "No")
    golden(GOLDEN / f"fits-{'yes' if fits else 'no'}.txt", text)


def test_a_yes_that_is_a_toss_of_a_coin_says_so_and_what_is_surer() -> None:
    remedy = Remedy(text="--micro-batch 3", peak_bytes=36.5 * GIB, micro_batch=3)
    answer = make_answer(fits=True, p_oom=0.43, remedies=(remedy,), largest_micro_batch=3)
    lines = render_fits(answer, width=80)
    text = to_text(lines, colour=False)
    assert text.split()[0] == "Yes," and max(line.cell_len for line in lines) <= 80
    assert "with a chance of 43 %" in text
    assert "It would fit more surely with\n  --micro-batch 3 " in text
    none = to_text(render_fits(make_answer(fits=True, p_oom=0.43), width=100), colour=False)
    assert "Nothing that was tried makes it fit more surely here" in none


def test_a_micro_batch_that_only_likely_fits_is_not_called_sure() -> None:
    """One sample ran out with a chance of 5 %, and two were "as surely as a plan should"."""
    answer = make_answer(fits=True, p_oom=0.05, largest_micro_batch=2, largest_is_safe=False)
    text = to_text(render_fits(answer, width=80), colour=False)
    assert "No micro-batch fits as surely as a plan should; 2 likely fits." in text
    assert "Largest micro-batch" not in text


def test_that_smaller_ones_may_not_fit_is_said() -> None:
    uneven = to_text(render_fits(make_answer(fits=True, smaller_fit=False), width=80), colour=False)
    assert "that fits: 6.\nNot every smaller one does: what the allocator leaves" in uneven
    even = to_text(render_fits(make_answer(fits=True), width=80), colour=False)
    assert "smaller" not in even


def test_when_nothing_helps_it_says_so() -> None:
    answer = make_answer(fits=False, remedies=(), largest_micro_batch=None)
    text = to_text(render_fits(answer, width=100), colour=False)
    assert "Not even one sample fits so." in text
    assert "Nothing that was tried makes it fit here" in text


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("option", "4 samples per accelerator ·"),
        ("file", "4 samples per accelerator (the default of make_batch) ·"),
        ("default", "4 samples per accelerator (--micro-batch sets another) ·"),
    ],
)
def test_it_says_where_the_micro_batch_is_from(source: str, words: str) -> None:
    answer = make_answer(fits=True, micro_batch_source=source)
    assert words in to_text(render_fits(answer, width=140), colour=False)


@pytest.mark.parametrize(("fits", "code"), [(True, 0), (False, 3)])
def test_the_exit_code_is_the_answer(asked: dict[str, Any], fits: bool, code: int, capsys) -> None:
    asked["answer"] = make_answer(fits=fits)
    assert run(["fits", "model.py", "--on", "A100-40GB-SXM", "--format", "json"]) == code
    printed = json.loads(capsys.readouterr().out)
    assert FitsAnswer.model_validate(printed) == asked["answer"]


def test_options_reach_the_question(asked: dict[str, Any]) -> None:
    words = "--micro-batch 8 --precision bf16-amp --recompute full --layout fsdp8 --optimizer sgd"
    more = "--offload activations,optimizer --frozen-precision nf4"
    run(["fits", "model.py", "--on", "H100", *words.split(), *more.split()])
    assert asked["how"] == {
        "on": "H100",
        "precision": "bf16-amp",
        "micro_batch": 8,
        "recompute": "full",
        "layout": Layout(data=8, shard=8, zero_stage=3),
        "optimizer": "sgd",
        "offload": ("optimizer", "activations"),
        "frozen_precision": "nf4",
    }
    assert asked["reading"]["machine"] == api.Machine(accelerators=("H100",))


def test_an_assumed_name_is_said_on_stderr(asked: dict[str, Any], capsys) -> None:
    run(["fits", "model.py", "--on", "A100-40GB"])
    assert capsys.readouterr().err.startswith("Note: A100-40GB is taken as A100-40GB-SXM")
    run(["fits", "model.py", "--on", "A100-40GB", "-q"])
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("", "Missing option '--on'"),
        ("--on H100 --micro-batch 0", "not above zero"),
        ("--on H100 --precision fp23", "Did you mean fp32"),
        ("--on H100 --format csv", "not one of table, json"),
    ],
)
def test_what_makes_no_sense_is_a_usage_error(
    asked: dict[str, Any], words: str, message: str, capsys
) -> None:
    assert run(["fits", "model.py", *words.split()]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err


def test_several_accelerators_are_asked_for_by_their_number(asked: dict[str, Any], capsys) -> None:
    assert run(["fits", "model.py", "--on", "A100-40GB:8"]) == 0
    assert asked["how"]["on"] == "A100-40GB:8"
    assert asked["how"]["layout"] is None
    assert asked["reading"]["machine"] == api.Machine(accelerators=("A100-40GB",))
    assert "A100-40GB is taken as A100-40GB-SXM" in capsys.readouterr().err
    assert run(["fits", "model.py", "--on", "H100:0"]) == 2
    assert "H100:0 means no accelerator" in capsys.readouterr().err


def test_small_parts_are_shown_in_their_own_unit() -> None:
    breakdown = make_plan().memory_breakdown_bytes.model_copy(update={"gradients": 3 * 1024})
    answer = make_answer(fits=True, memory_breakdown_bytes=breakdown)
    text = to_text(render_fits(answer, width=100), colour=False)
    (line,) = [line for line in text.splitlines() if "gradients" in line]
    assert line.split() == ["gradients", "3.0", "KiB", "<1", "%", "▏"]
