"""Experiments of a project that name a kept plan."""

import pytest
from answers import make_ranked_estimate

from gpuplan import api
from gpuplan.api.projects.plan_rows import kept_of
from gpuplan.catalog.errors import UsageError
from gpuplan.catalog.snapshot import load_catalogue
from gpuplan.launcher.store.estimates import Store
from gpuplan.planner.budget.project.experiment import Experiment
from gpuplan.planner.plan.plan import Plan


@pytest.fixture
def plan() -> Plan:
    Store().keep(make_ranked_estimate(), inputs_hash="a")
    return next(one for one in api.kept_estimates()[0].plans if one.offer.provider == "aws")


def check(plan: Plan, **fields: object) -> Plan:
    return kept_of(Experiment.model_validate({"plan": plan.id, **fields}), load_catalogue()).plan


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("provider", "gcp, azure", "is of aws, and provider is gcp, azure"),
        ("region", "eu-west-1", "and region is eu-west-1"),
        ("jurisdiction", "eu", ", in us, and jurisdiction is eu"),
        ("accelerator", "L4", "and accelerator is L4"),
        ("accelerator", "A100:3", "and accelerator is A100:3"),
        ("instance", "g6.xlarge", "and instance is g6.xlarge"),
        ("nodes", "77", "and nodes is 77"),
        ("purchase", "spot", "is bought on-demand, and purchase is spot"),
        ("deadline", "1s", "and deadline is"),
        ("budget", "0.01", "costs .* and budget is"),
    ],
)
def test_a_plan_that_is_not_what_else_the_file_says_is_refused(plan, field, value, said) -> None:
    """With `jurisdiction: eu` a plan in the United States was budgeted without a word."""
    with pytest.raises(UsageError, match=said) as told:
        check(plan, **{field: value})
    assert told.value.message.startswith(f"plan {plan.id} ")


def test_a_plan_that_keeps_to_the_file_is_taken(plan: Plan) -> None:
    offer = plan.offer
    assert plan.job is not None
    same = {
        "provider": f"gcp, {offer.provider}",
        "region": offer.region,
        "jurisdiction": "us",
        "accelerator": f"{offer.accelerator}:{offer.accelerators_per_node}",
        "instance": offer.instance_type,
        "nodes": str(plan.nodes),
        "max_nodes": "4096",
        "purchase": "on-demand",
        "deadline": "1000d",
        "budget": "100k",
    }
    assert check(plan, **same).id == plan.id == check(plan).id


def test_defaults_that_choose_a_plan_are_not_of_one_that_is_chosen(tmp_path) -> None:
    file = tmp_path / "gpuplan.yaml"
    file.write_text(
        "name: x\nstart: 2027-01\nmonths: 1\n"
        "defaults: {nodes: 8, accelerator: H100, budget: 1, jurisdiction: eu, owner: Ada}\n"
        "experiments: {one: {plan: abc}}\n"
    )
    spec = api.read_project(file).experiments["one"]
    assert (spec.nodes, spec.accelerator, spec.budget) == ((), (), None)
    assert (spec.jurisdiction, spec.owner) == (("eu",), "Ada")
