"""`gpuplan estimate`: what is printed, what is refused, and how it ends."""

import csv
import io
import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from answers import (
    make_estimate,
    make_ranked_estimate,
    make_unworked_estimate,
)

from gpuplan import api
from gpuplan.api.pareto import Frontier
from gpuplan.cli.main import run
from gpuplan.cli.render.plans.csv import render_csv
from gpuplan.cli.render.plans.estimate import render_estimate
from gpuplan.cli.render.plans.explain import render_plan
from gpuplan.cli.render.plans.markdown import render_markdown
from gpuplan.cli.render.text.columns import to_text
from gpuplan.cli.terminal import output
from gpuplan.launcher.store.estimates import Store, StoreError
from gpuplan.planner.plan.answer.estimate import Estimate

GOLDEN = Path(__file__).parent / "golden"
Golden = Callable[[Path, str], None]
SOURCES = {"kernel curves": "measured on A100-40GB-SXM", "device": "https://www.nvidia.com/a100"}


class Asked:
    """Stands for the engine: remembers the question, gives a made answer."""

    def __init__(self) -> None:
        self.answer = make_ranked_estimate()
        self.question: api.Question | None = None
        self.reading: dict[str, Any] = {}

    def read_inputs(self, model: str, **reading: Any) -> str:
        self.reading = {"model": model, **reading}
        return "inputs"

    def estimate(self, inputs: str, question: api.Question, **_: Any) -> Estimate:
        assert inputs == "inputs"
        self.question = question
        return self.answer

    def keep(self, answer: Estimate, *, inputs: str, question: api.Question) -> None:
        Store().keep(answer, inputs_hash=repr(question))


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    engine = Asked()
    for name in ("read_inputs", "estimate", "keep"):
        monkeypatch.setattr(api, name, getattr(engine, name))
    monkeypatch.setattr(api, "sources", lambda plan, **_: SOURCES)
    monkeypatch.setenv("COLUMNS", "100")
    return engine


@pytest.mark.parametrize("width", [80, 110])
@pytest.mark.parametrize("index", [0, 3])
def test_one_plan_in_full(golden: Golden, width: int, index: int) -> None:
    answer = make_ranked_estimate()
    plan = answer.plans[index].model_copy(update={"notes": ("close to the memory limit",)})
    lines = render_plan(plan, answer, sources=SOURCES, width=width)
    golden(GOLDEN / f"explain-{index + 1}-{width}.txt", to_text(lines, colour=False))


def test_offline_is_accepted_and_promised_no_more(asked: Asked, capsys) -> None:
    assert run(["estimate", "model.py"]) == 0
    plain = capsys.readouterr().out
    assert run(["estimate", "model.py", "--offline"]) == 0
    assert capsys.readouterr().out == plain
    run(["estimate", "--help"])
    assert "--offline" not in capsys.readouterr().out


def test_a_curve_file_is_handed_to_what_reads_the_model(asked: Asked, capsys) -> None:
    assert run(["estimate", "model.py", "--curves", "mine.json"]) == 0
    assert asked.reading["curves"] == (Path("mine.json"),)
    assert run(["estimate", "model.py"]) == 0
    assert asked.reading["curves"] == ()
    capsys.readouterr()


def test_markdown(golden: Golden) -> None:
    golden(GOLDEN / "estimate.md", render_markdown(make_ranked_estimate()))


def test_json(golden: Golden) -> None:
    golden(GOLDEN / "estimate.json", make_ranked_estimate().model_dump_json(indent=2) + "\n")


def test_csv(golden: Golden) -> None:
    golden(GOLDEN / "estimate.csv", render_csv(make_ranked_estimate()))


def test_csv_has_the_same_columns_whatever_the_plans() -> None:
    heading = render_csv(make_estimate()).splitlines()
    assert heading == render_csv(make_ranked_estimate()).splitlines()[:1]


def test_each_row_of_csv_says_what_it_answers() -> None:
    answer = make_ranked_estimate()
    rows = list(csv.DictReader(io.StringIO(render_csv(answer))))
    assert tuple(rows[0])[: len(answer.columns())] == answer.columns()
    for row in rows:
        assert row["question"] == " · ".join(answer.asked_text)
        assert row["limits"] == " · ".join(answer.limits_text)
        assert row["model"] == answer.workload.name


def test_csv_and_json_agree() -> None:
    answer = make_ranked_estimate()
    plans = json.loads(answer.model_dump_json())["plans"]
    for row, plan in zip(csv.DictReader(io.StringIO(render_csv(answer))), plans, strict=True):
        assert row["step_time_s.low"] == str(plan["step_time_s"]["low"])
        assert row["run.usd"] == ("" if plan["run"]["usd"] is None else str(plan["run"]["usd"]))


def test_the_table_goes_to_stdout_and_is_kept(asked: Asked, capsys) -> None:
    assert run(["estimate", "model.py", "--tokens", "10B"]) == 0
    out, err = capsys.readouterr()
    assert out == (GOLDEN / "estimate-100.txt").read_text().replace("'my model.py'", "model.py")
    assert err == ""
    assert Store().estimates() == [asked.answer]


def test_json_is_the_answer_and_nothing_else(asked: Asked, capsys) -> None:
    asked.answer = asked.answer.model_copy(update={"notes": ("a note",)})
    assert run(["estimate", "model.py", "--format", "json"]) == 0
    out, err = capsys.readouterr()
    assert Estimate.model_validate_json(out) == asked.answer
    assert err == ""


def test_no_feasible_plan_is_exit_3_and_json_is_still_printed(asked: Asked, capsys) -> None:
    asked.answer = make_estimate()
    assert run(["estimate", "model.py", "--format", "json", "--explain", "1"]) == 3
    assert json.loads(capsys.readouterr().out)["plans"] == []


def test_notes_go_to_stderr_unless_quiet(asked: Asked, capsys) -> None:
    asked.answer = asked.answer.model_copy(update={"notes": ("the batch was left free",)})
    run(["estimate", "model.py"])
    assert capsys.readouterr().err == "Note: the batch was left free.\n"
    run(["estimate", "model.py", "-q"])
    assert capsys.readouterr().err == ""


def test_warnings_stand_above_the_plans_and_are_not_said_again(asked: Asked, capsys) -> None:
    warning = "TOKENS_PER_SAMPLE is 1,024, but a sample of the batch has 2,048 tokens"
    update = {"warnings": (warning,), "notes": (warning, "the batch was left free")}
    asked.answer = asked.answer.model_copy(update=update)
    run(["estimate", "model.py"])
    out, err = capsys.readouterr()
    lines = " ".join(out.split())
    assert lines.index(f"Warning: {warning}.") < lines.index("Recommended")
    assert err == "Note: the batch was left free.\n"
    run(["estimate", "model.py", "--format", "markdown", "-q"])
    assert f"**Warning**: {warning}." in capsys.readouterr().out
    for options in (["--explain", "1"], ["--format", "csv"]):
        run(["estimate", "model.py", *options])
        out, err = capsys.readouterr()
        assert warning not in out
        assert err.startswith(f"Warning: {warning}.\n")
    run(["estimate", "model.py", "--format", "json"])
    out, err = capsys.readouterr()
    assert json.loads(out)["warnings"] == [warning] and err == ""


def test_the_answer_stands_when_it_cannot_be_kept(asked: Asked, monkeypatch, capsys) -> None:
    def fail(*_: object, **__: object) -> None:
        raise StoreError("The plan store cannot be used: disk full.", fix="Make room.")

    monkeypatch.setattr(api, "keep", fail)
    assert run(["estimate", "model.py"]) == 0
    out, err = capsys.readouterr()
    assert "Recommended" in out
    assert err.startswith("Warning: this estimate is not kept. The plan store")
    # Neither finds a plan that is not stored.
    assert "gpuplan launch" not in out and "gpuplan show" not in out
    following = " ".join(out[out.index("Next: ") :].split())
    first = asked.answer.first_look
    assert first is not None and f"the same with --explain {first.position}" in following
    assert "GPUPLAN_HOME=FOLDER" in following


def test_an_answer_whose_reader_leaves_early_is_kept(asked: Asked, monkeypatch) -> None:
    """`gpuplan estimate … | head` shows ids that `show` and `launch` must know."""

    def closed(*_: object, **__: object) -> None:
        raise BrokenPipeError

    monkeypatch.setattr(output, "write_output", closed)
    with suppress(BrokenPipeError):
        run(["estimate", "model.py"])
    assert Store().estimates() == [asked.answer]


def test_the_form_follows_the_name_of_the_file(asked: Asked, tmp_path: Path, capsys) -> None:
    assert run(["estimate", "model.py", "--out-file", str(tmp_path / "plans.md")]) == 0
    assert capsys.readouterr().out == ""
    assert (tmp_path / "plans.md").read_text() == (GOLDEN / "estimate.md").read_text()


def test_explain_shows_one_plan(asked: Asked, capsys) -> None:
    assert run(["estimate", "model.py", "--explain", "2"]) == 0
    assert capsys.readouterr().out.startswith("Plan 2 · ")


def test_explain_of_no_plan_is_a_usage_error(asked: Asked, capsys) -> None:
    assert run(["estimate", "model.py", "--explain", "9"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "There is no plan 9; there are 5." in err


def test_every_option_reaches_the_question(asked: Asked) -> None:
    words = (
        "--tokens 10B --global-batch 512 --provider aws,gcp --provider all --region us-east-1"
        " --jurisdiction eu --accelerator H100:8 --nodes 1,2 --max-nodes 16 --layout fsdp8,dp8"
        " --micro-batch 1,2 --grad-accum 4 --precision bf16-amp --recompute full --compile"
        " --stack megatron --optimizer adafactor --deadline 3d --budget 2k --spot --sort time"
        " --top 5 --all-variants --vs-cpu --critical-batch 4096 --max-oom-risk 10% --by provider"
        " --runnable --frozen-precision nf4,bf16 --lora r=16"
    )
    run(["estimate", "model.py", *words.split()])
    question = asked.question
    assert question is not None
    assert question.work == api.Work(tokens=10e9, global_batch=512, critical_batch=4096)
    assert (question.by, question.money.max_oom) == ("provider", 0.1)
    assert question.runnable
    assert question.machine == api.Machine(
        providers=("aws", "gcp", "all"),
        regions=("us-east-1",),
        jurisdictions=("eu",),
        accelerators=("H100:8",),
        nodes=(1, 2),
        max_nodes=16,
    )
    choices = question.choices
    assert [str(layout) for layout in choices.layouts] == ["fsdp8", "dp8"]
    assert (choices.micro_batches, choices.grad_accums) == ((1, 2), (4,))
    assert (choices.precisions, choices.recomputes) == (("bf16-amp",), ("full",))
    assert choices.frozen_precisions == ("nf4", "bf16")
    assert (choices.compile, choices.stack, choices.optimizer) == (True, "megatron", "adafactor")
    money = question.money
    assert (money.deadline_s, money.budget_usd) == (259_200, 2000)
    assert (money.purchase, money.sort) == ("spot", "time")
    assert (question.top, question.all_variants, question.vs_cpu) == (5, True, True)
    assert asked.reading["precisions"] == ("bf16-amp",)
    assert asked.reading["lora"] == "r=16"
    assert asked.reading["machine"] == question.machine


def test_what_is_left_out_is_left_free(asked: Asked) -> None:
    run(["estimate", "model.py", "--format", "json"])
    assert asked.question == api.Question()
    run(["estimate", "model.py"])
    assert asked.question == api.Question(top=10)
    run(["estimate", "model.py", "--top", "all"])
    assert asked.question == api.Question()


def test_a_batch_may_be_in_tokens(asked: Asked) -> None:
    run(["estimate", "model.py", "--global-batch", "0.5M-tokens"])
    assert asked.question is not None
    assert asked.question.work == api.Work(global_batch_tokens=500_000.0)


def test_what_the_settings_gave_is_said(asked: Asked, monkeypatch, capsys) -> None:
    monkeypatch.setenv("GPUPLAN_PROVIDER", "aws,gcp")
    run(["estimate", "model.py"])
    assert "aws,gcp (provider from your settings)" in capsys.readouterr().out
    run(["estimate", "model.py", "--provider", "aws,gcp"])
    assert "from your settings" not in capsys.readouterr().out


def test_a_cluster_is_nodes_of_one_kind(asked: Asked) -> None:
    run(["estimate", "model.py", "--cluster", "4xp5.48xlarge"])
    assert asked.question is not None
    assert asked.question.machine == api.Machine(instances=("p5.48xlarge",), nodes=(4,))


def test_a_budget_alone_asks_how_much_can_be_trained(asked: Asked) -> None:
    run(["estimate", "model.py", "--budget", "5k", "--deadline", "10d"])
    assert asked.question is not None
    assert asked.question.asks_for_work


def test_cost_against_time_is_drawn_in_place_of_the_table_and_json_stays(
    asked: Asked, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    def frontier(_inputs: object, _question: api.Question, answer: Estimate, **_: Any) -> Frontier:
        plans = tuple(plan for plan in answer.plans if plan.whole_job and plan.whole_job.usd)
        return Frontier(plans=plans, best=plans[:1], scaling=plans[:1])

    monkeypatch.setattr(api, "frontier", frontier)
    words = ["estimate", "model.py", "--tokens", "10B", "-q"]
    assert run([*words, "--pareto"]) == 0
    drawn = capsys.readouterr().out
    assert "cost against time" in drawn and "│" in drawn
    assert len(drawn.splitlines()) <= 24
    run([*words, "--format", "json"])
    plain = capsys.readouterr().out
    run([*words, "--format", "json", "--pareto"])
    assert capsys.readouterr().out == plain


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--tokens 10B --steps 5", "--tokens and --steps are given"),
        ("--epochs 3", "without the size of the data set"),
        ("--dataset-size 50k", "--dataset-size is given without an amount of work"),
        ("--deadline 3d", "--deadline is given without an amount of work"),
        ("--tokens 0", "not above zero"),
        ("--tokens=-5", "not a number above zero"),
        ("--max-nodes 0", "not above zero"),
        ("--deadline 48", "write it with a unit"),
        ("--precision bf61-amp", "Did you mean"),
        ("--layout fsdpx", "does not start with"),
        ("--format yaml", "not one of table, json"),
        ("--sort cots", "Did you mean cost"),
        ("--cluster 4xH100:8 --nodes 2", "--cluster is given beside"),
        ("--cluster H100", "NxNAME"),
        ("--tokenz 5", "No such option"),
        ("--global-batch 0.5", "not a whole number"),
        ("--global-batch 5x-tokens", "not a number above zero"),
        ("--max-oom-risk 2", "no share above 0 and up to 1"),
        ("--top none", "not a number above zero"),
        ("--by cloud", "not one of accelerator, provider"),
        ("--steps 5 --critical-batch 64", "says how many steps are needed"),
        ("--spot --on-demand", "--on-demand and --spot contradict each other"),
        ("--any --spot", "contradict each other"),
        ("--compile --no-compile", "contradict each other"),
        ("--compile --stack xla", "--compile and --stack xla contradict each other"),
        ("--no-compile --stack torch-compile", "contradict each other"),
        ("--nodes 1,4 --max-nodes 2", "--nodes 4 is more than --max-nodes 2 allows"),
        ("--out-file r.html", "writes no .html files"),
        ("--out-file r.XLSX", "writes no .xlsx files"),
        ("--trace /no/such/folder/x.json", "Invalid value for '--trace': there is no folder"),
    ],
)
def test_what_makes_no_sense_is_a_usage_error(
    asked: Asked, words: str, message: str, capsys
) -> None:
    assert run(["estimate", "model.py", *words.split()]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err
    assert asked.question is None


def test_a_plan_that_is_several_things_at_once_is_named_once() -> None:
    answer = make_unworked_estimate()
    ids = dict(answer.headlines)
    same = answer.headlines.model_copy(
        update={"smallest": ids["cheapest"], "fastest": ids["cheapest"]}
    )
    answer = answer.model_copy(update={"headlines": same})
    text = to_text(render_estimate(answer, model="model.py", width=100), colour=False)
    assert text.count("\nCheapest ") == 1 and "the fastest and the smallest too" in text
    assert "\nFastest " not in text and "\nSmallest " not in text
