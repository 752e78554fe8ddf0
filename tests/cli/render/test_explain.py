"""What a plan's numbers rest on, as `show` says it."""

from answers import make_plan, make_run, make_stops

from gpuplan.cli.render.explain import origins
from gpuplan.planner.plan.plan import DataLine


def test_what_stops_a_run_is_said_with_its_source() -> None:
    stops = make_stops(per_hour=0.01, per_hour_low=0.003, per_hour_high=0.03, sources=("a paper",))
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
