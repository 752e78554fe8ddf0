"""What a plan's numbers rest on, as `show` says it."""

from answers import make_plan, make_run

from gpuplan.cli.render.explain import data_items, origins
from gpuplan.planner.plan.plan import DataLine, Stops


def test_what_stops_a_run_is_said_with_its_source() -> None:
    stops = Stops(
        per_hour=0.01,
        per_hour_low=0.003,
        per_hour_high=0.03,
        checkpoint_bytes=1e10,
        stall_s=8.0,
        restart_s=1000.0,
        wait_s=0.0,
        sources=("a paper",),
    )
    data = DataLine(
        name="disks", quantity=1.0, unit="GB-month", unit_usd=None, usd=None, source="a list"
    )
    job = make_plan(run=make_run()).whole_job
    assert job is not None
    plan = make_plan(run=make_run()).model_copy(
        update={"stops": stops, "whole_job": job.model_copy(update={"data_lines": (data,)})}
    )
    found = origins(plan, None, {})
    assert found["stops"] == "0.01 an hour, 80 % 0.003 to 0.03: a paper"
    assert found["data"] == "disks: a list"
    assert data_items(plan) == ["not in these sums: disks ?"]
