"""Which plan is launched, and when it is too old to be."""

from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from answers import make_estimate, make_offer, make_plan, make_run
from launchable import given_plan, prepared, priced_on

from gpuplan.catalog.errors import NoFeasiblePlanError, UsageError
from gpuplan.catalog.listing.sources import PriceSource
from gpuplan.catalog.snapshot import load_catalogue
from gpuplan.launcher.prepare import plan_choice
from gpuplan.launcher.prepare.request import LaunchRequest
from gpuplan.launcher.store.estimates import Store
from gpuplan.launcher.store.origin import files_hash, origin_of
from gpuplan.planner.plan.layout import parse_layout
from gpuplan.planner.plan.plan import Plan
from gpuplan.planner.plan.question import Choices, Money, Question, Work
from gpuplan.profiles.user_model.spec import parse_model_spec


def test_an_origin_comes_back_as_it_was_kept(folder: Path) -> None:
    question = Question(
        work=Work(tokens=1e9),
        choices=Choices(layouts=(parse_layout("hsdp2x8.tp4.sp"),)),
        money=Money(budget_usd=Decimal("400.50")),
    )
    spec = parse_model_spec("net.py", params={"width": 4}, inputs=["3,4:int64"])
    origin = origin_of(spec, question, folder=folder, offers=Path("mine.yaml"))
    plan = make_plan()
    Store().keep(make_estimate(plan), inputs_hash="a", origin=origin)
    kept = Store().newest_of(folder)
    assert kept is not None
    assert kept.origin == origin == Store().find_plan(plan.id).origin
    assert kept.origin.question == question
    assert kept.origin.spec == spec
    assert kept.estimate == make_estimate(plan)


def test_an_estimate_of_an_older_version_has_no_origin(folder: Path) -> None:
    plan = make_plan()
    Store().keep(make_estimate(plan), inputs_hash="a")
    assert Store().find_plan(plan.id).origin is None
    assert Store().newest_of(folder) is None


def keep(*plans: Plan, where: Path, generated_at: str = "2026-11-20T10:00:00+00:00") -> None:
    origin = origin_of(parse_model_spec("net.py"), Question(), folder=where, offers=None)
    answer = make_estimate(*plans, generated_at=generated_at)
    Store().keep(answer, inputs_hash=generated_at, origin=origin)


def choose(
    folder: Path,
    *providers: str,
    plan: str | None = None,
    spot: bool = False,
    command: str | None = None,
) -> Plan:
    request = LaunchRequest(providers=providers, spot=spot or None, command=command)
    return plan_choice.chosen(plan, request, folder=folder, store=Store()).plan


def test_the_cheapest_plan_of_the_last_estimate_here_is_taken(folder: Path) -> None:
    def plan(
        position: int, usd_per_hour: float, kind: str = "p4d.24xlarge", **changes: Any
    ) -> Plan:
        offer = make_offer(instance_type=kind, usd_per_hour=usd_per_hour)
        facts = {"offer": offer, "run": make_run(), "runnable": True}
        return make_plan(position, **{**facts, **changes})

    dear = plan(1, 30.0)
    cheap = plan(2, 20.0)
    spotty = plan(3, 25.0, "p3.2xlarge")  # Its spot price is a twentieth of the others'.
    slow = plan(4, 19.0, samples_per_s=1.0)
    offer = make_offer(provider="gcp", instance_type="a2-highgpu-8g", usd_per_hour=10.0)
    other = plan(5, 10.0, offer=offer)
    not_run = plan(6, 5.0, runnable=False)
    port = plan(7, 4.0, needs_port=True)
    nowhere = plan(8, 1.0, offer=make_offer(provider="coreweave", usd_per_hour=1.0))
    keep(make_plan(run=make_run(usd=1.0)), where=folder)
    keep(
        dear, cheap, spotty, slow, other, not_run, port, nowhere,
        where=folder, generated_at="2026-11-21T10:00:00+00:00",
    )  # fmt: skip
    keep(
        make_plan(run=make_run(usd=2.0)),
        where=folder / "elsewhere",
        generated_at="2026-11-22T10:00:00+00:00",
    )
    assert choose(folder, "aws") == cheap
    assert choose(folder, "aws", spot=True) == spotty
    assert choose(folder) == other
    assert choose(folder, "aws", command="train.py") == port
    assert choose(folder, plan=dear.id) == dear
    with pytest.raises(NoFeasiblePlanError, match="no priced plan on azure"):
        choose(folder, "azure")
    with pytest.raises(UsageError, match="is on gcp, not on aws"):
        choose(folder, "aws", plan=other.id)


def test_a_plan_that_may_run_out_of_memory_is_taken_only_by_its_name(folder: Path) -> None:
    risky = make_plan(1, run=make_run(usd=1.0), runnable=True, p_oom=0.14)
    keep(risky, where=folder)
    with pytest.raises(NoFeasiblePlanError, match=r"run out of memory; plan \w+ does .* 14 %") as e:
        choose(folder)
    assert f"gpuplan launch {risky.id}" in str(e.value)
    assert choose(folder, plan=risky.id) == risky
    dearer = make_offer(instance_type="p4d.24xlarge", usd_per_hour=90.0)
    safe = make_plan(2, run=make_run(), runnable=True, p_oom=0.01, offer=dearer)
    keep(risky, safe, where=folder, generated_at="2026-11-21T10:00:00+00:00")
    assert choose(folder) == safe


def test_no_estimate_here(folder: Path) -> None:
    with pytest.raises(UsageError, match="no estimate was made in this folder"):
        choose(folder)


@pytest.mark.parametrize("changed", ["net.py", "parts.py"])
def test_a_plan_whose_files_have_changed_is_stale(folder: Path, changed: str) -> None:
    given = given_plan()
    prepared(given)
    (folder / changed).write_text((folder / changed).read_text() + "# changed\n")
    with pytest.raises(UsageError, match=r"net\.py, or a file that it imports, has changed") as e:
        prepared(given)
    assert "--replan" in str(e.value)


def test_a_file_that_is_gone_has_changed(folder: Path) -> None:
    given = given_plan()
    (folder / "net.py").unlink()
    with pytest.raises(UsageError, match="has changed"):
        prepared(given)


def test_a_file_of_a_package_is_hashed_with_its_neighbours(folder: Path) -> None:
    (folder / "rel.py").write_text("from . import other\n")
    (folder / "other.py").write_text("A = 1\n")
    spec = parse_model_spec("rel.py")
    before = files_hash(spec)
    (folder / "other.py").write_text("A = 2\n")
    assert files_hash(spec) != before


def test_a_plan_with_old_prices_is_stale(folder: Path) -> None:
    given = replace(given_plan(), estimate=priced_on(date(2020, 1, 1)))
    with pytest.raises(UsageError, match="prices of 2020-01-01"):
        prepared(given)


def test_a_plan_from_before_a_refresh_of_the_same_day_is_stale(folder: Path) -> None:
    given = given_plan()
    source = PriceSource(kind="refreshed", made_at=datetime(2026, 11, 20, 9, tzinfo=UTC))
    catalogue = replace(load_catalogue(), price_source=source)
    with pytest.raises(UsageError, match="those of 2026-11-20 09:00:00 UTC"):
        prepared(given, catalogue=catalogue)
    assert given.estimate is not None
    catalog = given.estimate.catalog.model_copy(update={"source": source})
    estimate = given.estimate.model_copy(update={"catalog": catalog})
    assert prepared(replace(given, estimate=estimate), catalogue=catalogue).plan == given.plan


def test_another_model_or_other_params_are_refused(folder: Path) -> None:
    given = given_plan(params={"width": 4})
    plan_choice.refuse_another_model(given, parse_model_spec("net.py", params={"width": 4}))
    with pytest.raises(UsageError, match="with width=4, not with width=5"):
        plan_choice.refuse_another_model(given, parse_model_spec("net.py", params={"width": 5}))
    with pytest.raises(UsageError, match=r"for net\.py, not for parts\.py"):
        plan_choice.refuse_another_model(given, parse_model_spec("parts.py", params={"width": 4}))
