"""What a plan says of the software that its device needs and of how its machine is had."""

import pytest

from gpuplan.catalog.snapshot import load_catalogue
from gpuplan.planner.plan.plan import Plan
from gpuplan.planner.plan.question import Choices, Machine, Question, Work
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
