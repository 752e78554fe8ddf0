"""`gpuplan launch`: what it shows, refuses and rents, on an engine in memory."""

import json
import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest
import yaml
from fake_engine import FakeEngine

from gpuplan import api
from gpuplan.cli.main import run
from gpuplan.launcher.prepare.prepared import LaunchAnswer
from gpuplan.launcher.skypilot import prices
from gpuplan.launcher.store.estimates import Store
from gpuplan.launcher.store.origin import origin_of
from gpuplan.planner.plan.plan import Plan
from gpuplan.planner.plan.question import Money, Question
from gpuplan.profiles.user_model.spec import parse_model_spec

OUTPUTS = ("--outputs", "s3://results/team")


def test_the_dry_run_prints_the_task_alone_and_writes_nothing(plan: Plan, capsys) -> None:
    before = sorted(Path().rglob("*"))
    assert run(["launch", "--provider", "aws", *OUTPUTS, "--dryrun"]) == 0
    captured = capsys.readouterr()
    task = yaml.safe_load(captured.out)
    assert task["resources"]["infra"] == "aws/us-east-1"
    assert task["resources"]["labels"]["gpuplan-plan"] == plan.id
    assert "$" in captured.err and "training" in captured.err
    assert "$" not in captured.out.replace("$HOME", "").partition("setup:")[0]
    assert sorted(Path().rglob("*")) == before


def test_machines_carry_the_store_and_the_owner_as_the_dry_run_says(
    plan: Plan, engine: FakeEngine, capsys
) -> None:
    words = ["launch", plan.id, *OUTPUTS, "--owner", "Team A"]
    assert run([*words, "--dryrun"]) == 0
    shown = yaml.safe_load(capsys.readouterr().out)["resources"]["labels"]
    assert run([*words, "-y"]) == 0
    sent = engine.tasks[-1]["resources"]["labels"]
    assert sent["gpuplan-store"] == shown["gpuplan-store"] == Store().id()
    assert sent["gpuplan-owner"] == shown["gpuplan-owner"] == "team-a"


def test_machines_carry_a_store_that_the_launch_itself_made(
    plan: Plan, engine: FakeEngine, capsys
) -> None:
    Path("plan.json").write_text(plan.model_dump_json())
    Store().path.unlink()
    words = ["launch", "plan.json", "--model", "net.py", *OUTPUTS]
    assert run([*words, "--dryrun"]) == 0
    assert not Store().path.exists(), "a dry run makes no store"
    assert "gpuplan-store" not in yaml.safe_load(capsys.readouterr().out)["resources"]["labels"]
    assert run([*words, "-y"]) == 0
    assert engine.tasks[-1]["resources"]["labels"]["gpuplan-store"] == Store().id()


def test_one_screen_says_what_it_costs_what_ends_it_and_where_results_land(
    plan: Plan, capsys
) -> None:
    run(["launch", plan.id, *OUTPUTS, "--region", "us-east-1,us-west-2", "--dryrun"])
    said = capsys.readouterr().err.splitlines()
    results = next(line for line in said if line.startswith("  results "))
    assert re.fullmatch(r"  results +s3://results/team/net-\d{8}-\d{6}-[0-9a-f]{6}", results)
    said.remove(results)
    sent = next(line for line in said if line.startswith("  sent to each node"))
    assert sent == f"  sent to each node   48 B, 1 file of {Path.cwd()}"
    said.remove(sent)
    assert said == [
        "net, 124M parameters, 1.25B tokens in 19,073 steps of 64 samples, bf16-amp",
        "data: build_dataset() of net.py; 19,073 steps of 64 are 1,220,672 samples",
        f"Plan {plan.id}: 8 × A100-40GB-SXM · aws 1 × p4d.24xlarge us-east-1",  # noqa: RUF001
        "  at worst                      3.0 h        $66.01"
        "  slowest start, top of the 80 % interval, idle end",
        "  expected                      2.4 h        $51.63  $21.96 an hour",
        "    provisioning              5.0 min         $1.83",
        "    setup                     5.0 min         $1.83",
        "    staging                       0 s         $0.00",
        "    training                    2.2 h        $47.97",
        "    billing increment             0 s         $0.00",
        "  tried in order      on-demand, aws/us-east-1 ($21.96 a node),"
        " aws/us-west-2 ($21.96 a node)",
        "  ends                after its last step, 19,073",
        "                      15.0 min without a step; a loss that is no number",
        "                      when its first steps say that it costs more than $66.38,"
        " until you say so",
        "                      then the machines go: at once,"
        " or 6.0 min later if no command follows",
        "                      largest: net.py 48 B",
        "Note: disks, buckets and traffic between regions are not in these sums: public addresses"
        " $0.01.",
        "Note: set-up is stopped after 2.5 h at the latest.",
        "Note: if your laptop, SkyPilot and the guard are all gone, machines of aws power"
        " themselves off after 3.0 h ($65.88) without set-up or a run, and at the latest after"
        " 31.3 h ($686.88); EC2 then terminates them with their disks, which this command sets as"
        " soon as they are up (if it cannot, it says so, and their disks stay billed until"
        " `gpuplan reconcile`).",
    ]


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        ((), 0, "before it costs $60.00, the --budget of the estimate; at 20"),
        (("--max-cost", "90"), 0, "before it costs $90.00, --max-cost; at 20"),
        (("--deadline", "9h"), 0, ", --deadline; 15.0 min without a step"),
        ((), 0, ", the --deadline of the estimate; 15.0 min without a step"),
        (("--steps", "30000"), 4, "more than the --budget of the estimate $60.00"),
    ],
)
def test_the_limits_of_the_estimate_hold_and_the_screen_says_whose_they_are(
    options: tuple[str, ...], code: int, said: str, plan: Plan, engine: FakeEngine, capsys
) -> None:
    question = Question(money=Money(budget_usd=Decimal(60), deadline_s=8 * 3600.0))
    spec = parse_model_spec("net.py", params={"width": 4})
    kept = Store().newest_of(Path.cwd())
    assert kept is not None
    origin = origin_of(spec, question, folder=Path.cwd(), offers=None)
    Store().keep(kept.estimate, inputs_hash="limited", origin=origin)
    assert run(["launch", plan.id, *OUTPUTS, *options, "-y"]) == code
    assert said in capsys.readouterr().err
    if not options:
        orders = json.loads(next(Path("gpuplan-launches").glob("*/job/guard.json")).read_text())
        assert orders["max_cost_usd"] == 60.0
        assert orders["deadline_s"] is not None


def test_json_holds_the_promised_keys(plan: Plan, capsys) -> None:
    assert run(["launch", plan.id, *OUTPUTS, "--dryrun", "--format", "json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    answer = LaunchAnswer.model_validate(printed)
    assert set(printed) >= {"task", "command", "usd_per_hour", "usd_expected", "usd_worst"}
    assert printed["usd_per_hour"] == 21.96
    assert answer.usd_expected == sum(line.usd for line in answer.cost_lines)
    assert printed["command"].startswith(f"sky launch -y -c {printed['task']['name']} ")


def test_quiet_says_nothing_on_stderr(plan: Plan, capsys) -> None:
    assert run(["launch", plan.id, *OUTPUTS, "--dryrun", "-q"]) == 0
    assert capsys.readouterr().err == ""


def test_nothing_is_rented_unasked(plan: Plan, engine: FakeEngine, capsys) -> None:
    assert run(["launch", plan.id, *OUTPUTS]) == 2
    said = capsys.readouterr().err
    assert "there is no terminal to ask on" in said
    assert said.index("at worst") < said.index("Error:")
    assert said.splitlines()[-1] == f"  gpuplan launch {plan.id} {' '.join(OUTPUTS)} -y"
    assert engine.tasks == []
    assert not Path("gpuplan-launches").exists()
    assert run(["history"]) == 0
    assert "No launch was made yet" in capsys.readouterr().out


def test_a_launch_from_the_question_to_the_account(plan: Plan, engine: FakeEngine, capsys) -> None:
    assert run(["launch", plan.id, *OUTPUTS, "-y", "--max-cost", "60", "--format", "json"]) == 0
    captured = capsys.readouterr()
    record = json.loads(captured.out)
    assert (record["state"], record["outcome"]) == ("ended", "succeeded")
    assert record["reserved_usd"] == 60
    assert "step 1\n" in captured.err
    assert re.search(
        r"spent \$\d+\.\d\d, predicted \$\d+\.\d\d–\d+\.\d\d, saved at s3://results/", captured.err
    )
    assert engine.live() == []
    (task,) = engine.tasks
    assert task["resources"]["autostop"] == {"idle_minutes": 5, "down": True, "wait_for": "jobs"}
    folder = Path(record["folder"])
    orders = json.loads((folder / "job" / "guard.json").read_text())
    assert orders["max_cost_usd"] == 60
    assert orders["requested_at_s"] > 1.7e9
    assert (folder / "job" / "gpuplan_guard" / "guard" / "main.py").exists()


def test_the_higher_price_is_said_and_counts(
    plan: Plan, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    monkeypatch.setattr(prices, "skypilot_prices", lambda _task: [Decimal("43.92")])
    assert run(["launch", plan.id, *OUTPUTS, "-y", "--format", "json"]) == 0
    captured = capsys.readouterr()
    assert (
        "Note: aws/us-east-1: the plan says $21.96/h, SkyPilot's own table $43.92/h (+100%)."
        in captured.err
    )
    record = json.loads(captured.out)
    assert record["reserved_usd"] == 132.02
    assert record["places"][0]["usd_per_hour"] == 43.92
    (path,) = Path("gpuplan-launches").glob("*/job/guard.json")
    orders = json.loads(path.read_text())
    assert orders["usd_per_hour"] == 43.92
    assert orders["usd_per_hour_at"] == {"aws/us-east-1": 43.92}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["--max-hourly-cost", "30"],
            "cost $43.92 an hour in aws/us-east-1, more than --max-hourly-cost $30.00",
        ),
        (["--max-cost", "80"], "more than --max-cost $80.00 (at worst: $132.02)"),
    ],
)
def test_limits_are_checked_again_at_the_higher_price(
    plan: Plan,
    engine: FakeEngine,
    monkeypatch: pytest.MonkeyPatch,
    capsys,
    words: list[str],
    said: str,
) -> None:
    launch = ["launch", plan.id, *OUTPUTS, "-y", "--detach", *words]
    monkeypatch.setattr(prices, "skypilot_prices", lambda _task: [Decimal("43.92")])
    assert run(launch) == 4
    assert said in capsys.readouterr().err
    assert engine.tasks == []
    monkeypatch.setattr(prices, "skypilot_prices", lambda _task: [Decimal("10.98")])
    assert run(launch) == 0
    (path,) = Path("gpuplan-launches").glob("*/job/guard.json")
    assert json.loads(path.read_text())["usd_per_hour"] == 21.96, "the plan's is the higher one"


def test_where_there_is_no_capacity_the_next_best_plan_is_offered(
    plan: Plan, engine: FakeEngine, capsys
) -> None:
    engine.no_capacity = True
    assert run(["launch", plan.id, *OUTPUTS, "-y", "-q"]) == 3
    said = capsys.readouterr().err
    assert re.search(r"take the next-best plan, [0-9a-f]{10} \(gcp", said)
    assert run(["launch", *OUTPUTS, "-y", "--any-plan", "-q"]) == 3
    assert len(engine.tasks) == 3
    assert capsys.readouterr().err.count("Trying plan") == 1
    assert run(["history", "--format", "json"]) == 0
    totals = json.loads(capsys.readouterr().out)["totals"]
    assert totals == {"launches": 3, "node_hours": 0, "spent_usd": 0.0}


def test_ctrl_c_leaves_the_job_to_itself_and_says_how_to_find_it(
    plan: Plan, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(engine, "tail", interrupted)
        assert run(["launch", plan.id, *OUTPUTS, "-y"]) == 130
    said = capsys.readouterr().err
    found = re.search(r"gpuplan stop (net-\S+)", said)
    assert found is not None
    assert len(engine.live()) == 1
    assert run(["status"]) == 0
    assert re.search(found[1] + r" +trains +aws/us-east-1", capsys.readouterr().out)
    assert run(["stop", found[1]]) == 0
    assert engine.live() == []
    assert run(["status"]) == 0
    assert "no launch costs money" in capsys.readouterr().out


def test_a_limit_counts_what_was_launched_before(plan: Plan, engine: FakeEngine, capsys) -> None:
    limited = ["launch", plan.id, *OUTPUTS, "-y", "-q", "--detach", "--month-limit", "100"]
    assert run(limited) == 0
    assert run(limited) == 4
    assert "month 2" in (said := capsys.readouterr().err) and "has committed $66.01" in said
    assert len(engine.tasks) == 1
    (path,) = Path("gpuplan-launches").glob("*/job/guard.json")
    assert json.loads(path.read_text())["max_cost_usd"] == 66.01


def test_a_question_that_stood_until_the_deadline_rents_nothing(
    plan: Plan, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    class TomorrowMorning:
        now = staticmethod(lambda _zone: datetime.now(UTC) + timedelta(hours=8))

    monkeypatch.setattr(api.launches, "datetime", TomorrowMorning)
    line = ["launch", "--provider", "aws", *OUTPUTS, "--deadline", "9h", "-y"]
    assert run(line) == 4
    assert "--deadline is in" in capsys.readouterr().err
    assert engine.tasks == []
    assert api.launches.history(api.launches.context(engine=engine)) == []


@pytest.mark.parametrize("words", [["--help"], ["launch", "--help"], ["plans"]])
def test_skypilot_is_not_imported(words: list[str]) -> None:
    program = (
        "import sys; from gpuplan.cli.main import run; code = run(sys.argv[1:]);"
        "sys.exit(code or ('sky' in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_nothing_that_is_installed_imports_skypilot() -> None:
    root = Path(__file__).parents[3]
    folders = ("catalog", "profiles", "planner", "launcher", "api", "cli")
    files = [file for name in folders for file in (root / name).rglob("*.py")]
    importing = [str(file) for file in files if "import sky\n" in file.read_text(encoding="utf-8")]
    assert importing == []


@pytest.mark.slow
def test_a_stale_plan_is_planned_again(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    model = Path("net.py")
    model.write_text(
        "import torch\n"
        "def build_model(width=512): return torch.nn.Linear(width, width)\n"
        "def make_batch(batch_size, width=512): return (torch.randn(batch_size, width),)\n"
        "def build_dataset(width=512): return torch.randn(64, width)\n"
        "def compute_loss(model, batch): return model(*batch).square().mean()\n"
    )
    asked = ["estimate", "net.py", "--param", "width=256", "--samples", "10M", "-q"]
    assert run([*asked, "--provider", "aws", "--accelerator", "T4", "--format", "json"]) == 0
    first = json.loads(capsys.readouterr().out)["plans"][0]["id"]
    model.write_text(model.read_text().replace("512", "1024"))
    dry = ["launch", first, *OUTPUTS, "--dryrun", "--format", "json"]
    assert run(dry) == 2
    assert "has changed since" in capsys.readouterr().err
    assert run([*dry, "--replan"]) == 0
    again = json.loads(capsys.readouterr().out)["plan"]
    assert run(["launch", again, *OUTPUTS, "--dryrun", "-q"]) == 0
