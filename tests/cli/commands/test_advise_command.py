"""`gpuplan advise`: the first line says what to do; what helps follows with risk and lines."""

import json
from collections.abc import Callable
from datetime import date
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jsonschema
import pytest
from answers import make_plan, make_run

from gpuplan import api
from gpuplan.api.advice import adapter_notes
from gpuplan.cli.main import run
from gpuplan.cli.render.plans.advise import advice_markdown, render_advice
from gpuplan.cli.render.text.columns import to_text
from gpuplan.planner.advise.answer import Advice, Change
from gpuplan.planner.plan.answer.answer_parts import CatalogueFacts, WorkloadFacts
from gpuplan.planner.plan.plan import Plan
from gpuplan.profiles.user_model.spec import parse_model_spec

ROOT = Path(__file__).parents[3]
GOLDEN = Path(__file__).parent / "golden"
GPT2 = str(ROOT / "examples" / "gpt2.py")
HF = f"hf:{ROOT / 'examples' / 'hf_llama_config'}"


def make_change(plan: Plan, **changes: Any) -> Change:
    fields: dict[str, Any] = {
        "kind": "compile",
        "text": "torch.compile",
        "verdict": "saves",
        "gain": "400 → 320 ms a step, saves 31.7 h and $696 of $3,480",
        "alters_training": False,
        "hours_saved": 31.7,
        "usd_saved": 696.0,
        "time_saved_share": 0.2,
        "cost_saved_share": 0.2,
        "risks": ("the first step compiles",),
        "lines": ("model = torch.compile(model)",),
        "plan": plan,
    }
    return Change(**{**fields, **changes})


def make_advice(**changes: Any) -> Advice:
    today = make_plan(run=make_run())
    worse = {"hours_saved": -8.0, "usd_saved": -170.0, "time_saved_share": -0.05}
    fields: dict[str, Any] = {
        "gpuplan_version": "0.1.0",
        "generated_at": "2026-11-20T10:00:00+00:00",
        "catalog": CatalogueFacts(snapshot_date=date(2026, 8, 21), offers=10_093),
        "workload": WorkloadFacts(
            name="gpt2",
            parameters=124_439_808,
            trainable_parameters=124_439_808,
            flops_per_sample=8.2e11,
            tokens_per_sample=1024,
        ),
        "headline": "Compile it: 400 → 320 ms a step, saves 31.7 h and $696 of $3,480.",
        "elsewhere": None,
        "today": today,
        "today_fits": True,
        "assumed": ("layout fsdp8", "optimizer adamw, as in the file"),
        "changes": (
            make_change(make_plan()),
            make_change(make_plan(), text="recompute none → full", verdict="worse", **worse),
            make_change(make_plan(), text="optimizer adamw → sgd", verdict="no_difference"),
        ),
        "together": make_change(make_plan(), kind="together", text="fsdp8 mb8 bf16-amp compile"),
        "notes": (),
    }
    return Advice(**{**fields, **changes})


def test_the_answer_in_words(golden: Callable[[Path, str], None]) -> None:
    lines = render_advice(make_advice(), most=5, width=80)
    assert max(line.cell_len for line in lines) <= 80
    golden(GOLDEN / "advise.txt", to_text(lines, colour=False))


def test_the_answer_as_markdown(golden: Callable[[Path, str], None]) -> None:
    golden(GOLDEN / "advise.md", advice_markdown(make_advice(), most=None))


def test_what_is_not_shown_in_full_is_named() -> None:
    text = to_text(render_advice(make_advice(), most=0, width=80), colour=False)
    assert "Helps less: torch.compile" in text


def test_what_changes_the_training_stands_apart_with_its_risk_before_its_dollars() -> None:
    sizes = [f"global batch 256 → {size}" for size in (512, 1024, 2048)]
    altering = [
        make_change(make_plan(), text=text, kind="global_batch", alters_training=True)
        for text in sizes
    ]
    answer = make_advice(changes=(make_change(make_plan()), *altering))
    text = to_text(render_advice(answer, most=5, width=80), colour=False)
    own, apart = text.split("If the loss allows it: these change the training\n")
    assert "1  torch.compile" in own and "global batch" not in own
    lines = [line.strip() for line in apart.splitlines()]
    assert lines[0] == f"2  {sizes[0]}"
    assert lines[1].startswith("risk: ")
    assert "saves" in lines[2]
    assert f"3  {sizes[1]}" in lines
    assert f"Helps less, and changes the training: {sizes[2]}" in lines
    everything = to_text(render_advice(answer, most=None, width=80), colour=False)
    assert f"4  {sizes[2]}" in everything
    assert f"{sizes[0]} (changes the training)" in advice_markdown(answer, most=None)


def test_what_ends_the_risk_of_memory_is_not_filed_as_slower() -> None:
    slower = {"verdict": "worse", "time_saved_share": -0.16, "ends_oom_risk": True}
    answer = make_advice(
        changes=(
            make_change(make_plan(), text="micro-batch 4 → 2", **slower),
            make_change(make_plan(), text="recompute none → full", verdict="worse"),
        )
    )
    text = to_text(render_advice(answer, most=5, width=80), colour=False)
    assert "Ends the risk of running out of memory: micro-batch 4 → 2 (+16 % time)\n" in text
    assert "Slower or dearer: recompute none → full" in text


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    seen: dict[str, Any] = {"answer": make_advice()}

    def advise(inputs: str, today: Any, **how: Any) -> Advice:
        seen.update(today=today, how=how)
        return seen["answer"]

    monkeypatch.setattr(api, "read_inputs", lambda _model, **_reading: "inputs")
    monkeypatch.setattr(api, "advise", advise)
    return seen


def test_options_reach_the_question(asked: dict[str, Any]) -> None:
    words = "--on H100:8 --layout fsdp8 --micro-batch 4 --grad-accum 2 --precision bf16-amp"
    more = "--recompute full --compile --optimizer sgd --offload optimizer --tokens 1B --spot"
    assert run(["advise", "model.py", *words.split(), *more.split(), "-q"]) == 0
    today = asked["today"]
    assert today.machine == api.Machine(accelerators=("H100:8",))
    assert today.work == api.Work(tokens=1e9)
    assert today.money.purchase == "spot"
    assert today.choices == api.Choices(
        layouts=(api.parse_layout("fsdp8"),),
        micro_batches=(4,),
        grad_accums=(2,),
        precisions=("bf16-amp",),
        recomputes=("full",),
        compile=True,
        optimizer="sgd",
        offload=("optimizer",),
    )


def test_beside_a_plan_a_provider_limits_the_other_machines(
    asked: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = SimpleNamespace(plan=make_plan())
    monkeypatch.setattr(api, "kept_plan", lambda _prefix: kept)
    assert run(["advise", "model.py", "--plan", "3f2a", "--provider", "aws", "-q"]) == 0
    assert asked["today"] == kept
    assert asked["how"]["others"].providers == ("aws",)
    assert asked["how"]["work"] is None


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("", "No machine is given"),
        ("--on H100 --instance p5.48xlarge", "Both --on and --instance"),
        ("--on H100:8,A100:8", "--on names 2: H100:8, A100:8. Today's setting runs on one."),
        ("--instance p4d.24xlarge,p5.48xlarge", "give one: --instance p4d.24xlarge."),
        ("--plan abc --micro-batch 4", "--micro-batch is given beside --plan"),
        ("--on H100 --tokens 1B --steps 10", "the amount of work is one of them"),
        ("--on H100 --precision fp23", "Did you mean fp32"),
    ],
)
def test_what_makes_no_sense_is_a_usage_error(
    asked: dict[str, Any], words: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["advise", "model.py", *words.split()]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err


@pytest.mark.parametrize(("verdict", "code"), [("makes_it_fit", 0), ("does_not_fit", 3)])
def test_the_exit_code_says_whether_anything_fits(
    asked: dict[str, Any], verdict: str, code: int
) -> None:
    change = make_change(make_plan(), verdict=verdict, hours_saved=None, time_saved_share=None)
    asked["answer"] = make_advice(today_fits=False, changes=(change,), together=None)
    assert run(["advise", "model.py", "--on", "H100", "-q"]) == code


@pytest.mark.slow
def test_the_whole_way(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["advise", GPT2, "--on", "A100-40GB:8", "--provider", "aws", "--micro-batch", "4"]
    assert run([*words, "--tokens", "1B", "--format", "json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    schema = ROOT / "docs" / "schema" / "advise-1.0.json"
    jsonschema.validate(printed, json.loads(schema.read_text(encoding="utf-8")))
    answer = Advice.model_validate(printed)
    assert answer.today.string == "dp8 mb4 fp32"
    assert answer.headline.startswith("Train in bf16-amp: ")
    kinds = {change.kind for change in answer.changes}
    assert {"precision", "recompute", "compile", "sharding", "optimizer", "offload"} <= kinds
    full = next(one for one in answer.changes if one.plan.recompute == "full")
    assert full.verdict == "worse"
    assert full.plan.peak_memory_bytes.value < answer.today.peak_memory_bytes.value
    estimate = ["--accelerator", "A100-40GB:8", "--provider", "aws", "--max-nodes", "1"]
    assert run(["estimate", GPT2, *estimate, "--tokens", "1B", "-q"]) == 0
    kept = api.kept_estimates()[0].plans[0]
    capsys.readouterr()
    assert run(["advise", GPT2, "--plan", kept.id, "--format", "json", "-q"]) == 0
    again = Advice.model_validate_json(capsys.readouterr().out)
    assert again.today.string == kept.string
    assert again.today.step_time_s == kept.step_time_s


def test_a_long_change_keeps_to_the_width_of_the_screen() -> None:
    text = "nebius 1 × gpu-b200-sxm_8gpu (8 × B200-180GB-SXM), micro-batch 1 → 4"  # noqa: RUF001
    plan = make_plan(run=make_run())
    answer = make_advice(changes=(make_change(plan, kind="machine", text=text),), together=None)
    lines = [line.plain for line in render_advice(answer, most=5, width=60)]
    assert not [line for line in lines if len(line) > 60]
    assert text in " ".join(" ".join(lines).split())


@pytest.mark.parametrize(
    ("model", "params", "fits", "said"),
    [
        (HF, {}, False, True),
        (HF, {}, True, False),
        (HF, {"lora": "r=16"}, False, False),
        (GPT2, {}, False, False),
    ],
)
def test_adapters_are_named_where_a_whole_model_does_not_fit(
    model: str, params: dict[str, Any], fits: bool, said: bool
) -> None:
    notes = list(adapter_notes(parse_model_spec(model, params=params), fits=fits))
    assert bool(notes) == said
    assert all("--lora r=16" in note for note in notes)
