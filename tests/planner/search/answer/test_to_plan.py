"""What a plan says of the software that its device needs and of how its machine is had."""

from dataclasses import replace
from decimal import Decimal

import pytest

from gpuplan.catalog.snapshot import load_catalogue
from gpuplan.catalog.vocabulary import PurchaseWish
from gpuplan.planner.cost.beside_machines.beside import AROUND_LINES, total_usd
from gpuplan.planner.plan.plan import Plan, WholeJob
from gpuplan.planner.plan.question import Choices, Machine, Money, Question, Work
from gpuplan.planner.search.answer.recommended import cost_of
from gpuplan.planner.search.search import search
from gpuplan.profiles.profile import Profile

CATALOGUE = load_catalogue()


def plan_on(profile: Profile, instance_type: str) -> Plan:
    question = Question(
        work=Work(global_batch=64),
        machine=Machine(instances=(instance_type,), max_nodes=1),
        choices=Choices(recomputes=("none",)),
    )
    return search(question, profile, CATALOGUE).plans[0]


def test_a_spot_plan_says_what_the_same_job_costs_on_demand(toy: Profile) -> None:
    """It is the cost of the plan on demand: its own stops, and no controller beside it."""
    question = Question(
        work=Work(steps=3_000_000, global_batch=64),
        machine=Machine(instances=("p4d.24xlarge",), regions=("us-east-1",), max_nodes=1),
        choices=Choices(recomputes=("none",), precisions=("bf16-amp",)),
    )
    hourly = search(question, toy, CATALOGUE).plans[0]
    spot = search(replace(question, money=Money(purchase="spot")), toy, CATALOGUE).plans[0]
    assert spot.string == hourly.string and spot.offer.purchase == "spot"
    assert spot.whole_job is not None and spot.whole_job.on_demand_usd is not None
    assert float(spot.whole_job.on_demand_usd) == pytest.approx(cost_of(hourly), rel=1e-3)
    assert float(spot.whole_job.on_demand_usd) > 1.2 * (cost_of(spot) or 0.0)
    assert hourly.whole_job is not None and hourly.whole_job.on_demand_usd is None


def spot_job(profile: Profile, provider: str, region: str, instance_type: str) -> WholeJob:
    """Return the whole job of days on spot machines of one type."""
    question = Question(
        work=Work(steps=200_000_000, global_batch=64),
        machine=Machine(
            providers=(provider,), regions=(region,), instances=(instance_type,), max_nodes=1
        ),
        choices=Choices(recomputes=("none",), precisions=("fp32",)),
        money=Money(purchase="spot"),
    )
    job = search(question, profile, CATALOGUE).plans[0].whole_job
    assert job is not None and job.usd is not None
    return job


def test_a_spot_plan_pays_for_the_controller_and_says_the_exact_sum(toy: Profile) -> None:
    job = spot_job(toy, "aws", "us-east-1", "g4dn.4xlarge")
    lines = {line.name: line for line in job.data_lines}
    controller = lines["SkyPilot's controller"]
    assert controller.unit_usd == Decimal("0.192")
    assert controller.quantity == pytest.approx(job.hours + 1 / 6)
    sure = [line.usd for line in job.data_lines if line.is_certain]
    assert len(sure) == 4 and None not in sure, "disks, checkpoints, controller, idle tail"
    assert [name for name in lines if name in AROUND_LINES] == ["idle tail", "failed attempts"]
    assert job.total_usd == sum(usd for usd in (job.usd, *sure) if usd is not None)
    assert not job.lower_bound


def test_a_cost_is_a_lower_bound_where_the_price_of_the_controller_is_not_known(
    toy: Profile,
) -> None:
    job = spot_job(toy, "aws", "us-west-2", "g4dn.4xlarge")
    lines = {line.name: line for line in job.data_lines}
    assert lines["SkyPilot's controller"].usd is None
    assert job.lower_bound
    assert job.total_usd == total_usd(job.cost_lines, job.data_lines)


def test_machines_of_a_rack_have_spares_and_one_on_demand_has_no_controller(toy: Profile) -> None:
    for nodes, there in ((15, False), (16, True)):
        question = Question(
            work=Work(steps=1000, global_batch=nodes * 4 * 8),
            machine=Machine(providers=("oci",), instances=("BM.GPU.GB200.4",), nodes=(nodes,)),
            choices=Choices(recomputes=("none",), precisions=("bf16-amp",)),
        )
        job = search(question, toy, CATALOGUE).plans[0].whole_job
        assert job is not None
        names = [line.name for line in job.data_lines]
        assert ("spares of NVL72" in names) is there
        assert "SkyPilot's controller" not in names


@pytest.mark.parametrize("purchase", ["on-demand", "spot", "any"])
@pytest.mark.parametrize("steps", [300_000, 20_000_000])
def test_the_order_of_plans_is_that_of_all_that_is_surely_paid(
    toy: Profile, purchase: PurchaseWish, steps: int
) -> None:
    """A small spot machine whose controller costs more than itself does not come first."""
    question = Question(
        work=Work(steps=steps, global_batch=64),
        machine=Machine(providers=("aws", "gcp", "azure"), max_nodes=1),
        choices=Choices(recomputes=("none",), precisions=("fp32",)),
        money=Money(purchase=purchase),
        top=20,
    )
    plans = [one for one in search(question, toy, CATALOGUE).plans if not one.stands_apart]
    jobs = [one.whole_job for one in plans]
    safe = [one.p_oom is None or one.p_oom <= question.money.max_oom for one in plans]
    costs = [cost_of(one) or 0.0 for one, is_safe in zip(plans, safe, strict=True) if is_safe]
    assert len(costs) > 8 and costs == sorted(costs)
    known = 0
    for plan, job in zip(plans, jobs, strict=True):
        assert job is not None and job.total_usd is not None and job.usd is not None
        total = float(job.total_usd)
        assert plan.usd_ends[1] == pytest.approx(total)
        assert total <= (cost_of(plan) or 0.0) + 1e-6
        if all(one.usd is not None for one in job.data_lines if one.is_certain):
            known += 1
            assert cost_of(plan) == pytest.approx(total, abs=0.01)
        alone = job.spot_total_usd
        assert alone is None or job.spot_usd is None or alone > job.spot_usd
    assert known > 2


def test_a_device_that_no_build_of_torch_drives_is_not_runnable(toy: Profile) -> None:
    plan = plan_on(toy, "g5g.xlarge")
    assert not plan.runnable
    assert "No published build of torch 2.12 or newer for aarch64" in (plan.why_not_runnable or "")


@pytest.mark.parametrize(
    ("instance_type", "said"),
    [("p3.16xlarge", "CUDA 12.6 build"), ("p6-b200.48xlarge", "by capacity block")],
)
def test_what_has_to_be_done_first_is_a_note(toy: Profile, instance_type: str, said: str) -> None:
    plan = plan_on(toy, instance_type)
    assert plan.runnable
    assert len([note for note in plan.notes if said in note]) == 1


def test_plans_are_ordered_with_what_their_data_set_costs(toy: Profile) -> None:
    """A data set that costs more to move than any machine keeps the job where it is."""

    def asked(work: Work) -> list[Plan]:
        question = Question(
            work=work,
            machine=Machine(providers=("aws", "gcp"), max_nodes=1),
            choices=Choices(recomputes=("none",), precisions=("fp32",)),
            by="provider",
        )
        return list(search(question, toy, CATALOGUE).plans)

    plain = asked(Work(steps=20_000_000, global_batch=64))
    assert all(plan.whole_job and plan.whole_job.dataset_usd == 0 for plan in plain)
    there = {"aws": "us-east-1", "gcp": "us-central1"}
    (last,) = set(there) - {plain[0].offer.provider}
    place = f"{last}/{there[last]}"
    work = Work(steps=20_000_000, global_batch=64, dataset_bytes=1e15, dataset_at=place)
    with_data = asked(work)
    assert with_data[0].offer.provider == last
    assert with_data[0].offer.region == there[last]
    for plan in with_data:
        job = plan.whole_job
        assert job is not None and job.usd is not None and job.total_usd is not None
        assert job.total_usd >= job.usd + job.dataset_usd
        likely = plan.usd_ends[1]
        assert likely == pytest.approx(float(job.total_usd))
    counted = [cost_of(plan) or 0.0 for plan in with_data if not plan.needs_port]
    assert counted == sorted(counted)


def test_a_budget_holds_the_data_set_too(toy: Profile) -> None:
    def found(**data: object) -> list[Plan]:
        question = Question(
            work=Work(steps=20_000, global_batch=64, **data),  # pyright: ignore[reportArgumentType]
            machine=Machine(providers=("gcp",), max_nodes=1),
            choices=Choices(recomputes=("none",), precisions=("fp32",)),
            money=Money(budget_usd=Decimal(100)),
        )
        return list(search(question, toy, CATALOGUE).plans)

    assert found()
    assert not found(dataset_bytes=1e14, dataset_at="aws/us-east-1")
