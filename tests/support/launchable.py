"""A model in a folder, a plan of it, and the plan made ready to launch."""

from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

from answers import make_estimate, make_plan, make_run
from launches import BUCKET, make_project

from gpuplan.catalog.snapshot import load_catalogue
from gpuplan.launcher.prepare.prepare import prepare
from gpuplan.launcher.prepare.prepared import Prepared
from gpuplan.launcher.prepare.request import LaunchRequest
from gpuplan.launcher.store.estimates import Store
from gpuplan.launcher.store.origin import origin_of
from gpuplan.launcher.store.sourced_plan import SourcedPlan
from gpuplan.planner.plan.answer.answer_parts import CatalogueFacts
from gpuplan.planner.plan.answer.estimate import Estimate
from gpuplan.planner.plan.plan import Plan
from gpuplan.planner.plan.question import Question
from gpuplan.profiles.user_model.spec import parse_model_spec

MODEL = """
import torch

def build_model(width=8):
    return torch.nn.Linear(width, 1)

def make_batch(batch_size, width=8):
    return (torch.randn(batch_size, width),)

def compute_loss(model, batch):
    return model(*batch).square().mean()

def build_dataset(width=8):
    return torch.utils.data.TensorDataset(torch.randn(64, width))
"""


TODAY = load_catalogue().snapshot_date


NOW = datetime(2026, 11, 21, 23, 26, 38)


def priced_on(day: date) -> Estimate:
    estimate = make_estimate()
    catalog = estimate.catalog.model_copy(update={"snapshot_date": day})
    return estimate.model_copy(update={"catalog": catalog})


def given_plan(plan: Plan | None = None, *, params: dict[str, Any] | None = None) -> SourcedPlan:
    spec = parse_model_spec("net.py", params=params)
    return SourcedPlan(
        plan=plan or make_plan(run=make_run()),
        estimate=priced_on(TODAY),
        origin=origin_of(spec, Question(), folder=Path.cwd(), offers=None),
    )


def prepared(given: SourcedPlan, request: LaunchRequest | None = None, **changes: Any) -> Prepared:
    facts: dict[str, Any] = {
        "catalogue": load_catalogue(),
        "folder": Path.cwd(),
        "now": lambda: NOW,
        "unique": lambda: "a1b2c3",
    }
    spec = None if given.origin is None else given.origin.spec
    return prepare(
        given,
        spec,
        make_project(workdir=Path.cwd()),
        request or LaunchRequest(outputs=BUCKET),
        **{**facts, **changes},
    )


def plan_without_data(text: str = "def build_model(): ...\n") -> str:
    """Keep an estimate of a file without a data set; return its plan's id."""
    Path("bare.py").write_text(text)
    kept = make_plan(run=make_run(), runnable=True)
    facts = CatalogueFacts(snapshot_date=load_catalogue().snapshot_date, offers=1)
    origin = origin_of(parse_model_spec("bare.py"), Question(), folder=Path.cwd(), offers=None)
    now = datetime.now(UTC).isoformat(timespec="seconds")
    answer = make_estimate(kept, catalog=facts, generated_at=now)
    Store().keep(answer, inputs_hash="b", origin=origin)
    return kept.id
