"""Plans of an experiment that a report shows beside the planned one."""

from answers import make_estimate, make_offer, make_plan, make_run

from gpuplan.api.projects.runs import _front_points


def test_a_plan_that_needs_a_port_is_shown_only_where_all_do() -> None:
    usual = make_plan(run=make_run(), offer=make_offer(region="us-east-1"))
    cheap = make_offer(region="us-west-1", usd_per_hour=2.0)
    ported = make_plan(run=make_run(), offer=cheap, needs_port=True)

    def rented(*plans) -> list[str]:
        return [point.rent for point in _front_points(make_estimate(*plans))]

    assert rented(usual, ported) == [usual.place]
    assert rented(ported) == [ported.place]
