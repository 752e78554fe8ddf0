"""The whole way, on the real engine: a model file in, ranked and priced machines out."""

import json
import os
import stat
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from gpuplan import api
from gpuplan.cli.main import run
from gpuplan.launcher.store.estimates import Store

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
GPT2 = str(ROOT / "examples" / "gpt2.py")
SCHEMA = json.loads((ROOT / "docs" / "schema" / "estimate-1.0.json").read_text(encoding="utf-8"))
FEW = ["--accelerator", "A100,L4", "--max-nodes", "2"]

NOISY = """
import torch
print("hello from the file")
def build_model(width: int = 64):
    print("building")
    return torch.nn.Linear(width, width)
def make_batch(batch_size: int, width: int = 64):
    return (torch.randn(batch_size, width),)
def compute_loss(model, batch):
    return model(*batch).square().mean()
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(autouse=True)
def shared_cache(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Trace GPT-2 once for the tests of this file."""
    monkeypatch.setenv("GPUPLAN_HOME", str(home))


def estimate(capsys: Any, *words: str, code: int = 0) -> dict[str, Any]:
    assert run(["estimate", GPT2, *FEW, *words, "--format", "json"]) == code
    answer = json.loads(capsys.readouterr().out)
    jsonschema.validate(answer, SCHEMA)
    return answer


def test_json_without_work(capsys) -> None:
    answer = estimate(capsys)
    assert answer["workload"]["parameters"] == 124_439_808
    names = [plan["offer"]["accelerator"] for plan in answer["plans"]]
    assert {"A100-40GB-SXM", "A100-80GB-SXM", "L4"} <= set(names)
    picked = set(answer["headlines"].values())
    once = [p["offer"]["accelerator"] for p in answer["plans"] if p["id"] not in picked]
    assert len(once) == len(set(once)), "one plan per accelerator, and the headlines"
    assert picked <= {plan["id"] for plan in answer["plans"]}
    assert [plan["position"] for plan in answer["plans"]] == list(range(1, len(names) + 1))
    assert all(plan["run"] is None for plan in answer["plans"])


def test_a_curve_file_holds_for_its_accelerator_and_for_one_command(capsys, tmp_path) -> None:
    nodes = [1024, 4096]
    times_us = [m * n * k / 2**23 for m in nodes for n in nodes for k in nodes]
    grid = {**dict.fromkeys("mnk", nodes), "time_us": times_us, "relative_error": 0.01}
    facts = {"schema_version": 1, "accelerator": "L4", "version": "1", "sources": ["my lab"]}
    mine = tmp_path / "mine.json"
    mine.write_text(json.dumps({**facts, "gemm_grids": {"bf16": grid}}))
    how = ["--layout", "dp1", "--micro-batch", "4", "--precision", "bf16-amp"]

    def steps_s(*words: str) -> dict[str, float]:
        plans = estimate(capsys, *how, *words)["plans"]
        return {plan["offer"]["accelerator"]: plan["step_time_s"]["value"] for plan in plans}

    before, slow = steps_s(), steps_s("--curves", str(mine))
    assert slow["L4"] != before["L4"]
    assert slow["A100-40GB-SXM"] == before["A100-40GB-SXM"]
    assert steps_s() == before
    only = ["estimate", GPT2, "--accelerator", "L4", *how, "--explain", "1"]
    assert run([*only, "--curves", str(mine)]) == 0
    assert "my lab" in capsys.readouterr().out
    mine.write_text("{}")
    assert run([*only, "--curves", str(mine)]) == 2
    assert "mine.json" in capsys.readouterr().err


def test_top_cuts_the_list_and_keeps_the_headlines(capsys) -> None:
    every, few = estimate(capsys), estimate(capsys, "--top", "1")
    assert few["headlines"] == every["headlines"]
    assert few["plans"][0]["id"] == every["plans"][0]["id"]
    assert {plan["id"] for plan in few["plans"]} == {
        few["plans"][0]["id"],
        *few["headlines"].values(),
    }


def test_hours_and_dollars_follow_from_the_step_time(capsys) -> None:
    for plan in estimate(capsys, "--tokens", "1B")["plans"]:
        cost, step = plan["run"], plan["step_time_s"]
        steps = -(-(1e9 / 1024) // plan["global_batch"])
        assert cost["steps"] == steps
        assert cost["hours"] == pytest.approx(steps * step["value"] / 3600)
        assert cost["usd"] == pytest.approx(cost["hours"] * plan["usd_per_hour"], rel=1e-3)
        assert step["low"] < step["value"] < step["high"]
        parts = [part for part in plan["breakdown_s"].values() if part is not None]
        assert sum(parts) == pytest.approx(step["value"], rel=1e-6)
        memory = plan["peak_memory_bytes"]
        assert sum(plan["memory_breakdown_bytes"].values()) == pytest.approx(memory["value"])
        assert memory["value"] <= memory["capacity"]


def test_a_plan_fixed_by_hand_is_exactly_one(capsys) -> None:
    words = [
        "--instance",
        "p4d.24xlarge",
        "--nodes",
        "1",
        "--layout",
        "fsdp8",
        "--micro-batch",
        "2",
    ]
    assert run(["estimate", GPT2, *words, "--format", "json"]) == 0
    (plan,) = json.loads(capsys.readouterr().out)["plans"]
    assert plan["string"].startswith("fsdp8 mb2")
    assert (plan["grad_accum"], plan["recompute"], plan["compile"]) == (1, "none", False)
    assert plan["offer"]["purchase"] == "on-demand"


def test_nothing_feasible_is_exit_3(capsys) -> None:
    answer = estimate(capsys, "--tokens", "1T", "--deadline", "1min", code=3)
    assert answer["plans"] == []
    assert answer["rejected"]["past_deadline"] > 0


def test_the_same_question_has_the_same_plans_and_is_kept_once(capsys) -> None:
    first, second = estimate(capsys), estimate(capsys)
    ids = [plan["id"] for plan in first["plans"]]
    assert ids == [plan["id"] for plan in second["plans"]]
    assert [[plan.id for plan in kept.plans] for kept in Store().estimates()].count(ids) == 1
    assert run(["show", ids[0]]) == 0
    assert first["plans"][0]["string"] in capsys.readouterr().out


def test_the_trace_ends_with_the_step(capsys, tmp_path: Path) -> None:
    path = tmp_path / "step.json"
    (first, *_) = estimate(capsys, "--trace", str(path))["plans"]
    events = json.loads(path.read_text())["traceEvents"]
    spans = [event for event in events if event["ph"] == "X"]
    ends = [span["ts"] + span["dur"] for span in spans]
    assert max(ends) == pytest.approx(first["step_time_s"]["value"] * 1e6, rel=0.01)
    assert {event["tid"] for event in spans} == {
        event["tid"] for event in events if event["name"] == "thread_name"
    }


def test_fits_says_yes_and_no(capsys) -> None:
    assert run(["fits", GPT2, "--on", "A100-80GB"]) == 0
    assert capsys.readouterr().out.startswith("Yes,")
    assert run(["fits", GPT2, "--on", "T4", "--micro-batch", "512"]) == 3
    out = capsys.readouterr().out
    assert out.startswith("No,")
    assert "--micro-batch" in out


def test_a_file_that_prints_leaves_json_valid(capsys, tmp_path: Path) -> None:
    (tmp_path / "noisy.py").write_text(NOISY)
    words = ["estimate", str(tmp_path / "noisy.py"), "--accelerator", "L4", "--format", "json"]
    assert run([*words, "--param", "width=128"]) == 0
    assert json.loads(capsys.readouterr().out)["workload"]["parameters"] == 128 * 129


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--accelerator", "H10O"], "Did you mean H100"),
        (["--provider", "awss"], "Did you mean aws"),
        (["--region", "us-eest-1"], "Did you mean"),
        (["--instance", "p4d.24xlarg"], "Did you mean p4d.24xlarge"),
        (["--param", "layerz=3"], "layers"),
        (["--offers", "nowhere.yaml"], "nowhere.yaml"),
    ],
)
def test_names_that_nobody_knows(words: list[str], message: str, capsys) -> None:
    assert run(["estimate", GPT2, *words]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err
    assert "Traceback" not in err


def test_a_store_that_cannot_be_written_is_a_warning(capsys, home: Path) -> None:
    data = home / "data"
    data.mkdir(exist_ok=True)
    kept = home / "kept"
    data.rename(kept)
    data.write_text("in the way")
    try:
        assert run(["estimate", GPT2, *FEW, "--format", "json"]) == 0
        out, err = capsys.readouterr()
        assert json.loads(out)["plans"]
        assert err.startswith("Warning: this estimate is not kept.")
    finally:
        data.unlink()
        kept.rename(data)


def test_the_api_answers_what_the_command_prints(capsys) -> None:
    machine = api.Machine(accelerators=("A100", "L4"), max_nodes=2)
    answer = api.estimate(GPT2, api.Question(machine=machine))
    assert [plan.id for plan in answer.plans] == [plan["id"] for plan in estimate(capsys)["plans"]]


def test_out_file_is_written_whole(tmp_path: Path) -> None:
    path = tmp_path / "plans.csv"
    assert run(["estimate", GPT2, *FEW, "--out-file", str(path)]) == 0
    assert path.read_text().startswith("id,position,string,")
    assert os.listdir(tmp_path) == ["plans.csv"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
