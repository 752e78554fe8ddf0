"""The expected dollars of a plan are one number, wherever they stand: to the cent."""

import re
from dataclasses import replace
from decimal import Decimal
from itertools import product
from pathlib import Path

import pytest

from gpuplan import api
from gpuplan.catalog.text.money import format_money, format_money_interval
from gpuplan.cli.render.plans.explain_markdown import plan_markdown
from gpuplan.cli.render.runs.launch import render_launch
from gpuplan.launcher.prepare.prepared import Prepared
from gpuplan.launcher.prepare.request import LaunchRequest, parse_outputs
from gpuplan.planner.budget.planned import run_cost_of
from gpuplan.planner.plan.plan import Plan

MODEL = """
import torch

def build_model():
    return torch.nn.Sequential(*(torch.nn.Linear(2048, 2048) for _ in range(8)))

def make_batch(batch_size):
    return (torch.randn(batch_size, 2048),)

def compute_loss(model, batch):
    return model(*batch).square().mean()

def build_dataset():
    return torch.utils.data.TensorDataset(torch.randn(64, 2048))
"""
BOOK = """
discounts:
  - {percent: 12, provider: aws}
  - {percent: 30, provider: gcp}
  - {percent: 7, provider: gcp, purchase: spot}
reserved:
  - {provider: aws, instance: p4d.24xlarge, region: us-east-1, usd_per_hour: 7.3,
     upfront_usd: 20000, term_years: 1, count: 2}
credits:
  - {provider: gcp, usd: 40, expires: 2027-01-31}
currency: {code: EUR, per_usd: 0.92, date: 2026-11-01}
tax_percent: 19
"""
ASKED = {
    "on demand": api.Money(),
    "spot": api.Money(purchase="spot"),
    "a term that is shared": api.Money(purchase="committed-1y"),
    "a term that is held": api.Money(purchase="reserved"),
    "whatever costs least": api.Money(purchase="any"),
}
BOOKS = {"list prices": None, "own terms": Path("book.yaml")}
SHORT, LONG = LENGTHS = (3_000, 2_500_000)
PLAIN, CROSSED = (
    {("list prices", SHORT), ("own terms", LONG)},
    {("list prices", LONG), ("own terms", SHORT)},
)
WHOLE = {
    "on demand": PLAIN,
    "spot": CROSSED,
    "a term that is shared": PLAIN,
    "a term that is held": CROSSED,
    "whatever costs least": PLAIN,
}
"""Cases that are always looked at: all terms and lengths, each with every purchase."""
MORE = [pytest.mark.slow, pytest.mark.repeats]
SELLERS = ("aws", "gcp", "lambda", "verda")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("net.py").write_text(MODEL)
    Path("book.yaml").write_text(BOOK)
    return tmp_path


def launched(plan: Plan) -> Prepared:
    """Return its launch; a spot one is of a SkyPilot server that is its own controller."""
    request = LaunchRequest(outputs=parse_outputs("s3://bucket/runs"), has_controller=False)
    return api.launch(plan.id, replace(request))


def in_all_usd(prepared: Prepared) -> float:
    """Return what a launch says is expected with what is surely paid beside its machines."""
    told = (re.search(r"\$([\d,]+\.\d\d) are expected", one) for one in prepared.notes)
    sums = [float(one[1].replace(",", "")) for one in told if one]
    return sums[0] if sums else float(prepared.cost.usd_expected or 0)


@pytest.mark.parametrize(
    ("book", "steps", "bought"),
    [
        pytest.param(
            *(BOOKS[terms], steps, bought),
            id=f"{terms}-{steps}-{bought}",
            marks=[] if (terms, steps) in WHOLE[bought] else MORE,
        )
        for terms, steps, bought in product(BOOKS, LENGTHS, ASKED)
    ],
)
def test_expected_dollars_are_the_same_wherever_they_stand(
    folder: Path, bought: str, steps: int, book: Path | None
) -> None:
    question = api.Question(
        work=api.Work(steps=steps, global_batch=256),
        money=ASKED[bought],
        machine=api.Machine(providers=SELLERS, max_nodes=1),
        top=12,
    )
    inputs = api.read_inputs("net.py", machine=question.machine, pricebook=book)
    answer = api.estimate(inputs, question)
    api.keep(answer, inputs=inputs, question=question)
    if not answer.plans:
        assert bought == "a term that is held" and book is None
    compared = 0
    for plan in answer.plans:
        job, run = plan.whole_job, plan.run
        assert job is not None and run is not None and job.usd is not None
        usd = job.usd
        assert run.expected_usd == float(usd), "JSON"
        assert sum((line.usd for line in job.cost_lines), Decimal(0)) == usd, "its own lines"
        assert usd == Decimal(str(run_cost_of(plan).usd)), "a report"
        explained = plan_markdown(plan, answer, sources={})
        assert format_money_interval(*plan.usd_ends) in explained, "show"
        for line in job.cost_lines:
            assert not line.usd or f"| {format_money(line.usd)} |" in explained, "its lines"
        if not plan.runnable:
            continue
        prepared = launched(plan)
        assert prepared.cost.usd_expected == usd, (plan.place, plan.offer.purchase, "launch")
        assert prepared.answer().usd_expected == usd, "its JSON"
        if plan.offer.purchase == "on-demand":
            assert plan.usd_ends[1] is not None
            # Its hours are those that are billed, rounded up: of disks a cent or two.
            assert in_all_usd(prepared) == pytest.approx(plan.usd_ends[1], abs=0.03), "its note"
        shown = [line.plain for line in render_launch(prepared)]
        assert any(line.startswith("  expected") and f"${usd:,.2f}" in line for line in shown)
        compared += 1
    assert compared or not answer.plans
