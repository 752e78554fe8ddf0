"""What to type next is what starts the plan where it would run."""

import pytest
from answers import make_estimate, make_job, make_offer, make_plan, make_run

from gpuplan.cli.render.plans.next_step import next_step
from gpuplan.planner.plan.plan import Plan


def plan(price_basis: str, *, nodes: int = 1) -> Plan:
    run = make_run()
    offer = make_offer(price_basis=price_basis)
    made = make_plan(run=run, offer=offer, nodes=nodes, runnable=True)
    return made.model_copy(update={"whole_job": make_job(run)})


@pytest.mark.parametrize(
    ("one", "said"),
    [
        (plan("list"), "gpuplan launch {id}"),
        # The price of a contract with a cloud, in the user's file.
        (plan("user"), "gpuplan launch {id}"),
        (plan("owned"), "on it: gpuplan run model.py --plan {id}"),
        (plan("owned", nodes=2), "gpuplan export {id} --to torchrun"),
    ],
)
def test_a_machine_of_ones_own_is_not_rented(one: Plan, said: str) -> None:
    lines = next_step(make_estimate(one), "model.py", 200, is_kept=True)
    text = " ".join(line.plain for line in lines)
    assert text.startswith(f"Next: {said.format(id=one.id)}   ·   gpuplan show {one.id}")
