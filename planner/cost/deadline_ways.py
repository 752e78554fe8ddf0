"""A job with a deadline on spot, on demand and on both in turn: time, cost and chance of each."""

from __future__ import annotations

import math
from dataclasses import replace
from decimal import Decimal

from ...catalog.types import Provider
from ...catalog.units import SECONDS_PER_HOUR
from ..goodput.deadline.purchase_mix import Purchase, Way, Ways, ways
from ..goodput.expected_run import mean_stops, mean_training_s
from ..goodput.stops import as_conditions
from ..plan.parts import Estimated, Stops
from ..plan.payment import DeadlineWay, HourlyWay
from .billing import Lengths
from .bought import slower_than_steps
from .run_cost import CENT
from .start_up import ends_with_start_s, start_up_s, startups
from .whole_job import expected_usd


def deadline_ways(
    training_s: Estimated,
    *,
    deadline_s: float,
    nodes: int,
    spot: Stops,
    on_demand: Stops,
    spot_usd_per_hour: Decimal | None,
    on_demand_usd_per_hour: Decimal | None,
    billing: Provider | None,
) -> tuple[DeadlineWay, ...]:
    """Return the three ways; none where the deadline comes before machines have started.

    Args:
        training_s: steps times step time.
        deadline_s: from the request of machines.
        nodes: how many are rented.
        spot: what stops the run on spot machines.
        on_demand: the same on demand.
        spot_usd_per_hour: one node with its tax; None where it is not known.
        on_demand_usd_per_hour: the same on demand.
        billing: the provider, with its increment and minimum.
    """
    left_s = deadline_s - start_up_s()
    if left_s <= 0:
        return ()
    prices = (spot_usd_per_hour, on_demand_usd_per_hour)
    steps_s = mean_training_s(training_s)
    stops = tuple(mean_stops(steps_s, as_conditions(one)) for one in (spot, on_demand))
    found = ways(
        Purchase(
            training_s=training_s,
            spot=spot,
            on_demand=on_demand,
            spot_usd_per_hour=_of_all(spot_usd_per_hour, nodes),
            on_demand_usd_per_hour=_of_all(on_demand_usd_per_hour, nodes),
            deadline_s=left_s,
            slowest_restart_s=sum(one.high_s for one in startups()),
            slower=slower_than_steps(on_demand, training_s.value),
        )
    )

    def stated(name: HourlyWay, way: Way) -> DeadlineWay:
        usd = _usd(way, prices, stops, nodes=nodes, billing=billing)
        low_s, high_s = ends_with_start_s(way.elapsed_s, *way.elapsed_ends_s)
        first_usd_per_hour = prices[0 if way.spot_s > 0 else 1]
        usd_low, usd_high = _usd_ends(usd, way, _of_all(first_usd_per_hour, nodes))
        return DeadlineWay(
            way=name,
            hours=(start_up_s() + way.elapsed_s) / SECONDS_PER_HOUR,
            hours_low=low_s / SECONDS_PER_HOUR,
            hours_high=high_s / SECONDS_PER_HOUR,
            spot_share=way.spot_s / (way.spot_s + way.on_demand_s),
            usd=usd,
            usd_low=usd_low,
            usd_high=usd_high,
            deadline_probability=way.deadline_chance,
        )

    return (
        stated("spot", found.spot),
        stated("on-demand", found.on_demand),
        stated("spot-then-on-demand", _mix(found)),
    )


def _of_all(usd_per_hour: Decimal | None, nodes: int) -> float | None:
    return None if usd_per_hour is None else float(usd_per_hour) * nodes


def _usd_ends(
    usd: Decimal | None, way: Way, usd_per_hour: float | None
) -> tuple[Decimal | None, Decimal | None]:
    """Return the ends of 80 % of a way's dollars, with those of its start.

    Every run pays about the same for what its seller rounds up.

    Args:
        usd: what the way is expected to cost, start included.
        way: its run, without the start.
        usd_per_hour: all machines that start first.
    """
    if usd is None or way.usd is None or way.usd_ends is None or not usd_per_hour:
        return None, None
    usd_per_s = usd_per_hour / SECONDS_PER_HOUR
    ran_s, *ran_ends_s = (one / usd_per_s for one in (way.usd, *way.usd_ends))
    ends_s = ends_with_start_s(ran_s, *ran_ends_s)
    low, high = (
        usd + Decimal((end_s - start_up_s() - ran_s) * usd_per_s).quantize(CENT) for end_s in ends_s
    )
    return max(low, Decimal(0)), high


def _mix(found: Ways) -> Way:
    """Return the mix with times that stand beside the others', which are in closed form.

    One that has no time to begin on spot machines is the run on demand.
    """
    mix = found.mix
    if mix.spot_s == 0:
        return found.on_demand
    over, ends = found.over_closed, mix.usd_ends
    return replace(
        mix,
        elapsed_s=mix.elapsed_s / over,
        spot_s=mix.spot_s / over,
        on_demand_s=mix.on_demand_s / over,
        elapsed_ends_s=(mix.elapsed_ends_s[0] / over, mix.elapsed_ends_s[1] / over),
        usd=None if mix.usd is None else mix.usd / over,
        usd_ends=None if ends is None else (ends[0] / over, ends[1] / over),
    )


def _usd(
    way: Way,
    prices: tuple[Decimal | None, Decimal | None],
    stops: tuple[float, ...],
    *,
    nodes: int,
    billing: Provider | None,
) -> Decimal | None:
    """Return what a way costs, its start on the machines that it begins on; None: not known.

    Args:
        way: with the time on either kind of machines.
        prices: of one node, on spot and on demand.
        stops: mean number in a run that has all its time on either kind.
        nodes: how many are rented.
        billing: the provider. Runs of a way differ by more than the increments of bills.
    """
    trained_s = way.spot_s + way.on_demand_s
    shares = (way.spot_s / trained_s, way.on_demand_s / trained_s)
    billed_s = [way.spot_s, way.on_demand_s]
    billed_s[0 if way.spot_s > 0 else 1] += start_up_s()
    usd = 0.0
    for seconds, price, share, count in zip(billed_s, prices, shares, stops, strict=True):
        if seconds <= 0:
            continue
        if price is None:
            return None
        usd += expected_usd(
            seconds,
            nodes=nodes,
            usd_per_hour=float(price),
            billing=billing,
            lengths=Lengths(
                spread_s=math.inf, stops=share * count, chance_within=lambda _seconds: 0.0
            ),
        )
    return Decimal(usd).quantize(CENT)
